//! LoRA adapters that are refused, and what a checkpoint with one is.

use assay_api::ErrorCode::{
    ArchitectureUnsupported, CheckpointUnreadable, DtypeUnsupported, PickleRefused, TensorMismatch,
};
use assay_checkpoint::{Checkpoint, DigestCache, inspect};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::refused::{Case, assert_refused};
use crate::sandbox::{Sandbox, fixture};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const QUERY: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

fn set(sandbox: &Sandbox, field: &str, value: Value) {
    sandbox.edit_json(CONFIG, |config| {
        config.insert(field.to_owned(), value);
    });
}

fn rename(sandbox: &Sandbox, from: &str, to: &str) {
    sandbox.edit_header(WEIGHTS, |header| {
        let tensor = header.remove(from).unwrap();
        header.insert(to.to_owned(), tensor);
    });
}

#[test]
#[rustfmt::skip] // one case a line
fn adapters_that_cannot_be_added() {
    let cases: &[Case<Sandbox>] = &[
        (|s| s.remove(CONFIG), CheckpointUnreadable, &["model", CONFIG, "PEFT"]),
        (|s| s.write(CONFIG, "[]"), CheckpointUnreadable, &["model/adapter_config.json", "object"]),
        (|s| s.remove(WEIGHTS), CheckpointUnreadable, &["model/adapter_model.safetensors"]),
        (|s| s.rename(WEIGHTS, "adapter_model.bin"), PickleRefused, &["model/adapter_model.bin"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes.truncate(100)), CheckpointUnreadable, &[WEIGHTS]),
        (|s| set(s, "peft_type", Value::Null), CheckpointUnreadable, &["`peft_type` is missing"]),
        (|s| set(s, "peft_type", json!("LOHA")), ArchitectureUnsupported, &["`peft_type` is LOHA"]),
        (|s| set(s, "task_type", json!("SEQ_CLS")), ArchitectureUnsupported, &["`task_type` is SEQ_CLS", "CAUSAL_LM"]),
        (|s| set(s, "layer_replication", json!([[0, 1], [0, 1]])), ArchitectureUnsupported, &["`layer_replication`", "merge_and_unload"]),
        (|s| set(s, "target_parameters", json!(["experts.down_proj"])), ArchitectureUnsupported, &["`target_parameters`"]),
        (|s| set(s, "init_lora_weights", json!("pissa_niter_16")), ArchitectureUnsupported, &["`init_lora_weights` is pissa_niter_16", "changes the base"]),
        (|s| set(s, "r", json!(5)), CheckpointUnreadable, &["`r` is 5", "rank 4"]),
        (|s| set(s, "r", json!(0)), CheckpointUnreadable, &["`r` is 0"]),
        (|s| set(s, "rank_pattern", json!({"q_proj": 2})), CheckpointUnreadable, &["`r` is 2 for `model.layers.0.self_attn.q_proj`"]),
        (|s| set(s, "alpha_pattern", json!({"(": 2})), CheckpointUnreadable, &["`alpha_pattern.(` is not an expression"]),
        (|s| set(s, "rank_pattern", json!({"\\w{400}": 2})), CheckpointUnreadable, &["rank_pattern", "not an expression"]),
        (|s| set(s, "rank_pattern", (0..2000).map(|index| (index.to_string(), json!(4))).collect::<Value>()), CheckpointUnreadable, &["`rank_pattern` has 2000 entries"]),
        (|s| set(s, "lora_alpha", json!(-1)), CheckpointUnreadable, &["`lora_alpha` is -1"]),
        (|s| rename(s, QUERY, "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"), TensorMismatch, &["layers.0.self_attn.q_proj.lora_B.weight`", "does not have"]),
        (|s| rename(s, QUERY, "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight"), TensorMismatch, &["does not have"]),
        (|s| s.edit_header(WEIGHTS, |header| header[QUERY]["dtype"] = json!("I32")), DtypeUnsupported, &[QUERY, "I32"]),
        (|s| s.edit_header(WEIGHTS, |header| header[QUERY]["shape"] = json!([8, 24])), TensorMismatch, &[QUERY, "[8, 24]", "[8, 48]", "another base"]),
        (|s| s.add_tensor(WEIGHTS, "base_model.model.lm_head.weight", "F32", &[323, 48]), TensorMismatch, &["323 rows, the base has 320", "merge"]),
        (|s| s.add_tensor(WEIGHTS, "base_model.model.lm_head.weight", "F32", &[320, 24]), TensorMismatch, &["another base"]),
        (|s| s.add_tensor(WEIGHTS, "base_model.model.score.weight", "F32", &[2, 48]), TensorMismatch, &["`base_model.model.score.weight`"]),
    ];
    let base = fixture("llama_gqa");
    Checkpoint::open_with(&base, Some(Sandbox::of("adapters/llama").path())).unwrap();
    for (index, (damage, code, parts)) in cases.iter().enumerate() {
        let mut sandbox = Sandbox::of("adapters/llama");
        damage(&mut sandbox);
        let error = Checkpoint::open_with(&base, Some(sandbox.path())).err();
        let error = error.unwrap_or_else(|| panic!("case {index} opens: {parts:?}"));
        assert_refused(index, &error, *code, parts);
    }
}

#[test]
fn an_adapter_changes_the_digest_and_nothing_else_of_a_checkpoint() {
    let dir = TempDir::new().unwrap();
    let cache = DigestCache::new(dir.path());
    let base = fixture("llama_gqa");
    let plain = Checkpoint::open(&base).unwrap();
    let sandbox = Sandbox::of("adapters/llama");
    let digest = || {
        let with = Checkpoint::open_with(&base, Some(sandbox.path())).unwrap();
        with.digest(&cache).unwrap()
    };
    let first = digest();
    assert_eq!(first, digest());
    assert_ne!(first, plain.digest(&cache).unwrap());
    set(&sandbox, "lora_alpha", json!(9));
    assert_ne!(first, digest());

    let with = Checkpoint::open_with(&base, Some(sandbox.path())).unwrap();
    let (own, adapted) = (inspect(&plain, "x").unwrap(), inspect(&with, "x").unwrap());
    assert_eq!(adapted.adapter.as_deref(), Some("model"));
    assert_eq!(adapted.parameters, own.parameters);
    assert_eq!(adapted.tokenizer, own.tokenizer);
    assert_eq!(with.architecture(), plain.architecture());
}

/// What was mapped is what the digest is of.
#[test]
fn an_adapter_that_was_replaced_is_found() {
    let dir = TempDir::new().unwrap();
    let cache = DigestCache::new(dir.path());
    let sandbox = Sandbox::of("adapters/llama");
    let with = Checkpoint::open_with(&fixture("llama_gqa"), Some(sandbox.path())).unwrap();
    sandbox.edit(WEIGHTS, |bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    });
    let error = with.digest(&cache).unwrap_err();
    assert!(error.to_string().contains(WEIGHTS), "{error}");
    assert!(with.check_unwritten().is_err());
}
