//! What only a worker finds wrong with a dataset: the job fails with the code and the field, and
//! says where.

use assay_api::ErrorCode::{self, ChatRefused, DatasetEmpty, DatasetInvalid, DatasetUnreadable};
use parquet::basic::Compression as Codec;
use serde_json::{Value, json};

use super::{Complaints, finish_healthy, roots, with};
use crate::chat::{add_chat_model, add_with_template};
use crate::files::{Column, gz, jsonl, parquet, parquet_of_texts, zst};
use crate::service::Service;

/// A file, the options of its dataset, and the end of the job.
struct Bad {
    file: &'static str,
    bytes: Vec<u8>,
    options: Value,
    code: ErrorCode,
    parts: &'static [&'static str],
}

fn bad(
    file: &'static str,
    bytes: impl Into<Vec<u8>>,
    options: Value,
    code: ErrorCode,
    parts: &'static [&'static str],
) -> Bad {
    let bytes = bytes.into();
    Bad {
        file,
        bytes,
        options,
        code,
        parts,
    }
}

const GOOD: &str = "{\"text\": \"good\"}\n";

/// A good line and then these.
fn then(lines: &str) -> Vec<u8> {
    [GOOD.as_bytes(), lines.as_bytes()].concat()
}

/// 50 MB of lines with a byte in the middle that is not UTF-8, on line 25,001.
fn large_lines() -> Vec<u8> {
    let line = format!(
        "{{\"text\": \"a\", \"skipped\": \"{}\"}}\n",
        "x".repeat(970)
    );
    let mut bytes = line.repeat(50_000).into_bytes();
    bytes[25_000 * line.len() + 500] = 0xff;
    bytes
}

/// 50 MB of text with half of a character in the middle.
fn large_text() -> Vec<u8> {
    let mut bytes = "Call me Ishmael. ".repeat(3_000_000).into_bytes();
    bytes[25_000_000] = 0xc3;
    bytes
}

fn deep(depth: usize) -> String {
    format!(
        "{{\"text\": \"a\", \"x\": {}{}}}",
        "[".repeat(depth),
        "]".repeat(depth)
    )
}

fn texts() -> Vec<String> {
    ["one", "two", "three"].map(str::to_owned).into()
}

fn numbers() -> Vec<u8> {
    let schema = "message schema { REQUIRED INT64 text; }";
    parquet(
        schema,
        Codec::UNCOMPRESSED,
        vec![vec![Column::Number(vec![1, 2])]],
    )
}

fn with_null() -> Vec<u8> {
    let schema = "message schema { OPTIONAL BINARY text (UTF8); }";
    let column = Column::Text(vec![Some("one".to_owned()), None]);
    parquet(schema, Codec::SNAPPY, vec![vec![column]])
}

/// The checksum of a gzip member, or the length of a Parquet footer, is another one.
fn damaged(mut bytes: Vec<u8>) -> Vec<u8> {
    let place = bytes.len() - 7;
    bytes[place] ^= 0x55;
    bytes
}

fn cut(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() / 2);
    bytes
}

/// A thousand and one groups.
fn groups() -> Vec<u8> {
    let records: Vec<Value> = (0..=1000).map(|i| json!({"text": "a", "g": i})).collect();
    jsonl(&records)
}

#[rustfmt::skip] // one case a line
fn files() -> Vec<Bad> {
    let no = || json!({});
    let by = |field: &str| json!({"group_by": field});
    let lines = || GOOD.repeat(1000).into_bytes();
    vec![
        bad("latin1.txt", b"caf\xe9", no(), DatasetInvalid, &["latin1.txt", "UTF-8", "byte 3"]),
        bad("utf16.txt", b"\xff\xfea\0b\0", no(), DatasetInvalid, &["utf16.txt", "UTF-8", "byte 0"]),
        bad("large.txt", large_text(), no(), DatasetInvalid, &["large.txt", "UTF-8", "byte 25000000"]),
        bad("empty.txt", "", no(), DatasetEmpty, &["empty.txt"]),
        bad("latin1.jsonl", [GOOD.as_bytes(), b"{\"text\": \"caf\xe9\"}\n"].concat(), no(), DatasetInvalid, &["line 2", "UTF-8"]),
        bad("large.jsonl", large_lines(), no(), DatasetInvalid, &["large.jsonl", "line 25001", "UTF-8"]),
        bad("empty.jsonl", "", no(), DatasetEmpty, &["empty.jsonl"]),
        bad("blank.jsonl", "\n\n  \n", no(), DatasetEmpty, &["blank.jsonl"]),
        bad("no-tokens.jsonl", "{\"text\": \"\"}\n", no(), DatasetEmpty, &["no-tokens.jsonl"]),
        bad("broken.jsonl", then("\n{\"text\": \n"), no(), DatasetInvalid, &["line 3", "not JSON"]),
        bad("bom.jsonl", [b"\xef\xbb\xbf", GOOD.as_bytes()].concat(), no(), DatasetInvalid, &["line 1", "byte order mark"]),
        bad("surrogate.jsonl", then("{\"text\": \"\\ud800\"}"), no(), DatasetInvalid, &["line 2", "surrogate"]),
        bad("deep.jsonl", then(&deep(100_000)), no(), DatasetInvalid, &["line 2", "recursion"]),
        bad("no-field.jsonl", then("{\"prompt\": \"x\"}\n"), no(), DatasetInvalid, &["line 2", "`text`", "`prompt`"]),
        bad("other-field.jsonl", GOOD, json!({"field": "txt"}), DatasetInvalid, &["line 1", "`txt`", "`text`"]),
        bad("number.jsonl", then("{\"text\": 7}\n"), no(), DatasetInvalid, &["line 2", "a number"]),
        bad("list.jsonl", then("[]\n"), no(), DatasetInvalid, &["line 2", "an array"]),
        bad("csv.jsonl", "text,label\na,b\n", no(), DatasetInvalid, &["line 1", "not JSON"]),
        bad("plain.jsonl.gz", GOOD, no(), DatasetInvalid, &["plain.jsonl.gz", "gzip"]),
        bad("cut.jsonl.gz", cut(gz(&lines(), usize::MAX)), no(), DatasetInvalid, &["cut.jsonl.gz", "gzip", "ends too early"]),
        bad("damaged.jsonl.gz", damaged(gz(&lines(), usize::MAX)), no(), DatasetInvalid, &["damaged.jsonl.gz", "gzip"]),
        bad("empty.jsonl.gz", "", no(), DatasetInvalid, &["empty.jsonl.gz", "gzip"]),
        bad("cut.txt.gz", cut(gz(&lines(), usize::MAX)), no(), DatasetInvalid, &["cut.txt.gz", "gzip", "ends too early"]),
        bad("plain.jsonl.zst", GOOD, no(), DatasetInvalid, &["plain.jsonl.zst", "zstd"]),
        bad("cut.jsonl.zst", cut(zst(&lines(), usize::MAX)), no(), DatasetInvalid, &["cut.jsonl.zst", "zstd", "ends too early"]),
        bad("lines.parquet", GOOD, no(), DatasetInvalid, &["lines.parquet", "Parquet"]),
        bad("empty.parquet", "", no(), DatasetInvalid, &["empty.parquet", "Parquet"]),
        bad("cut.parquet", cut(parquet_of_texts(&texts(), Codec::SNAPPY, 2)), no(), DatasetInvalid, &["cut.parquet", "Parquet"]),
        bad("damaged.parquet", damaged(parquet_of_texts(&texts(), Codec::SNAPPY, 3)), no(), DatasetInvalid, &["damaged.parquet"]),
        bad("column.parquet", parquet_of_texts(&texts(), Codec::SNAPPY, 2), json!({"field": "txt"}), DatasetInvalid, &["`txt`", "`text`", "`id`"]),
        bad("numbers.parquet", numbers(), no(), DatasetInvalid, &["numbers.parquet", "`text`"]),
        bad("null.parquet", with_null(), no(), DatasetInvalid, &["row 2", "null"]),
        bad("no-rows.parquet", parquet_of_texts(&[], Codec::SNAPPY, 1), no(), DatasetEmpty, &["no-rows.parquet"]),
        bad("no-group.jsonl", "{\"text\": \"a\", \"g\": 1}\n{\"text\": \"b\"}\n", by("g"), DatasetInvalid, &["line 2", "`g`", "group_by"]),
        bad("list-group.jsonl", "{\"text\": \"a\", \"g\": [1]}\n", by("g"), DatasetInvalid, &["line 1", "`g`"]),
        bad("null-group.jsonl", "{\"text\": \"a\", \"g\": null}\n", by("g"), DatasetInvalid, &["line 1", "`g`", "null"]),
        bad("nul-group.jsonl", "{\"text\": \"a\", \"g\": \"\\u0000\"}\n", by("g"), DatasetInvalid, &["line 1", "`g`", "NUL"]),
        bad("many-groups.jsonl", groups(), by("g"), DatasetInvalid, &["1000", "`g`"]),
        bad("no-response.jsonl", "{\"prompt\": \"a\"}\n", json!({"format": "pairs"}), DatasetInvalid, &["line 1", "`response`", "response_field"]),
        bad("number-prompt.jsonl", "{\"prompt\": 1, \"response\": \"a\"}\n", json!({"format": "pairs"}), DatasetInvalid, &["line 1", "`prompt`"]),
        bad("no-answers.jsonl", "{\"prompt\": \"a\", \"response\": \"\"}\n", json!({"format": "pairs"}), DatasetEmpty, &["response"]),
    ]
}

#[tokio::test]
async fn files_at_fault_are_named() {
    let roots = roots();
    let files = files();
    for bad in &files {
        roots.add_data(bad.file, &bad.bytes);
    }
    let mut service = Service::start(roots).await;
    let mut complaints = Complaints::default();
    service.add_worker("cpu:0");
    for bad in &files {
        let mut dataset = bad.options.clone();
        dataset["path"] = json!(bad.file);
        let job = with(json!({"datasets": ["a.txt", dataset]}));
        complaints
            .fails(&service, &job, bad.code, Some("datasets[1]"), bad.parts)
            .await;
    }
    // Too short for one block, each as the convention says it.
    for convention in ["blocks", "llamacpp"] {
        let method = json!({"convention": convention, "window": 512});
        let job = with(json!({"method": method}));
        let parts = [convention, "512", "fewer"];
        complaints
            .fails(&service, &job, DatasetEmpty, Some("datasets[0]"), &parts)
            .await;
    }
    // Of a directory, the file at fault is named.
    std::fs::create_dir(service.roots.data().join("many")).unwrap();
    for (file, line) in [("a", GOOD), ("b", "{}\n"), ("c", GOOD)] {
        service.roots.add_data(&format!("many/{file}.jsonl"), line);
    }
    let job = with(json!({"datasets": [{"path": "many", "format": "jsonl"}]}));
    let parts = ["many/b.jsonl", "line 1", "`text`"];
    complaints
        .fails(&service, &job, DatasetInvalid, Some("datasets[0]"), &parts)
        .await;
    finish_healthy(service).await;
    complaints.none();
}

/// A file that was there when the job was posted.
#[tokio::test]
async fn data_that_goes_away_is_named() {
    let mut service = Service::start(roots()).await;
    service.client.upload("gone.txt", "text").await;
    let datasets = json!(["b.jsonl", {"upload": "gone.txt"}]);
    let id = service
        .client
        .submit(&with(json!({"datasets": datasets})))
        .await;
    std::fs::remove_file(service.roots.data().join("b.jsonl")).unwrap();
    service.add_worker("cpu:0");
    let error = service.client.failed(id).await;
    assert_eq!(error.code, DatasetUnreadable, "{error:?}");
    assert!(error.detail.contains("b.jsonl"), "{error:?}");
    finish_healthy(service).await;
}

const ENDLESS: &str =
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
const HUGE: &str = "{% for a in range(10000) %}{{ 'x' * 1000000 }}{% endfor %}";
/// Says less of a turn once another one follows, as templates do that leave out old thoughts.
const FORGETFUL: &str =
    "{% for m in messages %}{{ m.role }}:{% if loop.last %}{{ m.content }}{% endif %};{% endfor %}";

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn chats_at_fault_are_named() {
    let roots = roots();
    add_chat_model(&roots, "gemma");
    add_chat_model(&roots, "mistral");
    for (name, template) in [("endless", ENDLESS), ("huge", HUGE), ("forgetful", FORGETFUL), ("undefined", "{{ messages[0].content.nothing.more }}"), ("nothing", "")] {
        add_with_template(&roots, name, template);
    }
    let user = json!({"role": "user", "content": "a"});
    let turn = json!([user, {"role": "assistant", "content": "b"}]);
    let two = json!([user, {"role": "assistant", "content": "b"}, user, {"role": "assistant", "content": "c"}]);
    let system = json!([{"role": "system", "content": "s"}, user, {"role": "assistant", "content": "b"}]);
    let cases: Vec<(&str, Value, ErrorCode, &[&str])> = vec![
        ("gemma", json!({"messages": system}), ChatRefused, &["line 1", "System role not supported"]),
        ("mistral", json!({"messages": [user, user]}), ChatRefused, &["line 1", "conversation roles must alternate"]),
        ("endless", json!({"messages": turn}), ChatRefused, &["line 1", "template"]),
        ("huge", json!({"messages": turn}), ChatRefused, &["line 1", "template"]),
        ("forgetful", json!({"messages": two}), ChatRefused, &["line 1", "\"score\": \"all\""]),
        ("undefined", json!({"messages": turn}), ChatRefused, &["line 1", "undefined"]),
        ("gemma", json!({"text": "a"}), DatasetInvalid, &["line 1", "`messages`"]),
        ("gemma", json!({"messages": "a"}), ChatRefused, &["line 1", "list"]),
        ("gemma", json!({"messages": [7]}), ChatRefused, &["line 1", "role"]),
        ("gemma", json!({"messages": [{"role": "user"}]}), ChatRefused, &["line 1", "content"]),
        ("gemma", json!({"messages": [{"content": "a"}]}), ChatRefused, &["line 1", "role"]),
        ("gemma", json!({"messages": [{"role": "user", "content": 7}]}), ChatRefused, &["line 1", "content"]),
        ("gemma", json!({"messages": []}), ChatRefused, &["line 1"]),
        ("gemma", json!({"messages": [user]}), DatasetEmpty, &["assistant"]),
        ("nothing", json!({"messages": turn}), DatasetEmpty, &["has a token"]),
    ];
    for (index, (_, record, ..)) in cases.iter().enumerate() {
        roots.add_data(&format!("{index}.jsonl"), record.to_string());
    }
    let mut service = Service::start(roots).await;
    let mut complaints = Complaints::default();
    service.add_worker("cpu:0");
    for (index, (model, _, code, parts)) in cases.into_iter().enumerate() {
        let dataset = json!({"path": format!("{index}.jsonl"), "format": "chat"});
        let job = with(json!({"model": model, "datasets": [dataset]}));
        complaints.fails(&service, &job, code, Some("datasets[0]"), parts).await;
    }
    // What the template forgets does not matter when all tokens count.
    let all = json!({"path": "4.jsonl", "format": "chat", "score": "all"});
    service.client.run(&with(json!({"model": "forgetful", "datasets": [all]}))).await;
    finish_healthy(service).await;
    complaints.none();
}
