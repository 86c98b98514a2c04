//! Checkpoints at fault: what their files say is refused when a job is posted; what their numbers
//! do is found when they are used.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use assay_api::ErrorCode::{
    self, ArchitectureUnsupported, ChatTemplateUnusable, CheckpointUnreadable, DtypeUnsupported,
    NllOutOfRange, NoPrefixToken, NonFinite, PathOutsideRoot, PickleRefused, TensorMismatch,
    TokenizerUnusable,
};
use assay_testkit::Roots;
use serde_json::{Value, json};

use super::{Complaints, MODEL, finish_healthy, finish_without_jobs, roots, with};
use crate::chat::add_with_template;
use crate::checkpoint::Damaged;
use crate::service::Service;

/// What is done to the fixture, and the refusal.
type Case = (
    &'static str,
    fn(Damaged<'_>),
    ErrorCode,
    &'static [&'static str],
);

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

#[rustfmt::skip] // one case a line
const CHECKPOINTS: [Case; 41] = [
    ("truncated", |c| c.truncate(), CheckpointUnreadable, &["truncated/model.safetensors", "cut off"]),
    ("no-weights", |c| c.remove(WEIGHTS), CheckpointUnreadable, &["model.safetensors"]),
    ("empty-weights", |c| c.write(WEIGHTS, b""), CheckpointUnreadable, &["empty-weights/model.safetensors"]),
    ("short-weights", |c| c.write(WEIGHTS, b"\x08\0\0"), CheckpointUnreadable, &["short-weights/model.safetensors"]),
    ("long-header", |c| c.edit(|bytes| bytes[..8].copy_from_slice(&(1_u64 << 40).to_le_bytes())), CheckpointUnreadable, &["model.safetensors", "header"]),
    ("endless-header", |c| c.edit(|bytes| bytes[..8].fill(0xff)), CheckpointUnreadable, &["model.safetensors", "header"]),
    ("longer-header", |c| c.edit(|bytes| { let length = bytes.len() as u64; bytes[..8].copy_from_slice(&length.to_le_bytes()) }), CheckpointUnreadable, &["model.safetensors", "header"]),
    ("garbled-header", |c| c.edit(|bytes| bytes[20] = 0xff), CheckpointUnreadable, &["model.safetensors", "header"]),
    ("overlapping", |c| c.edit_header(|h| shift(h, "model.norm.weight", -4)), CheckpointUnreadable, &["model.safetensors", "`model.norm.weight`", "overlaps"]),
    ("beyond", |c| c.edit_header(|h| shift(h, "model.norm.weight", 1 << 40)), CheckpointUnreadable, &["model.safetensors", "`model.norm.weight`"]),
    ("wrong-size", |c| c.edit_header(|h| h["model.norm.weight"]["shape"] = json!([7])), CheckpointUnreadable, &["model.safetensors"]),
    ("overflowing", |c| c.edit_header(|h| h["model.norm.weight"]["shape"] = json!([1_u64 << 63, 4])), CheckpointUnreadable, &["model.safetensors"]),
    ("missing", |c| c.edit_header(|h| { let t = h.remove("model.norm.weight").unwrap(); h.insert("lm_head.weight2".into(), t); }), TensorMismatch, &["model.norm.weight"]),
    ("unused", |c| c.set(CONFIG, "num_hidden_layers", json!(1)), TensorMismatch, &["model.layers.1.", "does not use"]),
    ("more-layers", |c| c.set(CONFIG, "num_hidden_layers", json!(3)), TensorMismatch, &["model.layers.2."]),
    ("misshaped", |c| c.set(CONFIG, "intermediate_size", json!(64)), TensorMismatch, &["[96, 48]", "[64, 48]"]),
    ("vocabulary", |c| c.set(CONFIG, "vocab_size", json!(1_u64 << 40)), CheckpointUnreadable, &["vocab_size", "1099511627776"]),
    ("larger-vocabulary", |c| c.set(CONFIG, "vocab_size", json!(321)), TensorMismatch, &["model.embed_tokens.weight", "321"]),
    ("dtype", |c| c.edit_header(|h| h["model.norm.weight"]["dtype"] = json!("I32")), DtypeUnsupported, &["model.norm.weight", "I32"]),
    ("unknown", |c| c.set(CONFIG, "architectures", json!(["MambaForCausalLM"])), ArchitectureUnsupported, &["MambaForCausalLM", "llama"]),
    ("activation", |c| c.set(CONFIG, "hidden_act", json!("swish9")), ArchitectureUnsupported, &["hidden_act", "swish9"]),
    ("rope", |c| c.set(CONFIG, "rope_scaling", json!({"rope_type": "magic", "factor": 2.0})), ArchitectureUnsupported, &["rope", "magic"]),
    ("quantized", |c| c.set(CONFIG, "quantization_config", json!({"quant_method": "gptq"})), ArchitectureUnsupported, &["quantization_config"]),
    ("no-heads", |c| c.set(CONFIG, "num_attention_heads", json!(0)), CheckpointUnreadable, &["num_attention_heads"]),
    ("odd-heads", |c| c.set(CONFIG, "num_key_value_heads", json!(3)), CheckpointUnreadable, &["num_key_value_heads"]),
    ("negative", |c| c.set(CONFIG, "num_hidden_layers", json!(-1)), CheckpointUnreadable, &["num_hidden_layers"]),
    ("no-positions", |c| c.set(CONFIG, "max_position_embeddings", json!(0)), CheckpointUnreadable, &["max_position_embeddings"]),
    ("no-epsilon", |c| c.set(CONFIG, "rms_norm_eps", json!("small")), CheckpointUnreadable, &["rms_norm_eps"]),
    ("no-field", |c| c.set(CONFIG, "hidden_size", Value::Null), CheckpointUnreadable, &["hidden_size"]),
    ("no-json", |c| c.write(CONFIG, b"{\"architectures\": "), CheckpointUnreadable, &["no-json/config.json", "JSON"]),
    ("no-config", |c| c.remove(CONFIG), CheckpointUnreadable, &["config.json"]),
    ("pickle", |c| c.rename(WEIGHTS, "pytorch_model.bin"), PickleRefused, &["pytorch_model.bin", "safetensors"]),
    ("no-tokenizer", |c| c.remove(TOKENIZER), TokenizerUnusable, &["tokenizer.json"]),
    ("garbled-tokenizer", |c| c.write(TOKENIZER, b"{\"model\": {\"type\": \"Magic\"}}"), TokenizerUnusable, &["tokenizer.json"]),
    ("large-ids", large_ids, TokenizerUnusable, &["320"]),
    ("no-prefix", no_prefix, NoPrefixToken, &["BOS", "EOS"]),
    ("file-link", |c| { fs::remove_file(c.0.join(WEIGHTS)).unwrap(); symlink("/etc/passwd", c.0.join(WEIGHTS)).unwrap(); }, PathOutsideRoot, &["file-link/model.safetensors"]),
    ("index-escape", |c| index(c, "../llama_gqa/model.safetensors"), CheckpointUnreadable, &["model.safetensors.index.json"]),
    ("index-missing", |c| index(c, "model-00001-of-00002.safetensors"), CheckpointUnreadable, &["model-00001-of-00002.safetensors"]),
    ("gguf.gguf", |c| gguf(c.0, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f"), CheckpointUnreadable, &["gguf.gguf"]),
    ("text.gguf", |c| gguf(c.0, b"Call me Ishmael."), CheckpointUnreadable, &["text.gguf", "GGUF"]),
];

/// Moves where a tensor lies.
fn shift(header: &mut serde_json::Map<String, Value>, tensor: &str, by: i64) {
    for end in 0..2 {
        let offset = &mut header[tensor]["data_offsets"][end];
        *offset = json!(offset.as_i64().unwrap() + by);
    }
}

/// An added token with the first id that the embedding has no row for.
fn large_ids(checkpoint: Damaged<'_>) {
    checkpoint.change(TOKENIZER, |tokenizer| {
        let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
        let mut token = tokens[0].clone();
        (token["id"], token["content"]) = (json!(320), json!("<one too many>"));
        tokens.push(token);
    });
}

/// Neither BOS nor EOS, wherever they are named.
fn no_prefix(checkpoint: Damaged<'_>) {
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        for token in ["bos_token", "eos_token"] {
            checkpoint.set(file, token, Value::Null);
        }
    }
    checkpoint.set(TOKENIZER, "post_processor", Value::Null);
}

/// Weights in another file, by an index.
fn index(checkpoint: Damaged<'_>, file: &str) {
    checkpoint.remove(WEIGHTS);
    let index = json!({"metadata": {}, "weight_map": {"model.norm.weight": file}});
    checkpoint.write("model.safetensors.index.json", index.to_string().as_bytes());
}

/// A file in place of the directory.
fn gguf(path: &Path, bytes: &[u8]) {
    fs::remove_dir_all(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Adds the fixture under another name.
fn add(roots: &Roots, name: &str, damage: impl FnOnce(Damaged<'_>)) {
    let path = roots.models().join(name);
    fs::rename(roots.add_model(MODEL), &path).unwrap();
    damage(Damaged(&path));
    roots.add_model(MODEL);
}

#[tokio::test]
async fn checkpoints_at_fault_are_named() {
    let roots = roots();
    for (name, damage, ..) in CHECKPOINTS {
        add(&roots, name, damage);
    }
    for (name, template) in [("syntax", "{% for m in %}"), ("unknown-tag", "{% magic %}")] {
        add_with_template(&roots, name, template);
    }
    let service = Service::start(roots).await;
    let mut complaints = Complaints::default();
    for (name, _, code, parts) in CHECKPOINTS {
        let body = with(json!({"model": name}));
        complaints
            .refused(&service, &body, code, "model", parts)
            .await;
    }
    // A template matters to those who use it.
    for name in ["syntax", "unknown-tag"] {
        let chat = json!([{"path": "b.jsonl", "format": "chat"}]);
        let body = with(json!({"model": name, "datasets": chat}));
        let parts = ["chat_template", "line 1"];
        complaints
            .refused(&service, &body, ChatTemplateUnusable, "model", &parts)
            .await;
    }
    finish_without_jobs(service).await;
    complaints.none();
}

/// Numbers that no sum can hold.
#[tokio::test]
async fn numbers_at_fault_are_named() {
    let roots = roots();
    add(&roots, "nan", |c| c.scale("model.norm.weight", f32::NAN));
    add(&roots, "infinite", |c| c.scale("lm_head.weight", 1e38));
    add(&roots, "huge", |c| c.scale("lm_head.weight", 1e20));
    let mut service = Service::start(roots).await;
    let mut complaints = Complaints::default();
    service.add_worker("cpu:0");
    for (model, code, parts) in [
        ("nan", NonFinite, ["a.txt: token 0 of document 0", "NaN"]),
        (
            "infinite",
            NonFinite,
            ["a.txt: token 0 of document 0", "not a finite number"],
        ),
        (
            "huge",
            NllOutOfRange,
            ["a.txt: token 0 of document 0", "2^31"],
        ),
    ] {
        complaints
            .fails(&service, &with(json!({"model": model})), code, None, &parts)
            .await;
    }
    // Large but not too large: the sum is exact, its exponential is not a number.
    let path = service.roots.models().join(MODEL);
    Damaged(&path).scale("lm_head.weight", 1e4);
    let result = service.client.run(&with(json!({}))).await;
    let row = &result.datasets[0];
    assert!(row.overflow && row.nll.unwrap() > 1e3, "{row:?}");
    assert_eq!(row.perplexity, None);
    finish_healthy(service).await;
    complaints.none();
}
