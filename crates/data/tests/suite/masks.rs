//! Documents of which only some tokens count: pairs and chats.

use assay_api::ErrorCode;
use assay_data::{DataError, Reading, TokenStore};
use serde_json::json;

use crate::bench::{Bench, dataset, records};

/// A template that says itself where the assistant speaks.
const MARKED: &str = "{% for m in messages %}<{{ m.role }}>\
    {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}\
    {% else %}{{ m.content }}{% endif %}</{{ m.role }}>{% endfor %}";
/// The same text, without saying so.
const PLAIN: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\
    {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

fn with_offsets(bench: &Bench, dataset: &assay_api::DatasetRef) -> TokenStore {
    let reading = Reading {
        offsets: true,
        ..bench.reading()
    };
    bench.read(dataset, &reading).unwrap()
}

/// The bytes of a document that counted tokens stand for, as text.
fn counted_text(store: &TokenStore, document: u64, text: &str) -> Vec<String> {
    let bytes = |token: u64| {
        let bytes = store.offsets(store.start(document) + token).unwrap();
        usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()
    };
    store
        .counted(document)
        .unwrap()
        .into_iter()
        .map(|part| text[bytes(part.start).start..bytes(part.end - 1).end].to_owned())
        .collect()
}

#[test]
fn the_tokens_of_the_response_count() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    bench.copy("documents.parquet");
    let pairs = dataset(json!({"path": "documents.jsonl", "format": "pairs"}));
    let store = with_offsets(&bench, &pairs);
    assert!(store.has_mask());
    for (document, record) in (0..).zip(records("documents.jsonl")) {
        let response = record["response"].as_str().unwrap();
        let text = format!("{}{response}", record["prompt"].as_str().unwrap());
        assert_eq!(store.ids(document), bench.encode(&text));
        let counted = counted_text(&store, document, &text).concat();
        // A token may begin in the prompt.
        assert!(counted.ends_with(response), "{counted:?} {response:?}");
        assert!(
            counted.len() <= response.len() + 4,
            "{counted:?} {response:?}"
        );
        assert_eq!(counted.is_empty(), response.is_empty());
    }
    assert_eq!(store.counted(1), Some(vec![]));

    let from_parquet = dataset(json!({"path": "documents.parquet", "format": "pairs"}));
    let other = bench.tokenize(&from_parquet).unwrap();
    assert_eq!(other.tokens_digest(), store.tokens_digest());
    let inline = json!({"documents": records("documents.jsonl"), "format": "pairs"});
    let other = bench.tokenize(&dataset(inline)).unwrap();
    assert_eq!(other.tokens_digest(), store.tokens_digest());
}

#[test]
fn the_mask_is_part_of_the_digest() {
    let bench = Bench::new();
    let lines = [
        json!({"prompt": "one ", "response": "two", "a": "one two", "b": ""}),
        json!({"prompt": "", "response": "x", "a": "x", "b": ""}),
    ];
    bench.write("a.jsonl", lines.map(|line| format!("{line}\n")).concat());
    let read = |options: serde_json::Value| {
        let mut options = options;
        options["path"] = json!("a.jsonl");
        options["format"] = json!("pairs");
        bench.tokenize(&dataset(options)).unwrap()
    };
    let response = read(json!({}));
    let all = read(json!({"score": "all"}));
    let other = read(json!({"prompt_field": "a", "response_field": "b", "score": "all"}));
    let whole = read(json!({"prompt_field": "b", "response_field": "a"}));
    assert_eq!(response.stream(), all.stream());
    assert!(response.has_mask() && !all.has_mask());
    assert_eq!(all.counted(0), None);
    assert!(all.is_counted(0) && !response.is_counted(0));
    assert_ne!(response.tokens_digest(), all.tokens_digest());
    assert_ne!(response.key(), all.key());
    assert_eq!(other.tokens_digest(), all.tokens_digest());
    // Every token counts, but by a mask.
    assert!((0..whole.facts(0).tokens).all(|token| whole.is_counted(token)));
    assert_eq!(whole.counted(0).unwrap().len(), 1);
    assert_ne!(whole.tokens_digest(), response.tokens_digest());
}

#[test]
fn the_assistant_of_a_chat_counts() {
    let chats = records("chats.jsonl");
    let mut digests = Vec::new();
    for (template, ends) in [(MARKED, ""), (PLAIN, "</assistant>")] {
        let bench = Bench::with_template(template);
        bench.copy("chats.jsonl");
        bench.copy("chats.parquet");
        let chat = dataset(json!({"path": "chats.jsonl", "format": "chat"}));
        let store = with_offsets(&bench, &chat);
        for (document, chat) in (0..).zip(&chats) {
            let messages = chat["messages"].as_array().unwrap();
            let rendered = messages.iter().map(|message| {
                let role = message["role"].as_str().unwrap();
                format!("<{role}>{}</{role}>", message["content"].as_str().unwrap())
            });
            let text = rendered.collect::<Vec<_>>().concat();
            assert_eq!(store.ids(document), bench.encode(&text), "{text}");
            let said: Vec<String> = messages
                .iter()
                .filter(|m| m["role"] == "assistant")
                .map(|m| format!("{}{ends}", m["content"].as_str().unwrap()))
                .collect();
            let counted = counted_text(&store, document, &text);
            assert_eq!(counted.len(), said.len());
            for (counted, said) in counted.iter().zip(&said) {
                assert!(counted.contains(said.as_str()), "{counted:?} {said:?}");
                assert!(counted.len() <= said.len() + 8, "{counted:?} {said:?}");
            }
        }
        for other in [
            json!({"path": "chats.parquet", "format": "chat"}),
            json!({"documents": chats, "format": "chat"}),
        ] {
            let other = bench.tokenize(&dataset(other)).unwrap();
            assert_eq!(other.tokens_digest(), store.tokens_digest());
        }
        let all = json!({"path": "chats.jsonl", "format": "chat", "score": "all"});
        let all = bench.tokenize(&dataset(all)).unwrap();
        assert_eq!(all.stream(), store.stream());
        assert!(!all.has_mask());
        digests.push((store.key().to_owned(), all.tokens_digest().to_owned()));
        let grouped = json!({"path": "chats.jsonl", "format": "chat", "group_by": "topic"});
        let grouped = bench.inspect(&dataset(grouped)).unwrap();
        assert_eq!(grouped.groups.len(), 2);
        assert!(grouped.counted_tokens < grouped.tokens);
    }
    assert_ne!(
        digests[0].0, digests[1].0,
        "the template is part of the key"
    );
    assert_eq!(digests[0].1, digests[1].1);
}

#[test]
fn keys_of_a_message_keep_the_order_of_the_file() {
    let bench = Bench::with_template("{% for m in messages %}{{ m.call | tojson }}{% endfor %}");
    let line = r#"{"messages": [{"role": "user", "content": "", "call": {"z": 1, "a": [2, {"y": 1, "b": 2}]}}]}"#;
    bench.write("a.jsonl", line);
    let options = json!({"path": "a.jsonl", "format": "chat", "score": "all"});
    let store = bench.tokenize(&dataset(options)).unwrap();
    let text = r#"{"z": 1, "a": [2, {"y": 1, "b": 2}]}"#;
    assert_eq!(store.ids(0), bench.encode(text));
}

#[test]
fn chats_that_cannot_be_rendered_say_where_and_why() {
    let bench = Bench::with_template(
        "{% if messages[0].role != 'user' %}{{ raise_exception('users first') }}{% endif %}x",
    );
    let good = json!({"messages": [{"role": "user", "content": "a"}]});
    for (bad, code, expected) in [
        (
            json!({"messages": [{"role": "assistant", "content": "a"}]}),
            ErrorCode::ChatRefused,
            "users first",
        ),
        (
            json!({"messages": "hello"}),
            ErrorCode::ChatRefused,
            "list of messages",
        ),
        (
            json!({"messages": [{"content": "a"}]}),
            ErrorCode::ChatRefused,
            "role",
        ),
        (
            json!({"chat": []}),
            ErrorCode::DatasetInvalid,
            "no field `messages`",
        ),
    ] {
        bench.write("a.jsonl", format!("{good}\n{bad}\n"));
        let chat = dataset(json!({"path": "a.jsonl", "format": "chat", "score": "all"}));
        let error = bench.tokenize(&chat).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(
            text.starts_with("a.jsonl, line 2: ") && text.contains(expected),
            "{text}"
        );
    }
}

#[test]
fn a_dataset_without_a_counted_token_is_an_error_and_a_document_is_not() {
    let bench = Bench::new();
    let pair = |prompt: &str, response: &str| {
        format!("{}\n", json!({"prompt": prompt, "response": response}))
    };
    let pairs = dataset(json!({"path": "a.jsonl", "format": "pairs"}));
    bench.write("a.jsonl", [pair("a", ""), pair("b", "c")].concat());
    assert_eq!(bench.tokenize(&pairs).unwrap().documents(), 2);
    bench.write("a.jsonl", [pair("a", ""), pair("b", "")].concat());
    let error = bench.tokenize(&pairs).unwrap_err();
    assert!(
        matches!(error, DataError::NothingCounted { documents: 2, .. }),
        "{error:?}"
    );
    assert_eq!(error.code(), ErrorCode::DatasetEmpty);
    bench.write("a.jsonl", pair("", ""));
    let error = bench.tokenize(&pairs).unwrap_err();
    assert!(
        matches!(error, DataError::NothingToScore { .. }),
        "{error:?}"
    );
    bench.write("a.jsonl", "{\"prompt\": \"a\"}\n");
    let error = bench.tokenize(&pairs).unwrap_err().to_string();
    assert!(
        error.contains("name the field in `response_field`"),
        "{error}"
    );
}

#[test]
fn a_chat_needs_a_template() {
    let bench = Bench::new();
    bench.copy("chats.jsonl");
    let chat = dataset(json!({"path": "chats.jsonl", "format": "chat"}));
    let error = bench.tokenize(&chat).unwrap_err();
    assert!(
        matches!(error, DataError::NoChatTemplate { .. }),
        "{error:?}"
    );
    assert_eq!(error.code(), ErrorCode::ChatTemplateUnusable);
    assert!(bench.inspect(&chat).is_err());
}
