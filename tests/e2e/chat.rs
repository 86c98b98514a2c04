//! Chats and pairs against transformers (reference/chat.py): texts, masks, sums, groups.

use std::collections::BTreeMap;
use std::fs;

use assay_api::{DocumentRow, JobId, TokenRow};
use assay_testkit::{Roots, fixture};
use serde_json::{Value, json};

use crate::files::{gz, jsonl, parquet_of_chats};
use crate::reference::{assert_close, assert_token_close, expected};
use crate::service::Service;

const FIXTURE: &str = "chat";
const TEMPLATES: [&str; 4] = ["chatml", "llama3", "mistral", "gemma"];

/// Adds the chat fixture with one of its templates, under the template's name.
pub(crate) fn add_chat_model(roots: &Roots, template: &str) {
    let file = fixture(FIXTURE).join(format!("templates/{template}.jinja"));
    add_with_template(roots, template, &fs::read_to_string(file).unwrap());
}

/// Adds the chat fixture with a template of the test's own.
pub(crate) fn add_with_template(roots: &Roots, name: &str, template: &str) {
    let target = roots.models().join(name);
    fs::rename(roots.add_model(FIXTURE), &target).unwrap();
    fs::write(target.join("chat_template.jinja"), template).unwrap();
}

/// The conversations that a template takes, with what is expected of each.
fn conversations<'a>(reference: &'a Value, template: &str) -> Vec<(&'a str, &'a Value, &'a Value)> {
    let expected = reference["templates"][template].as_object().unwrap();
    expected
        .iter()
        .filter(|(_, result)| result.get("error").is_none())
        .map(|(name, result)| (name.as_str(), &reference["conversations"][name], result))
        .collect()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// A document under `score: all` or with the mask.
fn check_document(row: &DocumentRow, expected: &Value, which: &str, what: &str) {
    let ids = expected["ids"].as_array().unwrap();
    assert_eq!(row.tokens, ids.len() as u64, "{what}");
    let text = expected["text"].as_str().unwrap();
    assert_eq!(row.bytes, text.len() as u64, "{what}");
    let scored = count(&expected[format!("{which}_tokens")]);
    assert_eq!(row.scored_tokens, scored, "{what}: scored tokens");
    let nll = expected[format!("{which}_nll")].as_f64().unwrap();
    assert_close(row.nll, nll, what);
}

/// The tokens of a document: ids, places in the text, which count, and the NLLs of those.
fn check_tokens(rows: &[TokenRow], expected: &Value, which: &str, what: &str) {
    let text = expected["text"].as_str().unwrap();
    let list = |field: &str| expected[field].as_array().unwrap();
    let counts = |index: usize| {
        let context = list("nll")[index].is_null();
        !context && (which == "all" || list("mask")[index] == 1)
    };
    let mut seen = vec![false; list("ids").len()];
    for row in rows {
        let index = usize::try_from(row.index).unwrap();
        let what = format!("{what}: token {index}");
        assert!(!std::mem::replace(&mut seen[index], true), "{what} twice");
        assert_eq!(u64::from(row.id), count(&list("ids")[index]), "{what}");
        // Of a part of a character, the whole character may be given.
        let at = |index: usize| {
            let end = || Some(text.len() as u64);
            let start = list("starts").get(index).map_or_else(end, Value::as_u64);
            usize::try_from(start.unwrap()).unwrap()
        };
        let (start, end) = (at(index), at(index + 1));
        let (whole_start, whole_end) = (
            text.floor_char_boundary(start),
            text.ceil_char_boundary(end),
        );
        let given = [row.start, row.end].map(|offset| usize::try_from(offset).unwrap());
        assert!(
            given[0] == start || given[0] == whole_start,
            "{what}: {row:?}, not {start}..{end}"
        );
        assert!(
            given[1] == end || given[1] == whole_end,
            "{what}: {row:?}, not {start}..{end}"
        );
        assert_eq!(row.nll.is_some(), counts(index), "{what}: {row:?}");
        if let Some(nll) = row.nll {
            assert_token_close(nll, list("nll")[index].as_f64().unwrap(), &what);
        }
        assert_eq!(row.nll.is_some(), row.nll_exact.is_some(), "{what}");
    }
    let missing = (0..seen.len()).find(|&index| counts(index) && !seen[index]);
    assert_eq!(missing, None, "{what}: a counted token is not listed");
}

async fn check_dataset(
    service: &Service,
    id: JobId,
    dataset: &str,
    which: &str,
    expected: &[(&str, &Value)],
) -> Vec<DocumentRow> {
    let rows = service.client.documents(id, dataset).await;
    assert_eq!(rows.len(), expected.len());
    for (row, (name, expected)) in rows.iter().zip(expected) {
        let what = format!("{dataset}: {name}");
        check_document(row, expected, which, &what);
        let tokens = service.client.tokens(id, dataset, row.index, 0).await;
        check_tokens(&tokens, expected, which, &what);
    }
    rows
}

#[tokio::test]
async fn chats_are_rendered_and_masked_as_in_transformers() {
    let reference = expected(FIXTURE);
    let roots = Roots::new();
    for template in TEMPLATES {
        add_chat_model(&roots, template);
        let lines: Vec<String> = conversations(&reference, template)
            .iter()
            .enumerate()
            .map(|(index, (_, messages, _))| {
                json!({"id": index, "messages": messages, "even": index % 2 == 0}).to_string()
            })
            .collect();
        roots.add_data(&format!("{template}.jsonl"), lines.join("\n"));
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let mut templates = BTreeMap::new();
    for template in TEMPLATES {
        let conversations = conversations(&reference, template);
        assert!(conversations.len() >= 6, "{template}");
        let path = format!("{template}.jsonl");
        let [assistant, all] = ["assistant", "all"].map(|score| format!("{template}-{score}"));
        let job = json!({
            "model": template,
            "datasets": [
                {"name": assistant, "path": path, "format": "chat", "group_by": "even"},
                {"name": all, "path": path, "format": "chat", "score": "all"},
            ],
            "method": {"window": reference["window"]},
            "token_output": true,
        });
        let id = service.client.submit(&job).await;
        let result = service.client.succeeded(id).await;
        let expected: Vec<_> = conversations.iter().map(|c| (c.0, c.2)).collect();
        let rows = check_dataset(&service, id, &assistant, "counted", &expected).await;
        check_dataset(&service, id, &all, "all", &expected).await;

        // The totals, to the last bit those of the documents; and of the groups.
        let total = |which: &dyn Fn(&DocumentRow) -> bool| {
            let of = rows.iter().filter(|row| which(row));
            of.fold((0, 0, 0), |(n, tokens, units), row| {
                let exact: i128 = row.nll_exact.parse().unwrap();
                (n + 1, tokens + row.scored_tokens, units + exact)
            })
        };
        let dataset = &result.datasets[0];
        let (_, tokens, units) = total(&|_| true);
        assert_eq!(dataset.scored_tokens, tokens);
        assert_eq!(dataset.nll_exact, Some(units.to_string()));
        // A chat is not scored whole, so there is nothing to divide by words or bytes.
        assert_eq!(
            (dataset.word_perplexity, dataset.bits_per_byte),
            (None, None)
        );
        let names: Vec<&str> = dataset
            .groups
            .iter()
            .map(|group| group.name.as_str())
            .collect();
        assert_eq!(names, ["false", "true"]);
        for group in &dataset.groups {
            let own = |row: &DocumentRow| row.group.as_deref() == Some(group.name.as_str());
            let found = (
                group.documents,
                group.scored_tokens,
                group.nll_exact.parse().unwrap(),
            );
            assert_eq!(found, total(&own), "{template}: {}", group.name);
        }
        assert!(result.datasets[1].groups.is_empty());
        let digest = result.tokenizer.unwrap().chat_template.unwrap();
        assert!(digest.starts_with("sha256:"), "{digest}");
        templates.insert(digest, template);
    }
    assert_eq!(
        templates.len(),
        TEMPLATES.len(),
        "a digest each: {templates:?}"
    );
    service.finish().await;
}

#[tokio::test]
async fn pairs_count_the_response() {
    let reference = expected(FIXTURE);
    let pairs = reference["pairs"].as_object().unwrap();
    let roots = Roots::new();
    roots.add_model(FIXTURE);
    let lines: Vec<String> = pairs
        .values()
        .map(|pair| json!({"prompt": pair["prompt"], "response": pair["response"]}).to_string())
        .collect();
    roots.add_data("pairs.jsonl", lines.join("\n"));
    let renamed: Vec<String> = pairs
        .values()
        .map(|pair| json!({"question": pair["prompt"], "answer": pair["response"]}).to_string())
        .collect();
    roots.add_data("renamed.jsonl", renamed.join("\n"));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let job = json!({
        "model": FIXTURE,
        "datasets": [
            {"name": "response", "path": "pairs.jsonl", "format": "pairs"},
            {"name": "all", "path": "pairs.jsonl", "format": "pairs", "score": "all"},
            {"name": "renamed", "path": "renamed.jsonl", "format": "pairs",
             "prompt_field": "question", "response_field": "answer"},
        ],
        "method": {"window": reference["window"]},
        "token_output": true,
    });
    let id = service.client.submit(&job).await;
    let result = service.client.succeeded(id).await;
    let expected: Vec<(&str, &Value)> = pairs.iter().map(|(n, pair)| (n.as_str(), pair)).collect();
    let rows = check_dataset(&service, id, "response", "counted", &expected).await;
    check_dataset(&service, id, "all", "all", &expected).await;
    assert_eq!(service.client.documents(id, "renamed").await, rows);
    // All tokens of all documents count in the second only.
    let words: Vec<bool> = result
        .datasets
        .iter()
        .map(|d| d.word_perplexity.is_some())
        .collect();
    assert!(!words[0] && !words[2], "{words:?}");
    service.finish().await;
}

/// Chats lie in nested columns as well as in lines.
#[tokio::test]
async fn chats_come_in_every_container() {
    let reference = expected(FIXTURE);
    let chats: Vec<&Value> = reference["conversations"]
        .as_object()
        .unwrap()
        .values()
        .collect();
    let records: Vec<Value> = chats.iter().map(|chat| json!({"messages": chat})).collect();
    let roots = Roots::new();
    add_chat_model(&roots, "llama3");
    roots.add_data("plain.jsonl", jsonl(&records));
    roots.add_data("chats.jsonl.gz", gz(&jsonl(&records), 300));
    roots.add_data("chats.parquet", parquet_of_chats(&chats));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let forms = [
        json!({"path": "plain.jsonl", "name": "plain", "format": "chat"}),
        json!({"path": "chats.jsonl.gz", "name": "gz", "format": "chat"}),
        json!({"path": "chats.parquet", "name": "parquet", "format": "chat"}),
        json!({"documents": records, "name": "inline", "format": "chat"}),
    ];
    let job = json!({"model": "llama3", "datasets": forms, "reuse": false});
    let id = service.client.submit(&job).await;
    service.client.succeeded(id).await;
    let plain = service.client.documents(id, "plain").await;
    for form in &forms[1..] {
        let rows = service.client.documents(id, form["name"].as_str().unwrap());
        assert_eq!(rows.await, plain, "{form}");
    }
    service.finish().await;
}
