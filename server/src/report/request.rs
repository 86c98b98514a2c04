//! How a job is posted again.

use assay_api::{DatasetRef, Job};
use serde_json::{Map, Value, json};

/// The body of the request that makes the same job, without its name and tags. Documents that came
/// with the request are not kept, so they are not in it.
pub(super) fn body(job: &Job) -> String {
    let datasets: Vec<DatasetRef> = job.datasets.iter().map(dataset).collect();
    let mut body = Map::new();
    let fields = [
        ("model", json!(job.model)),
        ("datasets", json!(datasets)),
        ("method", json!(job.method)),
        ("dtype", json!(job.dtype)),
        ("numerics", json!(job.numerics)),
        ("audit", json!(job.audit)),
        ("token_output", json!(job.token_output)),
    ];
    for (name, value) in fields {
        body.insert(name.to_owned(), value);
    }
    serde_json::to_string_pretty(&Value::Object(body)).expect("a request is plain data")
}

/// A dataset as a request names it: what an upload stood for is the server's to find out.
fn dataset(dataset: &DatasetRef) -> DatasetRef {
    DatasetRef {
        upload_digest: None,
        ..dataset.clone()
    }
}

/// Whether documents came with the request.
pub(super) fn has_inline_documents(job: &Job) -> bool {
    let mut datasets = job.datasets.iter();
    datasets.any(|dataset| dataset.path.is_none() && dataset.upload.is_none())
}

/// The command that posts a request read from its input.
pub(super) fn command(body: &str) -> String {
    // No line of JSON is `JOB`, and between quotes the shell takes every other one as it is.
    format!("assay submit --wait --file - <<'JOB'\n{body}\nJOB")
}
