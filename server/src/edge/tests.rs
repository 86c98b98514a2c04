use super::*;
use axum::body::to_bytes;
use axum::http::header::ALLOW;
use axum::routing::{get, post};
use tower::ServiceExt;

async fn panicking() {
    panic!("a secret");
}

fn app(timeout: Duration) -> Router {
    let failing =
        || async { ApiError::Store(assay_store::StoreError::Unexpected("a secret".to_owned())) };
    let routes = Router::new()
        .route("/ok", get(|| async { "fine" }))
        .route("/panic", get(panicking))
        .route("/failing", get(failing))
        .route("/stuck", get(std::future::pending::<()>))
        .route("/text", post(|_: String| async {}));
    surround(routes.layer(within(timeout)), Requests::default())
}

async fn ask(app: Router, request: Request) -> (Response, Problem) {
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
    let (parts, body) = response.into_parts();
    let problem: Problem =
        serde_json::from_slice(&to_bytes(body, BODY_LIMIT).await.unwrap()).unwrap();
    assert_eq!(parts.status.as_u16(), problem.status);
    assert_eq!(
        parts.headers[REQUEST_ID],
        problem.request_id.as_deref().unwrap()
    );
    (Response::from_parts(parts, Body::empty()), problem)
}

fn request(method: &str, path: &str) -> Request {
    Request::builder()
        .method(method)
        .uri(path)
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let (_, problem) = ask(app(TIMEOUT), request("GET", "/nowhere")).await;
    assert_eq!(problem.code, ErrorCode::NotFound);
    assert!(problem.detail.contains("/nowhere"), "{}", problem.detail);

    let (response, problem) = ask(app(TIMEOUT), request("DELETE", "/ok")).await;
    assert_eq!(problem.code, ErrorCode::MethodNotAllowed);
    assert_eq!(response.headers()[ALLOW], "GET,HEAD");
}

#[tokio::test]
async fn causes_stay_inside() {
    for path in ["/panic", "/failing"] {
        let (_, problem) = ask(app(TIMEOUT), request("GET", path)).await;
        assert_eq!(problem.code, ErrorCode::Internal);
        assert!(!serde_json::to_string(&problem).unwrap().contains("secret"));
    }
}

#[tokio::test]
async fn a_request_without_an_end_times_out() {
    let (_, problem) = ask(app(Duration::from_millis(1)), request("GET", "/stuck")).await;
    assert_eq!((problem.code, problem.status), (ErrorCode::Timeout, 504));
}

#[tokio::test]
async fn rejections_of_axum_keep_their_status() {
    let mut bad = request("POST", "/text");
    *bad.body_mut() = Body::from(vec![0xff]);
    let (_, problem) = ask(app(TIMEOUT), bad).await;
    assert_eq!(
        (problem.code, problem.status),
        (ErrorCode::InvalidRequest, 400)
    );
}

#[tokio::test]
async fn request_ids_are_taken_if_sane_and_made_otherwise() {
    let long = "x".repeat(129);
    for (sent, taken) in [
        ("trace-7/a", true),
        ("two words", false),
        ("", false),
        (&long, false),
    ] {
        let mut asked = request("GET", "/ok");
        asked
            .headers_mut()
            .insert(REQUEST_ID, HeaderValue::from_str(sent).unwrap());
        let response = app(TIMEOUT).oneshot(asked).await.unwrap();
        let id = response.headers()[REQUEST_ID].to_str().unwrap();
        if taken {
            assert_eq!(id, sent);
        } else {
            assert_eq!(Uuid::parse_str(id).unwrap().get_version_num(), 7);
        }
    }
}
