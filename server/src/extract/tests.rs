use super::*;
use assay_api::{JobRequest, Problem};
use axum::body::Body;
use axum::extract::DefaultBodyLimit;

fn json(body: impl Into<Body>) -> Request {
    let mut request = Request::post("/jobs")
        .header(CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap();
    // As the edge does.
    DefaultBodyLimit::max(2 * BODY_LIMIT).apply(&mut request);
    request
}

async fn refusal(request: Request) -> Problem {
    match JsonBody::<JobRequest>::from_request(request, &()).await {
        Err(ApiError::Problem(problem)) => *problem,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken"),
    }
}

#[tokio::test]
async fn a_body_is_taken_typed_and_as_parsed_json() {
    let text = r#"{"datasets": ["a.txt"], "model": "m"}"#;
    let body = JsonBody::<JobRequest>::from_request(json(text), &())
        .await
        .ok()
        .unwrap();
    assert_eq!(body.typed.model.path, "m");
    assert_eq!(
        body.value,
        serde_json::json!({"model": "m", "datasets": ["a.txt"]})
    );
}

#[tokio::test]
async fn other_content_types_are_refused() {
    for kind in ["text/plain", "application/jsonl", ""] {
        let mut request = json("{}");
        request
            .headers_mut()
            .insert(CONTENT_TYPE, kind.parse().unwrap());
        assert_eq!(
            refusal(request).await.code,
            ErrorCode::UnsupportedMediaType,
            "{kind}"
        );
    }
    let mut request = json("{}");
    request.headers_mut().remove(CONTENT_TYPE);
    assert_eq!(refusal(request).await.code, ErrorCode::UnsupportedMediaType);

    let mut request = json("{}");
    let kind = "Application/JSON; charset=utf-8".parse().unwrap();
    request.headers_mut().insert(CONTENT_TYPE, kind);
    assert_eq!(refusal(request).await.code, ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_unparsed() {
    let problem = refusal(json(" ".repeat(BODY_LIMIT + 1))).await;
    assert_eq!(
        (problem.code, problem.status),
        (ErrorCode::PayloadTooLarge, 413)
    );
    let problem = refusal(json(" ".repeat(BODY_LIMIT))).await;
    assert_eq!(problem.code, ErrorCode::MalformedJson);
}

#[tokio::test]
async fn malformed_json_is_located() {
    for (body, place) in [
        ("{\n  \"model\": oops\n}", "line 2 column 12"),
        ("", "line 1 column 0"),
        ("{} {}", "line 1 column 4"),
    ] {
        let problem = refusal(json(body)).await;
        assert_eq!(
            (problem.code, problem.status),
            (ErrorCode::MalformedJson, 400)
        );
        assert!(problem.detail.contains(place), "{}", problem.detail);
    }
    let deep = "[".repeat(100_000);
    assert_eq!(refusal(json(deep)).await.code, ErrorCode::MalformedJson);
    assert_eq!(
        refusal(json(vec![b'"', 0xff, b'"'])).await.code,
        ErrorCode::MalformedJson
    );
}

#[tokio::test]
async fn wrong_fields_are_named_by_path_with_what_is_allowed() {
    for (body, field, allowed) in [
        (r#"{"model": "m"}"#, "datasets", "missing field"),
        (
            r#"{"model": "m", "datasets": [], "modle": "n"}"#,
            "modle",
            "`model`",
        ),
        (
            r#"{"model": "m", "model": "n", "datasets": []}"#,
            "model",
            "duplicate",
        ),
        (
            r#"{"model": 7, "datasets": []}"#,
            "model",
            "expected a path",
        ),
        (
            r#"{"model": "m", "datasets": [{"path": "a", "fild": "b"}]}"#,
            "datasets[0].fild",
            "`field`",
        ),
        (
            r#"{"model": "m", "datasets": ["a", {"documents": "b"}]}"#,
            "datasets[1].documents",
            "a sequence",
        ),
        (
            r#"{"model": "m", "datasets": [{"path": "a", "sample": {"seed": 1}}]}"#,
            "datasets[0].sample.documents",
            "missing",
        ),
        (
            r#"{"model": "m", "datasets": ["a", 7]}"#,
            "datasets[1]",
            "a path below the data root",
        ),
        (
            r#"{"model": "m", "datasets": [{"path": "a", "format": "csv"}]}"#,
            "datasets[0].format",
            "`jsonl`",
        ),
        (
            r#"{"model": "m", "datasets": [{"path": "a", "limit_tokens": -1}]}"#,
            "datasets[0].limit_tokens",
            "u64",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "method": {"convention": "block"}}"#,
            "method.convention",
            "`rolling`",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "method": {"widow": 1}}"#,
            "method.widow",
            "`window`",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "method": [{}, {"tail": "keep"}]}"#,
            "method[1].tail",
            "`drop`",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "method": "rolling"}"#,
            "method",
            "an object or a list",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "tags": {"a": 1}}"#,
            "tags.a",
            "a string",
        ),
    ] {
        let problem = refusal(json(body)).await;
        assert_eq!(
            (problem.code, problem.status),
            (ErrorCode::InvalidRequest, 422),
            "{body}"
        );
        assert_eq!(problem.errors[0].field, field, "{problem:?}");
        assert!(problem.errors[0].detail.contains(allowed), "{problem:?}");
    }
}

#[tokio::test]
async fn idempotency_keys_are_printable_and_short() {
    let longest = "k".repeat(255);
    let too_long = "k".repeat(256);
    for (key, taken) in [
        ("a key", true),
        (&longest, true),
        (&too_long, false),
        ("", false),
        ("\u{e9}", false),
    ] {
        let value = axum::http::HeaderValue::from_bytes(key.as_bytes()).unwrap();
        let request = Request::post("/")
            .header("idempotency-key", value)
            .body(())
            .unwrap();
        let (mut parts, ()) = request.into_parts();
        let got = IdempotencyKey::from_request_parts(&mut parts, &()).await;
        match got {
            Ok(IdempotencyKey(got)) => assert!(taken && got.as_deref() == Some(key)),
            Err(_) => assert!(!taken, "{key}"),
        }
    }
}

#[tokio::test]
async fn a_nul_is_refused_wherever_it_stands() {
    for (body, field) in [
        (r#"{"model": "m\u0000", "datasets": ["a"]}"#, "model"),
        (
            r#"{"model": "m", "datasets": ["a", "b\u0000"]}"#,
            "datasets[1]",
        ),
        (
            r#"{"model": "m", "datasets": [{"path": "a", "name": "\u0000"}]}"#,
            "datasets[0].name",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "tags": {"k": "\u0000"}}"#,
            "tags.k",
        ),
        (
            r#"{"model": "m", "datasets": ["a"], "tags": {"k\u0000": ""}}"#,
            "tags.k\\0",
        ),
    ] {
        let problem = refusal(json(body)).await;
        assert_eq!(problem.code, ErrorCode::InvalidRequest, "{body}");
        assert_eq!(problem.errors[0].field, field, "{body}");
    }
}

#[tokio::test]
async fn a_body_is_an_object() {
    for body in ["[]", r#"[null, "m", ["a"]]"#, "\"m\"", "7", "null"] {
        let problem = refusal(json(body)).await;
        assert_eq!(problem.errors[0].field, "body", "{body}");
        assert!(problem.detail.contains("object"), "{}", problem.detail);
    }
}
