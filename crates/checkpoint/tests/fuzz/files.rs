//! Files as trees and back: JSON, the headers of safetensors and of GGUF.

use std::path::Path;

use serde_json::Value;

use super::tree::Tree;

/// A file taken apart.
pub(crate) struct Parts {
    /// What its header says; nothing for a file that is only bytes.
    pub(crate) tree: Option<Tree>,
    /// What is behind the header.
    pub(crate) data: Vec<u8>,
}

/// Takes a file apart; one that is damaged already is only bytes.
pub(crate) fn read(name: &str, bytes: &[u8]) -> Parts {
    let parts = if is_a(name, "gguf") {
        gguf(bytes)
    } else if is_a(name, "safetensors") {
        safetensors(bytes)
    } else {
        Tree::parse(bytes).map(|tree| (tree, bytes.len()))
    };
    match parts {
        Some((tree, header)) => Parts {
            tree: Some(tree),
            data: bytes[header..].to_vec(),
        },
        None => Parts {
            tree: None,
            data: bytes.to_vec(),
        },
    }
}

/// The bytes of a file and the length of its header.
pub(crate) fn write(name: &str, parts: &Parts) -> (Vec<u8>, usize) {
    let Some(tree) = &parts.tree else {
        return (parts.data.clone(), parts.data.len());
    };
    let mut bytes = if is_a(name, "gguf") {
        gguf_bytes(tree)
    } else {
        let text = tree.printed();
        let mut bytes = Vec::new();
        if is_a(name, "safetensors") {
            bytes.extend((text.len() as u64).to_le_bytes());
        }
        bytes.extend(text.bytes());
        bytes
    };
    let header = bytes.len();
    bytes.extend(&parts.data);
    (bytes, header)
}

fn is_a(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|end| end == extension)
}

fn safetensors(bytes: &[u8]) -> Option<(Tree, usize)> {
    let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()?;
    let tree = Tree::parse(bytes.get(8..8 + length)?)?;
    Some((tree, 8 + length))
}

const TEXT: u64 = 8;
const ARRAY: u64 = 9;
const ALIGNMENT: usize = 32;

/// `{version, metadata: {key: [type, value]}, tensors: {name: [sizes, type, offset]}}`, an array
/// being `[type, number, elements]`.
fn gguf(bytes: &[u8]) -> Option<(Tree, usize)> {
    let mut reader = Reader { bytes, at: 4 };
    let version = reader.number(4)?;
    let (tensors, values) = (reader.number(8)?, reader.number(8)?);
    let metadata = (0..values).map(|_| {
        let key = reader.text()?;
        let kind = reader.number(4)?;
        let value = reader.value(kind)?;
        Some((key, Tree::List(vec![Tree::number(kind), value])))
    });
    let metadata: Option<Vec<_>> = metadata.collect();
    let tensors = (0..tensors).map(|_| {
        let name = reader.text()?;
        let sizes = (0..reader.number(4)?).map(|_| reader.number(8).map(Tree::number));
        let sizes: Option<Vec<_>> = sizes.collect();
        let (kind, offset) = (reader.number(4)?, reader.number(8)?);
        let fields = vec![Tree::List(sizes?), Tree::number(kind), Tree::number(offset)];
        Some((name, Tree::List(fields)))
    });
    let tensors: Option<Vec<_>> = tensors.collect();
    let tree = Tree::Object(vec![
        ("version".into(), Tree::number(version)),
        ("metadata".into(), Tree::Object(metadata?)),
        ("tensors".into(), Tree::Object(tensors?)),
    ]);
    Some((tree, reader.at.next_multiple_of(ALIGNMENT)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        Some(u64::from_le_bytes(bytes))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number(8)?).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn value(&mut self, kind: u64) -> Option<Tree> {
        Some(match kind {
            TEXT => Tree::text(&self.text()?),
            ARRAY => {
                let (of, count) = (self.number(4)?, self.number(8)?);
                let elements: Option<Vec<_>> = (0..count).map(|_| self.value(of)).collect();
                let elements = Tree::List(elements?);
                Tree::List(vec![Tree::number(of), Tree::number(count), elements])
            }
            6 => Tree::number(f32::from_le_bytes(*self.take(4)?.first_chunk()?)),
            12 => Tree::number(f64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            other => {
                let raw = self.number(width(other)?)?;
                Tree::number(if other == 5 {
                    i64::from(u32::try_from(raw).ok()?.cast_signed())
                } else {
                    raw.cast_signed()
                })
            }
        })
    }
}

/// Bytes of a number or a flag of this type.
fn width(kind: u64) -> Option<usize> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

/// The header, up to where the tensors' bytes begin. What does not fit its place is written as well
/// as it can be.
fn gguf_bytes(tree: &Tree) -> Vec<u8> {
    let pairs = |name: &str| match tree {
        Tree::Object(pairs) => match pairs.iter().find(|(key, _)| key == name) {
            Some((_, Tree::Object(pairs))) => pairs.as_slice(),
            _ => &[],
        },
        _ => &[],
    };
    let (metadata, tensors) = (pairs("metadata"), pairs("tensors"));
    let mut out = b"GGUF".to_vec();
    number(&mut out, tree.children().first(), 4);
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        text(&mut out, key);
        let parts = value.children();
        number(&mut out, parts.first(), 4);
        meta(&mut out, integer(parts.first()), parts.get(1).copied());
    }
    for (name, value) in tensors {
        text(&mut out, name);
        let parts = value.children();
        let sizes = parts.first().map(|sizes| sizes.children());
        let sizes = sizes.unwrap_or_default();
        out.extend((sizes.len() as u64).to_le_bytes()[..4].iter());
        for size in &sizes {
            number(&mut out, Some(size), 8);
        }
        number(&mut out, parts.get(1), 4);
        number(&mut out, parts.get(2), 8);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.bytes());
}

fn integer(value: Option<&&Tree>) -> u64 {
    let Some(Tree::Raw(raw)) = value else {
        return 0;
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // any bits will do
    raw.parse::<i128>().map_or_else(
        |_| raw.parse::<f64>().unwrap_or(0.0) as u64,
        |number| number as u64,
    )
}

fn number(out: &mut Vec<u8>, value: Option<&&Tree>, width: usize) {
    out.extend(&integer(value).to_le_bytes()[..width]);
}

fn meta(out: &mut Vec<u8>, kind: u64, value: Option<&Tree>) {
    let raw = value.map(Tree::printed).unwrap_or_default();
    match kind {
        TEXT => {
            let unquoted = serde_json::from_str::<Value>(&raw).ok();
            let unquoted = unquoted.as_ref().and_then(Value::as_str);
            text(out, unquoted.unwrap_or(&raw));
        }
        ARRAY => {
            let parts = value.map(Tree::children).unwrap_or_default();
            number(out, parts.first(), 4);
            number(out, parts.get(1), 8);
            for element in parts.get(2).map(|list| list.children()).unwrap_or_default() {
                meta(out, integer(parts.first()), Some(element));
            }
        }
        #[allow(clippy::cast_possible_truncation)] // the format stores float32
        6 => out.extend((raw.parse::<f64>().unwrap_or(0.0) as f32).to_le_bytes()),
        12 => out.extend(raw.parse::<f64>().unwrap_or(0.0).to_le_bytes()),
        7 if raw == "true" => out.push(1),
        other => number(out, value.as_ref(), width(other).unwrap_or(0)),
    }
}
