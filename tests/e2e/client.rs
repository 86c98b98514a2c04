//! HTTP as a caller speaks it.

use std::time::Duration;

use assay_api::{
    Comparison, DocumentRow, ErrorCode, GateResult, Job, JobId, JobResult, JobState, Page, Problem,
    ShardRow, TokenRow, Upload, WorkerRow,
};
use assay_testkit::{Exposition, LIMIT, eventually};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest job of these tests, on a busy machine.
const JOB_LIMIT: Duration = Duration::from_mins(3);

/// A caller of one server.
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let http = reqwest::Client::builder()
            .timeout(LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("the settings are valid");
        Self {
            http,
            base: format!("http://{address}"),
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        let request = self.request(Method::GET, path);
        request.send().await.expect("the server answers")
    }

    /// The body of a 200.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        let response = self.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.expect("the body is of its type")
    }

    /// Waits until the server is ready.
    pub(crate) async fn ready(&self) {
        eventually("the server to be ready", LIMIT, async || {
            let answer = self.request(Method::GET, "/readyz").send().await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
    }

    pub(crate) async fn post(&self, body: &Value) -> Response {
        let request = self.request(Method::POST, "/jobs").json(body);
        request.send().await.expect("the server answers")
    }

    /// Posts a job that is taken.
    pub(crate) async fn submit(&self, body: &Value) -> JobId {
        let response = self.post(body).await;
        let status = response.status();
        let text = response.text().await.expect("a body");
        assert_eq!(status, StatusCode::CREATED, "{body}: {text}");
        let job: Job = serde_json::from_str(&text).expect("a job");
        job.id
    }

    pub(crate) async fn job(&self, id: JobId) -> Job {
        self.read(&format!("/jobs/{id}")).await
    }

    /// Waits until the job has ended. The server may be away meanwhile.
    pub(crate) async fn ended(&self, id: JobId) -> Job {
        eventually(&format!("the end of {id}"), JOB_LIMIT, async || {
            let request = self.request(Method::GET, &format!("/jobs/{id}"));
            let answer = request.send().await.ok()?.error_for_status().ok()?;
            let job: Job = answer.json().await.ok()?;
            job.state.is_final().then_some(job)
        })
        .await
    }

    /// Waits until the job has succeeded, and answers its results.
    pub(crate) async fn succeeded(&self, id: JobId) -> JobResult {
        let job = self.ended(id).await;
        assert_eq!(job.state, JobState::Succeeded, "{job:?}");
        let result: JobResult = self.read(&format!("/jobs/{id}/results")).await;
        assert!(result.complete);
        result
    }

    /// Waits until the job has failed, and answers its error.
    pub(crate) async fn failed(&self, id: JobId) -> assay_api::JobError {
        let job = self.ended(id).await;
        assert_eq!(job.state, JobState::Failed, "{job:?}");
        job.error.expect("a failed job has an error")
    }

    /// Runs a job to its end, in success.
    pub(crate) async fn done(&self, body: &Value) -> JobId {
        let id = self.submit(body).await;
        self.succeeded(id).await;
        id
    }

    /// Cancels a job that has not ended.
    pub(crate) async fn cancel(&self, id: JobId) -> JobId {
        let request = self.request(Method::DELETE, &format!("/jobs/{id}"));
        let answer = request.send().await.expect("the server answers");
        assert!(answer.status().is_success(), "{}", answer.status());
        id
    }

    /// Runs a job to its results.
    pub(crate) async fn run(&self, body: &Value) -> JobResult {
        let id = self.submit(body).await;
        self.succeeded(id).await
    }

    /// All documents of a dataset, page by page.
    pub(crate) async fn documents(&self, id: JobId, dataset: &str) -> Vec<DocumentRow> {
        self.all(&format!("/jobs/{id}/documents?dataset={dataset}"))
            .await
    }

    /// All documents of a dataset under one of the job's methods, page by page.
    pub(crate) async fn rows(&self, id: JobId, dataset: &str, method: usize) -> Vec<DocumentRow> {
        self.all(&format!(
            "/jobs/{id}/documents?dataset={dataset}&method={method}"
        ))
        .await
    }

    /// The predicted tokens of a document under one of the job's methods, page by page.
    pub(crate) async fn tokens(
        &self,
        id: JobId,
        dataset: &str,
        document: u64,
        method: usize,
    ) -> Vec<TokenRow> {
        self.all(&format!(
            "/jobs/{id}/tokens?dataset={dataset}&document={document}&method={method}"
        ))
        .await
    }

    /// Asks for a comparison.
    pub(crate) async fn post_comparison(&self, body: &Value) -> Response {
        let request = self.request(Method::POST, "/comparisons").json(body);
        request.send().await.expect("the server answers")
    }

    /// Compares jobs that can be compared.
    pub(crate) async fn compare(&self, body: &Value) -> Comparison {
        let response = self.post_comparison(body).await;
        let status = response.status();
        let text = response.text().await.expect("a body");
        assert_eq!(status, StatusCode::OK, "{body}: {text}");
        serde_json::from_str(&text).expect("a comparison")
    }

    /// What the gate of a job says.
    pub(crate) async fn gate(&self, id: JobId) -> GateResult {
        self.read(&format!("/jobs/{id}/gate")).await
    }

    /// Uploads a dataset.
    pub(crate) async fn put(&self, name: &str, body: impl Into<Body>) -> Response {
        let request = self.request(Method::PUT, &format!("/datasets/{name}"));
        let request = request.body(body);
        request.send().await.expect("the server answers")
    }

    /// Uploads a dataset that is taken.
    pub(crate) async fn upload(&self, name: &str, body: impl Into<Body>) -> Upload {
        let response = self.put(name, body).await;
        let status = response.status();
        let text = response.text().await.expect("a body");
        assert!(status.is_success(), "{name}: {status}: {text}");
        serde_json::from_str(&text).expect("an upload")
    }

    /// All shards of a job, page by page.
    pub(crate) async fn shards(&self, id: JobId) -> Vec<ShardRow> {
        self.all(&format!("/jobs/{id}/shards?limit=100")).await
    }

    /// What `GET /metrics` says.
    pub(crate) async fn metrics(&self) -> Exposition {
        let answer = self.get("/metrics").await;
        assert_eq!(answer.status(), StatusCode::OK);
        Exposition::parse(&answer.text().await.expect("a body"))
    }

    pub(crate) async fn workers(&self) -> Vec<WorkerRow> {
        self.all("/workers?limit=100").await
    }

    /// All rows of a list; `path` has a query already.
    pub(crate) async fn all<T: DeserializeOwned>(&self, path: &str) -> Vec<T> {
        let mut page: Page<T> = self.read(path).await;
        let mut rows = page.items;
        while let Some(cursor) = page.next {
            page = self.read(&format!("{path}&cursor={cursor}")).await;
            rows.append(&mut page.items);
        }
        rows
    }
}

/// The problem of an answer that is one in every part.
pub(crate) async fn problem(response: Response) -> Problem {
    let headers = response.headers().clone();
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    assert_eq!(headers[CONTENT_TYPE], "application/problem+json", "{text}");
    let problem: Problem = serde_json::from_str(&text).expect("a problem");
    assert_eq!(problem.status, status, "{text}");
    assert_eq!(problem.title, problem.code.title(), "{text}");
    assert_eq!(problem.kind, format!("/errors#{}", problem.code), "{text}");
    let id = problem.request_id.as_deref().expect("a request id");
    assert_eq!(headers["x-request-id"], id, "{text}");
    problem
}

/// The code and the fields of a refusal.
pub(crate) async fn refusal(response: Response) -> (u16, ErrorCode, Vec<String>, String) {
    let problem = problem(response).await;
    let fields = problem.errors.into_iter().map(|error| error.field);
    (
        problem.status,
        problem.code,
        fields.collect(),
        problem.detail,
    )
}
