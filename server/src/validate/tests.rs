use super::*;
use assay_api::{Convention, Problem};
use assay_checkpoint::Checkpoint;
use assay_testkit::Roots;
use serde_json::{Value, json};

struct Fixture {
    roots: Roots,
    grounds: Grounds,
}

impl Fixture {
    fn new() -> Self {
        let roots = Roots::new();
        roots.add_model("llama_gqa");
        roots.add_data("a.txt", "text");
        roots.add_data("b.jsonl", "{\"text\": \"text\"}\n");
        roots.add_data("c.parquet", "not read here");
        std::fs::create_dir(roots.data().join("many")).unwrap();
        roots.add_data("many/a.jsonl", "{\"text\": \"a\"}\n");
        roots.add_data("many/b.jsonl.gz", "not read here");
        std::fs::create_dir(roots.data().join("mixed")).unwrap();
        roots.add_data("mixed/a.txt", "a");
        roots.add_data("mixed/b.jsonl", "{}");
        std::fs::create_dir(roots.data().join("none")).unwrap();
        let uploads = Uploads::open(&roots.state().join("uploads")).unwrap();
        let stored = uploads.store(&b"{\"text\": \"up\"}\n"[..], 100).unwrap();
        let upload = Upload {
            name: "up.jsonl".to_owned(),
            digest: stored.digest,
            bytes: stored.bytes,
            created_at: std::time::SystemTime::UNIX_EPOCH.into(),
        };
        let grounds = Grounds {
            receivers: crate::webhooks::Receivers::default(),
            models: Root::open(&roots.models()).unwrap(),
            data: Root::open(&roots.data()).unwrap(),
            uploads,
            uploaded: HashMap::from([(upload.name.clone(), upload)]),
            tokenizers: Tokenizers::default(),
            remote: Remote::default(),
        };
        Self { roots, grounds }
    }

    /// Resolves a good request with `change` merged over its top level.
    fn resolve(&self, change: &Value) -> Result<Resolved, Box<Problem>> {
        let mut body = json!({"model": "llama_gqa", "datasets": ["a.txt"]});
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let request: JobRequest = serde_json::from_value(body).unwrap();
        match resolve(&self.grounds, &request) {
            Ok(resolved) => Ok(resolved),
            Err(ApiError::Problem(problem)) => Err(problem),
            Err(other) => panic!("{other}"),
        }
    }

    /// Gives the checkpoint a chat template.
    fn add_chat_template(&self) {
        let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        let path = self.roots.models().join("llama_gqa/chat_template.jinja");
        std::fs::write(path, template).unwrap();
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
    assert_eq!(resolved.methods.as_slice()[0].window, positions.min(2048));
    assert_eq!(resolved.dtype, Dtype::Float32);

    let asked = json!({"method": {"window": positions}, "dtype": "bfloat16"});
    let resolved = fixture.resolve(&asked).unwrap();
    assert_eq!(
        (resolved.methods.as_slice()[0].window, resolved.dtype),
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
        ("../*.txt", outside),
        ("../a.txt", outside),
        ("/etc/passwd", outside),
        ("a\0b", outside),
        ("", outside),
        ("none.txt", unreadable),
        ("none", unreadable),
        ("a.txt/b", unreadable),
        ("*.csv", unreadable),
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
#[rustfmt::skip] // one case a line
fn options_of_datasets_are_held_against_the_format() {
    let fixture = Fixture::new();
    let (invalid, unreadable) = (ErrorCode::InvalidRequest, ErrorCode::DatasetUnreadable);
    let long = "x".repeat(257);
    for (dataset, code, field, word) in [
        (json!({"path": "a.txt", "field": "x"}), invalid, ".field", "`text`"),
        (json!({"path": "b.jsonl", "field": "a\0b"}), invalid, ".field", "control"),
        (json!({"path": "b.jsonl", "field": long}), invalid, ".field", "256"),
        (json!({"path": "b.jsonl", "prompt_field": "x"}), invalid, ".prompt_field", "`pairs`"),
        (json!({"path": "b.jsonl", "response_field": "x"}), invalid, ".response_field", "`pairs`"),
        (json!({"path": "b.jsonl", "format": "pairs", "field": "x"}), invalid, ".field", "`pairs`"),
        (json!({"path": "b.jsonl", "format": "pairs", "prompt_field": "response"}), invalid, ".response_field", "prompt"),
        (json!({"path": "a.txt", "group_by": "x"}), invalid, ".group_by", "records"),
        (json!({"path": "b.jsonl", "score": "response"}), invalid, ".score", "`jsonl`"),
        (json!({"path": "b.jsonl", "score": "assistant"}), invalid, ".score", "`jsonl`"),
        (json!({"path": "b.jsonl", "format": "pairs", "score": "assistant"}), invalid, ".score", "`pairs`"),
        (json!({"path": "b.jsonl", "format": "parquet"}), invalid, ".format", ".parquet"),
        (json!({"path": "mixed"}), invalid, ".format", "mixed/b.jsonl"),
        (json!({"path": "a.txt", "limit_documents": 0}), invalid, ".limit_documents", "from 1"),
        (json!({"path": "a.txt", "limit_tokens": u64::MAX}), invalid, ".limit_tokens", "from 1"),
        (json!({"path": "b.jsonl", "sample": {"documents": 0}}), invalid, ".sample.documents", "from 1"),
        (json!({"path": "b.jsonl", "sample": {"documents": 1}, "limit_documents": 1}), invalid, ".limit_documents", "`sample`"),
        (json!({}), invalid, "", "`path`"),
        (json!({"name": "x"}), invalid, "", "`upload`"),
        (json!({"path": "a.txt", "documents": ["x"]}), invalid, ".documents", "`path`"),
        (json!({"path": "a.txt", "upload": "up.jsonl"}), invalid, ".upload", "`path`"),
        (json!({"upload": "up.jsonl", "upload_digest": "sha256:0"}), invalid, ".upload_digest", "leave it out"),
        (json!({"upload": "none.jsonl"}), unreadable, ".upload", "PUT /datasets/none.jsonl"),
        (json!({"upload": "../x"}), unreadable, ".upload", "not a name"),
    ] {
        let at = format!("datasets[0]{field}");
        let detail = fixture.refused(&json!({"datasets": [dataset]}), code, &at);
        assert!(detail.contains(word), "{word:?} is not in {detail}");
    }
    for dataset in [
        json!({"path": "many", "field": "x", "group_by": "y"}),
        json!({"path": "many/*.jsonl*", "sample": {"documents": 5, "seed": u64::MAX}}),
        json!({"path": "mixed", "format": "text"}),
        json!({"path": "c.parquet", "field": "x"}),
        json!({"path": "c.parquet", "format": "jsonl"}),
        json!({"path": "c.parquet", "format": "pairs", "prompt_field": "q", "score": "all"}),
        json!({"path": "b.jsonl", "score": "all", "limit_tokens": 1}),
    ] {
        fixture.resolve(&json!({"datasets": [dataset]})).unwrap();
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn documents_of_the_request_are_what_the_format_asks_for() {
    let fixture = Fixture::new();
    fixture.add_chat_template();
    for (dataset, at, word) in [
        (json!({"documents": []}), "", "at least one"),
        (json!({"documents": ["x", 7]}), "[1]", "a string"),
        (json!({"documents": [{"txt": "x"}]}), "[0]", "`text`"),
        (json!({"documents": [{"text": 7}]}), "[0]", "`text`"),
        (json!({"documents": ["x"], "format": "text"}), "", "leave `format` out"),
        (json!({"documents": ["x"], "format": "parquet"}), "", "leave `format` out"),
        (json!({"documents": ["x"], "group_by": "g"}), "[0]", "`g`"),
        (json!({"documents": ["x"], "format": "pairs"}), "[0]", "`pairs`"),
        (json!({"documents": [{"prompt": "x"}], "format": "pairs"}), "[0]", "`response`"),
        (json!({"documents": [{"messages": "x"}], "format": "chat"}), "[0]", "list of messages"),
    ] {
        let at = format!("datasets[0].documents{at}");
        let detail = fixture.refused(&json!({"datasets": [dataset]}), ErrorCode::DatasetInvalid, &at);
        assert!(detail.contains(word), "{word:?} is not in {detail}");
    }
    let large = json!({"datasets": [
        {"name": "a", "documents": ["x".repeat(600_000)]},
        {"name": "b", "documents": ["x".repeat(400_000)]},
    ]});
    let detail = fixture.refused(&large, ErrorCode::InvalidRequest, "datasets");
    assert!(detail.contains("1000000") && detail.contains("PUT"), "{detail}");

    let good = json!({"datasets": [
        {"documents": ["x", {"text": "y"}]},
        {"name": "p", "documents": [{"prompt": "x", "response": "y"}], "format": "pairs"},
        {"name": "c", "documents": [{"messages": [{"role": "user", "content": "x"}]}], "format": "chat"},
    ]});
    let resolved = fixture.resolve(&good).unwrap();
    assert_eq!(resolved.datasets[0].name.as_deref(), Some("documents"));
}

#[test]
fn what_a_dataset_leaves_open_is_filled_in() {
    let fixture = Fixture::new();
    let datasets = json!({"datasets": ["many", {"upload": "up.jsonl"}, "a.txt"]});
    let resolved = fixture.resolve(&datasets).unwrap().datasets;
    let names: Vec<_> = resolved.iter().map(|d| d.name.as_deref()).collect();
    assert_eq!(names, [Some("many"), Some("up.jsonl"), Some("a.txt")]);
    let digest = &fixture.grounds.uploaded["up.jsonl"].digest;
    assert_eq!(resolved[1].upload_digest.as_ref(), Some(digest));
    // The name of a directory does not tell.
    let formats: Vec<_> = resolved.iter().map(|d| d.format).collect();
    assert_eq!(formats, [Some(DatasetFormat::Jsonl), None, None]);

    // Named still, but its bytes are gone.
    fixture.grounds.uploads.remove(digest).unwrap();
    let gone = json!({"datasets": [{"upload": "up.jsonl"}]});
    fixture.refused(&gone, ErrorCode::DatasetUnreadable, "datasets[0].upload");
}

#[test]
fn chats_and_pairs_are_scored_one_by_one() {
    let fixture = Fixture::new();
    fixture.add_chat_template();
    for format in ["chat", "pairs"] {
        let datasets = json!(["a.txt", {"path": "b.jsonl", "format": format}]);
        for (method, field) in [
            (json!({"convention": "blocks"}), "method.convention"),
            (
                json!([{}, {"convention": "strided"}]),
                "method[1].convention",
            ),
        ] {
            let change = json!({"datasets": datasets, "method": method});
            let detail = fixture.refused(&change, ErrorCode::MethodInvalid, field);
            assert!(
                detail.contains("datasets[1]") && detail.contains(format),
                "{detail}"
            );
        }
        fixture.resolve(&json!({"datasets": datasets})).unwrap();
    }
}

#[test]
fn a_chat_needs_a_template_of_the_checkpoint() {
    let fixture = Fixture::new();
    let chat = json!({"datasets": [{"path": "b.jsonl", "format": "chat"}]});
    let unusable = ErrorCode::ChatTemplateUnusable;
    let detail = fixture.refused(&chat, unusable, "model");
    assert!(detail.contains("datasets[0]"), "{detail}");
    let path = fixture.roots.models().join("llama_gqa/chat_template.jinja");
    std::fs::write(path, "{% for m in messages %}").unwrap();
    fixture.refused(&chat, unusable, "model");
    fixture.add_chat_template();
    fixture.resolve(&chat).unwrap();
}

#[test]
fn a_prefix_is_asked_for_only_where_one_is_used() {
    let fixture = Fixture::new();
    fixture.add_chat_template();
    let model = fixture.roots.models().join("llama_gqa");
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        let Ok(text) = std::fs::read(model.join(file)) else {
            continue;
        };
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        config["bos_token"] = Value::Null;
        config["eos_token"] = Value::Null;
        std::fs::write(model.join(file), config.to_string()).unwrap();
    }
    let tokenizer = model.join("tokenizer.json");
    let text = std::fs::read(&tokenizer).unwrap();
    let mut json: Value = serde_json::from_slice(&text).unwrap();
    json["post_processor"] = Value::Null;
    std::fs::write(tokenizer, json.to_string()).unwrap();

    fixture.refused(&json!({}), ErrorCode::NoPrefixToken, "model");
    let methods = json!({"method": [{"convention": "blocks"}, {"convention": "llamacpp"}]});
    fixture.resolve(&methods).unwrap();
    let chat = json!({"datasets": [{"path": "b.jsonl", "format": "chat"}]});
    fixture.resolve(&chat).unwrap();
    let always = json!({"method": {"convention": "blocks", "bos": "always"}});
    fixture.refused(&always, ErrorCode::MethodInvalid, "method.bos");
}

#[test]
fn methods_and_datasets_make_a_bounded_number_of_rows() {
    let fixture = Fixture::new();
    let datasets: Vec<Value> = (0..100)
        .map(|i| json!({"path": "a.txt", "name": i.to_string()}))
        .collect();
    let methods = |count: u32| -> Vec<Value> {
        (1..=count)
            .map(|window| json!({"window": window}))
            .collect()
    };
    let request = |count| json!({"datasets": datasets, "method": methods(count)});
    let resolved = fixture.resolve(&request(4)).unwrap();
    assert_eq!(resolved.methods.as_slice().len(), 4);
    assert_eq!(
        resolved.methods.as_slice()[0].convention,
        Convention::Rolling
    );
    let detail = fixture.refused(&request(5), ErrorCode::InvalidRequest, "method");
    assert!(detail.contains("500") && detail.contains("400"), "{detail}");
}

#[test]
fn an_inspection_is_checked_like_a_job() {
    let fixture = Fixture::new();
    let inspect = |dataset: Value, model: Option<&str>| {
        let request = DatasetInspectionRequest {
            dataset: serde_json::from_value(dataset).unwrap(),
            model: model.map(str::to_owned),
        };
        match resolve_inspection(&fixture.grounds, &request) {
            Ok(inspected) => Ok((inspected.tokenizer.is_some(), inspected.chat.is_some())),
            Err(ApiError::Problem(problem)) => Err(problem.errors[0].field.clone()),
            Err(other) => panic!("{other}"),
        }
    };
    let refused = |field: &str| Err(field.to_owned());
    assert_eq!(inspect(json!("b.jsonl"), None), Ok((false, false)));
    assert_eq!(
        inspect(json!("b.jsonl"), Some("llama_gqa")),
        Ok((true, false))
    );
    assert_eq!(inspect(json!("none.jsonl"), None), refused("dataset.path"));
    assert_eq!(inspect(json!("b.jsonl"), Some("none")), refused("model"));
    let chat = json!({"path": "b.jsonl", "format": "chat"});
    assert_eq!(inspect(chat.clone(), None), refused("model"));
    assert_eq!(inspect(chat.clone(), Some("llama_gqa")), refused("model"));
    fixture.add_chat_template();
    assert_eq!(inspect(chat, Some("llama_gqa")), Ok((true, true)));
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

#[test]
fn how_a_job_is_run_has_limits() {
    let fixture = Fixture::new();
    for (field, good, bad) in [
        (
            "priority",
            [json!(-100), json!(100)],
            [json!(-101), json!(101)],
        ),
        ("audit", [json!(0), json!(1.0)], [json!(-0.1), json!(1.1)]),
    ] {
        for value in good {
            fixture.resolve(&json!({field: value})).unwrap();
        }
        for value in bad {
            let detail = fixture.refused(&json!({field: value}), ErrorCode::InvalidRequest, field);
            assert!(detail.contains(&value.to_string()), "{detail}");
        }
    }
    for field in ["queue_seconds", "run_seconds"] {
        fixture.resolve(&json!({"deadlines": {field: 1}})).unwrap();
        let (refused, name) = (
            json!({"deadlines": {field: 0}}),
            format!("deadlines.{field}"),
        );
        let detail = fixture.refused(&refused, ErrorCode::InvalidRequest, &name);
        assert!(detail.contains("leave it out"), "{detail}");
    }
}

#[test]
fn a_plan_is_checked_like_a_job_and_its_devices_are() {
    let fixture = Fixture::new();
    let resolve = |job: &Value, devices: &Value| {
        let mut body = json!({"job": {"model": "llama_gqa", "datasets": ["a.txt"]}});
        for (key, value) in job.as_object().unwrap() {
            body["job"][key] = value.clone();
        }
        body["devices"] = devices.clone();
        let request = serde_json::from_value(body).unwrap();
        match resolve_plan(&fixture.grounds, &request) {
            Ok(planned) => Ok((planned.resolved, planned.chat.is_some())),
            Err(ApiError::Problem(problem)) => Err(problem),
            Err(other) => panic!("{other}"),
        }
    };
    let one = json!([{"tokens_per_second": 1000}]);
    for change in [
        json!({"priority": 101, "audit": 2.0}),
        json!({"model": "none", "datasets": ["../a", {"path": "none"}]}),
        json!({"method": {"window": 99_999}}),
    ] {
        let of_job = fixture.resolve(&change).unwrap_err();
        let of_plan = resolve(&change, &one).unwrap_err();
        assert_eq!(of_plan.code, of_job.code);
        let below = |error: &assay_api::FieldError| assay_api::FieldError {
            field: format!("job.{}", error.field),
            ..error.clone()
        };
        let expected: Vec<_> = of_job.errors.iter().map(below).collect();
        assert_eq!(of_plan.errors, expected);
    }
    let many = json!([
        {"tokens_per_second": 1, "count": 4096},
        {"tokens_per_second": 1, "count": u32::MAX},
    ]);
    let long = "x".repeat(257);
    for (devices, field, word) in [
        (json!([]), "devices", "at least one"),
        (many, "devices", "4294971391"),
        (
            json!([{"tokens_per_second": 0}]),
            "devices[0].tokens_per_second",
            "is 0",
        ),
        (
            json!([{"tokens_per_second": -1}]),
            "devices[0].tokens_per_second",
            "is -1",
        ),
        (
            json!([{"tokens_per_second": 1e300}]),
            "devices[0].tokens_per_second",
            "1e12",
        ),
        (
            json!([{"tokens_per_second": 1, "count": 0}]),
            "devices[0].count",
            "at least 1",
        ),
        (
            json!([{"tokens_per_second": 1, "name": long}]),
            "devices[0].name",
            "256",
        ),
    ] {
        let problem = resolve(&json!({}), &devices).unwrap_err();
        let fields: Vec<&str> = problem.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            (problem.code, fields),
            (ErrorCode::InvalidRequest, vec![field])
        );
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    // Those of the job and those of the devices at once.
    let both = resolve(&json!({"priority": 101}), &json!([])).unwrap_err();
    let fields: Vec<&str> = both.errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["job.priority", "devices"]);

    let full = json!([{"tokens_per_second": 0.5, "count": 4095}, {"tokens_per_second": 1e6}]);
    let (resolved, chat) = resolve(&json!({}), &full).unwrap();
    assert_eq!(
        (resolved, chat),
        (fixture.resolve(&json!({})).unwrap(), false)
    );
    fixture.add_chat_template();
    let chat = json!({"datasets": [{"path": "b.jsonl", "format": "chat"}]});
    assert!(resolve(&chat, &one).unwrap().1);
}
