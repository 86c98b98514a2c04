//! Jobs of unusual shapes on two workers: the right numbers or a typed error.

use assay_api::ErrorCode::DatasetEmpty;
use assay_api::{DocumentRow, JobId, JobResult};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::ledger::counted_once;
use crate::reference::{assert_close, assert_token_close, expected, text};
use crate::service::Service;

const MODEL: &str = "llama_gqa";
/// Ten tokens in every place (checked), so that windows of as many tokens of a text that repeats
/// it are alike.
const DIGITS: &str = "0123456789";
const WINDOW: usize = 60;

async fn service(roots: Roots) -> Service {
    roots.add_model(MODEL);
    let mut service = Service::start(roots).await;
    for (worker, device) in ["cpu:0", "cpu:1"].into_iter().enumerate() {
        service.add_worker(device);
        service.row_of(worker).await;
    }
    service
}

fn job(datasets: &Value, method: &Value) -> Value {
    json!({"model": MODEL, "datasets": datasets, "method": method, "reuse": false})
}

async fn run(service: &Service, datasets: &Value, method: &Value) -> (JobId, JobResult) {
    let id = service.client.submit(&job(datasets, method)).await;
    let result = service.client.succeeded(id).await;
    counted_once(&mut service.ledger().await, id).await;
    (id, result)
}

fn sum_of(result: &JobResult) -> f64 {
    result.datasets[0].nll.expect("the job is complete")
}

/// All documents of a dataset, in large pages.
async fn documents(service: &Service, id: JobId, dataset: &str) -> Vec<DocumentRow> {
    let path = format!("/jobs/{id}/documents?dataset={dataset}&limit=1000");
    service.client.all(&path).await
}

#[tokio::test]
async fn few_documents_and_none() {
    let mut service = service(Roots::new()).await;
    service.add_worker("cpu:0");
    service.row_of(2).await;
    let expected = expected(MODEL);
    let reference = &expected["windows"]["ppl"]["rolling_bos"];
    let (long, short) = (text(&expected, "long"), text(&expected, "short"));
    let method = json!({"window": 64});

    // One document for three workers.
    let (_, one) = run(&service, &json!([{"documents": [long]}]), &method).await;
    let nll = reference["nll_sum"].as_f64().unwrap();
    assert_close(sum_of(&one), nll, "one document");
    assert_eq!(
        one.datasets[0].scored_tokens,
        reference["scored_tokens"].as_u64().unwrap()
    );
    // Two for three, in one dataset and in two.
    let (id, two) = run(
        &service,
        &json!([{"documents": [short, long], "name": "two"}]),
        &method,
    )
    .await;
    let rows = documents(&service, id, "two").await;
    assert_eq!(rows.len(), 2);
    assert_close(rows[1].nll, nll, "the second of two documents");
    assert_close(rows[0].nll + nll, sum_of(&two), "both");
    let apart = json!([{"documents": [short], "name": "s"}, {"documents": [long], "name": "l"}]);
    let (_, apart) = run(&service, &apart, &method).await;
    assert_close(
        apart.datasets[1].nll.unwrap(),
        nll,
        "a dataset of one document",
    );
    assert_close(apart.datasets[0].nll.unwrap(), rows[0].nll, "another");

    // None, none with a token, none with a token that is predicted, none that fills a window.
    let blocks = json!({"convention": "blocks", "bos": "never"});
    let llamacpp = json!({"convention": "llamacpp", "window": 64});
    for (documents, method) in [
        (json!([""]), &method),
        (json!(["", ""]), &method),
        (json!(["0"]), &blocks),
        (
            json!([short]),
            &json!({"convention": "blocks", "window": 64}),
        ),
        (json!([short]), &llamacpp),
    ] {
        let job = job(&json!([{"documents": documents}]), method);
        let id = service.client.submit(&job).await;
        let error = service.client.failed(id).await;
        assert_eq!(error.code, DatasetEmpty, "{job}: {error:?}");
    }
    service.finish().await;
}

/// 100,000 documents of three tokens, of two texts in turn.
#[tokio::test]
async fn very_many_short_documents() {
    const DOCUMENTS: usize = 100_000;
    const TEXTS: [&str; 2] = ["The cl", "012"];
    let expected = expected(MODEL);
    // The first text begins the one that transformers scored token by token, behind a BOS.
    assert!(text(&expected, "long").starts_with(TEXTS[0]));
    let single = &expected["windows"]["single"];
    let nlls = single["nll_f32"].as_array().unwrap().iter();
    let first: f64 = nlls.take(3).map(|nll| nll.as_f64().unwrap()).sum();

    let roots = Roots::new();
    let lines = TEXTS.map(|text| json!({"text": text}).to_string() + "\n");
    roots.add_data("many.jsonl", lines.concat().repeat(DOCUMENTS / 2));
    let service = service(roots).await;
    let method = json!({"window": 64});
    let (_, alone) = run(&service, &json!([{"documents": [TEXTS[1]]}]), &method).await;
    let (id, all) = run(&service, &json!(["many.jsonl"]), &method).await;

    let row = &all.datasets[0];
    assert_eq!(row.documents, Some(DOCUMENTS as u64));
    assert_eq!(row.tokens, Some(3 * DOCUMENTS as u64));
    assert_eq!(row.scored_tokens, 3 * DOCUMENTS as u64);
    let nlls = [first, sum_of(&alone)];
    let rows = documents(&service, id, "many.jsonl").await;
    assert_eq!(rows.len(), DOCUMENTS);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!((row.index, row.scored_tokens), (index as u64, 3));
        assert_token_close(row.nll, nlls[index % 2], "a document");
    }
    let exact = |units: &str| units.parse::<i128>().expect("an integer");
    let units: i128 = rows.iter().map(|row| exact(&row.nll_exact)).sum();
    assert_eq!(row.nll_exact.as_deref().map(exact), Some(units));
    let total = DOCUMENTS as f64 / 2.0 * (nlls[0] + nlls[1]);
    assert_close(sum_of(&all), total, "all documents");
    service.finish().await;
}

/// The sum of a document of so many windows of digits.
async fn digits(service: &Service, windows: usize) -> f64 {
    let name = format!("digits-{windows}.txt");
    let text = DIGITS.repeat(windows * WINDOW / DIGITS.len());
    service.roots.add_data(&name, text);
    let (_, result) = run(service, &json!([name]), &json!({"window": WINDOW})).await;
    let row = &result.datasets[0];
    assert_eq!((row.documents, row.unscored_documents), (Some(1), Some(0)));
    assert_eq!(row.scored_tokens, (windows * WINDOW) as u64);
    assert_eq!(row.tokens, Some((windows * WINDOW) as u64));
    sum_of(&result)
}

#[tokio::test]
async fn a_document_of_five_million_tokens() {
    const WINDOWS: usize = 5_000_040 / WINDOW;
    let service = service(Roots::new()).await;
    let first = digits(&service, 1).await;
    let later = digits(&service, 2).await - first;
    let all = digits(&service, WINDOWS).await;
    // The first window holds the prefix; all later ones are alike.
    let reference = first + (WINDOWS - 1) as f64 * later;
    assert_close(all, reference, "all windows");
    service.finish().await;
}
