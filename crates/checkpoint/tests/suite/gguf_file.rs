//! Writes GGUF files, from the format's documentation.

use std::fs;
use std::path::PathBuf;

use assay_checkpoint::{Checkpoint, Place, Slot};
use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::{expected, fixture};

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

/// A tensor; dimensions slowest first, as in a model.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// A GGUF file before it is written.
#[derive(Clone)]
pub(crate) struct GgufFile {
    pub(crate) version: u32,
    pub(crate) metadata: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl GgufFile {
    pub(crate) fn set(&mut self, key: &str, value: Option<Meta>) {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata
            .extend(value.map(|value| (key.to_owned(), value)));
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors
            .iter_mut()
            .find(|tensor| tensor.name == name)
            .unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut out, key);
            meta(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            text(&mut out, &tensor.name);
            out.extend(u32::try_from(tensor.shape.len()).unwrap().to_le_bytes());
            for size in tensor.shape.iter().rev() {
                out.extend((*size as u64).to_le_bytes());
            }
            out.extend(tensor.kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(32);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&tensor.data);
        }
        out
    }

    /// Bytes behind the header, but for those up to the first multiple of 32.
    pub(crate) fn data_bytes(&self) -> usize {
        let (last, others) = self.tensors.split_last().unwrap();
        let padded = others.iter().map(|one| one.data.len().next_multiple_of(32));
        padded.sum::<usize>() + last.data.len()
    }

    /// The file on disk, removed with the directory.
    pub(crate) fn write(&self) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("model.gguf");
        fs::write(&path, self.bytes()).unwrap();
        (dir, path)
    }

    /// A fixture as llama.cpp's conversion would write it, in float32.
    pub(crate) fn of_fixture(case: &str) -> Self {
        let checkpoint = Checkpoint::open(&fixture(case)).unwrap();
        let architecture = checkpoint.architecture();
        let size = |value: usize| Meta::U32(u32::try_from(value).unwrap());
        #[allow(clippy::cast_possible_truncation)] // the format stores float32
        let number = |value: f64| Meta::F32(value as f32);
        let keys = [
            ("general.architecture", Meta::Text("llama".into())),
            ("llama.block_count", size(architecture.blocks.len())),
            ("llama.context_length", size(architecture.max_positions)),
            ("llama.embedding_length", size(architecture.hidden_size)),
            (
                "llama.feed_forward_length",
                size(architecture.intermediate_size),
            ),
            ("llama.attention.head_count", size(architecture.heads)),
            ("llama.attention.head_count_kv", size(architecture.kv_heads)),
            (
                "llama.attention.layer_norm_rms_epsilon",
                number(architecture.norm_eps),
            ),
            (
                "llama.rope.freq_base",
                number(architecture.ropes()[0].theta),
            ),
            ("llama.rope.dimension_count", size(architecture.head_dim)),
        ];
        let mut metadata: Vec<_> = keys
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        metadata.extend(tokenizer(case));
        let tensors = architecture
            .slots()
            .into_iter()
            .map(|(slot, shape)| {
                let data = checkpoint.weight(slot).unwrap().bytes().into_owned();
                let data = match slot.place {
                    Place::Query => interleave(&data, architecture.heads, architecture.head_dim),
                    Place::Key => interleave(&data, architecture.kv_heads, architecture.head_dim),
                    _ => data,
                };
                Tensor {
                    name: name(slot),
                    shape,
                    kind: 0,
                    data,
                }
            })
            .collect();
        Self {
            version: 3,
            metadata,
            tensors,
        }
    }
}

/// `reshape(heads, 2, head_dim / 2, ..).swapaxes(1, 2)` over rows, the conversion's `permute`.
pub(crate) fn interleave(data: &[u8], heads: usize, head_dim: usize) -> Vec<u8> {
    let row = data.len() / (heads * head_dim);
    let mut out = vec![0; data.len()];
    for (index, bytes) in data.chunks_exact(row).enumerate() {
        let (head, within) = (index / head_dim, index % head_dim);
        let (second_half, pair) = (within / (head_dim / 2), within % (head_dim / 2));
        let to = head * head_dim + 2 * pair + second_half;
        out[to * row..(to + 1) * row].copy_from_slice(bytes);
    }
    out
}

fn name(slot: Slot) -> String {
    let part = match slot.place {
        Place::Embedding => return "token_embd.weight".into(),
        Place::FinalNorm => return "output_norm.weight".into(),
        Place::Head => return "output.weight".into(),
        Place::AttentionNorm => "attn_norm",
        Place::Query => "attn_q",
        Place::Key => "attn_k",
        Place::Value => "attn_v",
        Place::Output => "attn_output",
        Place::MlpNorm => "ffn_norm",
        Place::Gate => "ffn_gate",
        Place::Up => "ffn_up",
        Place::Down => "ffn_down",
        other => unreachable!("llama has no {other:?}"),
    };
    format!("blk.{}.{part}.weight", slot.layer)
}

/// The fixture's tokenizer.json (byte-level, GPT-2's expression, a BOS in front) as metadata.
fn tokenizer(case: &str) -> Vec<(String, Meta)> {
    let bytes = fs::read(fixture(case).join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_slice(&bytes).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(i64, &str)> = vocabulary
        .iter()
        .map(|(token, id)| (id.as_i64().unwrap(), token.as_str()))
        .collect();
    let mut types = vec![1; tokens.len()];
    for added in tokenizer["added_tokens"].as_array().unwrap() {
        let (id, content) = (
            added["id"].as_i64().unwrap(),
            added["content"].as_str().unwrap(),
        );
        let at = usize::try_from(id).unwrap();
        if at >= types.len() {
            types.resize(at + 1, 3);
            tokens.push((id, content));
        }
        types[at] = 3;
    }
    tokens.sort_unstable();
    let facts = &expected(case)["tokenizer"];
    let id = |name: &str| Meta::U32(u32::try_from(facts[name].as_u64().unwrap()).unwrap());
    let merges = tokenizer["model"]["merges"].as_array().unwrap();
    let merges = merges
        .iter()
        .map(|pair| {
            format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            )
        })
        .collect();
    [
        ("model", Meta::Text("gpt2".into())),
        ("pre", Meta::Text("gpt-2".into())),
        (
            "tokens",
            Meta::Texts(
                tokens
                    .iter()
                    .map(|(_, token)| (*token).to_owned())
                    .collect(),
            ),
        ),
        ("token_type", Meta::I32s(types)),
        ("merges", Meta::Texts(merges)),
        ("bos_token_id", id("bos_id")),
        ("eos_token_id", id("eos_id")),
        ("add_bos_token", Meta::Flag(true)),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .into()
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn meta(out: &mut Vec<u8>, value: &Meta) {
    let kind: u32 = match value {
        Meta::U32(_) => 4,
        Meta::F32(_) => 6,
        Meta::Flag(_) => 7,
        Meta::Text(_) => 8,
        Meta::Texts(_) | Meta::I32s(_) | Meta::F32s(_) => 9,
    };
    out.extend(kind.to_le_bytes());
    match value {
        Meta::U32(number) => out.extend(number.to_le_bytes()),
        Meta::F32(number) => out.extend(number.to_le_bytes()),
        Meta::Flag(flag) => out.push(u8::from(*flag)),
        Meta::Text(value) => text(out, value),
        Meta::Texts(values) => {
            out.extend(8_u32.to_le_bytes());
            out.extend((values.len() as u64).to_le_bytes());
            for value in values {
                text(out, value);
            }
        }
        Meta::F32s(values) => {
            out.extend(6_u32.to_le_bytes());
            out.extend((values.len() as u64).to_le_bytes());
            for value in values {
                out.extend(value.to_le_bytes());
            }
        }
        Meta::I32s(values) => {
            out.extend(5_u32.to_le_bytes());
            out.extend((values.len() as u64).to_le_bytes());
            for value in values {
                out.extend(value.to_le_bytes());
            }
        }
    }
}
