//! What `POST /jobs` refuses at once: status, code and field of each.

use std::fs;
use std::os::unix::fs::symlink;

use assay_api::ErrorCode::{
    self, ArchitectureUnsupported, CheckpointUnreadable, DatasetUnreadable, InvalidRequest,
    MalformedJson, MethodInvalid, NoPrefixToken, PathOutsideRoot, PayloadTooLarge, PickleRefused,
    TensorMismatch, TokenizerUnusable, UnsupportedMediaType,
};
use assay_testkit::Roots;
use reqwest::Method;
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::client::refusal;
use crate::service::Service;

fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    roots.add_data("a.txt", "text");
    roots.add_data("b.jsonl", "{\"text\": \"text\"}\n");
    roots
}

/// A good request with some fields replaced.
fn with(change: Value) -> Value {
    let mut body = json!({"model": "llama_gqa", "datasets": ["a.txt"]});
    let Value::Object(change) = change else {
        panic!("a change is an object")
    };
    body.as_object_mut().unwrap().extend(change);
    body
}

async fn refused(service: &Service, body: &Value, code: ErrorCode, field: &str, parts: &[&str]) {
    let (status, found, fields, detail) = refusal(service.client.post(body).await).await;
    let context = format!("{body}: {detail}");
    assert_eq!((status, found), (code.http_status(), code), "{context}");
    assert_eq!(fields, [field], "{context}");
    for part in parts {
        assert!(detail.contains(part), "{part:?} is not in {context}");
    }
    let roots = service.roots.models().display().to_string();
    assert!(!detail.contains(&roots), "a path of the host: {detail}");
}

/// Nothing of what was refused has become a job.
async fn finish_without_jobs(service: Service) {
    let jobs: Vec<Value> = service.client.all("/jobs?limit=10").await;
    assert_eq!(jobs, [] as [Value; 0]);
    service.finish().await;
}

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn fields_at_fault_are_named() {
    let roots = roots();
    let outside = Roots::new();
    outside.add_data("secret.txt", "secret");
    symlink(outside.data().join("secret.txt"), roots.data().join("link.txt")).unwrap();
    symlink(outside.data(), roots.models().join("link")).unwrap();
    let many: Vec<Value> = (0..101).map(|i| json!({"path": "a.txt", "name": i.to_string()})).collect();
    let cases = [
        (json!({"modle": "x"}), InvalidRequest, "modle", vec!["unknown field"]),
        (json!({"model": 7}), InvalidRequest, "model", vec!["string"]),
        (json!({"model": null}), InvalidRequest, "model", vec!["string"]),
        (json!({"datasets": "a.txt"}), InvalidRequest, "datasets", vec!["sequence"]),
        (json!({"datasets": [7]}), InvalidRequest, "datasets[0]", vec!["path"]),
        (json!({"datasets": []}), InvalidRequest, "datasets", vec!["at least one"]),
        (json!({"datasets": many}), InvalidRequest, "datasets", vec!["101", "100"]),
        (json!({"datasets": ["a.txt", "a.txt"]}), InvalidRequest, "datasets[1].name", vec!["datasets[0]"]),
        (json!({"datasets": [{"path": "a.txt", "fild": "x"}]}), InvalidRequest, "datasets[0].fild", vec!["unknown field"]),
        (json!({"datasets": [{"path": "a.txt", "limit_tokens": 0}]}), InvalidRequest, "datasets[0].limit_tokens", vec!["1"]),
        (json!({"datasets": [{"path": "a.txt", "limit_documents": 0}]}), InvalidRequest, "datasets[0].limit_documents", vec!["1"]),
        (json!({"datasets": [{"path": "a.txt", "limit_documents": 1.5}]}), InvalidRequest, "datasets[0].limit_documents", vec!["u64"]),
        (json!({"datasets": [{"path": "a.txt", "format": "csv"}]}), InvalidRequest, "datasets[0].format", vec!["jsonl"]),
        (json!({"datasets": ["/etc/passwd"]}), PathOutsideRoot, "datasets[0].path", vec!["/etc/passwd"]),
        (json!({"datasets": ["../data/a.txt"]}), PathOutsideRoot, "datasets[0].path", vec![".."]),
        (json!({"datasets": ["link.txt"]}), PathOutsideRoot, "datasets[0].path", vec!["link.txt"]),
        (json!({"datasets": ["none.txt"]}), DatasetUnreadable, "datasets[0].path", vec!["none.txt"]),
        (json!({"model": "/etc"}), PathOutsideRoot, "model", vec!["/etc"]),
        (json!({"model": "../models/llama_gqa"}), PathOutsideRoot, "model", vec![".."]),
        (json!({"model": "link"}), PathOutsideRoot, "model", vec!["link"]),
        (json!({"model": "none"}), CheckpointUnreadable, "model", vec!["none"]),
        (json!({"method": {"window": 0}}), MethodInvalid, "method.window", vec!["1"]),
        (json!({"method": {"window": 513}}), MethodInvalid, "method.window", vec!["513", "512"]),
        (json!({"method": {"window": -1}}), InvalidRequest, "method.window", vec!["u32"]),
        (json!({"method": {"convention": "guess"}}), InvalidRequest, "method.convention", vec!["rolling"]),
        (json!({"method": {"bos": "never"}}), InvalidRequest, "method.bos", vec!["unknown field"]),
        (json!({"dtype": "int8"}), InvalidRequest, "dtype", vec!["bfloat16"]),
        (json!({"tags": {"a": 1}}), InvalidRequest, "tags.a", vec!["string"]),
        (json!({"name": "a\u{7}b"}), InvalidRequest, "name", vec!["control"]),
        (json!({"name": "a\u{0}b"}), InvalidRequest, "name", vec!["NUL"]),
    ];
    let service = Service::start(roots).await;
    for (change, code, field, parts) in cases {
        refused(&service, &with(change), code, field, &parts).await;
    }
    finish_without_jobs(service).await;
}

#[tokio::test]
async fn bodies_and_headers_at_fault_are_refused() {
    let service = Service::start(roots()).await;
    let send = async |kind: &'static str, key: Option<&'static [u8]>, body: Vec<u8>| {
        let request = service.client.request(Method::POST, "/jobs");
        let request = request.header("Content-Type", kind).body(body);
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let (status, code, fields, _) = refusal(request.send().await.unwrap()).await;
        (status, code, fields.join(" "))
    };
    let json = "application/json";
    let good = || with(json!({})).to_string().into_bytes();
    let large = with(json!({"name": "x".repeat(2 << 20)})).to_string();
    let (none, key) = (String::new(), "Idempotency-Key".to_owned());
    for (got, expected) in [
        (
            send(json, None, b"{\"model\": ".to_vec()).await,
            (400, MalformedJson, &none),
        ),
        (
            send(json, None, Vec::new()).await,
            (400, MalformedJson, &none),
        ),
        (
            send(json, None, vec![0xff, 0xfe]).await,
            (400, MalformedJson, &none),
        ),
        (
            send(json, None, large.into()).await,
            (413, PayloadTooLarge, &none),
        ),
        (
            send("text/plain", None, good()).await,
            (415, UnsupportedMediaType, &none),
        ),
        (
            send(json, Some(b""), good()).await,
            (422, InvalidRequest, &key),
        ),
        (
            send(json, Some(&[b'k'; 256]), good()).await,
            (422, InvalidRequest, &key),
        ),
        (
            send(json, Some("schlüssel".as_bytes()), good()).await,
            (422, InvalidRequest, &key),
        ),
    ] {
        assert_eq!(got, (expected.0, expected.1, expected.2.clone()));
    }
    finish_without_jobs(service).await;
}

/// What is done to the fixture, and the refusal.
type Case = (
    &'static str,
    fn(Damaged<'_>),
    ErrorCode,
    &'static [&'static str],
);

#[rustfmt::skip] // one case a line
const CHECKPOINTS: [Case; 9] = [
    ("truncated", |c| c.truncate(), CheckpointUnreadable, &["truncated/model.safetensors", "cut off"]),
    ("missing", |c| c.edit_header(|h| { let t = h.remove("model.norm.weight").unwrap(); h.insert("lm_head.weight2".into(), t); }), TensorMismatch, &["model.norm.weight"]),
    ("unused", |c| c.set("config.json", "num_hidden_layers", json!(1)), TensorMismatch, &["model.layers.1.", "does not use"]),
    ("misshaped", |c| c.set("config.json", "intermediate_size", json!(64)), TensorMismatch, &["[96, 48]", "[64, 48]"]),
    ("unknown", |c| c.set("config.json", "architectures", json!(["MambaForCausalLM"])), ArchitectureUnsupported, &["MambaForCausalLM"]),
    ("pickle", |c| c.rename("model.safetensors", "pytorch_model.bin"), PickleRefused, &["pytorch_model.bin"]),
    ("no-config", |c| c.remove("config.json"), CheckpointUnreadable, &["config.json"]),
    ("no-tokenizer", |c| c.remove("tokenizer.json"), TokenizerUnusable, &["tokenizer.json"]),
    ("no-prefix", no_prefix, NoPrefixToken, &["BOS", "EOS"]),
];

/// Neither BOS nor EOS, wherever they are named.
fn no_prefix(checkpoint: Damaged<'_>) {
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        for token in ["bos_token", "eos_token"] {
            checkpoint.set(file, token, Value::Null);
        }
    }
    checkpoint.set("tokenizer.json", "post_processor", Value::Null);
}

#[tokio::test]
async fn checkpoints_at_fault_are_named() {
    let roots = Roots::new();
    roots.add_data("a.txt", "text");
    for (name, damage, ..) in CHECKPOINTS {
        let path = roots.models().join(name);
        fs::rename(roots.add_model("llama_gqa"), &path).unwrap();
        damage(Damaged(&path));
    }
    let service = Service::start(roots).await;
    for (name, _, code, parts) in CHECKPOINTS {
        refused(
            &service,
            &with(json!({"model": name})),
            code,
            "model",
            parts,
        )
        .await;
    }
    finish_without_jobs(service).await;
}
