//! Chat templates against transformers, and templates that are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assay_api::ErrorCode;
use assay_checkpoint::{ChatError, ChatTemplate, Checkpoint, CheckpointError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gguf_file::{GgufFile, Meta};
use crate::sandbox::Sandbox;

/// Templates of our own in the shapes of those that models ship, and what `expected.py` made of
/// them.
fn data(file: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    data.join(file)
}

/// The template as a checkpoint with the tokens `<s>`, `</s>` and `<unk>` has it.
fn compile(source: &str) -> Result<ChatTemplate, CheckpointError> {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.write("chat_template.jinja", source);
    let template = Checkpoint::open(sandbox.path()).unwrap().chat_template()?;
    Ok(template.unwrap())
}

fn template(source: &str) -> ChatTemplate {
    compile(source).unwrap()
}

#[derive(Deserialize)]
struct Expected {
    /// Messages, with the keys in the order that the file has.
    lists: BTreeMap<String, Box<RawValue>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// Byte ranges, or `unstable`, or `refused`.
    assistant: Option<Value>,
}

#[derive(Deserialize)]
struct Outcome {
    text: Option<String>,
    /// What `raise_exception` was given.
    raised: Option<String>,
}

impl Outcome {
    fn assert(&self, name: &str, found: Result<assay_checkpoint::Rendered, ChatError>) {
        match (found, &self.text, &self.raised) {
            (Ok(found), Some(text), _) => assert_eq!(found.text, *text, "{name}"),
            (Err(ChatError::Raised { message }), None, Some(raised)) => {
                assert_eq!(message, *raised, "{name}");
            }
            (Err(ChatError::Failed { .. }), None, None) => {}
            (found, text, raised) => panic!("{name}: {found:?} for {text:?}, {raised:?}"),
        }
    }
}

/// `apply_chat_template(tokenize=False)`, and its `{% generation %}` indices or, where there are
/// none, the differences of its prefixes.
#[test]
fn texts_and_assistants_are_those_of_transformers() {
    let bytes = fs::read(data("expected.json")).unwrap();
    let expected: Expected = serde_json::from_slice(&bytes).unwrap();
    let mut templates = BTreeMap::new();
    for case in &expected.cases {
        let template = templates.entry(&case.template).or_insert_with(|| {
            template(&fs::read_to_string(data(&format!("{}.jinja", case.template))).unwrap())
        });
        let messages = expected.lists[&case.messages].get();
        let name = format!("{}, {}", case.template, case.messages);
        case.outcome
            .assert(&name, template.render_json(messages, false));
        let Some(assistant) = &case.assistant else {
            continue;
        };
        match (template.render_json(messages, true), assistant.as_str()) {
            (Ok(found), None) => {
                let ranges = found.assistant.iter();
                let ranges: Vec<_> = ranges.map(|range| [range.start, range.end]).collect();
                assert_eq!(json!(ranges), *assistant, "{name}");
            }
            (Err(ChatError::NotPrefixStable { .. }), Some("unstable"))
            | (
                Err(ChatError::Raised { .. } | ChatError::Failed { .. } | ChatError::NothingBefore),
                Some("refused"),
            ) => {}
            (found, _) => panic!("{name}: {found:?} for {assistant}"),
        }
    }
    assert_eq!(templates.len(), 12);
}

/// One expression or piece of white space each.
#[test]
fn expressions_are_those_of_transformers() {
    #[derive(Deserialize)]
    struct Expressions {
        messages: Box<RawValue>,
        cases: Vec<Expression>,
    }
    #[derive(Deserialize)]
    struct Expression {
        source: String,
        #[serde(flatten)]
        outcome: Outcome,
    }
    let bytes = fs::read(data("expressions.json")).unwrap();
    let expected: Expressions = serde_json::from_slice(&bytes).unwrap();
    for case in &expected.cases {
        let found = template(&case.source).render_json(expected.messages.get(), false);
        case.outcome.assert(&case.source, found);
    }
}

#[test]
fn values_and_json_render_alike() {
    let chatml = template(&fs::read_to_string(data("chatml.jinja")).unwrap());
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where to?"},
        {"role": "assistant", "content": "Tø the island."},
    ]);
    let found = chatml.render(&messages, true).unwrap();
    assert_eq!(
        found,
        chatml.render_json(&messages.to_string(), true).unwrap()
    );
    let said: Vec<_> = found
        .assistant
        .iter()
        .map(|r| &found.text[r.clone()])
        .collect();
    assert_eq!(said, ["Tø the island.<|im_end|>\n"]);
    assert!(
        chatml
            .render(&messages, false)
            .unwrap()
            .assistant
            .is_empty()
    );
    assert!(!chatml.marks_assistant());
    // The order of keys is the file's.
    let keys = template("{{ messages[0].x | tojson }}");
    let messages = r#"[{"role": "user", "content": "", "x": {"b": 1, "a": [{"z": 1, "y": 2}]}}]"#;
    let text = keys.render_json(messages, false).unwrap().text;
    assert_eq!(text, r#"{"b": 1, "a": [{"z": 1, "y": 2}]}"#);
}

#[test]
fn an_assistant_that_speaks_first_needs_a_template_that_takes_nothing_before() {
    let messages = json!([{"role": "assistant", "content": "Ahoy."}]);
    let reads_first = "{% if messages[0].role == 'system' %}S{% endif %}\
        {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let error = template(reads_first).render(&messages, true).unwrap_err();
    assert_eq!(error, ChatError::NothingBefore);
    assert!(error.to_string().contains("score"), "{error}");
    assert!(template(reads_first).render(&messages, false).is_ok());
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let found = template(plain).render(&messages, true).unwrap();
    assert_eq!(found.assistant.first(), Some(&(0..found.text.len())));
}

/// Marks are looked for in the text, so a text with the marks in it takes others.
#[test]
fn a_text_cannot_forge_the_marks() {
    let marked = template(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    );
    let content: String = ('\u{fdd0}'..='\u{fded}').collect();
    let messages = json!([{"role": "assistant", "content": content}]);
    let found = marked.render(&messages, true).unwrap();
    assert_eq!(found.assistant.first(), Some(&(0..content.len())));
    let content: String = ('\u{fdd0}'..='\u{fdef}').collect();
    let messages = json!([{"role": "assistant", "content": content}]);
    assert_eq!(marked.render(&messages, false).unwrap().text, content);
    let error = marked.render(&messages, true).unwrap_err();
    assert!(error.to_string().contains("generation"), "{error}");
}

#[test]
fn sources_in_their_order() {
    let messages = json!([{"role": "user", "content": "x"}]);
    let sandbox = Sandbox::of("llama_gqa");
    let load = || Checkpoint::open(sandbox.path()).unwrap().chat_template();
    let text = || {
        let template = load().unwrap().unwrap();
        template.render(&messages, false).unwrap().text
    };
    let configure = |value: Value| {
        sandbox.edit_json("tokenizer_config.json", |config| {
            config.insert("chat_template".into(), value);
        });
    };
    assert!(load().unwrap().is_none());
    configure(Value::Null);
    assert!(load().unwrap().is_none());
    configure(json!("config {{ bos_token }} {{ eos_token }}"));
    assert_eq!(text(), "config <s> </s>");
    let digest = load().unwrap().unwrap().digest().to_owned();
    assert!(digest.starts_with("sha256:") && digest.len() == 71);
    configure(json!([
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "list {{ bos_token }}"},
    ]));
    assert_eq!(text(), "list <s>");
    assert_ne!(load().unwrap().unwrap().digest(), digest);
    sandbox.write("chat_template.jinja", "file {{ bos_token }}\n");
    assert_eq!(text(), "file <s>");
    // Special tokens are a part of it, for they are a part of the text.
    let digest = load().unwrap().unwrap().digest().to_owned();
    sandbox.edit_json("tokenizer_config.json", |config| {
        config.insert("pad_token".into(), json!({"content": "</s>"}));
    });
    assert_ne!(load().unwrap().unwrap().digest(), digest);
}

#[test]
fn gguf_files_bring_theirs() {
    let mut file = GgufFile::of_fixture("llama_gqa");
    let load = |file: &GgufFile| {
        let (_dir, path) = file.write();
        Checkpoint::open(&path).unwrap().chat_template()
    };
    assert!(load(&file).unwrap().is_none());
    let source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}";
    file.set("tokenizer.chat_template", Some(Meta::Text(source.into())));
    let messages = json!([{"role": "user", "content": "é"}]);
    let found = load(&file).unwrap().unwrap().render(&messages, false);
    assert_eq!(found.unwrap().text, "<s>é</s>");
    file.set(
        "tokenizer.chat_template",
        Some(Meta::Text("{% if %}".into())),
    );
    let error = load(&file).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ChatTemplateUnusable);
    assert!(error.to_string().contains("model.gguf"), "{error}");
}

#[test]
fn what_is_no_template_is_refused() {
    let deep = "{{ ".to_owned() + &"(".repeat(100_000) + &")".repeat(100_000) + " }}";
    let blocks = "{% if true %}".repeat(20_000);
    let long = "x".repeat((1 << 20) + 1);
    for (source, part) in [
        ("{% if %}", "line 1"),
        ("a\n{{ x", "line 2"),
        ("{% nonsense %}", "nonsense"),
        (&deep, "line 1"),
        (&blocks, "line 1"),
        (&long, "1048577 bytes"),
    ] {
        let error = compile(source).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ChatTemplateUnusable);
        let text = error.to_string();
        assert!(text.contains("model/chat_template.jinja"), "{text}");
        assert!(text.contains(part), "{text}");
    }
    let sandbox = Sandbox::of("llama_gqa");
    for (value, part) in [
        (json!([{"name": "tool_use", "template": ""}]), "`default`"),
        (json!(7), "neither"),
        (json!("{{"), "line 1"),
    ] {
        sandbox.edit_json("tokenizer_config.json", |config| {
            config.insert("chat_template".into(), value);
        });
        let checkpoint = Checkpoint::open(sandbox.path()).unwrap();
        let error = checkpoint.chat_template().unwrap_err();
        assert_eq!(error.code(), ErrorCode::ChatTemplateUnusable);
        let text = error.to_string();
        assert!(
            text.contains("tokenizer_config.json") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn what_are_no_messages_is_refused() {
    let template = template("{{ messages | length }}");
    for (messages, part) in [
        ("{}", "an object"),
        ("\"hi\"", "a string"),
        ("null", "null"),
        ("[]", "no messages"),
        ("[1]", "message 0 is a number"),
        ("[{\"content\": \"x\"}]", "message 0 has no `role`"),
        (r#"[{"role": 1, "content": "x"}]"#, "`role`"),
        (
            r#"[{"role": "user", "content": "x"}, {"role": "user"}]"#,
            "message 1 has no `content`",
        ),
        (r#"[{"role": "user", "content": null}]"#, "no `content`"),
        (r#"[{"role": "user", "content": 7}]"#, "`content`"),
        ("[", "not JSON"),
    ] {
        let error = template.render_json(messages, true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ChatRefused);
        let text = error.to_string();
        assert!(
            text.contains(part) && text.contains("give a list"),
            "{text}"
        );
    }
}

#[test]
fn a_template_that_raises_is_quoted() {
    let template = template("{{ raise_exception('Roles must \"alternate\"') }}");
    let messages = json!([{"role": "user", "content": "x"}]);
    let error = template.render(&messages, false).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("Roles must") && text.contains("alternate"),
        "{text}"
    );
}

/// Such templates end soon, and take no memory to speak of.
#[test]
fn a_template_cannot_run_for_ever_or_eat_the_memory() {
    let double = "{% set n = namespace(x='x') %}{% for i in range(1000) %}{% set n.x = n.x ";
    let nested = "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% for j in range(99999) %}{% set n.l = [n.l] %}";
    let doubled = "{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, n.l] %}{% endfor %}";
    let sources = [
        "{% set n = namespace(l=[], m=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}".to_owned(),
        format!("{nested}{{% endfor %}}{{% endfor %}}"),
        format!("{nested}{{% endfor %}}{{{{ n.l | length }}}}{{{{ n.l ~ '' }}}}{{% endfor %}}"),
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}".to_owned(),
        format!("{double}+ n.x %}}{{% endfor %}}{{{{ n.x }}}}"),
        format!("{double}~ n.x %}}{{% endfor %}}"),
        format!("{double}| replace('x', 'xx') %}}{{% endfor %}}"),
        format!("{double}.replace('', n.x) %}}{{% endfor %}}"),
        format!("{double}.join([n.x, n.x, n.x]) %}}{{% endfor %}}"),
        "{{ 'x' * 10000000000 }}".to_owned(),
        "{{ [0] * 10000000000 }}".to_owned(),
        "{{ 'x\nx' | indent(10000000000) }}".to_owned(),
        "{{ '{:>10000000000}'.format(1) }}".to_owned(),
        "{{ range(10000000000) | list }}".to_owned(),
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned(),
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned(),
        format!("{doubled}{{{{ n.l }}}}"),
        format!("{doubled}{{{{ n.l | tojson }}}}"),
        format!("{doubled}{{{{ n.l | string | length }}}}"),
    ];
    let messages = json!([{"role": "user", "content": "x"}]);
    for source in sources {
        let start = Instant::now();
        let error = template(&source).render(&messages, false).unwrap_err();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?} for {source}");
        assert!(
            matches!(
                error,
                ChatError::Exhausted { .. } | ChatError::Failed { .. }
            ),
            "{error} for {source}"
        );
    }
}
