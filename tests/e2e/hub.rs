//! Models and datasets of a hub, by reference: the same numbers as by path, whatever becomes of the
//! download.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use assay_api::{
    DatasetInspection, DatasetResult, DocumentRow, ErrorCode, Job, JobId, JobResult, JobState,
    ModelInspection, PlanComparison,
};
use assay_testkit::hub::{Access, Fault, File, Seen, Server, TOKEN, file};
use assay_testkit::{LIMIT, Roots, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use crate::checkpoint::{Damaged, add_random_llama};
use crate::client::refusal;
use crate::reference::{expected, text};
use crate::service::Service;

const MODEL: &str = "random";
const DATASET: &str = "three.jsonl";
const WEIGHTS: &str = "model.safetensors";
const OF_MODEL: &str = "hf://org/random";
const OF_DATASET: &str = "hf://datasets/org/texts@main/data/three.jsonl";

/// A service that uses a hub of its own, and has the same things below its roots.
struct Scene {
    hub: Server,
    service: Service,
    /// The commit of the model.
    commit: String,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&["--hub"], None).await
    }

    async fn with(settings: &[&str], token: Option<&str>) -> Self {
        let roots = Roots::new();
        add_random_llama(&roots, MODEL, 1);
        let expected = expected("llama_gqa");
        let lines = ["short", "long", "mixed"]
            .map(|which| json!({"text": text(&expected, which)}).to_string());
        let bytes = lines.join("\n");
        roots.add_data(DATASET, &bytes);

        let hub = Server::start().await;
        let commit = push(&hub, "org/random", &roots.models().join(MODEL));
        let dataset = file(bytes.into(), true);
        hub.commit(
            "datasets/org/texts",
            "main",
            [("data/three.jsonl", dataset)],
        );
        let mut environment = vec![("HF_ENDPOINT", hub.url.clone())];
        environment.extend(token.map(|token| ("HF_TOKEN", token.to_owned())));
        let service = Service::start_in(roots, settings, environment).await;
        Self {
            hub,
            service,
            commit,
        }
    }

    fn add_worker(&mut self) {
        self.service.add_worker_with("cpu:0", &["--hub"]);
    }

    /// Posts a job on the hub's things, of which the server has fetched the small files by then.
    async fn post(&self) -> JobId {
        let id = self.service.client.submit(&job(OF_MODEL, OF_DATASET)).await;
        self.hub.seen();
        id
    }

    async fn numbers(&self, id: JobId) -> (Vec<DatasetResult>, Vec<DocumentRow>) {
        let result = self.service.client.succeeded(id).await;
        let documents = self.service.client.documents(id, "d").await;
        (numbers(result), documents)
    }

    /// The numbers of the same job on paths.
    async fn local(&self) -> (Vec<DatasetResult>, Vec<DocumentRow>) {
        let id = self.service.client.submit(&job(MODEL, DATASET)).await;
        self.numbers(id).await
    }

    /// Waits until the job shows that so many bytes are there, and answers how many there are.
    async fn downloads(&self, id: JobId, least: u64) -> u64 {
        eventually("the download", LIMIT, async || {
            let job = self.service.client.job(id).await;
            let download = job.progress.download?;
            assert!(download.bytes <= download.total_bytes, "{download:?}");
            assert_eq!(job.state, JobState::Planning);
            (download.bytes >= least).then_some(download.bytes)
        })
        .await
    }

    fn size(&self) -> u64 {
        let weights = self.service.roots.models().join(MODEL).join(WEIGHTS);
        fs::metadata(weights).unwrap().len()
    }

    /// Lets the next answer with bytes, which is that with the weights, stop in the middle.
    fn hold_half(&self) -> u64 {
        let half = self.size() / 2;
        self.hub.fail([Fault::Hold(usize::try_from(half).unwrap())]);
        half
    }
}

/// Makes a directory a commit of `main`.
fn push(hub: &Server, repository: &str, directory: &Path) -> String {
    let files: Vec<(String, File)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let bytes = fs::read(directory.join(&name)).unwrap();
            let is_large = name.ends_with(".safetensors");
            (name, file(bytes.into(), is_large))
        })
        .collect();
    let files = files.iter().map(|(name, file)| (&**name, file.clone()));
    hub.commit(repository, "main", files)
}

fn job(model: impl Into<Value>, dataset: &str) -> Value {
    json!({
        "model": model.into(),
        "datasets": [{"path": dataset, "name": "d"}],
        "method": {"window": 64},
        "reuse": false,
    })
}

/// All but the times.
fn numbers(result: JobResult) -> Vec<DatasetResult> {
    let rows = result.datasets.into_iter();
    rows.map(|row| DatasetResult {
        seconds: 0.0,
        tokens_per_second: None,
        ..row
    })
    .collect()
}

/// The first byte and the number of bytes of each answer with a large file.
fn of_large_files(seen: Vec<Seen>) -> Vec<(u64, u64)> {
    let large = seen.into_iter().filter(|request| request.cdn);
    large
        .map(|request| (request.from, request.sent.load(Ordering::Relaxed)))
        .collect()
}

#[tokio::test]
async fn a_job_by_reference_has_the_numbers_of_the_same_job_by_path() {
    let mut scene = Scene::new().await;
    scene.add_worker();
    let id = scene.post().await;
    let pinned = format!("{OF_MODEL}@{}", scene.commit);
    let of_hub = scene.numbers(id).await;
    let (seen, size) = (of_large_files(scene.hub.seen()), scene.size());
    assert_eq!(seen.len(), 2, "the weights and the dataset");
    assert!(seen.contains(&(0, size)), "{seen:?}");
    assert_eq!(scene.local().await, of_hub);

    let job: Job = scene.service.client.job(id).await;
    assert_eq!(job.model.path, pinned);
    let path = job.datasets[0].path.as_deref().unwrap();
    assert!(
        path.ends_with("/data/three.jsonl") && !path.contains("@main"),
        "{path}"
    );
    assert_eq!(job.progress.download, None);
    let result = scene.service.client.succeeded(id).await;
    assert_eq!(result.model.unwrap().path, pinned);
    scene.service.finish().await;
}

#[tokio::test]
async fn each_host_fetches_into_its_own_cache() {
    let mut scene = Scene::new().await;
    // The plan is made by one host, and computed by another.
    let slow = ["--hub", "--fault", "delay=60"];
    scene.service.add_worker_with("cpu:0", &slow);
    let id = scene.post().await;
    eventually("the plan", LIMIT, async || {
        let job = scene.service.client.job(id).await;
        job.progress.planned_tokens
    })
    .await;
    scene.service.workers[0].kill().await;
    let other = scene.service.roots.state().join("elsewhere");
    let settings = ["--hub", "--hub-cache", other.to_str().unwrap()];
    scene.service.add_worker_with("cpu:1", &settings);
    let elsewhere = scene.numbers(id).await;
    let snapshot = other
        .join("models--org--random/snapshots")
        .join(&scene.commit);
    assert!(snapshot.join(WEIGHTS).exists());
    let seen = of_large_files(scene.hub.seen());
    assert_eq!(seen.len(), 4, "weights and dataset twice: {seen:?}");
    assert_eq!(scene.local().await.0, elsewhere.0);
    scene.service.finish().await;
}

#[tokio::test]
async fn the_commit_of_the_post_is_scored_though_the_branch_moves() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let moved = scene.service.roots.models().join("moved");
    fs::create_dir(&moved).unwrap();
    for entry in fs::read_dir(scene.service.roots.models().join(MODEL)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, moved.join(path.file_name().unwrap())).unwrap();
    }
    Damaged(&moved).scale("lm_head.weight", 2.0);
    let later = push(&scene.hub, "org/random", &moved);
    assert_ne!(later, scene.commit);
    scene.add_worker();
    let first = scene.numbers(id).await;
    assert_eq!(first, scene.local().await);
    let id = scene.post().await;
    assert_ne!(
        scene.numbers(id).await,
        first,
        "the branch is where it is now"
    );
    scene.service.finish().await;
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_of_the_download_costs_no_byte_twice() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let half = scene.hold_half();
    scene.add_worker();
    let shown = scene.downloads(id, half * 8 / 10).await;
    scene.service.workers[0].kill().await;
    assert_eq!(of_large_files(scene.hub.seen()).len(), 1);

    scene.add_worker();
    let resumed = scene.numbers(id).await;
    let (seen, size) = (of_large_files(scene.hub.seen()), scene.size());
    let (from, sent) = seen.iter().copied().max_by_key(|(_, sent)| *sent).unwrap();
    assert!(from >= shown, "{from} of {shown} bytes that were shown");
    assert_eq!(
        from + sent,
        size,
        "what is there is not sent again: {seen:?}"
    );
    assert_eq!(seen.len(), 2, "the rest of the weights, and the dataset");
    assert_eq!(resumed, scene.local().await);
    scene.service.finish().await;
}

#[tokio::test]
async fn a_cancelled_job_downloads_no_more() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let half = scene.hold_half();
    scene.add_worker();
    scene.downloads(id, half * 8 / 10).await;
    let path = format!("/jobs/{id}");
    let cancelled = scene.service.client.request(Method::DELETE, &path);
    let cancelled: Job = cancelled.send().await.unwrap().json().await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(cancelled.progress.download, None);
    // The device is free, and the file that it had begun is nobody's.
    scene.local().await;
    let again = scene.post().await;
    scene.numbers(again).await;
    let seen = of_large_files(scene.hub.seen());
    assert!(
        seen.iter().any(|(from, _)| *from >= half * 8 / 10),
        "{seen:?}"
    );
    scene.service.finish().await;
}

#[tokio::test]
async fn adapters_and_their_bases_are_taken_from_either_side() {
    let mut scene = Scene::new().await;
    let roots = &scene.service.roots;
    let base = roots.add_model("llama_gqa");
    let adapter = roots.add_model("adapters/llama");
    push(&scene.hub, "org/base", &base);
    push(&scene.hub, "org/adapter", &adapter);
    scene.add_worker();
    let mut seen = Vec::new();
    for base in ["llama_gqa", "hf://org/base"] {
        for adapter in ["adapters/llama", "hf://org/adapter@main"] {
            let model = json!({"path": base, "adapter": adapter});
            let id = scene.service.client.submit(&job(model, DATASET)).await;
            seen.push((
                scene.numbers(id).await,
                scene.service.client.succeeded(id).await.model,
            ));
        }
    }
    let plain = scene
        .service
        .client
        .submit(&job("llama_gqa", DATASET))
        .await;
    assert_ne!(
        scene.numbers(plain).await,
        seen[0].0,
        "the adapter changes something"
    );
    for (numbers, model) in &seen[1..] {
        assert_eq!(numbers, &seen[0].0);
        let digest = |model: &Option<assay_api::ModelFacts>| model.clone().unwrap().digest;
        assert_eq!(digest(model), digest(&seen[0].1));
    }
    scene.service.finish().await;
}

#[tokio::test]
async fn what_is_private_takes_a_token_that_nobody_sees() {
    let mut scene = Scene::with(&["--hub"], Some(TOKEN)).await;
    scene.hub.restrict("org/random", Access::Private);
    scene.hub.restrict("datasets/org/texts", Access::Private);
    scene.add_worker();
    let id = scene.post().await;
    assert_eq!(scene.numbers(id).await, scene.local().await);
    assert!(!scene.service.has_logged(TOKEN));
    let job = scene.service.client.get(&format!("/jobs/{id}")).await;
    assert!(!job.text().await.unwrap().contains(TOKEN));
    scene.hub.restrict("org/random", Access::Gated);
    // Of a gated repository the list is shown, and no file; a new commit has not been seen.
    let model = scene.service.roots.models().join(MODEL);
    Damaged(&model).set("config.json", "note", json!("new"));
    push(&scene.hub, "org/random", &model);
    let answer = scene.service.client.post(&job(OF_MODEL, OF_DATASET)).await;
    let (status, code, fields, detail) = refusal(answer).await;
    assert_eq!((status, code), (422, ErrorCode::CheckpointUnreadable));
    assert_eq!(fields, ["model"]);
    assert!(detail.contains("gated"), "{detail}");
    scene.service.finish().await;
}

#[tokio::test]
async fn what_the_hub_refuses_is_refused_at_once() {
    let scene = Scene::new().await;
    scene.hub.restrict("org/random", Access::Private);
    let model = scene.service.roots.models().join(MODEL);
    push(&scene.hub, "org/public", &model);
    let dataset = "datasets[0].path";
    let (checkpoint, data) = (
        ErrorCode::CheckpointUnreadable,
        ErrorCode::DatasetUnreadable,
    );
    let invalid = ErrorCode::InvalidRequest;
    for (model, text, code, field, word) in [
        (OF_MODEL, DATASET, checkpoint, "model", "HF_TOKEN"),
        ("hf://org/none", DATASET, checkpoint, "model", "private"),
        ("hf://org/public@v9", DATASET, checkpoint, "model", "v9"),
        ("hf://org/public/x", DATASET, invalid, "model", "as a whole"),
        (OF_DATASET, DATASET, invalid, "model", "of a dataset"),
        (
            MODEL,
            "hf://org/public@main",
            invalid,
            dataset,
            "is a model",
        ),
        (
            MODEL,
            "hf://datasets/org/texts@main/no.jsonl",
            data,
            dataset,
            "no.jsonl",
        ),
        (
            MODEL,
            "hf://datasets/org/texts@v9/data/three.jsonl",
            data,
            dataset,
            "v9",
        ),
    ] {
        let answer = scene.service.client.post(&job(model, text)).await;
        let (status, found, fields, detail) = refusal(answer).await;
        assert_eq!((status, found), (422, code), "{detail}");
        assert_eq!(fields, [field], "{detail}");
        assert!(detail.contains(word), "{detail}");
    }
    // What is answered five times in a row is believed; several files are asked for at a time.
    scene.hub.fail([Fault::Status(503); 50]);
    let public = job("hf://org/public", DATASET);
    let (status, code, fields, _) = refusal(scene.service.client.post(&public).await).await;
    assert_eq!((status, code), (503, ErrorCode::Unavailable));
    assert_eq!(fields, ["model"]);
    scene.service.finish().await;
}

#[tokio::test]
async fn without_a_hub_references_are_refused_and_nothing_is_asked() {
    let mut scene = Scene::with(&[], None).await;
    let model = json!({"path": OF_MODEL, "adapter": "hf://org/adapter"});
    let answer = scene.service.client.post(&job(model, OF_DATASET)).await;
    let (status, code, fields, detail) = refusal(answer).await;
    assert_eq!((status, code), (422, ErrorCode::HubDisabled));
    assert_eq!(fields, ["datasets[0].path", "model", "model.adapter"]);
    assert!(detail.contains("--hub"), "{detail}");
    assert!(scene.hub.seen().is_empty());
    scene.service.finish().await;

    // The workers need it as well.
    scene = Scene::new().await;
    scene.service.add_worker("cpu:0");
    let id = scene.post().await;
    let error = scene.service.client.failed(id).await;
    assert_eq!(error.code, ErrorCode::HubDisabled);
    assert!(error.detail.contains("--hub"), "{error:?}");
    assert!(scene.hub.seen().is_empty());
    scene.service.finish().await;
}

#[tokio::test]
async fn inspections_and_plans_need_no_weights() {
    let scene = Scene::new().await;
    let client = &scene.service.client;
    let inspect = async |path: &str| -> ModelInspection {
        client.read(&format!("/models/inspect?path={path}")).await
    };
    let (local, of_hub) = (inspect(MODEL).await, inspect(OF_MODEL).await);
    assert_eq!(of_hub.path, format!("{OF_MODEL}@{}", scene.commit));
    assert_eq!(of_hub.warnings.len(), 1);
    let but = ModelInspection {
        path: local.path.clone(),
        stored: local.stored.clone(),
        warnings: local.warnings.clone(),
        ..of_hub
    };
    assert_eq!(but, local);

    let post = async |path: &str, body: Value| {
        let answer = client.request(Method::POST, path).json(&body);
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap()
    };
    let look = async |model: &str, dataset: &str| -> DatasetInspection {
        let body = json!({"model": model, "dataset": {"path": dataset, "name": "d"}});
        serde_json::from_str(&post("/datasets/inspect", body).await).unwrap()
    };
    let by_path = look(MODEL, DATASET).await;
    let by_reference = look(OF_MODEL, OF_DATASET).await;
    let files = by_path.files.clone();
    assert_eq!(
        DatasetInspection {
            dataset,
            ..by_reference
        },
        by_path
    );

    let plan = async |model: &str, dataset: &str| -> PlanComparison {
        let devices = json!([{"tokens_per_second": 1000}]);
        let body = json!({"job": job(model, dataset), "devices": devices});
        serde_json::from_str(&post("/plans", body).await).unwrap()
    };
    assert_eq!(plan(OF_MODEL, OF_DATASET).await, plan(MODEL, DATASET).await);
    assert_eq!(
        of_large_files(scene.hub.seen()).len(),
        1,
        "the dataset alone"
    );
    scene.service.finish().await;
}
