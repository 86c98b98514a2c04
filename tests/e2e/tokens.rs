//! The NLL of every token, and the archive of a job.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use assay_api::ErrorCode::{InvalidRequest, JobNotEnded, NotFound};
use assay_api::{DocumentRow, JobId, JobResult, TokenRow};
use assay_testkit::Roots;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use zip::ZipArchive;

use crate::client::problem;
use crate::reference::{expected, text};
use crate::service::Service;

const MODEL: &str = "llama_gqa";
const DATASET: &str = "a b/../three.jsonl";

fn methods() -> Value {
    json!([
        {"window": 64},
        {"convention": "blocks", "window": 64},
        {"convention": "strided", "window": 64, "stride": 5},
        {"convention": "llamacpp", "window": 64},
    ])
}

fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model(MODEL);
    let expected = expected(MODEL);
    let mut lines: Vec<String> = ["short", "long", "mixed"]
        .map(|which| json!({"text": text(&expected, which)}).to_string())
        .into();
    lines.insert(1, json!({"text": ""}).to_string());
    roots.add_data("three.jsonl", lines.join("\n"));
    roots
}

fn job() -> Value {
    json!({
        "model": MODEL,
        // A name that is no file name.
        "datasets": [{"name": DATASET, "path": "three.jsonl"}],
        "method": methods(),
        "token_output": true,
    })
}

/// The name in a query.
const QUERY: &str = "a%20b%2F..%2Fthree.jsonl";

fn units(rows: impl Iterator<Item = Option<String>>) -> (u64, i128) {
    rows.flatten().fold((0, 0), |(count, sum), exact| {
        (count + 1, sum + exact.parse::<i128>().expect("an integer"))
    })
}

/// The token rows of each document of a row.
async fn tokens(
    service: &Service,
    id: JobId,
    method: usize,
    rows: &[DocumentRow],
) -> Vec<Vec<TokenRow>> {
    let mut all = Vec::new();
    for row in rows {
        all.push(service.client.tokens(id, QUERY, row.index, method).await);
    }
    all
}

fn check_sums(rows: &[DocumentRow], tokens: &[Vec<TokenRow>], what: &str) {
    for (row, tokens) in rows.iter().zip(tokens) {
        let found = units(tokens.iter().map(|token| token.nll_exact.clone()));
        let exact = (row.scored_tokens, row.nll_exact.parse().unwrap());
        assert_eq!(found, exact, "{what}: document {}", row.index);
        for pair in tokens.windows(2) {
            assert!(pair[0].index < pair[1].index, "{what}: {pair:?}");
            assert!(pair[0].start <= pair[1].start, "{what}: {pair:?}");
        }
        for token in tokens {
            let exact: i64 = token.nll_exact.as_deref().unwrap().parse().unwrap();
            let nll = exact as f64 / 2_f64.powi(32);
            assert!((token.nll.unwrap() - nll).abs() < 1e-9, "{what}: {token:?}");
            assert!(token.index < row.tokens, "{what}: {token:?}");
        }
    }
}

#[tokio::test]
async fn token_sums_are_those_of_the_documents() {
    let texts = expected(MODEL);
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let id = service.client.submit(&job()).await;
    // None is there before its window is scored; the page says so by being empty, or by a 404.
    let result = service.client.succeeded(id).await;
    assert!(service.client.job(id).await.token_output);
    for method in 0..4 {
        let rows = service.client.rows(id, QUERY, method).await;
        let tokens = tokens(&service, id, method, &rows).await;
        check_sums(&rows, &tokens, &format!("method {method}"));
        let total = units(tokens.iter().flatten().map(|token| token.nll_exact.clone()));
        let row = &result.datasets[method];
        assert_eq!(total.0, row.scored_tokens);
        assert_eq!(Some(total.1.to_string()), row.nll_exact);
    }
    // Under `rolling` these are the tokens of the text, with their places.
    let rolling = service.client.tokens(id, QUERY, 0, 0).await;
    let ids: Vec<Value> = rolling.iter().map(|token| json!(token.id)).collect();
    assert_eq!(json!(ids), texts["tokens"]["short"]["without_special"]);
    let (first, last) = (&rolling[0], rolling.last().unwrap());
    let length = text(&texts, "short").len() as u64;
    assert_eq!((first.start, last.end), (0, length));
    assert!(rolling.windows(2).all(|pair| pair[0].end >= pair[1].start));

    // Pages of any size are the same rows.
    let path = format!("/jobs/{id}/tokens?dataset={QUERY}&document=2&limit=7");
    let paged: Vec<TokenRow> = service.client.all(&path).await;
    assert_eq!(paged, service.client.tokens(id, QUERY, 2, 0).await);
    for (query, status, code) in [
        (format!("dataset={QUERY}&document=4"), 404, NotFound),
        (
            format!("dataset={QUERY}&document=0&method=4"),
            404,
            NotFound,
        ),
        ("dataset=none&document=0".to_owned(), 404, NotFound),
        (format!("dataset={QUERY}"), 422, InvalidRequest),
        (format!("dataset={QUERY}&document=-1"), 422, InvalidRequest),
        (
            format!("dataset={QUERY}&document=0&limit=0"),
            422,
            InvalidRequest,
        ),
        (
            format!("dataset={QUERY}&document=0&cursor=x"),
            422,
            InvalidRequest,
        ),
    ] {
        let answer = service
            .client
            .get(&format!("/jobs/{id}/tokens?{query}"))
            .await;
        let problem = problem(answer).await;
        assert_eq!(
            (problem.status, problem.code),
            (status, code),
            "{query}: {problem:?}"
        );
    }
    service.finish().await;
}

#[tokio::test]
async fn tokens_that_are_not_kept_are_not_there() {
    let mut service = Service::start(roots()).await;
    let mut job = job();
    job["token_output"] = json!(false);
    let id = service.client.submit(&job).await;
    let early = problem(service.client.get(&format!("/jobs/{id}/archive")).await).await;
    assert_eq!((early.status, early.code), (409, JobNotEnded), "{early:?}");
    service.add_worker("cpu:0");
    service.client.succeeded(id).await;
    let path = format!("/jobs/{id}/tokens?dataset={QUERY}&document=0");
    let problem = problem(service.client.get(&path).await).await;
    assert_eq!((problem.status, problem.code), (404, NotFound));
    assert!(problem.detail.contains("token_output"), "{problem:?}");
    let files = archive(&service, id).await;
    assert!(
        files.keys().all(|name| !name.contains("tokens")),
        "{:?}",
        files.keys()
    );
    let worst = format!("/jobs/{id}/documents?dataset={QUERY}&order=worst&limit=2");
    let worst: assay_api::Page<DocumentRow> = service.client.read(&worst).await;
    let mut rows = service.client.documents(id, QUERY).await;
    rows.retain(|row| row.scored_tokens > 0);
    let mean = |row: &DocumentRow| row.nll / row.scored_tokens as f64;
    rows.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    assert_eq!((worst.items.as_slice(), worst.next), (&rows[..2], None));
    service.finish().await;
}

/// The files of a job's archive.
async fn archive(service: &Service, id: JobId) -> BTreeMap<String, Vec<u8>> {
    let answer = service.client.get(&format!("/jobs/{id}/archive")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/zip");
    let bytes = answer.bytes().await.unwrap();
    let mut zip = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut files = BTreeMap::new();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index).unwrap();
        let name = file.name().unwrap().into_owned();
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        let safe = name.is_ascii() && name.split('/').all(is_plain);
        assert!(safe, "{name}");
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        files.insert(name, content);
    }
    files
}

/// The rows of a Parquet file, by column.
fn rows(bytes: &[u8]) -> Vec<BTreeMap<String, Field>> {
    let reader = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        let columns = row.get_column_iter();
        columns
            .map(|(name, field)| (name.clone(), field.clone()))
            .collect()
    })
    .collect()
}

/// The exact sum of a row as text, whatever it is stored as.
fn exact(row: &BTreeMap<String, Field>) -> Option<String> {
    match &row["nll_exact"] {
        Field::Str(text) => Some(text.clone()),
        Field::Long(units) => Some(units.to_string()),
        Field::Null => None,
        other => panic!("{other:?} is no exact sum"),
    }
}

#[tokio::test]
async fn the_archive_holds_all_numbers() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let id = service.client.submit(&job()).await;
    let result = service.client.succeeded(id).await;
    let files = archive(&service, id).await;
    let count = |folder: &str| files.keys().filter(|name| name.starts_with(folder)).count();
    assert_eq!(
        (count("documents/"), count("tokens/"), files.len()),
        (4, 4, 10),
        "{:?}",
        files.keys()
    );
    let stored: JobResult = serde_json::from_slice(&files["result.json"]).unwrap();
    assert_eq!(stored, result);
    let job: assay_api::Job = serde_json::from_slice(&files["job.json"]).unwrap();
    assert_eq!(job.id, id);
    let of = |folder: &'static str| files.iter().filter(move |file| file.0.starts_with(folder));
    for (method, ((name, documents), (_, tokens))) in
        of("documents/").zip(of("tokens/")).enumerate()
    {
        let shown = service.client.rows(id, QUERY, method).await;
        let documents = rows(documents);
        assert_eq!(documents.len(), shown.len(), "{name}");
        for (row, shown) in documents.iter().zip(&shown) {
            assert_eq!(
                exact(row).as_ref(),
                Some(&shown.nll_exact),
                "{name}: {row:?}"
            );
        }
        let total = units(rows(tokens).iter().map(exact));
        let row = &result.datasets[method];
        assert_eq!(total.0, row.scored_tokens, "{name}");
        assert_eq!(Some(total.1.to_string()), row.nll_exact, "{name}");
    }
    service.finish().await;
}
