//! Checkpoints that are not among the fixtures: one of a useful size, and damaged ones.

use std::fs;
use std::path::Path;

use assay_testkit::Roots;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Map, Value, json};

use crate::random::Random;

const WEIGHTS: &str = "model.safetensors";
/// Of the generated model: with six layers a micro-batch takes some tenths of a second on a core.
const HIDDEN: usize = 384;
const INTERMEDIATE: usize = 1024;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = HIDDEN / HEADS;
const VOCABULARY: usize = 320;

/// Adds a llama of so many layers, of 1.6 million random parameters each, the same each time, with
/// the tokenizer of `llama_gqa`.
pub(crate) fn add_random_llama(roots: &Roots, name: &str, layers: usize) {
    let path = roots.add_model("llama_gqa");
    let target = roots.models().join(name);
    fs::rename(path, &target).expect("the model root can be written");
    edit_json(&target.join("config.json"), |config| {
        for (field, value) in [
            ("hidden_size", HIDDEN),
            ("intermediate_size", INTERMEDIATE),
            ("num_hidden_layers", layers),
            ("num_attention_heads", HEADS),
            ("num_key_value_heads", KV_HEADS),
        ] {
            config.insert(field.to_owned(), json!(value));
        }
    });
    let mut random = Random(1);
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = shapes(layers)
        .into_iter()
        .map(|(name, shape)| {
            let count = shape.iter().product();
            let data = if shape.len() == 1 {
                vec![1.0_f32; count]
            } else {
                // Of variance 1 / columns, which keeps activations at their size.
                let bound = (3.0 / shape[1] as f64).sqrt();
                #[expect(clippy::cast_possible_truncation, reason = "weights are float32")]
                let weight = |random: &mut Random| ((2.0 * random.unit() - 1.0) * bound) as f32;
                (0..count).map(|_| weight(&mut random)).collect()
            };
            let bytes = data.into_iter().flat_map(f32::to_le_bytes).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name, view.expect("the shape is that of the bytes"))
    });
    serialize_to_file(views, None, &target.join(WEIGHTS)).expect("the model root can be written");
}

fn shapes(layers: usize) -> Vec<(String, Vec<usize>)> {
    let mut shapes = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            vec![VOCABULARY, HIDDEN],
        ),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ("lm_head.weight".to_owned(), vec![VOCABULARY, HIDDEN]),
    ];
    let kv = KV_HEADS * HEAD_DIM;
    for layer in 0..layers {
        for (name, shape) in [
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![kv, HIDDEN]),
            ("self_attn.v_proj", vec![kv, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("mlp.gate_proj", vec![INTERMEDIATE, HIDDEN]),
            ("mlp.up_proj", vec![INTERMEDIATE, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, INTERMEDIATE]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    shapes
}

/// A checkpoint in a model root, to be damaged.
#[derive(Clone, Copy)]
pub(crate) struct Damaged<'a>(pub(crate) &'a Path);

impl Damaged<'_> {
    pub(crate) fn remove(self, file: &str) {
        fs::remove_file(self.0.join(file)).expect("the fixture has the file");
    }

    pub(crate) fn rename(self, from: &str, to: &str) {
        fs::rename(self.0.join(from), self.0.join(to)).expect("the fixture has the file");
    }

    /// Cuts the last byte of the weights off.
    pub(crate) fn truncate(self) {
        self.edit(|bytes| bytes.truncate(bytes.len() - 1));
    }

    /// Sets fields of a JSON file; null removes one.
    pub(crate) fn set(self, file: &str, field: &str, value: Value) {
        edit_json(&self.0.join(file), |object| match value {
            Value::Null => drop(object.remove(field)),
            value => drop(object.insert(field.to_owned(), value)),
        });
    }

    /// Writes a file anew.
    pub(crate) fn write(self, file: &str, bytes: &[u8]) {
        fs::write(self.0.join(file), bytes).expect("the model root can be written");
    }

    /// Changes a JSON file.
    pub(crate) fn change(self, file: &str, change: impl FnOnce(&mut Map<String, Value>)) {
        edit_json(&self.0.join(file), change);
    }

    /// Changes the header of the weights; the tensors' bytes stay.
    pub(crate) fn edit_header(self, change: impl FnOnce(&mut Map<String, Value>)) {
        self.edit(|bytes| {
            let data = data_start(bytes);
            let mut header = parse_header(bytes);
            change(&mut header);
            let header = Value::Object(header).to_string();
            let mut changed = (header.len() as u64).to_le_bytes().to_vec();
            changed.extend_from_slice(header.as_bytes());
            changed.extend_from_slice(&bytes[data..]);
            *bytes = changed;
        });
    }

    /// Sets a row of a float32 matrix to NaN.
    pub(crate) fn poison(self, tensor: &str, row: usize) {
        self.edit(|bytes| {
            let width = 4 * number(&parse_header(bytes)[tensor]["shape"][1]);
            let start = offset(bytes, tensor) + row * width;
            for value in bytes[start..start + width].chunks_exact_mut(4) {
                value.copy_from_slice(&f32::NAN.to_le_bytes());
            }
        });
    }

    /// Changes the lowest bit of a float32 tensor's first number.
    pub(crate) fn nudge(self, tensor: &str) {
        self.edit(|bytes| {
            let start = offset(bytes, tensor);
            bytes[start] ^= 1;
        });
    }

    /// Multiplies all numbers of a float32 tensor.
    pub(crate) fn scale(self, tensor: &str, factor: f32) {
        self.edit(|bytes| {
            let start = offset(bytes, tensor);
            let end = data_start(bytes) + number(&parse_header(bytes)[tensor]["data_offsets"][1]);
            for value in bytes[start..end].chunks_exact_mut(4) {
                let number = f32::from_le_bytes(value.try_into().expect("four bytes"));
                value.copy_from_slice(&(number * factor).to_le_bytes());
            }
        });
    }

    /// Changes every number of weights that are all float32.
    pub(crate) fn each(self, mut change: impl FnMut(f32) -> f32) {
        self.edit(|bytes| {
            let header = parse_header(bytes);
            let mut dtypes = header.values().filter_map(|tensor| tensor.get("dtype"));
            assert!(dtypes.all(|dtype| dtype == "F32"), "{}", self.0.display());
            let data = data_start(bytes);
            for value in bytes[data..].chunks_exact_mut(4) {
                let number = f32::from_le_bytes(value.try_into().expect("four bytes"));
                value.copy_from_slice(&change(number).to_le_bytes());
            }
        });
    }

    /// Changes the bytes of the weights.
    pub(crate) fn edit(self, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.0.join(WEIGHTS);
        let mut bytes = fs::read(&path).expect("the fixture has weights");
        change(&mut bytes);
        fs::write(path, bytes).expect("the model root can be written");
    }
}

/// Where the numbers of a tensor start in the file.
fn offset(bytes: &[u8], tensor: &str) -> usize {
    data_start(bytes) + number(&parse_header(bytes)[tensor]["data_offsets"][0])
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("an integer")).expect("it fits in memory")
}

fn data_start(bytes: &[u8]) -> usize {
    let length = bytes[..8].try_into().map(u64::from_le_bytes);
    8 + usize::try_from(length.expect("eight bytes")).expect("a header fits in memory")
}

fn parse_header(bytes: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(&bytes[8..data_start(bytes)]).expect("the header is an object")
}

fn edit_json(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) {
    let text = fs::read_to_string(path).expect("the fixture has the file");
    let mut value: Value = serde_json::from_str(&text).expect("the file is JSON");
    change(value.as_object_mut().expect("the file is an object"));
    fs::write(path, value.to_string()).expect("the model root can be written");
}
