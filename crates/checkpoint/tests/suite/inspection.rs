//! What is said of a checkpoint without reading its weights.

use std::fs;
use std::os::unix::fs::symlink;

use assay_api::{Dtype, ErrorCode};
use assay_checkpoint::{Checkpoint, DigestCache, Place, Slot, WeightDtype, inspect};
use half::f16;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gguf_file::GgufFile;
use crate::sandbox::{Sandbox, contents, fixture};

#[test]
fn a_directory() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.write("chat_template.jinja", "{{ messages[0].content }}");
    let checkpoint = Checkpoint::open(sandbox.path()).unwrap();
    let template = checkpoint.chat_template().unwrap().unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let found = inspect(&checkpoint, "llamas/gqa").unwrap();
    let found: Value = serde_json::to_value(found).unwrap();
    let parameters = checkpoint.parameters();
    let size = fs::metadata(sandbox.file("model.safetensors"))
        .unwrap()
        .len();
    let expected = json!({
        "path": "llamas/gqa", "family": "llama", "parameters": parameters,
        "stored": [{"dtype": "float32", "parameters": parameters}],
        "dtype": "float32", "max_positions": checkpoint.architecture().max_positions,
        "layers": 2, "hidden_size": 48, "heads": 4, "key_value_heads": 2, "vocab_size": 320,
        "tied_head": false,
        "files": [{"name": "model.safetensors", "bytes": size}],
        "memory": [
            {"dtype": "float32", "weight_bytes": 4 * parameters},
            {"dtype": "bfloat16", "weight_bytes": 2 * parameters},
        ],
        "tokenizer": {
            "digest": tokenizer.digest(), "kind": "BPE", "vocab_size": 320,
            "bos": {"id": 1, "text": "<s>"}, "eos": {"id": 2, "text": "</s>"},
            "adds_bos": true, "chat_template": template.digest(),
        },
        "warnings": [],
    });
    assert_eq!(found, expected);
    sandbox.write("chat_template.jinja", "{{");
    let error = inspect(&checkpoint, "x").unwrap_err();
    assert_eq!(error.code(), ErrorCode::ChatTemplateUnusable);
}

#[test]
fn a_file_with_several_formats() {
    let mut file = GgufFile::of_fixture("llama_gqa");
    let down = file.tensor("blk.1.ffn_down.weight");
    let elements = down.shape.iter().product::<usize>() as u64;
    down.kind = 8;
    down.data = vec![0; down.shape.iter().product::<usize>() / 32 * 34];
    let (_dir, path) = file.write();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let found = inspect(&checkpoint, "model.gguf").unwrap();
    let stored = [("float32", found.parameters - elements), ("Q8_0", elements)];
    let named: Vec<_> = found
        .stored
        .iter()
        .map(|one| (one.dtype.as_str(), one.parameters))
        .collect();
    assert_eq!(named, stored);
    assert_eq!(found.files[0].name, "model.gguf");
    assert_eq!(found.tokenizer.chat_template, None);
}

/// Writes the weights of a fixture in float16, as its configuration then says.
fn in_float16(case: &str) -> Sandbox {
    let sandbox = Sandbox::of(case);
    sandbox.configure("torch_dtype", Value::Null);
    sandbox.configure("dtype", json!("float16"));
    sandbox.edit("model.safetensors", |bytes| {
        let data = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
        let mut header: Value = serde_json::from_slice(&bytes[8..data]).unwrap();
        for (name, tensor) in header.as_object_mut().unwrap() {
            if name != "__metadata__" {
                tensor["dtype"] = json!("F16");
                for end in tensor["data_offsets"].as_array_mut().unwrap() {
                    *end = json!(end.as_u64().unwrap() / 2);
                }
            }
        }
        let header = header.to_string();
        let mut written = (header.len() as u64).to_le_bytes().to_vec();
        written.extend_from_slice(header.as_bytes());
        for value in bytes[data..].as_chunks().0 {
            written.extend(f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes());
        }
        *bytes = written;
    });
    sandbox
}

#[test]
fn float16_is_computed_in_float32() {
    let sandbox = in_float16("llama_gqa");
    let checkpoint = Checkpoint::open(sandbox.path()).unwrap();
    assert_eq!(checkpoint.default_dtype(), Dtype::Float32);
    assert_eq!(checkpoint.warnings(), [] as [String; 0]);
    let original = Checkpoint::open(&fixture("llama_gqa")).unwrap();
    for (slot, shape) in original.architecture().slots() {
        let (weight, full) = (
            checkpoint.weight(slot).unwrap(),
            original.weight(slot).unwrap(),
        );
        assert_eq!(
            (weight.dtype(), weight.shape()),
            (WeightDtype::F16, &*shape)
        );
        let full = full.bytes();
        let halves = full.as_chunks().0.iter();
        let halves: Vec<u8> = halves
            .flat_map(|value| f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes())
            .collect();
        assert_eq!(*weight.bytes(), halves);
    }
    assert_eq!(
        inspect(&checkpoint, "x").unwrap().stored[0].dtype,
        "float16"
    );

    let mut file = GgufFile::of_fixture("llama_gqa");
    let query = file.tensor("blk.0.attn_v.weight");
    query.kind = 1;
    query.data = query
        .data
        .as_chunks()
        .0
        .iter()
        .flat_map(|value| f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes())
        .collect();
    let (_dir, path) = file.write();
    let file = Checkpoint::open(&path).unwrap();
    let slot = Slot::block(0, Place::Value);
    assert_eq!(contents(&file, slot), contents(&checkpoint, slot));
}

/// The layout of the hub's cache: snapshots whose files are links to blobs beside them.
#[test]
fn a_snapshot_of_links_is_the_checkpoint() {
    let dir = TempDir::new().unwrap();
    for case in ["llama_gqa", "sharded_llama"] {
        let model = dir.path().join(format!("models--org--{case}"));
        let snapshot = model.join("snapshots/0123abcd");
        fs::create_dir_all(model.join("blobs")).unwrap();
        fs::create_dir_all(&snapshot).unwrap();
        for (index, entry) in fs::read_dir(fixture(case)).unwrap().enumerate() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), model.join(format!("blobs/{index:040x}"))).unwrap();
            let target = format!("../../blobs/{index:040x}");
            symlink(target, snapshot.join(entry.file_name())).unwrap();
        }
        let cache = DigestCache::new(&dir.path().join("cache"));
        let plain = Checkpoint::open(&fixture(case)).unwrap();
        let linked = Checkpoint::open(&snapshot).unwrap();
        assert_eq!(
            linked.digest(&cache).unwrap(),
            plain.digest(&cache).unwrap()
        );
        assert_eq!(
            linked.tokenizer().unwrap().digest(),
            plain.tokenizer().unwrap().digest()
        );
        linked.check_unwritten().unwrap();
        assert_eq!(
            inspect(&linked, "x").unwrap().files,
            inspect(&plain, "x").unwrap().files
        );
    }
}
