//! A ledger with a planned job, and workers that compute made-up numbers.

use std::time::Duration;

use assay_api::{
    BaselineRequest, DatasetRef, DeviceStatus, Dtype, DtypeRequest, Gate, Job, JobId, JobRequest,
    Method, MethodRequest, ModelFacts, ModelRef, Numerics, OneOrMany, TokenizerFacts, WorkerId,
};
use assay_scoring::{
    ClusterLayout, Convention, CostModel, DocumentFacts, PlanConstants, Scope, ShardSums, Window,
    plan, spans_digest, to_units,
};
use assay_store::{
    Claim, Claimant, CommitOutcome, Creation, DeviceRate, NewDatasetPlan, NewJob, NewPlan,
    NewWebhook, NewWorker, PlanFacts, ShardClaim, ShardOutcome, SpanToken, Store, TokenSpan, Work,
};
use assay_testkit::TestDatabase;
use uuid::Uuid;

pub(crate) const LEASE: Duration = Duration::from_secs(15);
pub(crate) const WINDOW: u32 = 8;
/// What all jobs here have in common for the rates of devices.
pub(crate) const RATE_KEY: &str = "llama/1/float32/8";

pub(crate) struct Ledger {
    pub(crate) store: Store,
    pub(crate) database: TestDatabase,
}

impl Ledger {
    pub(crate) async fn fresh() -> Self {
        let database = TestDatabase::fresh().await;
        let store = Store::connect(database.url(), 8).await.unwrap();
        store.migrate().await.unwrap();
        Self { store, database }
    }

    pub(crate) async fn worker(&self, name: &str) -> WorkerId {
        self.worker_with(name, &[]).await
    }

    /// A worker with devices of these kinds, `cpu:0` and so on.
    pub(crate) async fn worker_with(&self, name: &str, kinds: &[&str]) -> WorkerId {
        let id = Uuid::now_v7();
        let devices = kinds.iter().enumerate().map(|(index, kind)| DeviceStatus {
            name: format!("cpu:{index}"),
            kind: (*kind).to_owned(),
        });
        let worker = NewWorker {
            id,
            name,
            version: "test",
            devices: &devices.collect::<Vec<_>>(),
        };
        self.store
            .register_worker(&worker, LEASE, None)
            .await
            .unwrap();
        id
    }

    pub(crate) async fn job(&self, datasets: &[&str]) -> JobId {
        self.job_of(&request(datasets)).await
    }

    /// A job for this request.
    pub(crate) async fn job_of(&self, request: &JobRequest) -> JobId {
        self.job_with(request, None).await
    }

    /// A job for this request, with this webhook.
    pub(crate) async fn job_with(
        &self,
        request: &JobRequest,
        webhook: Option<NewWebhook<'_>>,
    ) -> JobId {
        match self.create_with(request, None, webhook, None).await {
            Creation::Created(job) => job.id,
            other => panic!("{other:?}"),
        }
    }

    /// A job for this request, held against an earlier one.
    pub(crate) async fn create_gated(&self, request: &JobRequest, gate: &Gate) -> Creation {
        self.create_with(request, None, None, Some(gate)).await
    }

    pub(crate) async fn create(&self, request: &JobRequest, key: Option<&str>) -> Creation {
        self.create_with(request, key, None, None).await
    }

    async fn create_with(
        &self,
        request: &JobRequest,
        key: Option<&str>,
        webhook: Option<NewWebhook<'_>>,
        gate: Option<&Gate>,
    ) -> Creation {
        let body = serde_json::to_value(request).unwrap();
        let new = NewJob {
            id: Uuid::now_v7(),
            request,
            body: &body,
            idempotency_key: key,
            methods: &request.method.map(resolved),
            datasets: &request.datasets,
            dtype: match request.dtype {
                DtypeRequest::Bfloat16 => Dtype::Bfloat16,
                _ => Dtype::Float32,
            },
            gate,
            webhook,
        };
        self.store.create_job(&new).await.unwrap()
    }

    /// Claims one thing.
    pub(crate) async fn claim(&self, worker: WorkerId) -> Option<Claim> {
        self.claim_one(&claimant(worker)).await
    }

    /// Claims as one who gets one thing at a time.
    pub(crate) async fn claim_one(&self, claimant: &Claimant<'_>) -> Option<Claim> {
        let mut claims = self.store.claim(claimant, None).await.unwrap();
        assert!(claims.len() <= 1, "{claims:?}");
        claims.pop()
    }

    /// Claims the next shard, which must be there.
    pub(crate) async fn claim_shard(&self, worker: WorkerId) -> (i64, ShardClaim) {
        match self.claim(worker).await {
            Some(Claim {
                fence,
                work: Work::Shard(shard),
                ..
            }) => (fence, shard),
            other => panic!("no shard to claim: {other:?}"),
        }
    }

    /// Commits one shard.
    pub(crate) async fn commit(
        &self,
        worker: WorkerId,
        fence: i64,
        outcome: &ShardOutcome,
    ) -> CommitOutcome {
        let outcomes = [(fence, outcome)];
        let answers = self.store.commit_shards(worker, &outcomes).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    /// A job whose one dataset has documents of these lengths, planned into small shards.
    pub(crate) async fn planned(&self, worker: WorkerId, lengths: &[u64]) -> JobId {
        let job = self.job(&["a"]).await;
        self.plan(worker, &[lengths]).await;
        job
    }

    pub(crate) async fn plan(&self, worker: WorkerId, lengths: &[&[u64]]) {
        self.commit_plan(worker, &new_plan(lengths)).await;
    }

    /// Claims the planning, which must be there, and commits it.
    pub(crate) async fn commit_plan(&self, worker: WorkerId, plan: &NewPlan) {
        let claim = self.claim(worker).await.unwrap();
        assert!(matches!(claim.work, Work::Plan(_)));
        let stored = self.store.commit_plan(worker, claim.fence, plan).await;
        assert!(stored.unwrap());
    }

    pub(crate) async fn state(&self, job: JobId) -> Job {
        self.store.job(job).await.unwrap().unwrap()
    }

    /// Claims and commits until nothing is left.
    pub(crate) async fn run_all(&self, worker: WorkerId) {
        while let Some(claim) = self.claim(worker).await {
            let Work::Shard(shard) = claim.work else {
                panic!("not planned")
            };
            self.commit(worker, claim.fence, &compute(&shard)).await;
        }
    }
}

pub(crate) fn claimant(worker: WorkerId) -> Claimant<'static> {
    claimant_of(worker, "test")
}

/// A device so slow that it gets one shard at a time, the largest.
pub(crate) fn claimant_of(worker: WorkerId, device_kind: &str) -> Claimant<'_> {
    Claimant {
        worker,
        device: "cpu:0",
        device_kind,
        lease: LEASE,
        rate: Some(DeviceRate {
            key: RATE_KEY,
            flops_per_second: 1e-3,
        }),
    }
}

pub(crate) fn request(datasets: &[&str]) -> JobRequest {
    JobRequest {
        name: None,
        model: ModelRef::of("m"),
        datasets: datasets.iter().map(|name| DatasetRef::at(*name)).collect(),
        method: OneOrMany::default(),
        numerics: Numerics::Uniform,
        dtype: assay_api::DtypeRequest::Auto,
        tags: [("suite".to_owned(), "ledger".to_owned())].into(),
        token_output: false,
        reuse: true,
        priority: 0,
        audit: 0.0,
        baseline: BaselineRequest::default(),
        gate: None,
        webhook: None,
        deadlines: None,
    }
}

/// The method with its defaults, as the server fills them in.
fn resolved(request: &MethodRequest) -> Method {
    Method {
        convention: request.convention,
        window: request.window.unwrap_or(WINDOW),
        stride: request.stride,
        join: request.join.clone(),
        bos: request.bos,
        tail: request.tail,
    }
}

/// A plan of one method, `rolling`, with documents of these lengths in each dataset. Equal lengths
/// have equal content keys.
pub(crate) fn new_plan(lengths: &[&[u64]]) -> NewPlan {
    let rolling = Convention::Rolling { window: WINDOW };
    let rows: Vec<_> = lengths.iter().map(|lengths| (*lengths, rolling)).collect();
    plan_of(&rows)
}

/// A plan of these rows.
pub(crate) fn plan_of(rows: &[(&[u64], Convention)]) -> NewPlan {
    let constants = PlanConstants {
        micro_batch_tokens: WINDOW,
        ..PlanConstants::default()
    };
    plan_by(rows, constants)
}

/// A plan of these rows, cut by these constants. An input token costs one operation.
pub(crate) fn plan_by(rows: &[(&[u64], Convention)], constants: PlanConstants) -> NewPlan {
    let cost = CostModel {
        linear_flops_per_token: 1.0,
        attention_flops_per_pair: 0.0,
    };
    let scopes: Vec<Scope<'_>> = rows
        .iter()
        .map(|(lengths, convention)| Scope {
            convention: *convention,
            lengths,
            prefix: !convention.is_joined(),
            counted: None,
        })
        .collect();
    let plans = plan(&scopes, &cost, &constants).unwrap();
    let documents = |lengths: &[u64]| {
        lengths
            .iter()
            .map(|&tokens| DocumentFacts {
                tokens,
                bytes: tokens,
                words: tokens,
            })
            .collect()
    };
    NewPlan {
        facts: PlanFacts {
            model: ModelFacts {
                path: "m".to_owned(),
                adapter: None,
                family: "llama".to_owned(),
                parameters: 1,
                digest: "sha256:0".to_owned(),
            },
            tokenizer: TokenizerFacts {
                digest: "sha256:1".to_owned(),
                adds_bos: false,
                first_token_ids: vec![0],
                chat_template: None,
            },
            constants,
            version: "test".to_owned(),
            numerics_version: 1,
            warnings: vec![],
            rate_key: Some(RATE_KEY.to_owned()),
        },
        datasets: rows
            .iter()
            .zip(plans)
            .map(|((lengths, convention), plan)| NewDatasetPlan {
                digest: "sha256:2".to_owned(),
                tokens_digest: "sha256:3".to_owned(),
                prefix: (!convention.is_joined()).then_some(0),
                text_measures: !convention.is_joined(),
                content_key: format!("{convention:?} {lengths:?}"),
                groups: None,
                warnings: vec![],
                documents: documents(lengths),
                plan,
            })
            .collect(),
    }
}

/// Made-up NLLs that depend on stream and token alone, as real ones do.
fn nll(stream: u32, token: u64) -> f64 {
    f64::from(stream) + 1.0 / (token as f64 + 1.5)
}

/// The units of a token.
pub(crate) fn units(stream: u32, token: u64) -> i64 {
    to_units(nll(stream, token)).unwrap()
}

/// What a worker computes for a shard under `rolling`.
pub(crate) fn compute(shard: &ShardClaim) -> ShardOutcome {
    // Several documents: the cluster of a token is its document.
    compute_by(shard, |window, _| window.document)
}

/// What a worker computes for a shard whose tokens belong to clusters in this way.
pub(crate) fn compute_by(
    shard: &ShardClaim,
    cluster: impl Fn(&Window, u64) -> u32,
) -> ShardOutcome {
    let mut sums = ShardSums::default();
    for window in shard.micro_batches.iter().flat_map(|m| &m.0) {
        for token in window.from..window.to {
            let cluster = cluster(window, token);
            sums.add(cluster, nll(window.document, token)).unwrap();
        }
    }
    ShardOutcome {
        spans_digest: spans_digest(&shard.micro_batches),
        computed_tokens: sums.scored(),
        sums: sums.into_vec(),
        tokens: Vec::new(),
        seconds: 0.5,
        split_depth: shard.split_depth,
        dtype: None,
        compared: None,
        claim_seconds: 0.0,
        load_seconds: 0.0,
        commit_seconds: 0.0,
    }
}

/// The tokens that the windows of a shard predict, each of two bytes.
pub(crate) fn spans(shard: &ShardClaim) -> Vec<TokenSpan> {
    let windows = shard.micro_batches.iter().flat_map(|m| &m.0);
    windows
        .map(|window| TokenSpan {
            stream: window.document,
            first: window.from,
            tokens: (window.from..window.to)
                .map(|token| {
                    let id = u32::try_from(token).unwrap();
                    SpanToken {
                        id,
                        bytes: 2 * id..2 * id + 2,
                        units: Some(units(window.document, token)),
                    }
                })
                .collect(),
        })
        .collect()
}

/// The sums that an undisturbed run under `rolling` gives, by document.
pub(crate) fn expected(lengths: &[u64]) -> Vec<String> {
    assert!(matches!(
        ClusterLayout::of(lengths),
        ClusterLayout::Documents { .. }
    ));
    let of_document = |(document, tokens): (u32, &u64)| {
        let sum: i64 = (0..*tokens).map(|token| units(document, token)).sum();
        sum.to_string()
    };
    (0u32..).zip(lengths).map(of_document).collect()
}
