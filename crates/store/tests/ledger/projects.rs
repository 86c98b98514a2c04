//! Projects: each sees its own, and their priorities order the claims.

use assay_api::{JobId, JobRequest, JobState, OneOrMany};
use assay_store::{
    Actor, Cancellation, Creation, JobFilter, NewJob, ProjectChanges, ProjectId, ProjectStore,
};
use uuid::Uuid;

use crate::keys::within;
use crate::support::{Ledger, request};

impl Ledger {
    pub(crate) async fn project(&self, name: &str) -> ProjectStore {
        assert!(self.store.create_project(name).await.unwrap());
        let project = self.store.project_named(name).await.unwrap().unwrap();
        within(&self.store, project.id)
    }
}

/// Posts a job in a project.
pub(crate) async fn post(
    project: &ProjectStore,
    request: &JobRequest,
    key: Option<&str>,
) -> Creation {
    let body = serde_json::to_value(request).unwrap();
    let method = assay_api::Method::rolling(8);
    let new = NewJob {
        id: Uuid::now_v7(),
        request,
        body: &body,
        idempotency_key: key,
        methods: &OneOrMany::One(method),
        datasets: &request.datasets,
        dtype: assay_api::Dtype::Float32,
        gate: None,
        webhook: None,
    };
    project.create_job(&new).await.unwrap()
}

pub(crate) async fn posted(project: &ProjectStore) -> JobId {
    match post(project, &request(&["a"]), None).await {
        Creation::Created(job) => job.id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_project_sees_its_own_jobs_and_uploads_alone() {
    let ledger = Ledger::fresh().await;
    let own = within(&ledger.store, ProjectId::DEFAULT);
    let other = ledger.project("other").await;
    let worker = ledger.worker("w").await;
    let job = posted(&own).await;
    ledger.plan(worker, &[&[3, 2]]).await;
    ledger.run_all(worker).await;
    own.put_upload("u", "sha256:1", 1).await.unwrap();

    assert!(own.job(job).await.unwrap().is_some());
    assert!(!own.documents(job, 0, 0, 9).await.unwrap().is_empty());
    assert!(!own.worst(job, 0, 9).await.unwrap().is_empty());
    assert!(!own.shards(job, 0, 9).await.unwrap().is_empty());
    assert!(!own.events(job, 0).await.unwrap().is_empty());
    assert!(!own.row_facts(job).await.unwrap().is_empty());
    assert!(own.result(job).await.unwrap().is_some());
    assert!(own.partial(job).await.unwrap().is_some());
    assert!(own.histogram(job, 0, 4).await.unwrap().is_some());

    assert!(other.job(job).await.unwrap().is_none());
    assert!(other.documents(job, 0, 0, 9).await.unwrap().is_empty());
    assert!(other.worst(job, 0, 9).await.unwrap().is_empty());
    assert!(other.tokens(job, 0, 0, 0, 9).await.unwrap().is_empty());
    assert!(other.token_spans(job, 0, None, 9).await.unwrap().is_empty());
    assert!(other.shards(job, 0, 9).await.unwrap().is_empty());
    assert!(other.events(job, 0).await.unwrap().is_empty());
    assert!(other.row_facts(job).await.unwrap().is_empty());
    assert!(other.result(job).await.unwrap().is_none());
    assert!(other.partial(job).await.unwrap().is_none());
    assert!(other.histogram(job, 0, 4).await.unwrap().is_none());
    assert!(other.deliveries(job).await.unwrap().is_empty());
    assert!(!other.retry_delivery(job, 1, None).await.unwrap());
    let cancelled = other.cancel_job(job).await.unwrap();
    assert!(matches!(cancelled, Cancellation::NotFound));
    let all = JobFilter::default();
    assert!(other.jobs(&all, None, 9).await.unwrap().is_empty());
    assert_eq!(own.jobs(&all, None, 9).await.unwrap().len(), 1);

    assert!(other.upload("u").await.unwrap().is_none());
    assert!(other.delete_upload("u").await.unwrap().is_none());
    let put = other.put_upload("u", "sha256:2", 2).await.unwrap();
    assert_eq!(put.replaced, None, "a name of its own");
    assert_eq!(own.upload("u").await.unwrap().unwrap().digest, "sha256:1");
    assert_eq!(other.uploads(None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn idempotency_keys_and_numbers_stay_within_a_project() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let [one, two] = [ledger.project("one").await, ledger.project("two").await];
    let mut jobs = Vec::new();
    for project in [&one, &two, &one] {
        match post(project, &request(&["a"]), Some("key")).await {
            Creation::Created(job) => {
                ledger.plan(worker, &[&[3, 2]]).await;
                ledger.run_all(worker).await;
                let result = project.result(job.id).await.unwrap().unwrap();
                assert_eq!(result.datasets[0].reused_from, None);
                jobs.push(job.id);
            }
            Creation::Existing(job) => assert_eq!(job.id, jobs[0]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(jobs.len(), 2);
    let again = posted(&two).await;
    ledger.plan(worker, &[&[3, 2]]).await;
    let result = two.result(again).await.unwrap().unwrap();
    assert_eq!(result.datasets[0].reused_from, Some(jobs[1]));
}

#[tokio::test]
async fn the_priority_of_a_project_is_added_to_that_of_its_jobs() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let [low, high] = [ledger.project("low").await, ledger.project("high").await];
    let first = posted(&low).await;
    let second = posted(&high).await;
    let mut urgent = request(&["a"]);
    urgent.priority = 60;
    let Creation::Created(third) = post(&low, &urgent, None).await else {
        panic!()
    };
    // Of a job that is there, and of one that is posted afterwards.
    let changes = ProjectChanges {
        priority: Some(50),
        ..ProjectChanges::default()
    };
    let set = ledger.store.set_project("high", &changes).await.unwrap();
    assert_eq!(set.unwrap().priority, 50);
    let fourth = posted(&high).await;
    let mut order = Vec::new();
    while let Some(claim) = ledger.claim(worker).await {
        order.push(claim.job);
    }
    assert_eq!(order, [third.id, second, fourth, first]);
    let job = high.job(second).await.unwrap().unwrap();
    assert_eq!((job.state, job.priority), (JobState::Planning, 0));
}

#[tokio::test]
async fn what_somebody_writes_is_noted_with_the_key_and_the_request() {
    let ledger = Ledger::fresh().await;
    let own = within(&ledger.store, ProjectId::DEFAULT);
    let new = assay_api::NewKey {
        name: "k".to_owned(),
        scope: assay_api::Scope::Submit,
        expires_at: None,
    };
    let key = own.create_key(&new).await.unwrap().key.id;
    let acting = ledger.store.within(Actor {
        project: ProjectId::DEFAULT,
        key: Some(key.clone()),
        request: Some("r".to_owned()),
    });
    let job = posted(&acting).await;
    acting.cancel_job(job).await.unwrap();
    acting.cancel_job(job).await.unwrap();
    acting.put_upload("u", "sha256:1", 1).await.unwrap();
    acting.put_upload("u", "sha256:2", 1).await.unwrap();
    acting.delete_upload("u").await.unwrap();
    acting.delete_upload("u").await.unwrap();
    // Whoever runs jobs writes none of it.
    ledger.job(&["a"]).await;
    let log = own.audit_log(None, 100).await.unwrap();
    let told: Vec<_> = log
        .iter()
        .rev()
        .map(|entry| (&*entry.action, &*entry.subject, entry.status))
        .collect();
    let job = job.to_string();
    assert_eq!(
        told,
        [
            ("create_key", &*key, None),
            ("create_job", &*job, Some(201)),
            ("cancel_job", &*job, Some(200)),
            ("upload_dataset", "u", Some(201)),
            ("upload_dataset", "u", Some(200)),
            ("delete_dataset", "u", Some(200)),
        ]
    );
    assert_eq!(log[0].key.as_deref(), Some(&*key));
    assert_eq!(log[0].request_id.as_deref(), Some("r"));
    let other = ledger.project("other").await;
    assert!(other.audit_log(None, 100).await.unwrap().is_empty());
}
