//! Bad checkpoints, each refused with its code and a sentence that names the fault.

use assay_api::ErrorCode::{
    self, ArchitectureUnsupported, CheckpointUnreadable, DtypeUnsupported, PickleRefused,
    TensorMismatch, TokenizerUnusable,
};
use assay_checkpoint::{Checkpoint, CheckpointError};
use serde_json::{Value, json};

use crate::gguf_file::{GgufFile, Meta};
use crate::sandbox::Sandbox;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const FIRST: &str = "model-00001-of-00002.safetensors";

/// What is done to a fixture, and what its refusal says.
pub(crate) type Case<T> = (fn(&mut T), ErrorCode, &'static [&'static str]);

pub(crate) fn assert_refused(
    index: usize,
    error: &CheckpointError,
    code: ErrorCode,
    parts: &[&str],
) {
    let text = error.to_string();
    assert_eq!(error.code(), code, "case {index}: {text}");
    for part in parts {
        assert!(
            text.contains(part),
            "case {index}: {part:?} is not in {text:?}"
        );
    }
    assert!(
        !text.contains("/tmp"),
        "case {index} gives a path away: {text}"
    );
}

fn refuse_directories(fixture: &str, cases: &[Case<Sandbox>]) {
    Checkpoint::open(Sandbox::of(fixture).path()).unwrap();
    for (index, (damage, code, parts)) in cases.iter().enumerate() {
        let mut sandbox = Sandbox::of(fixture);
        damage(&mut sandbox);
        let refused = Checkpoint::open(sandbox.path()).and_then(|opened| opened.tokenizer());
        let error = refused
            .err()
            .unwrap_or_else(|| panic!("case {index} opens: {parts:?}"));
        assert_refused(index, &error, *code, parts);
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn directories_that_are_no_checkpoints() {
    refuse_directories("llama_gqa", &[
        (|s| s.remove("config.json"), CheckpointUnreadable, &["model", "config.json"]),
        (|s| s.remove(WEIGHTS), CheckpointUnreadable, &["model", WEIGHTS, INDEX]),
        (|s| s.rename(WEIGHTS, "m.gguf"), CheckpointUnreadable, &["m.gguf", "give that file"]),
        (|s| s.rename(WEIGHTS, "pytorch_model.bin"), PickleRefused, &["model/pytorch_model.bin", "safetensors"]),
        (|s| s.rename(WEIGHTS, "consolidated.00.pth"), PickleRefused, &["consolidated.00.pth"]),
        (|s| { s.remove(WEIGHTS); std::fs::create_dir(s.file(WEIGHTS)).unwrap(); }, CheckpointUnreadable, &[WEIGHTS, "regular file"]),
    ]);
}

#[test]
#[rustfmt::skip] // one case a line
fn configurations() {
    refuse_directories("llama_gqa", &[
        (|s| s.write("config.json", "{"), CheckpointUnreadable, &["model/config.json", "not JSON"]),
        (|s| s.write("config.json", "[]"), CheckpointUnreadable, &["config.json", "object"]),
        (|s| s.configure("model_type", json!("mamba")), ArchitectureUnsupported, &["config.json", "mamba", "llama"]),
        (|s| s.configure("architectures", json!(["LlamaForSequenceClassification"])), ArchitectureUnsupported, &["LlamaForSequenceClassification"]),
        (|s| { s.configure("model_type", Value::Null); s.configure("architectures", Value::Null); }, ArchitectureUnsupported, &["none named"]),
        (|s| s.configure("attention_bias", json!(true)), TensorMismatch, &["`model.layers.0.self_attn.q_proj.bias`"]),
        (|s| s.configure("mlp_bias", json!(true)), TensorMismatch, &["`model.layers.0.mlp.gate_proj.bias`"]),
        (|s| s.configure("hidden_act", json!("mish")), ArchitectureUnsupported, &["`hidden_act` is mish", "silu"]),
        (|s| s.configure("quantization_config", json!({"quant_method": "gptq"})), ArchitectureUnsupported, &["gptq"]),
        (|s| s.configure("torch_dtype", json!("float8_e4m3fn")), ArchitectureUnsupported, &["`torch_dtype` is float8_e4m3fn"]),
        (|s| s.configure("rope_scaling", json!({"type": "mrope", "factor": 2.0})), ArchitectureUnsupported, &["`rope_scaling.rope_type` is mrope", "yarn"]),
        (|s| s.configure("rope_parameters", json!({"rope_type": "linear"})), CheckpointUnreadable, &["`rope_parameters.factor` is missing"]),
        (|s| s.configure("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 1.0})), CheckpointUnreadable, &["`rope_parameters.rope_theta` is 1", "more than 1"]),
        (|s| s.configure("rope_parameters", json!({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]})), CheckpointUnreadable, &["`rope_parameters.short_factor` has 1 numbers", "must have 6"]),
        (|s| s.configure("rope_parameters", json!({"rope_type": "longrope", "short_factor": [0.0]})), CheckpointUnreadable, &["`rope_parameters.short_factor`", "positive numbers"]),
        (|s| s.configure("rope_parameters", json!({"partial_rotary_factor": 0.5})), ArchitectureUnsupported, &["`rope_parameters.partial_rotary_factor` is 0.5", "whole heads"]),
        (|s| s.configure("rope_scaling", json!({"full_attention": {}})), ArchitectureUnsupported, &["rope_scaling", "per kind of layer"]),
        (|s| s.configure("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0})), CheckpointUnreadable, &["rope_scaling.high_freq_factor", "missing"]),
        (|s| s.configure("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0})), CheckpointUnreadable, &["rope_scaling.low_freq_factor", "4"]),
        (|s| s.configure("hidden_size", Value::Null), CheckpointUnreadable, &["`hidden_size` is missing"]),
        (|s| s.configure("hidden_size", json!(-48)), CheckpointUnreadable, &["`hidden_size` is -48"]),
        (|s| s.configure("num_hidden_layers", json!(u64::MAX)), CheckpointUnreadable, &["num_hidden_layers", "18446744073709551615"]),
        (|s| s.configure("vocab_size", json!("320")), CheckpointUnreadable, &["`vocab_size` is \"320\""]),
        (|s| s.configure("num_attention_heads", json!(0)), CheckpointUnreadable, &["`num_attention_heads` is 0"]),
        (|s| s.configure("num_key_value_heads", json!(3)), CheckpointUnreadable, &["num_key_value_heads", "3", "4"]),
        (|s| s.configure("head_dim", json!(7)), CheckpointUnreadable, &["head_dim", "7", "even"]),
        (|s| s.configure("rms_norm_eps", json!(0.0)), CheckpointUnreadable, &["rms_norm_eps"]),
    ]);
}

/// What the configurations of single families may say that is not supported, or makes no sense.
#[test]
#[rustfmt::skip] // one case a line
fn configurations_of_families() {
    refuse_directories("families/gemma2", &[
        (|s| s.configure("use_bidirectional_attention", json!(true)), ArchitectureUnsupported, &["`use_bidirectional_attention` is true", "causal"]),
        (|s| s.configure("layer_types", json!(["full_attention"])), CheckpointUnreadable, &["`layer_types` has 1 entries"]),
        (|s| s.configure("layer_types", json!(vec!["chunked_attention"; 3])), ArchitectureUnsupported, &["`layer_types` is chunked_attention", "sliding_attention"]),
        (|s| s.configure("layer_types", json!([1, 2])), CheckpointUnreadable, &["`layer_types`", "a list of strings"]),
        (|s| s.configure("sliding_window", json!(0)), CheckpointUnreadable, &["`sliding_window` is 0"]),
        (|s| s.configure("attn_logit_softcapping", json!(-1.0)), CheckpointUnreadable, &["`attn_logit_softcapping` is -1"]),
    ]);
    refuse_directories("families/smollm3", &[
        (|s| s.configure("no_rope_layers", json!([1])), CheckpointUnreadable, &["`no_rope_layers` has 1 entries"]),
        (|s| s.configure("no_rope_layers", json!([1, 0, 2, 1])), CheckpointUnreadable, &["`no_rope_layers`", "zeros and ones"]),
    ]);
    refuse_directories("families/phi", &[
        (|s| s.configure("partial_rotary_factor", json!(0.1)), CheckpointUnreadable, &["`partial_rotary_factor` makes 1 numbers", "pairs"]),
        (|s| s.configure("partial_rotary_factor", json!(1.5)), ArchitectureUnsupported, &["`partial_rotary_factor` is 1.5"]),
    ]);
    refuse_directories("families/gpt2", &[
        (|s| s.configure("add_cross_attention", json!(true)), ArchitectureUnsupported, &["`add_cross_attention` is true"]),
        (|s| s.configure("n_embd", Value::Null), CheckpointUnreadable, &["`n_embd` is missing"]),
        (|s| s.edit_header(WEIGHTS, |header| {let tensor = header["transformer.h.0.ln_1.bias"].clone(); header.remove("transformer.h.0.ln_1.bias"); header.insert("h.1.ln_1.bias".into(), tensor);}), CheckpointUnreadable, &["`h.1.ln_1.bias`", "`transformer.h.1.ln_1.bias`", "twice"]),
    ]);
    refuse_directories("families/falcon_new", &[
        (|s| s.configure("parallel_attn", json!(false)), ArchitectureUnsupported, &["`parallel_attn` is false"]),
        (|s| s.configure("num_ln_in_parallel_attn", json!(3)), ArchitectureUnsupported, &["`num_ln_in_parallel_attn` is 3"]),
    ]);
    refuse_directories("families/opt", &[
        (|s| s.configure("layer_norm_elementwise_affine", json!(false)), ArchitectureUnsupported, &["`layer_norm_elementwise_affine` is false"]),
    ]);
    refuse_directories("families/mixtral", &[
        (|s| s.configure("num_experts_per_tok", json!(5)), CheckpointUnreadable, &["`num_experts_per_tok` is 5", "4 experts"]),
        (|s| s.configure("num_local_experts", json!(0)), CheckpointUnreadable, &["`num_local_experts` is 0"]),
    ]);
}

#[test]
#[rustfmt::skip] // one case a line
fn tensors() {
    refuse_directories("llama_gqa", &[
        (|s| { s.edit_header(WEIGHTS, |header| {let tensor = header.remove("model.norm.weight").unwrap(); header.insert("model.norm.scale".into(), tensor);})}, TensorMismatch, &["`model.norm.weight`", "model lacks"]),
        (|s| s.add_tensor(WEIGHTS, "model.layers.0.self_attn.q_proj.bias", "F32", &[48]), TensorMismatch, &["model.safetensors", "`model.layers.0.self_attn.q_proj.bias`"]),
        (|s| s.add_tensor(WEIGHTS, "model.layers.0.extra.weight", "I8", &[2, 2]), DtypeUnsupported, &["`model.layers.0.extra.weight`", "I8", "BF16"]),
        (|s| s.configure("num_hidden_layers", json!(3)), TensorMismatch, &["`model.layers.2.input_layernorm.weight`"]),
        (|s| s.configure("num_hidden_layers", json!(1)), TensorMismatch, &["`model.layers.1.", "does not use"]),
        (|s| s.configure("intermediate_size", json!(64)), TensorMismatch, &["mlp.gate_proj.weight", "[96, 48]", "[64, 48]"]),
        (|s| s.configure("num_key_value_heads", json!(4)), TensorMismatch, &["k_proj", "[24, 48]", "[48, 48]"]),
    ]);
    refuse_directories(
        "llama_tied",
        &[(
            |s| s.configure("tie_word_embeddings", json!(false)),
            TensorMismatch,
            &["`lm_head.weight`", "`tie_word_embeddings`"],
        )],
    );
}

#[test]
#[rustfmt::skip] // one case a line
fn safetensors_files() {
    refuse_directories("llama_gqa", &[
        (|s| s.write(WEIGHTS, ""), CheckpointUnreadable, &["model/model.safetensors", "0 bytes"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes.truncate(100)), CheckpointUnreadable, &["header claims", "100"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes.truncate(bytes.len() - 1)), CheckpointUnreadable, &["cut off"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes.push(0)), CheckpointUnreadable, &["added to"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes[..8].fill(0xff)), CheckpointUnreadable, &["18446744073709551615"]),
        (|s| s.edit(WEIGHTS, |bytes| bytes[8] = b'!'), CheckpointUnreadable, &["header"]),
        (|s| s.edit_header(WEIGHTS, |header| {header["lm_head.weight"]["data_offsets"] = json!([4, 61444])}), CheckpointUnreadable, &["`lm_head.weight`", "overlaps"]),
        (|s| s.edit_header(WEIGHTS, |header| {header["lm_head.weight"]["shape"] = json!([320, 49])}), CheckpointUnreadable, &["`lm_head.weight`", "[320, 49]"]),
        (|s| s.edit_header(WEIGHTS, |header| {header["lm_head.weight"]["shape"] = json!([u64::MAX, 48])}), CheckpointUnreadable, &["`lm_head.weight`"]),
        (|s| s.edit_header(WEIGHTS, |header| {header["lm_head.weight"]["dtype"] = json!("F31")}), CheckpointUnreadable, &["`lm_head.weight`", "F31"]),
    ]);
}

#[test]
#[rustfmt::skip] // one case a line
fn indexes() {
    refuse_directories("sharded_llama", &[
        (|s| s.remove(FIRST), CheckpointUnreadable, &["model/model-00001-of-00002.safetensors"]),
        (|s| s.write(INDEX, "{}"), CheckpointUnreadable, &[INDEX, "weight_map"]),
        (|s| s.write(INDEX, r#"{"weight_map": {}}"#), CheckpointUnreadable, &[INDEX, "no tensor"]),
        (|s| s.edit_json(INDEX, |index| {index["weight_map"]["lm_head.weight"] = json!("../other.safetensors")}), CheckpointUnreadable, &["`lm_head.weight`", "../other.safetensors"]),
        (|s| s.edit_json(INDEX, |index| {index["weight_map"]["lm_head.weight"] = json!(FIRST)}), CheckpointUnreadable, &["`lm_head.weight`", FIRST]),
        (|s| s.edit_json(INDEX, |index| {drop(index["weight_map"].as_object_mut().unwrap().remove("lm_head.weight"))}), CheckpointUnreadable, &["`lm_head.weight`", "does not say"]),
        (|s| s.edit_json(INDEX, |index| {index["weight_map"]["lm_head.weight"] = json!("pytorch_model.bin")}), PickleRefused, &["pytorch_model.bin"]),
    ]);
}

#[test]
#[rustfmt::skip] // one case a line
fn tokenizers() {
    refuse_directories("llama_gqa", &[
        (|s| s.remove("tokenizer.json"), TokenizerUnusable, &["tokenizer.json", "save_pretrained"]),
        (|s| s.write("tokenizer.json", "{}"), TokenizerUnusable, &["model/tokenizer.json"]),
        (|s| s.edit_json("tokenizer.json", |tokenizer| {tokenizer["model"]["merges"] = json!([["a", "b".repeat(100)]])}), TokenizerUnusable, &["model/tokenizer.json"]),
        (|s| s.edit_json("tokenizer.json", |tokenizer| {tokenizer["model"]["dropout"] = json!(0.1)}), TokenizerUnusable, &["model/tokenizer.json", "dropout of 0.1"]),
        (|s| s.write("tokenizer_config.json", "{"), CheckpointUnreadable, &["tokenizer_config.json"]),
        (|s| s.edit_json("tokenizer_config.json", |config| {config["bos_token"] = json!("<bos>")}), TokenizerUnusable, &["`bos_token`", "<bos>"]),
        (|s| { s.edit_json("tokenizer.json", |tokenizer| {tokenizer["model"]["vocab"]["zzz"] = json!(320);})}, TokenizerUnusable, &["320", "320 rows"]),
    ]);
}

/// Some tokenizers are whole, and panic only at a text.
#[test]
fn a_text_that_makes_the_tokenizers_crate_panic_is_an_error() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.edit_json("tokenizer.json", |tokenizer| {
        tokenizer["normalizer"] =
            json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"});
    });
    let tokenizer = Checkpoint::open(sandbox.path()).unwrap().tokenizer();
    let tokenizer = tokenizer.unwrap();
    for text in ["hello world", "a"] {
        let errors = [
            tokenizer.encode(text).map(|_| ()).unwrap_err(),
            tokenizer.encode_batch(&[text]).map(|_| ()).unwrap_err(),
        ];
        for (index, error) in errors.iter().enumerate() {
            assert_refused(index, error, TokenizerUnusable, &["model/tokenizer.json"]);
        }
    }
}

/// A merge whose result is longer than every token makes the tokenizers crate index out of bounds.
#[test]
fn a_tokenizer_that_makes_its_crate_panic_is_refused() {
    refuse_directories(
        "llama_gqa",
        &[(
            |s| {
                s.edit_json("tokenizer.json", |tokenizer| {
                    let longest = "q".repeat(20);
                    tokenizer["model"]["vocab"][&longest] = json!(319);
                    tokenizer["model"]["merges"] = json!([[longest, longest]]);
                });
            },
            TokenizerUnusable,
            &["model/tokenizer.json", "merges"],
        )],
    );
}

#[test]
#[rustfmt::skip] // one case a line
fn gguf_files() {
    fn set(file: &mut GgufFile, key: &str, value: impl Into<Option<Meta>>) {
        file.set(key, value.into());
    }
    let cases: &[Case<GgufFile>] = &[
        (|f| f.version = 1, CheckpointUnreadable, &["model.gguf", "version is 1"]),
        (|f| f.version = 3_u32.swap_bytes(), CheckpointUnreadable, &["big-endian"]),
        (|f| set(f, "general.architecture", Meta::Text("mamba".into())), ArchitectureUnsupported, &["mamba", "llama"]),
        (|f| set(f, "general.architecture", None), ArchitectureUnsupported, &["none named"]),
        (|f| set(f, "general.alignment", Meta::U32(0)), CheckpointUnreadable, &["general.alignment"]),
        (|f| set(f, "llama.embedding_length", None), CheckpointUnreadable, &["`llama.embedding_length` is missing"]),
        (|f| set(f, "llama.block_count", Meta::U32(u32::MAX)), CheckpointUnreadable, &["llama.block_count"]),
        (|f| set(f, "llama.block_count", Meta::U32(3)), TensorMismatch, &["`blk.2.attn_norm.weight`"]),
        (|f| set(f, "llama.attention.head_count_kv", Meta::I32s(vec![2, 2])), CheckpointUnreadable, &["llama.attention.head_count_kv"]),
        (|f| set(f, "llama.rope.dimension_count", Meta::U32(6)), ArchitectureUnsupported, &["llama.rope.dimension_count", "whole heads"]),
        (|f| set(f, "llama.rope.scaling.type", Meta::Text("ntk".into())), ArchitectureUnsupported, &["llama.rope.scaling.type", "ntk"]),
        (|f| set(f, "llama.expert_count", Meta::U32(8)), ArchitectureUnsupported, &["llama.expert_count", "8"]),
        (|f| set(f, "split.count", Meta::U32(2)), ArchitectureUnsupported, &["split.count", "merge"]),
        (|f| f.tensor("blk.0.attn_q.weight").kind = 16, DtypeUnsupported, &["`blk.0.attn_q.weight`", "IQ2_XXS", "Q4_K"]),
        (|f| f.tensor("blk.0.attn_q.weight").kind = 12, CheckpointUnreadable, &["`blk.0.attn_q.weight`"]),
        (|f| f.tensor("blk.0.attn_q.weight").kind = 99, DtypeUnsupported, &["ggml type 99"]),
        (|f| f.tensor("blk.0.attn_q.weight").kind = 8, CheckpointUnreadable, &["`blk.0.attn_q.weight`"]),
        (|f| f.tensor("blk.0.attn_q.weight").shape = vec![1 << 40, 1 << 40], CheckpointUnreadable, &["`blk.0.attn_q.weight`"]),
        (|f| f.tensor("blk.0.attn_q.weight").shape = vec![1; 5], CheckpointUnreadable, &["`blk.0.attn_q.weight`", "5 dimensions"]),
        (|f| f.tensor("blk.0.attn_q.weight").shape = vec![96, 48], CheckpointUnreadable, &["overlap"]),
        (|f| f.tensor("token_embd.weight").shape = vec![], TensorMismatch, &["`token_embd.weight`", "[]"]),
        (|f| f.tensor("blk.0.attn_q.weight").name = "blk.0.attn_q.bias".into(), TensorMismatch, &["`blk.0.attn_q.weight`"]),
        (|f| f.tensor("blk.0.attn_q.weight").name = "blk.0.attn_k.weight".into(), CheckpointUnreadable, &["`blk.0.attn_k.weight`", "twice"]),
        (|f| f.tensor("output.weight").name = "rope_freqs.weight".into(), TensorMismatch, &["`rope_freqs.weight`", "[6]"]),
        (|f| set(f, "tokenizer.ggml.model", Meta::Text("bert".into())), TokenizerUnusable, &["tokenizer.ggml.model", "`bert`", "gpt2", "llama"]),
        (|f| set(f, "tokenizer.ggml.model", Meta::Text("t5".into())), TokenizerUnusable, &["tokenizer.ggml.model", "`t5`", "gpt2", "llama"]),
        (|f| set(f, "tokenizer.ggml.model", Meta::Text("rwkv".into())), TokenizerUnusable, &["tokenizer.ggml.model", "`rwkv`", "gpt2", "llama"]),
        (|f| set(f, "tokenizer.ggml.model", Meta::Text("none".into())), TokenizerUnusable, &["tokenizer.ggml.model", "`none`", "gpt2", "llama"]),
        (|f| set(f, "tokenizer.ggml.model", Meta::Text("gemma4".into())), TokenizerUnusable, &["tokenizer.ggml.model", "`gemma4`", "gpt2", "llama"]),
        (|f| set(f, "tokenizer.ggml.pre", Meta::Text("bloom".into())), TokenizerUnusable, &["tokenizer.ggml.pre", "`bloom`", "smollm"]),
        (|f| set(f, "tokenizer.ggml.tokens", None), CheckpointUnreadable, &["tokenizer.ggml.tokens", "missing"]),
        (|f| { set(f, "tokenizer.ggml.tokens", Meta::Texts(["a"; 3].map(String::from).into()))}, CheckpointUnreadable, &["\"a\" twice"]),
        (|f| set(f, "tokenizer.ggml.bos_token_id", Meta::U32(320)), CheckpointUnreadable, &["tokenizer.ggml.bos_token_id", "320"]),
        (|f| set(f, "tokenizer.ggml.merges", Meta::Texts(vec!["ab".into()])), CheckpointUnreadable, &["\"ab\"", "two tokens"]),
        (|f| { set(f, "tokenizer.ggml.merges", Meta::Texts(vec![format!("a {}", "b".repeat(99))]))}, CheckpointUnreadable, &["makes no token"]),
    ];
    for (index, (damage, code, parts)) in cases.iter().enumerate() {
        let mut file = GgufFile::of_fixture("llama_gqa");
        damage(&mut file);
        let (_dir, path) = file.write();
        let refused = Checkpoint::open(&path).and_then(|opened| opened.tokenizer());
        let error = refused
            .err()
            .unwrap_or_else(|| panic!("case {index} opens: {parts:?}"));
        assert_refused(index, &error, *code, parts);
    }
}

#[test]
fn paths_that_are_no_checkpoints() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.write("weights.pt", "");
    let cases: [(&str, ErrorCode, &[&str]); 4] = [
        ("absent", CheckpointUnreadable, &["absent"]),
        (
            "config.json",
            CheckpointUnreadable,
            &["config.json", "GGUF"],
        ),
        ("weights.pt", PickleRefused, &["weights.pt"]),
        ("model.safetensors", CheckpointUnreadable, &["directory"]),
    ];
    for (index, (name, code, parts)) in cases.into_iter().enumerate() {
        let error = Checkpoint::open(&sandbox.file(name)).unwrap_err();
        assert_refused(index, &error, code, parts);
    }
}
