use super::*;
use assay_api::Problem;
use assay_testkit::Roots;
use serde_json::{Value, json};

struct Fixture {
    roots: Roots,
    models: Root,
    data: Root,
}

impl Fixture {
    fn new() -> Self {
        let roots = Roots::new();
        roots.add_model("llama_gqa");
        roots.add_data("a.txt", "text");
        roots.add_data("b.jsonl", "{\"text\": \"text\"}\n");
        let models = Root::open(&roots.models()).unwrap();
        let data = Root::open(&roots.data()).unwrap();
        Self {
            roots,
            models,
            data,
        }
    }

    /// Resolves a good request with `change` merged over its top level.
    fn resolve(&self, change: &Value) -> Result<Resolved, Box<Problem>> {
        let mut body = json!({"model": "llama_gqa", "datasets": ["a.txt"]});
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let request: JobRequest = serde_json::from_value(body).unwrap();
        match resolve(&self.models, &self.data, &request) {
            Ok(resolved) => Ok(resolved),
            Err(ApiError::Problem(problem)) => Err(problem),
            Err(other) => panic!("{other}"),
        }
    }

    /// Expects one fault of this code at this field.
    fn refused(&self, change: &Value, code: ErrorCode, field: &str) -> String {
        let problem = self.resolve(change).expect_err(&change.to_string());
        let fields: Vec<&str> = problem.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            (problem.code, fields),
            (code, vec![field]),
            "{change}: {problem:?}"
        );
        problem.detail
    }
}

#[test]
fn defaults_come_from_the_checkpoint() {
    let fixture = Fixture::new();
    let resolved = fixture.resolve(&json!({})).unwrap();
    let open = Checkpoint::open(&fixture.roots.models().join("llama_gqa")).unwrap();
    let positions = u32::try_from(open.architecture().max_positions).unwrap();
    assert_eq!(resolved.method.window, positions.min(2048));
    assert_eq!(resolved.dtype, Dtype::Float32);

    let asked = json!({"method": {"window": positions}, "dtype": "bfloat16"});
    let resolved = fixture.resolve(&asked).unwrap();
    assert_eq!(
        (resolved.method.window, resolved.dtype),
        (positions, Dtype::Bfloat16)
    );
}

#[test]
fn a_window_the_model_does_not_have_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    let window = |window: u32| json!({"method": {"window": window}});
    let detail = fixture.refused(&window(99_999), ErrorCode::MethodInvalid, "method.window");
    let open = Checkpoint::open(&fixture.roots.models().join("llama_gqa")).unwrap();
    let positions = open.architecture().max_positions.to_string();
    assert!(
        detail.contains("99999") && detail.contains(&positions),
        "{detail}"
    );
    fixture.refused(&window(0), ErrorCode::MethodInvalid, "method.window");
}

#[test]
fn paths_are_checked_below_their_roots() {
    let fixture = Fixture::new();
    let (outside, unreadable) = (ErrorCode::PathOutsideRoot, ErrorCode::DatasetUnreadable);
    for (path, code) in [
        ("../a.txt", outside),
        ("/etc/passwd", outside),
        ("a\0b", outside),
        ("", outside),
        ("none.txt", unreadable),
        (".", unreadable),
    ] {
        fixture.refused(&json!({"datasets": [path]}), code, "datasets[0].path");
    }
    fixture.refused(&json!({"model": "../llama_gqa"}), outside, "model");
    fixture.refused(
        &json!({"model": "none"}),
        ErrorCode::CheckpointUnreadable,
        "model",
    );
}

#[test]
fn a_bad_checkpoint_is_refused_at_once_with_its_own_code() {
    let fixture = Fixture::new();
    let model = fixture.roots.models().join("llama_gqa");
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    let broken = config.replace("LlamaForCausalLM", "RobertaForMaskedLM");
    std::fs::write(model.join("config.json"), broken).unwrap();
    let unsupported = ErrorCode::ArchitectureUnsupported;
    let detail = fixture.refused(&json!({}), unsupported, "model");
    assert!(detail.contains("RobertaForMaskedLM"), "{detail}");

    std::fs::write(model.join("config.json"), config).unwrap();
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    fixture.refused(&json!({}), ErrorCode::TokenizerUnusable, "model");
}

#[test]
fn fields_are_checked_one_by_one() {
    let fixture = Fixture::new();
    let many: Vec<Value> = (0..101)
        .map(|i| json!({"path": "a.txt", "name": i.to_string()}))
        .collect();
    let tags: std::collections::BTreeMap<String, &str> =
        (0..65).map(|i| (i.to_string(), "x")).collect();
    let long = "x".repeat(257);
    for (change, field) in [
        (json!({"name": ""}), "name"),
        (json!({"name": long}), "name"),
        (json!({"name": "a\0b"}), "name"),
        (json!({"tags": tags}), "tags"),
        (json!({"tags": {"two words": "x"}}), "tags"),
        (json!({"tags": {"k": long}}), "tags.k"),
        (json!({"tags": {"k": "a\0b"}}), "tags.k"),
        (json!({"datasets": []}), "datasets"),
        (json!({"datasets": many}), "datasets"),
        (json!({"datasets": ["a.txt", "a.txt"]}), "datasets[1].name"),
        (
            json!({"datasets": [{"path": "a.txt", "name": ""}]}),
            "datasets[0].name",
        ),
        (
            json!({"datasets": [{"path": "a.txt", "field": "x"}]}),
            "datasets[0].field",
        ),
        (
            json!({"datasets": [{"path": "b.jsonl", "field": "a\0b"}]}),
            "datasets[0].field",
        ),
        (
            json!({"datasets": [{"path": "a.txt", "limit_documents": 0}]}),
            "datasets[0].limit_documents",
        ),
        (
            json!({"datasets": [{"path": "a.txt", "limit_tokens": u64::MAX}]}),
            "datasets[0].limit_tokens",
        ),
    ] {
        fixture.refused(&change, ErrorCode::InvalidRequest, field);
    }
    let good = json!({
        "name": "\u{e9}valuation",
        "tags": {"team/x": ""},
        "datasets": [{"path": "b.jsonl", "name": "x", "field": "x", "limit_tokens": 1}, "b.jsonl"],
    });
    fixture.resolve(&good).unwrap();
}

#[test]
fn everything_wrong_is_said_at_once() {
    let fixture = Fixture::new();
    let bad = json!({
        "name": "",
        "model": "none",
        "datasets": ["../a", {"path": "none"}],
        "method": {"window": 0},
    });
    let problem = fixture.resolve(&bad).unwrap_err();
    let fields: Vec<&str> = problem.errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "name",
            "datasets[0].path",
            "datasets[1].path",
            "model",
            "method.window"
        ]
    );
    assert_eq!(problem.code, ErrorCode::InvalidRequest);
}
