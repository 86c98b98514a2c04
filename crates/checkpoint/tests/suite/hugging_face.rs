//! Fixtures as they are.

use std::collections::HashSet;

use assay_api::Dtype;
use assay_checkpoint::{Checkpoint, Place, RopeScaling, Slot, WeightDtype};
use serde_json::{Value, json};

use crate::sandbox::{CASES, Sandbox, expected, fixture};

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn every_fixture_opens_and_its_tokenizer_agrees() {
    for case in CASES {
        let checkpoint = Checkpoint::open(&fixture(case)).unwrap();
        assert_eq!(checkpoint.warnings(), [] as [String; 0], "{case}");
        assert_eq!(checkpoint.architecture().family.name(), "llama");
        let expected = expected(case);
        let facts = &expected["tokenizer"];
        let tokenizer = checkpoint.tokenizer().unwrap();
        assert_eq!(json!(tokenizer.bos()), facts["bos_id"], "{case}");
        assert_eq!(json!(tokenizer.eos()), facts["eos_id"], "{case}");
        assert_eq!(json!(tokenizer.adds_bos()), facts["adds_bos"], "{case}");
        assert_eq!(json!(tokenizer.vocab_size()), facts["vocab_size"], "{case}");
        assert_eq!(Some(tokenizer.prefix().unwrap()), tokenizer.bos());
        let texts = expected["tokens"].as_object().unwrap();
        assert_eq!(texts.len(), 3);
        for (name, text) in texts {
            let encoded = tokenizer.encode(text["text"].as_str().unwrap()).unwrap();
            assert_eq!(encoded, ids(&text["without_special"]), "{case}, {name}");
            let with_bos: Vec<u32> = tokenizer.bos().into_iter().chain(encoded).collect();
            assert_eq!(with_bos, ids(&text["with_special"]), "{case}, {name}");
        }
    }
}

#[test]
fn a_batch_is_its_texts() {
    let tokenizer = Checkpoint::open(&fixture("llama_tied"))
        .unwrap()
        .tokenizer()
        .unwrap();
    let texts = ["The ferry", "", "leaves at 7:45,  \n\n", "«Это»"];
    let alone: Vec<_> = texts
        .iter()
        .map(|text| tokenizer.encode(text).unwrap())
        .collect();
    assert_eq!(tokenizer.encode_batch(&texts).unwrap(), alone);
    assert!(alone[1].is_empty());
}

#[test]
fn truncation_and_padding_in_the_file_are_switched_off() {
    let sandbox = Sandbox::of("llama_gqa");
    let text = "The clerk at the harbour office had three rules.";
    let before = Checkpoint::open(sandbox.path())
        .unwrap()
        .tokenizer()
        .unwrap();
    sandbox.edit_json("tokenizer.json", |tokenizer| {
        let truncation = json!({
            "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0
        });
        let padding = json!({
            "strategy": { "Fixed": 64 }, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"
        });
        tokenizer.insert("truncation".into(), truncation);
        tokenizer.insert("padding".into(), padding);
    });
    let after = Checkpoint::open(sandbox.path())
        .unwrap()
        .tokenizer()
        .unwrap();
    assert_eq!(after.encode(text).unwrap(), before.encode(text).unwrap());
    assert_ne!(after.digest(), before.digest());
}

#[test]
fn configurations_of_both_styles() {
    let old = Checkpoint::open(&fixture("llama31_rope")).unwrap();
    let architecture = old.architecture();
    assert_eq!(
        (
            architecture.heads,
            architecture.kv_heads,
            architecture.head_dim
        ),
        (4, 2, 16)
    );
    assert_eq!(
        (architecture.blocks.len(), architecture.hidden_size),
        (3, 48)
    );
    assert_eq!(
        (architecture.intermediate_size, architecture.vocab_size),
        (96, 320)
    );
    assert_eq!(architecture.max_positions, 512);
    assert!((architecture.norm_eps - 0.05).abs() < f64::EPSILON);
    assert!((architecture.ropes()[0].theta - 500_000.0).abs() < f64::EPSILON);
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_positions: 64.0,
    };
    assert_eq!(architecture.ropes()[0].scaling, llama3);

    let new = Checkpoint::open(&fixture("llama_tied")).unwrap();
    assert!((new.architecture().ropes()[0].theta - 2000.0).abs() < f64::EPSILON);
    assert_eq!(new.architecture().ropes()[0].scaling, RopeScaling::None);
    assert!(new.architecture().tied_head && !new.has(Slot::model(Place::Head)));
}

/// Written as transformers 5 would, the same scaling is read.
#[test]
fn scaling_in_rope_parameters() {
    let sandbox = Sandbox::of("llama31_rope");
    let before = Checkpoint::open(sandbox.path())
        .unwrap()
        .architecture()
        .clone();
    sandbox.edit_json("config.json", |config| {
        let mut scaling = config.remove("rope_scaling").unwrap();
        scaling["rope_theta"] = config.remove("rope_theta").unwrap();
        config.insert("rope_parameters".into(), scaling);
    });
    assert_eq!(
        *Checkpoint::open(sandbox.path()).unwrap().architecture(),
        before
    );
}

/// transformers' `_compute_llama3_parameters` in float32 numpy, with the fixture's numbers.
#[test]
fn scaled_frequencies() {
    let reference: [f32; 8] = [
        1.0,
        0.079_403_01,
        0.004_700_754,
        0.000_911_583_1,
        0.000_176_776_7,
        3.428_102_4e-5,
        6.647_870_6e-6,
        1.289_173_2e-6,
    ];
    let checkpoint = Checkpoint::open(&fixture("llama31_rope")).unwrap();
    let architecture = checkpoint.architecture();
    let found = architecture.ropes()[0].frequencies(1);
    assert_eq!(found.len(), reference.len());
    for (found, wanted) in found.iter().zip(reference) {
        assert!((found / wanted - 1.0).abs() < 5e-7, "{found} for {wanted}");
    }
}

#[test]
fn every_slot_has_a_weight_of_its_shape() {
    for case in CASES {
        let checkpoint = Checkpoint::open(&fixture(case)).unwrap();
        let mut seen = HashSet::new();
        let mut elements = 0;
        for (slot, shape) in checkpoint.architecture().slots() {
            let weight = checkpoint.weight(slot).unwrap();
            let width = if weight.dtype() == WeightDtype::F32 {
                4
            } else {
                2
            };
            assert_eq!(weight.shape(), shape);
            let bytes = weight.bytes();
            assert_eq!(bytes.len(), shape.iter().product::<usize>() * width);
            assert!(
                seen.insert(bytes.as_ptr()),
                "{case}: {slot:?} shares its bytes"
            );
            elements += shape.iter().product::<usize>() as u64;
        }
        assert_eq!(checkpoint.parameters(), elements, "{case}");
    }
}

#[test]
fn dtypes_follow_the_checkpoint() {
    let open = |case| Checkpoint::open(&fixture(case)).unwrap();
    assert_eq!(open("bf16_llama").default_dtype(), Dtype::Bfloat16);
    let norm = Slot::block(0, Place::AttentionNorm);
    assert_eq!(
        open("bf16_llama").weight(norm).unwrap().dtype(),
        WeightDtype::Bf16
    );
    assert_eq!(open("llama_gqa").default_dtype(), Dtype::Float32);
    let sandbox = Sandbox::of("bf16_llama");
    sandbox.configure("torch_dtype", Value::Null);
    let unsaid = Checkpoint::open(sandbox.path()).unwrap();
    assert_eq!(unsaid.default_dtype(), Dtype::Bfloat16);
    sandbox.configure("dtype", json!("float32"));
    let other = Checkpoint::open(sandbox.path()).unwrap();
    assert_eq!(other.default_dtype(), Dtype::Float32);
    assert!(
        other.warnings()[0].contains("dtype"),
        "{:?}",
        other.warnings()
    );
}

/// The matrices of llama_gqa by hand: q, k, v, o; gate, up, down; head.
#[test]
fn flops_count_every_matrix() {
    let checkpoint = Checkpoint::open(&fixture("llama_gqa")).unwrap();
    let block = 48 * (48 + 24 + 24 + 48) + 3 * 48 * 96;
    let linear = f64::from(2 * (2 * block + 320 * 48));
    let architecture = checkpoint.architecture();
    assert!((architecture.linear_flops_per_token() - linear).abs() < 0.5);
    assert!((architecture.attention_flops_per_pair() - f64::from(4 * 2 * 48)).abs() < 0.5);
}

#[test]
fn a_stored_head_wins_over_the_tied_flag_where_it_differs() {
    let differs = Sandbox::of("llama_gqa");
    differs.configure("tie_word_embeddings", json!(true));
    let checkpoint = Checkpoint::open(differs.path()).unwrap();
    assert!(checkpoint.has(Slot::model(Place::Head)) && !checkpoint.architecture().tied_head);
    assert!(checkpoint.warnings()[0].contains("lm_head.weight"));

    let same = Sandbox::of("llama_tied");
    let parameters = Checkpoint::open(same.path()).unwrap().parameters();
    same.add_tensor("model.safetensors", "lm_head.weight", "F32", &[320, 48]);
    let embedding = Checkpoint::open(same.path()).unwrap();
    assert!(
        embedding.has(Slot::model(Place::Head)),
        "a head of zeros differs"
    );
    let slot = Slot::model(Place::Embedding);
    let bytes = embedding.weight(slot).unwrap().bytes().into_owned();
    drop(embedding);
    same.edit("model.safetensors", |file| {
        let start = file.len() - bytes.len();
        file[start..].copy_from_slice(&bytes);
    });
    let checkpoint = Checkpoint::open(same.path()).unwrap();
    assert!(checkpoint.architecture().tied_head && !checkpoint.has(Slot::model(Place::Head)));
    assert_eq!(checkpoint.warnings(), [] as [String; 0]);
    assert_eq!(checkpoint.parameters(), parameters);
    let error = checkpoint.weight(Slot::model(Place::Head)).unwrap_err();
    assert!(error.to_string().contains("tied"), "{error}");
}

#[test]
fn known_buffers_are_not_read() {
    let sandbox = Sandbox::of("llama_gqa");
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    sandbox.add_tensor("model.safetensors", name, "F32", &[6]);
    Checkpoint::open(sandbox.path()).unwrap();
}

#[test]
fn special_tokens_come_from_the_tokenizers_own_files() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.configure("bos_token_id", json!(7));
    sandbox.edit_json("tokenizer_config.json", |config| {
        config.insert(
            "bos_token".into(),
            json!({ "content": "</s>", "special": true }),
        );
        config.remove("eos_token");
    });
    sandbox.write(
        "special_tokens_map.json",
        r#"{"bos_token": "<unk>", "eos_token": "<s>"}"#,
    );
    let swapped = Checkpoint::open(sandbox.path())
        .unwrap()
        .tokenizer()
        .unwrap();
    assert_eq!((swapped.bos(), swapped.eos()), (Some(2), Some(1)));
    assert!(
        !swapped.adds_bos(),
        "the post-processor adds <s>, which is not this BOS"
    );

    sandbox.write("special_tokens_map.json", "{}");
    sandbox.edit_json("tokenizer_config.json", |config| {
        drop(config.remove("bos_token"));
    });
    let none = Checkpoint::open(sandbox.path())
        .unwrap()
        .tokenizer()
        .unwrap();
    let error = none.prefix().unwrap_err();
    assert_eq!(error.code(), assay_api::ErrorCode::NoPrefixToken);
    assert_ne!(none.digest(), swapped.digest());
}
