//! A ledger with a planned job, and workers that compute made-up numbers.

use std::time::Duration;

use assay_api::{
    Convention, DatasetRef, Dtype, Job, JobId, JobRequest, Method, ModelFacts, TokenizerFacts,
    WorkerId,
};
use assay_scoring::{
    ClusterLayout, CostModel, DocumentFacts, PlanConstants, ShardSums, plan, spans_digest,
};
use assay_store::{
    Claim, Claimant, Creation, NewDatasetPlan, NewJob, NewPlan, NewWorker, PlanFacts, ShardClaim,
    ShardOutcome, Store, Work,
};
use assay_testkit::TestDatabase;
use uuid::Uuid;

pub(crate) const LEASE: Duration = Duration::from_secs(15);
pub(crate) const WINDOW: u32 = 8;

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
        let id = Uuid::now_v7();
        let worker = NewWorker {
            id,
            name,
            version: "test",
            devices: &[],
        };
        self.store
            .register_worker(&worker, LEASE, None)
            .await
            .unwrap();
        id
    }

    pub(crate) async fn job(&self, datasets: &[&str]) -> JobId {
        match self.create(&request(datasets), None).await {
            Creation::Created(job) => job.id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create(&self, request: &JobRequest, key: Option<&str>) -> Creation {
        let body = serde_json::to_value(request).unwrap();
        let new = NewJob {
            id: Uuid::now_v7(),
            request,
            body: &body,
            idempotency_key: key,
            method: &Method {
                convention: Convention::Rolling,
                window: WINDOW,
            },
            dtype: Dtype::Float32,
        };
        self.store.create_job(&new).await.unwrap()
    }

    pub(crate) async fn claim(&self, worker: WorkerId) -> Option<Claim> {
        self.store.claim(&claimant(worker), None).await.unwrap()
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

    /// A job whose one dataset has documents of these lengths, planned into small shards.
    pub(crate) async fn planned(&self, worker: WorkerId, lengths: &[u64]) -> JobId {
        let job = self.job(&["a"]).await;
        self.plan(worker, &[lengths]).await;
        job
    }

    pub(crate) async fn plan(&self, worker: WorkerId, lengths: &[&[u64]]) {
        let claim = self.claim(worker).await.unwrap();
        assert!(matches!(claim.work, Work::Plan(_)));
        assert!(
            self.store
                .commit_plan(worker, claim.fence, &new_plan(lengths))
                .await
                .unwrap()
        );
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
            self.store
                .commit_shard(worker, claim.fence, &compute(&shard))
                .await
                .unwrap();
        }
    }
}

pub(crate) fn claimant(worker: WorkerId) -> Claimant<'static> {
    Claimant {
        worker,
        device: "cpu:0",
        device_kind: "test",
        lease: LEASE,
    }
}

pub(crate) fn request(datasets: &[&str]) -> JobRequest {
    JobRequest {
        name: None,
        model: "m".to_owned(),
        datasets: datasets.iter().map(|name| DatasetRef::at(*name)).collect(),
        method: assay_api::MethodRequest::default(),
        dtype: assay_api::DtypeRequest::Auto,
        tags: [("suite".to_owned(), "ledger".to_owned())].into(),
    }
}

pub(crate) fn new_plan(lengths: &[&[u64]]) -> NewPlan {
    let cost = CostModel {
        linear_flops_per_token: 1.0,
        attention_flops_per_pair: 0.0,
    };
    let constants = PlanConstants {
        micro_batch_tokens: WINDOW,
        ..PlanConstants::default()
    };
    let plans = plan(lengths, WINDOW, &cost, &constants).unwrap();
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
                family: "llama".to_owned(),
                parameters: 1,
                digest: "sha256:0".to_owned(),
            },
            tokenizer: TokenizerFacts {
                digest: "sha256:1".to_owned(),
                adds_bos: false,
                first_token_ids: vec![0],
            },
            prefix: 0,
            constants,
            version: "test".to_owned(),
            numerics_version: 1,
            warnings: vec![],
        },
        datasets: lengths
            .iter()
            .zip(plans)
            .map(|(lengths, plan)| NewDatasetPlan {
                digest: "sha256:2".to_owned(),
                tokens_digest: "sha256:3".to_owned(),
                documents: documents(lengths),
                plan,
            })
            .collect(),
    }
}

/// Made-up NLLs that depend on document and token alone, as real ones do.
fn nll(document: u32, token: u64) -> f64 {
    f64::from(document) + 1.0 / (token as f64 + 1.5)
}

/// What a worker computes for a shard.
pub(crate) fn compute(shard: &ShardClaim) -> ShardOutcome {
    let mut sums = ShardSums::default();
    for window in shard.micro_batches.iter().flat_map(|m| &m.0) {
        for token in window.from..window.to {
            // Several documents: the cluster of a token is its document.
            sums.add(window.document, nll(window.document, token))
                .unwrap();
        }
    }
    ShardOutcome {
        spans_digest: spans_digest(&shard.micro_batches),
        computed_tokens: sums.scored(),
        sums: sums.into_vec(),
        seconds: 0.5,
    }
}

/// The sums that an undisturbed run gives, by document.
pub(crate) fn expected(lengths: &[u64]) -> Vec<String> {
    assert!(matches!(
        ClusterLayout::of(lengths),
        ClusterLayout::Documents { .. }
    ));
    let of_document = |(document, tokens): (u32, &u64)| {
        let sum: i64 = (0..*tokens)
            .map(|token| assay_scoring::to_units(nll(document, token)).unwrap())
            .sum();
        sum.to_string()
    };
    (0u32..).zip(lengths).map(of_document).collect()
}
