//! What `POST /jobs` refuses at once: status, code and field of each.

use std::fs;
use std::os::unix::fs::symlink;

use assay_api::ErrorCode::{
    ChatTemplateUnusable, CheckpointUnreadable, DatasetInvalid, DatasetUnreadable, InvalidRequest,
    MethodInvalid, PathOutsideRoot,
};
use assay_testkit::Roots;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::{Complaints, finish_without_jobs, roots, with};
use crate::chat::add_chat_model;
use crate::service::Service;

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn fields_at_fault_are_named() {
    let many: Vec<Value> = (0..101).map(|i| json!({"path": "a.txt", "name": i.to_string()})).collect();
    let cases = [
        (json!({"modle": "x"}), InvalidRequest, "modle", vec!["unknown field"]),
        (json!({"model": 7}), InvalidRequest, "model", vec!["path"]),
        (json!({"model": null}), InvalidRequest, "model", vec!["path"]),
        (json!({"datasets": "a.txt"}), InvalidRequest, "datasets", vec!["sequence"]),
        (json!({"datasets": [7]}), InvalidRequest, "datasets[0]", vec!["path"]),
        (json!({"datasets": []}), InvalidRequest, "datasets", vec!["at least one"]),
        (json!({"datasets": many}), InvalidRequest, "datasets", vec!["101", "100"]),
        (json!({"datasets": ["a.txt", "a.txt"]}), InvalidRequest, "datasets[1].name", vec!["datasets[0]"]),
        (json!({"datasets": ["a.txt", {"path": "b.jsonl", "name": "a.txt"}]}), InvalidRequest, "datasets[1].name", vec!["datasets[0]"]),
        (json!({"datasets": [{"path": "a.txt", "fild": "x"}]}), InvalidRequest, "datasets[0].fild", vec!["unknown field"]),
        (json!({"dtype": "int8"}), InvalidRequest, "dtype", vec!["bfloat16"]),
        (json!({"tags": {"a": 1}}), InvalidRequest, "tags.a", vec!["string"]),
        (json!({"name": "a\u{7}b"}), InvalidRequest, "name", vec!["control"]),
        (json!({"name": "a\u{0}b"}), InvalidRequest, "name", vec!["NUL"]),
        (json!({"tags": {"a": "\u{0}"}}), InvalidRequest, "tags.a", vec!["NUL"]),
        (json!({"token_output": 1}), InvalidRequest, "token_output", vec!["boolean"]),
        (json!({"reuse": "no"}), InvalidRequest, "reuse", vec!["boolean"]),
        (json!({"priority": 101}), InvalidRequest, "priority", vec!["101", "100"]),
        (json!({"priority": 1.5}), InvalidRequest, "priority", vec!["i32"]),
        (json!({"numerics": "mixed"}), InvalidRequest, "numerics", vec!["adaptive"]),
        (json!({"audit": 1.5}), InvalidRequest, "audit", vec!["1.5", "0 to 1"]),
        (json!({"audit": -0.5}), InvalidRequest, "audit", vec!["-0.5"]),
        (json!({"baseline": "always"}), InvalidRequest, "baseline", vec!["measure"]),
        (json!({"model": "/etc"}), PathOutsideRoot, "model", vec!["/etc"]),
        (json!({"model": "../models/llama_gqa"}), PathOutsideRoot, "model", vec![".."]),
        (json!({"model": "none"}), CheckpointUnreadable, "model", vec!["none"]),
        (json!({"model": "llama_gqa\u{0}"}), InvalidRequest, "model", vec!["NUL"]),
    ];
    let service = Service::start(roots()).await;
    let mut complaints = Complaints::default();
    for (change, code, field, parts) in cases {
        complaints.refused(&service, &with(change), code, field, &parts).await;
    }
    finish_without_jobs(service).await;
    complaints.none();
}

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn methods_at_fault_are_named() {
    let nine: Vec<Value> = (1..=9).map(|window| json!({"window": window})).collect();
    let cases = [
        (json!({"window": 0}), MethodInvalid, "method.window", vec!["1"]),
        (json!({"window": 513}), MethodInvalid, "method.window", vec!["513", "512"]),
        (json!({"window": -1}), InvalidRequest, "method.window", vec!["u32"]),
        (json!({"window": 4_294_967_296_u64}), InvalidRequest, "method.window", vec!["u32"]),
        (json!({"window": 1.5}), InvalidRequest, "method.window", vec!["u32"]),
        (json!({"convention": "guess"}), InvalidRequest, "method.convention", vec!["rolling", "llamacpp"]),
        (json!({"convention": "blocks", "window": 1}), MethodInvalid, "method.window", vec!["2"]),
        (json!({"convention": "strided", "window": 1}), MethodInvalid, "method.window", vec!["2"]),
        (json!({"convention": "llamacpp", "window": 3}), MethodInvalid, "method.window", vec!["4"]),
        (json!({"convention": "strided", "window": 64, "stride": 64}), MethodInvalid, "method.stride", vec!["64"]),
        (json!({"convention": "strided", "window": 64, "stride": 65}), MethodInvalid, "method.stride", vec!["65", "64"]),
        (json!({"convention": "strided", "window": 64, "stride": 0}), MethodInvalid, "method.stride", vec!["1"]),
        (json!({"stride": 4}), MethodInvalid, "method.stride", vec!["strided", "rolling"]),
        (json!({"join": "x"}), MethodInvalid, "method.join", vec!["rolling"]),
        (json!({"tail": "score"}), MethodInvalid, "method.tail", vec!["blocks", "rolling"]),
        (json!({"bos": "never"}), MethodInvalid, "method.bos", vec!["rolling", "prefix"]),
        (json!({"bos": "maybe"}), InvalidRequest, "method.bos", vec!["always", "never"]),
        (json!({"convention": "blocks", "stride": 4}), MethodInvalid, "method.stride", vec!["strided", "blocks"]),
        (json!({"convention": "strided", "tail": "drop"}), MethodInvalid, "method.tail", vec!["blocks", "strided"]),
        (json!({"convention": "llamacpp", "tail": "score"}), MethodInvalid, "method.tail", vec!["blocks", "llamacpp"]),
        (json!({"convention": "llamacpp", "stride": 4}), MethodInvalid, "method.stride", vec!["strided", "llamacpp"]),
        (json!({"convention": "blocks", "join": "\u{0}"}), InvalidRequest, "method.join", vec!["NUL"]),
        (json!({"windw": 4}), InvalidRequest, "method.windw", vec!["unknown field"]),
        (json!("rolling"), InvalidRequest, "method", vec!["object"]),
        (json!([]), InvalidRequest, "method", vec!["empty list"]),
        (json!(nine), InvalidRequest, "method", vec!["9", "8"]),
        (json!([{"window": 64}, {"convention": "rolling", "window": 64}]), InvalidRequest, "method[1]", vec!["method[0]"]),
        (json!([{}, {"window": 512}]), InvalidRequest, "method[1]", vec!["method[0]"]),
        (json!([{}, {"window": 0}]), MethodInvalid, "method[1].window", vec!["1"]),
        (json!([{}, {"windw": 4}]), InvalidRequest, "method[1].windw", vec!["unknown field"]),
    ];
    let service = Service::start(roots()).await;
    let mut complaints = Complaints::default();
    for (method, code, field, parts) in cases {
        complaints.refused(&service, &with(json!({"method": method})), code, field, &parts).await;
    }
    let eight: Vec<Value> = (1..=8).map(|window| json!({"window": window})).collect();
    let many: Vec<Value> = (0..51).map(|i| json!({"path": "a.txt", "name": i.to_string()})).collect();
    let rows = with(json!({"method": eight, "datasets": many}));
    complaints.refused(&service, &rows, InvalidRequest, "method", &["408", "400"]).await;
    finish_without_jobs(service).await;
    complaints.none();
}

/// What lies in the data root: links that leave it, a pipe that nobody writes to, empty folders.
fn odd_roots(outside: &Roots) -> Roots {
    let roots = roots();
    add_chat_model(&roots, "gemma");
    outside.add_data("secret.txt", "secret");
    outside.add_data("secret.jsonl", "{\"text\": \"secret\"}");
    let data = roots.data();
    symlink(outside.data().join("secret.txt"), data.join("link.txt")).unwrap();
    symlink(outside.models(), roots.models().join("link")).unwrap();
    for folder in ["empty", "leads-out", "loop", "unknown"] {
        fs::create_dir(data.join(folder)).unwrap();
    }
    symlink(outside.data(), data.join("folder-link")).unwrap();
    symlink(
        outside.data().join("secret.jsonl"),
        data.join("leads-out/x.jsonl"),
    )
    .unwrap();
    symlink("self", data.join("self")).unwrap();
    roots.add_data("unknown/a.json", "{}");
    mknodat(
        CWD,
        data.join("pipe.txt"),
        FileType::Fifo,
        Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    roots
}

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn datasets_at_fault_are_named() {
    let large = "x".repeat(1_000_001);
    let groupless = json!({"documents": ["a"], "group_by": "kind"});
    let cases = [
        (json!({"path": "/etc/passwd"}), PathOutsideRoot, ".path", vec!["/etc/passwd"]),
        (json!({"path": "../data/a.txt"}), PathOutsideRoot, ".path", vec![".."]),
        (json!({"path": "../data/*.txt"}), PathOutsideRoot, ".path", vec![".."]),
        (json!({"path": "/etc/*"}), PathOutsideRoot, ".path", vec!["/etc/*"]),
        (json!({"path": "link.txt"}), PathOutsideRoot, ".path", vec!["link.txt"]),
        (json!({"path": "folder-link", "format": "jsonl"}), PathOutsideRoot, ".path", vec!["folder-link"]),
        (json!({"path": "folder-link/secret.txt"}), PathOutsideRoot, ".path", vec!["folder-link"]),
        (json!({"path": "leads-out", "format": "jsonl"}), PathOutsideRoot, ".path", vec!["leads-out/x.jsonl"]),
        (json!({"path": "leads-out/*.jsonl"}), PathOutsideRoot, ".path", vec!["leads-out/x.jsonl"]),
        (json!({"path": "self"}), DatasetUnreadable, ".path", vec!["self"]),
        (json!({"path": "none.txt"}), DatasetUnreadable, ".path", vec!["none.txt"]),
        (json!({"path": "none/*.txt"}), DatasetUnreadable, ".path", vec!["none/*.txt"]),
        (json!({"path": "*.nothing"}), DatasetUnreadable, ".path", vec!["*.nothing"]),
        (json!({"path": "a[.txt"}), DatasetUnreadable, ".path", vec!["a[.txt"]),
        (json!({"path": "empty"}), DatasetUnreadable, ".path", vec!["empty", ".jsonl"]),
        (json!({"path": "unknown"}), DatasetUnreadable, ".path", vec!["unknown", ".jsonl"]),
        (json!({"path": "pipe.txt"}), DatasetUnreadable, ".path", vec!["pipe.txt", "regular file"]),
        (json!({"path": ""}), PathOutsideRoot, ".path", vec!["1 to 1024"]),
        (json!({"path": "a\u{0}.txt"}), InvalidRequest, ".path", vec!["NUL"]),
        (json!({"path": "a.txt", "format": "csv"}), InvalidRequest, ".format", vec!["jsonl"]),
        (json!({"path": "b.jsonl", "format": "parquet"}), InvalidRequest, ".format", vec![".parquet"]),
        (json!({"path": "a.txt", "limit_tokens": 0}), InvalidRequest, ".limit_tokens", vec!["1"]),
        (json!({"path": "a.txt", "limit_documents": 0}), InvalidRequest, ".limit_documents", vec!["1"]),
        (json!({"path": "a.txt", "limit_documents": 1.5}), InvalidRequest, ".limit_documents", vec!["u64"]),
        (json!({"path": "b.jsonl", "sample": {"documents": 0}}), InvalidRequest, ".sample.documents", vec!["1"]),
        (json!({"path": "b.jsonl", "sample": {"docs": 1}}), InvalidRequest, ".sample.docs", vec!["unknown field"]),
        (json!({"path": "b.jsonl", "sample": {"documents": 2, "seed": -1}}), InvalidRequest, ".sample.seed", vec!["u64"]),
        (json!({"path": "b.jsonl", "sample": {"documents": 2}, "limit_documents": 2}), InvalidRequest, ".limit_documents", vec!["sample"]),
        (json!({"path": "a.txt", "group_by": "kind"}), InvalidRequest, ".group_by", vec!["text"]),
        (json!({"path": "a.txt", "field": "text"}), InvalidRequest, ".field", vec!["text"]),
        (json!({"path": "b.jsonl", "format": "pairs", "field": "text"}), InvalidRequest, ".field", vec!["`jsonl`", "`pairs`"]),
        (json!({"path": "b.jsonl", "prompt_field": "p"}), InvalidRequest, ".prompt_field", vec!["pairs"]),
        (json!({"path": "b.jsonl", "response_field": "r"}), InvalidRequest, ".response_field", vec!["pairs"]),
        (json!({"path": "b.jsonl", "score": "assistant"}), InvalidRequest, ".score", vec!["chat"]),
        (json!({"path": "b.jsonl", "format": "pairs", "score": "assistant"}), InvalidRequest, ".score", vec!["response"]),
        (json!({"path": "b.jsonl", "score": "none"}), InvalidRequest, ".score", vec!["assistant", "response"]),
        (json!({"path": "b.jsonl", "field": ""}), InvalidRequest, ".field", vec!["1 to 256"]),
        (json!({}), InvalidRequest, "", vec!["path", "upload", "documents"]),
        (json!({"path": "a.txt", "upload": "a.txt"}), InvalidRequest, ".upload", vec!["path", "upload"]),
        (json!({"documents": ["a"], "path": "a.txt"}), InvalidRequest, ".documents", vec!["path", "documents"]),
        (json!({"upload": "none.txt"}), DatasetUnreadable, ".upload", vec!["none.txt", "PUT /datasets"]),
        (json!({"path": "a.txt", "upload_digest": "sha256:0"}), InvalidRequest, ".upload_digest", vec!["filled in by the service"]),
        (json!({"documents": []}), DatasetInvalid, ".documents", vec!["at least one"]),
        (json!({"documents": [7]}), DatasetInvalid, ".documents[0]", vec!["string", "object"]),
        (json!({"documents": ["a", null]}), DatasetInvalid, ".documents[1]", vec!["string", "object"]),
        (groupless, DatasetInvalid, ".documents[0]", vec!["string", "`kind`"]),
        (json!({"documents": [{"txt": "a"}]}), DatasetInvalid, ".documents[0]", vec!["`text`"]),
        (json!({"documents": ["a\u{0}b"]}), InvalidRequest, ".documents[0]", vec!["NUL"]),
        (json!({"documents": ["a", {"text": "b", "x": [{"y\u{0}": 1}]}]}), InvalidRequest, ".documents[1].x[0].y\\0", vec!["NUL"]),
        (json!({"documents": ["a"], "format": "text"}), DatasetInvalid, ".documents", vec!["text", "jsonl"]),
        (json!({"documents": ["a"], "format": "parquet"}), DatasetInvalid, ".documents", vec!["parquet", "jsonl"]),
        (json!({"documents": ["a"], "format": "pairs"}), DatasetInvalid, ".documents[0]", vec!["object"]),
    ];
    let outside = Roots::new();
    let service = Service::start(odd_roots(&outside)).await;
    let mut complaints = Complaints::default();
    for (dataset, code, field, parts) in cases {
        let body = with(json!({"datasets": [dataset]}));
        complaints.refused(&service, &body, code, &format!("datasets[0]{field}"), &parts).await;
    }
    complaints.refused(&service, &with(json!({"model": "link"})), PathOutsideRoot, "model", &["link"]).await;
    let body = with(json!({"datasets": [{"documents": [large]}]}));
    complaints.refused(&service, &body, InvalidRequest, "datasets", &["1000000", "PUT /datasets"]).await;
    let body = with(json!({"datasets": [{"path": "b.jsonl", "format": "chat"}]}));
    complaints.refused(&service, &body, ChatTemplateUnusable, "model", &["chat_template"]).await;
    // Documents that are scored alone have no place in a joined text.
    for (format, convention) in [("chat", "blocks"), ("pairs", "strided"), ("pairs", "llamacpp")] {
        let model = "gemma";
        let dataset = json!({"path": "b.jsonl", "format": format});
        let method = json!({"convention": convention, "window": 64});
        let body = with(json!({"model": model, "datasets": [dataset], "method": method}));
        complaints.refused(&service, &body, MethodInvalid, "method.convention", &[format, convention, "rolling"]).await;
    }
    finish_without_jobs(service).await;
    complaints.none();
}
