//! Every form that a dataset may come in gives the same integers.

use std::fs;

use assay_api::{DatasetInspection, DocumentRow, JobId};
use assay_testkit::Roots;
use parquet::basic::{Compression as Codec, ZstdLevel};
use reqwest::Method;
use serde_json::{Value, json};

use crate::files::{gz, jsonl, parquet_of_texts, zst};
use crate::moby_dick::chapters;
use crate::reference::assert_close;
use crate::service::Service;

const MODEL: &str = "llama_gqa";
const DOCUMENTS: usize = 24;

/// Texts of many lengths, with what a container could get wrong.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = chapters()
        .concat()
        .split("\n\n")
        .filter(|paragraph| !paragraph.trim().is_empty())
        .map(str::to_owned)
        .take(DOCUMENTS - 5)
        .collect();
    texts.extend(
        [
            "",
            "\u{feff}byte order mark",
            "Größe 数値 👩‍🔬",
            "a\r\nb\u{2028}c\u{85}",
            "tab\t\"\\\"",
        ]
        .map(str::to_owned),
    );
    assert_eq!(texts.len(), DOCUMENTS);
    texts
}

fn records(texts: &[String]) -> Vec<Value> {
    let records = texts.iter().enumerate();
    records
        .map(|(id, text)| json!({"text": text, "id": id}))
        .collect()
}

/// Writes the texts in every form below the data root; answers the datasets, the first is plain.
#[rustfmt::skip] // one form a line
fn forms(roots: &Roots, texts: &[String]) -> Vec<Value> {
    let lines = jsonl(&records(texts));
    let add = |name: &str, bytes: &[u8]| { roots.add_data(name, bytes); };
    add("plain.jsonl", &lines);
    add("blank.ndjson", &String::from_utf8(lines.clone()).unwrap().replace('\n', "\r\n\n \n").into_bytes());
    add("unended.jsonl", lines.strip_suffix(b"\n").unwrap());
    add("one.jsonl.gz", &gz(&lines, usize::MAX));
    add("many.jsonl.gz", &gz(&lines, 1000));
    add("one.JSONL.ZST", &zst(&lines, usize::MAX));
    add("many.jsonl.zst", &zst(&lines, 1000));
    add("snappy.parquet", &parquet_of_texts(texts, Codec::SNAPPY, 7));
    add("zstd.parquet", &parquet_of_texts(texts, Codec::ZSTD(ZstdLevel::default()), 100));
    add("plain.parquet", &parquet_of_texts(texts, Codec::UNCOMPRESSED, 1));
    let renamed: Vec<Value> = texts.iter().map(|text| json!({"a b": text, "text": 7})).collect();
    add("renamed.jsonl", &jsonl(&renamed));
    // Ordered by path; what is hidden or has no known suffix is not part of a dataset.
    for folder in ["parts", "parts/b", "parts/.git"] {
        fs::create_dir(roots.data().join(folder)).unwrap();
    }
    add("parts/a.jsonl", &jsonl(&records(&texts[..5])));
    add("parts/b/0.jsonl.gz", &gz(&jsonl(&records(&texts[5..11])), 500));
    add("parts/b/1.jsonl.zst", &zst(&jsonl(&records(&texts[11..17])), 500));
    add("parts/c.parquet", &parquet_of_texts(&texts[17..], Codec::SNAPPY, 3));
    for name in ["parts/.hidden.jsonl", "parts/.git/x.jsonl", "parts/README.md", "parts/x.json"] {
        add(name, b"no part of it");
    }
    fs::create_dir(roots.data().join("globbed")).unwrap();
    add("globbed/part-00.jsonl", &jsonl(&records(&texts[..9])));
    add("globbed/part-01.jsonl", &jsonl(&records(&texts[9..])));
    add("globbed/other-00.jsonl", b"no part of it");
    let strings: Vec<&String> = texts.iter().collect();
    let (objects, odd) = (records(texts), renamed);
    let mut forms = vec![
        json!({"path": "plain.jsonl"}),
        json!({"path": "blank.ndjson"}),
        json!({"path": "unended.jsonl"}),
        json!({"path": "one.jsonl.gz"}),
        json!({"path": "many.jsonl.gz"}),
        json!({"path": "one.JSONL.ZST"}),
        json!({"path": "many.jsonl.zst"}),
        json!({"path": "snappy.parquet"}),
        json!({"path": "zstd.parquet"}),
        json!({"path": "plain.parquet", "format": "jsonl"}),
        json!({"path": "renamed.jsonl", "field": "a b"}),
        json!({"path": "parts", "format": "jsonl"}),
        json!({"path": "parts/**/[abc01]*", "format": "jsonl"}),
        json!({"path": "globbed/part-*.jsonl"}),
        json!({"path": "globbed/part-[0-9]?.jsonl"}),
        json!({"documents": strings}),
        json!({"documents": objects}),
        json!({"documents": odd, "field": "a b"}),
        json!({"upload": "mine.jsonl"}),
        json!({"upload": "mine.jsonl.gz"}),
        json!({"upload": "mine.parquet"}),
        json!({"upload": "nameless", "format": "jsonl"}),
    ];
    for (index, form) in forms.iter_mut().enumerate() {
        form["name"] = json!(format!("form-{index}"));
    }
    forms
}

async fn upload_all(service: &Service, texts: &[String]) {
    let lines = jsonl(&records(texts));
    for (name, bytes) in [
        ("mine.jsonl", lines.clone()),
        ("mine.jsonl.gz", gz(&lines, 1000)),
        ("mine.parquet", parquet_of_texts(texts, Codec::SNAPPY, 5)),
        ("nameless", lines),
    ] {
        service.client.upload(name, bytes).await;
    }
}

async fn documents(service: &Service, id: JobId, form: &Value) -> Vec<DocumentRow> {
    service
        .client
        .documents(id, form["name"].as_str().unwrap())
        .await
}

#[tokio::test]
async fn every_form_gives_the_same_integers() {
    let texts = texts();
    let roots = Roots::new();
    roots.add_model(MODEL);
    let forms = forms(&roots, &texts);
    let mut service = Service::start(roots).await;
    upload_all(&service, &texts).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let methods = json!([{"window": 64}, {"convention": "blocks", "window": 64}]);
    let job = json!({"model": MODEL, "datasets": forms, "method": methods, "reuse": false});
    let id = service.client.submit(&job).await;
    let result = service.client.succeeded(id).await;
    let plain = documents(&service, id, &forms[0]).await;
    assert_eq!(plain.len(), DOCUMENTS);
    assert!(
        plain
            .iter()
            .zip(&texts)
            .all(|(row, text)| row.bytes == text.len() as u64)
    );
    for (index, form) in forms.iter().enumerate() {
        assert_eq!(documents(&service, id, form).await, plain, "{form}");
        // The whole row but for its name, digest and time.
        for method in 0..2 {
            let [row, first] = [2 * index + method, method].map(|row| {
                let mut row = result.datasets[row].clone();
                (row.name, row.digest, row.seconds) = (String::new(), None, 0.0);
                row.tokens_per_second = None;
                row
            });
            assert_eq!(row, first, "{form}");
        }
    }
    // What a job holds inline is not sent back with each answer.
    let shown: Value = service.client.read(&format!("/jobs/{id}")).await;
    assert!(!shown.to_string().contains("byte order mark"), "{shown}");

    // Counted without being scored, they are the same too.
    let mut counts = Vec::new();
    for form in &forms {
        let request = service.client.request(Method::POST, "/datasets/inspect");
        let request = request.json(&json!({"dataset": form, "model": MODEL}));
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{form}: {text}");
        let found: DatasetInspection = serde_json::from_str(&text).unwrap();
        let tokens = (found.tokens, found.counted_tokens, found.lengths);
        counts.push((found.documents, found.bytes, found.words, tokens));
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let sum = |of: fn(&DocumentRow) -> u64| plain.iter().map(of).sum::<u64>();
    let (documents, bytes, words, (tokens, counted, _)) = &counts[0];
    assert_eq!(
        (*documents, *bytes),
        (DOCUMENTS as u64, sum(|row| row.bytes))
    );
    assert_eq!(
        (*words, *tokens),
        (sum(|row| row.words), Some(sum(|row| row.tokens)))
    );
    assert_eq!(tokens, counted);
    service.finish().await;
}

/// Text files: one is a document, a folder of them is a document each.
#[tokio::test]
async fn files_of_text_are_documents() {
    let texts = &texts()[..6];
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data("plain.jsonl", jsonl(&records(texts)));
    for folder in ["texts", "texts/z"] {
        fs::create_dir(roots.data().join(folder)).unwrap();
    }
    for (index, text) in texts.iter().enumerate() {
        let (bytes, folder) = (text.as_bytes(), if index == 5 { "z/" } else { "" });
        match index % 3 {
            0 => roots.add_data(&format!("texts/{folder}{index}.txt"), bytes),
            1 => roots.add_data(&format!("texts/{folder}{index}.txt.gz"), gz(bytes, 100)),
            _ => roots.add_data(&format!("texts/{folder}{index}.txt.zst"), zst(bytes, 100)),
        };
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let forms = [
        json!({"path": "plain.jsonl", "name": "plain"}),
        json!({"path": "texts", "name": "folder"}),
        json!({"path": "texts/**/*.txt*", "name": "glob"}),
    ];
    let job = json!({"model": MODEL, "datasets": forms, "reuse": false});
    let id = service.client.submit(&job).await;
    service.client.succeeded(id).await;
    let plain = documents(&service, id, &forms[0]).await;
    for form in &forms[1..] {
        assert_eq!(documents(&service, id, form).await, plain, "{form}");
    }
    service.finish().await;
}

/// The documents that a sample takes follow from the seed alone.
#[tokio::test]
async fn a_sample_is_reproducible() {
    // By sorting hashlib.sha256(struct.pack("<QQ", seed, i)).digest().
    const SAMPLES: [(u64, [usize; 5]); 2] = [(3, [3, 11, 16, 18, 19]), (0, [0, 10, 19, 20, 23])];
    let texts = texts();
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data("all.jsonl", jsonl(&records(&texts)));
    roots.add_data("all.parquet", parquet_of_texts(&texts, Codec::SNAPPY, 7));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let whole = json!({"model": MODEL, "datasets": ["all.jsonl"], "method": {"window": 64}});
    let whole = service.client.submit(&whole).await;
    service.client.succeeded(whole).await;
    let whole = service.client.documents(whole, "all.jsonl").await;
    for (seed, taken) in SAMPLES {
        let sample = json!({"documents": taken.len(), "seed": seed});
        let forms =
            ["all.jsonl", "all.parquet"].map(|path| json!({"path": path, "sample": sample}));
        let job = json!({"model": MODEL, "datasets": forms, "method": {"window": 64}});
        let id = service.client.submit(&job).await;
        service.client.succeeded(id).await;
        let rows = service.client.documents(id, "all.jsonl").await;
        assert_eq!(service.client.documents(id, "all.parquet").await, rows);
        assert_eq!(rows.len(), taken.len());
        for (row, index) in rows.iter().zip(taken) {
            let of = |row: &DocumentRow| (row.tokens, row.scored_tokens, row.bytes, row.words);
            assert_eq!(of(row), of(&whole[index]), "seed {seed}: document {index}");
            assert_close(
                row.nll,
                whole[index].nll,
                &format!("seed {seed}: document {index}"),
            );
        }
    }
    service.finish().await;
}
