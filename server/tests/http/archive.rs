//! The archive of a job that has ended, and the lists that it holds.

use std::io::{Cursor, Read};

use assay_api::{DocumentRow, ErrorCode, Job, JobResult, JobState, Page, TokenRow};
use assay_scoring::Convention;
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Row, RowAccessor};
use reqwest::{Method, StatusCode};
use serde_json::json;
use zip::ZipArchive;

use crate::service::{Service, refusal};
use crate::worker::{self, nll};

const NAME: &str = "dataset=a%2Fb%20c";

type Archive = ZipArchive<Cursor<Bytes>>;

fn rows(zip: &mut Archive, name: &str) -> Vec<Row> {
    let mut bytes = Vec::new();
    zip.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

fn number(row: &Row, column: usize) -> u64 {
    row.get_long(column).unwrap().try_into().unwrap()
}

/// A job that keeps its tokens, of documents with 3, 0 and 5 of them under two methods, run.
async fn job(service: &Service) -> Job {
    let body = json!({
        "model": "llama_gqa",
        "datasets": [{"name": "a/b c", "documents": ["x", "", "y"]}],
        "method": [{"window": 4}, {"convention": "blocks", "window": 4}],
        "token_output": true,
    });
    let posted = service.post("/jobs", &body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let posted: Job = posted.json().await.unwrap();
    let blocks = Convention::Blocks {
        window: 4,
        score_tail: false,
    };
    let methods = [Convention::Rolling { window: 4 }, blocks];
    let planned = methods.map(|method| (&[3, 0, 5][..], method));
    worker::run(&service.store, &planned).await;
    let job: Job = service.get(&format!("/jobs/{}", posted.id)).await;
    assert_eq!(job.state, JobState::Succeeded);
    job
}

async fn archive(service: &Service, job: &Job) -> Archive {
    let path = format!("/jobs/{}/archive", job.id);
    let answer = service.send(Method::GET, &path).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/zip");
    let named = format!("attachment; filename=\"assay-{}.zip\"", job.id);
    assert_eq!(header("content-disposition"), named);
    let length = header("content-length");
    let bytes = answer.bytes().await.unwrap();
    assert_eq!(bytes.len().to_string(), length);
    ZipArchive::new(Cursor::new(bytes)).unwrap()
}

#[tokio::test]
async fn an_archive_holds_what_the_lists_say() {
    let service = Service::start().await;
    let job = job(&service).await;
    let path = format!("/jobs/{}", job.id);
    let mut zip = archive(&service, &job).await;
    let mut names: Vec<String> = zip
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    names.sort();
    let expected = [
        "documents/00-a_b_c.parquet",
        "documents/01-a_b_c.parquet",
        "job.json",
        "result.json",
        "tokens/00-a_b_c.parquet",
        "tokens/01-a_b_c.parquet",
    ];
    assert_eq!(names, expected);
    let kept: Job = serde_json::from_reader(zip.by_name("job.json").unwrap()).unwrap();
    assert_eq!(kept, job);
    let kept: JobResult = serde_json::from_reader(zip.by_name("result.json").unwrap()).unwrap();
    let result: JobResult = service.get(&format!("{path}/results")).await;
    assert_eq!(kept, result);

    for (method, counted) in [(0, [3, 0, 5]), (1, [2, 0, 4])] {
        let query = format!("{NAME}&method={method}");
        let listed: Page<DocumentRow> = service.get(&format!("{path}/documents?{query}")).await;
        let stored = rows(&mut zip, &format!("documents/0{method}-a_b_c.parquet"));
        assert_eq!((listed.items.len(), stored.len()), (3, 3));
        for ((listed, stored), counted) in listed.items.iter().zip(&stored).zip(counted) {
            assert_eq!(number(stored, 0), listed.index);
            assert_eq!(number(stored, 2), counted);
            assert_eq!(listed.scored_tokens, counted);
            assert_eq!(*stored.get_string(6).unwrap(), listed.nll_exact);
        }
        let mut stored = rows(&mut zip, &format!("tokens/0{method}-a_b_c.parquet")).into_iter();
        for (document, counted) in (0..).zip(counted) {
            let query = format!("{query}&document={document}");
            let listed: Page<TokenRow> = service.get(&format!("{path}/tokens?{query}")).await;
            assert_eq!(listed.items.len() as u64, counted);
            for token in listed.items {
                let stored = stored.next().unwrap();
                let place = (number(&stored, 0), number(&stored, 1));
                assert_eq!(place, (document, token.index));
                assert_eq!(number(&stored, 2), u64::from(token.id));
                assert_eq!(
                    (number(&stored, 3), number(&stored, 4)),
                    (token.start, token.end)
                );
                let exact = stored.get_long(6).unwrap();
                assert_eq!(Some(exact.to_string()), token.nll_exact);
                let nats = exact as f64 / 2_f64.powi(32);
                assert_eq!(stored.get_double(5).unwrap().to_bits(), nats.to_bits());
            }
        }
        assert!(stored.next().is_none());
    }
    // In the joined text document 2 begins with token 3, the last of the first block.
    let third = rows(&mut zip, "tokens/01-a_b_c.parquet").remove(2);
    assert_eq!((number(&third, 0), number(&third, 1)), (2, 0));
    assert!((third.get_double(5).unwrap() - nll(0, 3)).abs() < 1e-9);
    service.finish().await;
}

#[tokio::test]
async fn documents_and_tokens_are_listed_in_pages() {
    let service = Service::start().await;
    let path = format!("/jobs/{}", job(&service).await.id);
    let worst = format!("{path}/documents?{NAME}&order=worst&limit=10");
    let worst: Page<DocumentRow> = service.get(&worst).await;
    let order: Vec<u64> = worst.items.iter().map(|document| document.index).collect();
    assert_eq!((order, worst.next), (vec![2, 0], None));

    let tokens = format!("{path}/tokens?{NAME}&document=2&limit=2");
    let page: Page<TokenRow> = service.get(&tokens).await;
    assert_eq!((page.items.len(), page.next.as_deref()), (2, Some("2")));
    let page: Page<TokenRow> = service.get(&format!("{tokens}&cursor=4")).await;
    assert_eq!((page.items[0].index, page.next), (4, None));
    let page: Page<TokenRow> = service
        .get(&format!("{path}/tokens?{NAME}&document=1"))
        .await;
    assert!(page.items.is_empty());
    let none = format!("{path}/tokens?{NAME}&document=3");
    let (code, fields, _) = refusal(service.send(Method::GET, &none).await).await;
    assert_eq!((code, &*fields[0]), (ErrorCode::NotFound, "document"));
    service.finish().await;
}
