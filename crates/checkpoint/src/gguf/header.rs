//! The header of a GGUF file, versions 2 and 3: metadata and descriptions of tensors.
//!
//! Nothing is allocated by a length the file claims: every element read takes bytes of the file. So
//! reading takes at most 16 bytes of memory for each byte of the file, and half of that with the
//! smallest values and tensors there can be; tests/memory.rs measures it. An array that is asked
//! for takes at most as much again: 16 bytes for a text, which has 8 in the file at least, and for
//! an integer, which has 1.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::tensor::{FORMATS, Format};

/// Everything before the tensors' bytes.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Where the tensors' bytes begin.
    pub(crate) data: usize,
}

/// A metadata value. Text and arrays stay in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i128),
    Float(f64),
    Flag(bool),
    Text(Range<usize>),
    Array {
        kind: u32,
        count: usize,
        bytes: Range<usize>,
    },
}

/// A tensor as the header describes it.
#[derive(Debug)]
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    /// Slowest dimension first; the file has the fastest first.
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Result<Format, String>,
    /// From the start of the tensors' bytes.
    pub(crate) offset: u64,
}

pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
const TEXT: u32 = 8;
const ARRAY: u32 = 9;
const MAX_DIMENSIONS: u32 = 4;
const DEFAULT_ALIGNMENT: i128 = 32;

/// Reads the header; the error is a sentence about where the file is wrong.
pub(crate) fn read(bytes: &[u8]) -> Result<Header, String> {
    let mut cursor = Cursor { bytes, position: 0 };
    if cursor.take(4, "the magic")? != MAGIC {
        return Err("it does not start with GGUF".into());
    }
    match cursor.u32("the version")? {
        2 | 3 => {}
        version if matches!(version.swap_bytes(), 1..=3) => {
            return Err("it is a big-endian GGUF file; convert it to little endian".into());
        }
        version => {
            return Err(format!(
                "its version is {version}, but 2 and 3 are supported"
            ));
        }
    }
    let tensor_count = cursor.u64("the number of tensors")?;
    let value_count = cursor.u64("the number of metadata values")?;
    let mut metadata = BTreeMap::new();
    for _ in 0..value_count {
        let key = cursor.text("a metadata key")?.to_owned();
        let kind = cursor.u32(&key)?;
        let value = cursor.value(kind, &key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(format!("metadata key `{key}` is there twice"));
        }
    }
    let mut tensors = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..tensor_count {
        let tensor = cursor.tensor()?;
        if !names.insert(tensor.name.clone()) {
            return Err(format!("tensor `{}` is there twice", tensor.name));
        }
        tensors.push(tensor);
    }
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(Value::Integer(alignment @ 1..=0x10_0000)) => *alignment,
        Some(_) => return Err("`general.alignment` is not a size in bytes".into()),
    };
    let alignment = usize::try_from(alignment).expect("checked to be from 1 to 2^20");
    Ok(Header {
        metadata,
        tensors,
        data: cursor.position.next_multiple_of(alignment),
    })
}

/// The texts of an array that [`read`] found in `bytes`.
pub(crate) fn texts<'a>(bytes: &'a [u8], value: &Value) -> Option<Vec<&'a str>> {
    array(bytes, value, |cursor, kind| {
        (kind == TEXT).then(|| cursor.text("an array").ok())?
    })
}

/// The integers of an array that [`read`] found in `bytes`.
pub(crate) fn integers(bytes: &[u8], value: &Value) -> Option<Vec<i128>> {
    array(bytes, value, |cursor, kind| {
        match cursor.value(kind, "an array") {
            Ok(Value::Integer(number)) => Some(number),
            _ => None,
        }
    })
}

/// The numbers of an array that [`read`] found in `bytes`, to the nearest float32.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // the nearest is meant
pub(crate) fn numbers(bytes: &[u8], value: &Value) -> Option<Vec<f32>> {
    array(bytes, value, |cursor, kind| {
        match cursor.value(kind, "an array") {
            Ok(Value::Float(number)) => Some(number as f32),
            Ok(Value::Integer(number)) => Some(number as f32),
            _ => None,
        }
    })
}

/// The elements of an array; `read` takes one of a type from the cursor. Their number is no claim
/// any more: each was found to be there.
fn array<'a, T>(
    bytes: &'a [u8],
    value: &Value,
    read: impl Fn(&mut Cursor<'a>, u32) -> Option<T>,
) -> Option<Vec<T>> {
    let Value::Array {
        kind,
        count,
        bytes: range,
    } = value
    else {
        return None;
    };
    let position = range.start;
    let mut cursor = Cursor { bytes, position };
    let mut elements = Vec::with_capacity(*count);
    for _ in 0..*count {
        elements.push(read(&mut cursor, *kind)?);
    }
    Some(elements)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], String> {
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| self.position.checked_add(length));
        let taken = end
            .and_then(|end| self.bytes.get(self.position..end))
            .ok_or_else(|| {
                let Self { bytes, position } = self;
                format!(
                    "`{what}` at byte {position} takes {length} bytes, the file has {}",
                    bytes.len()
                )
            })?;
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let taken = self.take(N as u64, what)?;
        Ok(*taken.first_chunk().expect("as many bytes were taken"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, String> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, String> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn text(&mut self, what: &str) -> Result<&'a str, String> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|_| format!("`{what}` is not UTF-8"))
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value, String> {
        Ok(match kind {
            0 => Value::Integer(u8::from_le_bytes(self.array(key)?).into()),
            1 => Value::Integer(i8::from_le_bytes(self.array(key)?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.array(key)?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.array(key)?).into()),
            4 => Value::Integer(self.u32(key)?.into()),
            5 => Value::Integer(i32::from_le_bytes(self.array(key)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array(key)?).into()),
            7 => Value::Flag(self.array::<1>(key)? != [0]),
            TEXT => {
                let length = self.text(key)?.len();
                Value::Text(self.position - length..self.position)
            }
            ARRAY => self.elements(key)?,
            10 => Value::Integer(self.u64(key)?.into()),
            11 => Value::Integer(i64::from_le_bytes(self.array(key)?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            other => return Err(format!("metadata key `{key}` has the unknown type {other}")),
        })
    }

    fn elements(&mut self, key: &str) -> Result<Value, String> {
        let kind = self.u32(key)?;
        let claimed = self.u64(key)?;
        let start = self.position;
        if kind == ARRAY {
            return Err(format!("metadata key `{key}` is an array of arrays"));
        }
        for _ in 0..claimed {
            self.value(kind, key)?;
        }
        let count = usize::try_from(claimed).map_err(|_| format!("`{key}` is too long"))?;
        Ok(Value::Array {
            kind,
            count,
            bytes: start..self.position,
        })
    }

    fn tensor(&mut self) -> Result<TensorInfo, String> {
        let name = self.text("a tensor's name")?.to_owned();
        let dimensions = self.u32(&name)?;
        if dimensions > MAX_DIMENSIONS {
            return Err(format!("tensor `{name}` claims {dimensions} dimensions"));
        }
        let mut shape = (0..dimensions)
            .map(|_| {
                let size = self.u64(&name)?;
                usize::try_from(size).map_err(|_| format!("tensor `{name}` has a size of {size}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let format = format(self.u32(&name)?);
        let offset = self.u64(&name)?;
        Ok(TensorInfo {
            name,
            shape,
            format,
            offset,
        })
    }
}

/// The numbers and names that ggml gives to formats that are not supported.
const UNSUPPORTED: [(u32, &str); 20] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// The format of a `ggml_type`, or the name of one that is not supported.
fn format(kind: u32) -> Result<Format, String> {
    if let Some(spec) = FORMATS.iter().find(|spec| spec.ggml_type == kind) {
        return Ok(spec.format);
    }
    let name = UNSUPPORTED.iter().find(|(number, _)| *number == kind);
    Err(name.map_or_else(
        || format!("ggml type {kind}"),
        |(_, name)| (*name).to_owned(),
    ))
}
