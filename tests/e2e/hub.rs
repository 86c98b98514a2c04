//! Models and datasets of a hub, by reference: the same numbers as by path, whatever becomes of the
//! download.

mod downloads;
mod refused;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use assay_api::{
    DatasetInspection, DatasetResult, DocumentRow, Job, JobId, JobResult, JobState,
    ModelInspection, PlanComparison,
};
use assay_testkit::hub::{Fault, File, Seen, Server, file};
use assay_testkit::{LIMIT, Roots, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use crate::checkpoint::add_random_llama;
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
        self.service.client.submit(&job(OF_MODEL, OF_DATASET)).await
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
pub(crate) fn push(hub: &Server, repository: &str, directory: &Path) -> String {
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
    let id = scene.post().await;
    scene.add_worker();
    let pinned = format!("{OF_MODEL}@{}", scene.commit);
    let of_hub = scene.numbers(id).await;
    let (seen, size) = (of_large_files(scene.hub.seen()), scene.size());
    assert_eq!(seen.len(), 2, "the weights and the dataset");
    assert!(seen.contains(&(0, size)), "{seen:?}");
    assert_eq!(scene.local().await, of_hub);

    let shown: Job = scene.service.client.job(id).await;
    assert_eq!(shown.model.path, pinned);
    let path = shown.datasets[0].path.as_deref().unwrap();
    assert!(
        path.ends_with("/data/three.jsonl") && !path.contains("@main"),
        "{path}"
    );
    assert_eq!(shown.progress.download, None);
    let result = scene.service.client.succeeded(id).await;
    assert_eq!(result.model.unwrap().path, pinned);
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
            files,
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
