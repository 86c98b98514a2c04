//! The parts of SentencePiece's `ModelProto` that say how a text is cut.
//!
//! Nothing is allocated by a length the file claims: every field read takes bytes of the file.

/// A model file.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // the file has them so
pub(crate) struct Model {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) kind: u64,
    pub(crate) byte_fallback: bool,
    pub(crate) whitespace_as_suffix: bool,
    pub(crate) unk: i64,
    pub(crate) bos: i64,
    pub(crate) eos: i64,
    /// Compiled rules by which characters are replaced.
    pub(crate) characters: Vec<u8>,
    pub(crate) dummy_prefix: bool,
    pub(crate) remove_extra_whitespaces: bool,
    pub(crate) escape_whitespaces: bool,
}

/// A piece of the vocabulary; its index is its id.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) kind: u64,
}

/// Kinds of a model.
pub(crate) const UNIGRAM: u64 = 1;
pub(crate) const BPE: u64 = 2;
/// Kinds of a piece.
pub(crate) const NORMAL: u64 = 1;
pub(crate) const UNKNOWN: u64 = 2;
pub(crate) const CONTROL: u64 = 3;
pub(crate) const USER_DEFINED: u64 = 4;
pub(crate) const UNUSED: u64 = 5;
pub(crate) const BYTE: u64 = 6;

/// A field's value by its wire type.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Float(f32),
    Other,
}

/// Reads a model; nothing if the bytes are none. Fields that are left out have their defaults.
pub(crate) fn read(bytes: &[u8]) -> Option<Model> {
    let mut model = Model {
        pieces: Vec::new(),
        kind: UNIGRAM,
        byte_fallback: false,
        whitespace_as_suffix: false,
        unk: 0,
        bos: 1,
        eos: 2,
        characters: Vec::new(),
        dummy_prefix: true,
        remove_extra_whitespaces: true,
        escape_whitespaces: true,
    };
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => model.pieces.push(piece(bytes)?),
            (2, Field::Bytes(bytes)) => trainer(&mut model, bytes)?,
            (3, Field::Bytes(bytes)) => normalizer(&mut model, bytes)?,
            _ => {}
        }
        Some(())
    })?;
    (!model.pieces.is_empty()).then_some(model)
}

fn piece(bytes: &[u8]) -> Option<Piece> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: NORMAL,
    };
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => {
                std::str::from_utf8(bytes).ok()?.clone_into(&mut piece.text);
            }
            (2, Field::Float(score)) => piece.score = score,
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
        Some(())
    })?;
    Some(piece)
}

fn trainer(model: &mut Model, bytes: &[u8]) -> Option<()> {
    each(bytes, |number, field| {
        if let Field::Number(value) = field {
            match number {
                3 => model.kind = value,
                24 => model.whitespace_as_suffix = value != 0,
                35 => model.byte_fallback = value != 0,
                40 => model.unk = value.cast_signed(),
                41 => model.bos = value.cast_signed(),
                42 => model.eos = value.cast_signed(),
                _ => {}
            }
        }
        Some(())
    })
}

fn normalizer(model: &mut Model, bytes: &[u8]) -> Option<()> {
    each(bytes, |number, field| {
        match (number, field) {
            (2, Field::Bytes(bytes)) => model.characters = bytes.to_vec(),
            (3, Field::Number(value)) => model.dummy_prefix = value != 0,
            (4, Field::Number(value)) => model.remove_extra_whitespaces = value != 0,
            (5, Field::Number(value)) => model.escape_whitespaces = value != 0,
            _ => {}
        }
        Some(())
    })
}

/// Calls `take` with the number and the value of every field of a message.
fn each<'a>(mut bytes: &'a [u8], mut take: impl FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => {
                bytes = bytes.get(8..)?;
                Field::Other
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Field::Bytes(value)
            }
            5 => {
                let (value, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Field::Float(f32::from_le_bytes(*value))
            }
            _ => return None,
        };
        take(key >> 3, field)?;
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
