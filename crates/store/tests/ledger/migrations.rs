//! The schema of before, with the data of before, goes on under the schema of now.

use std::collections::HashMap;

use assay_api::{AttemptKind, AttemptOutcome, BaselineRequest, JobId, JobState, Method, OneOrMany};
use assay_scoring::Window;
use assay_store::{CommitOutcome, Store, Work};
use assay_testkit::TestDatabase;
use sqlx::migrate::Migrator;
use sqlx::{Executor, PgConnection, Row};

use crate::support::{WINDOW, claimant, compute};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Jobs as version 1 of the ledger held them: one finished, one in the middle, one just posted.
const JOBS_OF_BEFORE: &str = r#"
insert into workers (id, name, version, devices, lease_until)
values ('01900000-0000-7000-8000-00000000000a', 'old', '0.1.0', '[]', now());

insert into jobs (id, name, model, method, dtype, body, datasets_left)
select id::uuid, name, 'm', '{"convention": "rolling", "window": 8}', 'float32', '{}', 2
from (values ('01900000-0000-7000-8000-000000000001', 'finished'),
             ('01900000-0000-7000-8000-000000000002', 'running'),
             ('01900000-0000-7000-8000-000000000003', 'queued')) as j(id, name);
insert into datasets (job_id, index, name, source)
select jobs.id, d.index, d.name, jsonb_build_object('path', d.name)
from jobs cross join (values (0, 'a'), (1, 'b')) as d(index, name);

update jobs
set state = 'running', started_at = now(), plan = '{
    "model": {"path": "m", "family": "llama", "parameters": 1, "digest": "sha256:0"},
    "tokenizer": {"digest": "sha256:1", "adds_bos": false, "first_token_ids": [7]},
    "prefix": 7,
    "constants": {"micro_batch_tokens": 8, "max_shards": 512, "max_shard_flops": 4e15},
    "version": "0.1.0", "numerics_version": 1, "warnings": ["of the plan"]
}'
where name in ('finished', 'running');
update datasets d
set digest = 'sha256:2', tokens_digest = 'sha256:3', planned_tokens = 5, shards = 1,
    shards_left = 1, clusters = '{"by": "documents", "documents": 2}'
from jobs j where j.id = d.job_id and j.name in ('finished', 'running');
insert into document_chunks (job_id, dataset, chunk, tokens, bytes, words)
select job_id, index, 0, '{3, 2}', '{9, 6}', '{2, 1}' from datasets where digest is not null;
insert into shards (job_id, index, dataset, micro_batches, windows, scored_tokens, flops,
                    spans_digest)
select job_id, index, index, '[[[0, -1, 3, 0, 3], [1, -1, 2, 0, 2]]]', 2, 5, 5, 'DIGEST'
from datasets where digest is not null;

-- All of the finished job, and the first row of the running one.
insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until,
                      finished_at, outcome, computed_tokens)
select s.job_id, s.index, 'primary', '01900000-0000-7000-8000-00000000000a', 'cpu:0', 'test', now(),
       now(), 'committed', 5
from shards s join jobs j on j.id = s.job_id where j.name = 'finished' or s.index = 0;
update shards s
set state = 'done', fence = a.fence, clusters = '{0, 1}', units = '{4294967296, 8589934592}',
    scored = '{3, 2}', seconds = 1, committed_at = now()
from attempts a where a.job_id = s.job_id and a.shard = s.index;
update document_chunks c set scored = '{3, 2}', nll = '{4294967296, 8589934592}'
from shards s where s.job_id = c.job_id and s.dataset = c.dataset and s.state = 'done';
update datasets d
set shards_left = 0, scored_tokens = 5, seconds = 1, finished_at = now(), statistics = '{
    "documents": 2, "unscored_documents": 0, "bytes": 15, "words": 3, "tokens": 5,
    "scored_tokens": 5, "nll": "12884901888", "perplexity": 1.8221188003905089,
    "word_perplexity": 2.718281828459045, "byte_perplexity": 1.2214027581601699,
    "bits_per_byte": 0.2885390081777927, "macro_perplexity": 2.0,
    "standard_error": null, "confidence_95": null, "overflow": false, "clusters": 2,
    "warnings": ["of the numbers"]
}'
from shards s where s.job_id = d.job_id and s.dataset = d.index and s.state = 'done';
update jobs set state = 'succeeded', datasets_left = 0, finished_at = now()
where name = 'finished';
update jobs set datasets_left = 1 where name = 'running';
"#;

/// What version 2 adds: an attempt that is live while the schema is changed, and one that failed.
const ATTEMPTS_OF_BEFORE: &str = "
insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until,
                      finished_at, outcome, error_code, error)
select s.job_id, s.index, 'primary', '01900000-0000-7000-8000-00000000000a', 'cpu:0', 'test', now(),
       f.at, f.outcome, f.code, f.error
from shards s join jobs j on j.id = s.job_id
cross join (values (now(), 'failed'::attempt_outcome, 'E2001', 'boom'), (null, null, null, null))
    as f(at, outcome, code, error)
where j.name = 'running' and s.index = 1;
update shards s set state = 'running', errors = 1
from jobs j where j.id = s.job_id and j.name = 'running' and s.index = 1;
";

async fn old_ledger() -> (TestDatabase, HashMap<String, JobId>) {
    let database = TestDatabase::fresh().await;
    let mut connection = database.connect().await;
    MIGRATIONS.run_to(1, &mut connection).await.unwrap();
    let window = |document, len| Window {
        document,
        start: -1,
        len,
        from: 0,
        to: len.into(),
    };
    let windows = vec![window(0, 3), window(1, 2)];
    let digest = assay_scoring::spans_digest(&[assay_scoring::MicroBatch(windows)]);
    let jobs = JOBS_OF_BEFORE.replace("DIGEST", &digest);
    connection.execute(sqlx::AssertSqlSafe(jobs)).await.unwrap();
    let ids = ids(&mut connection).await;
    (database, ids)
}

async fn ids(connection: &mut PgConnection) -> HashMap<String, JobId> {
    let rows = sqlx::query("select name, id from jobs").fetch_all(connection);
    let rows = rows.await.unwrap().into_iter();
    rows.map(|row| (row.get("name"), row.get("id"))).collect()
}

#[tokio::test]
async fn jobs_of_before_keep_their_numbers_and_go_on() {
    let (database, jobs) = old_ledger().await;
    let store = Store::connect(database.url(), 4).await.unwrap();
    store.ready().await.unwrap_err();
    store.migrate().await.unwrap();
    store.ready().await.unwrap();

    let finished = store.result(jobs["finished"]).await.unwrap().unwrap();
    assert!(finished.complete);
    let rolling = Method::rolling(WINDOW);
    assert_eq!(finished.method, OneOrMany::One(rolling.clone()));
    assert_eq!(finished.warnings[0], "of the plan");
    assert_eq!(finished.warnings[1], "a: of the numbers");
    assert_eq!(finished.datasets.len(), 2);
    for dataset in &finished.datasets {
        assert_eq!(dataset.method, rolling);
        assert_eq!(dataset.nll, Some(3.0));
        assert_eq!(dataset.nll_exact.as_deref(), Some("12884901888"));
        assert_eq!(dataset.word_perplexity, Some(std::f64::consts::E));
        assert!(dataset.groups.is_empty() && dataset.reused_from.is_none());
    }
    assert_eq!(store.row(jobs["finished"], "b", 0).await.unwrap(), Some(1));
    let documents = store.documents(jobs["finished"], 1, 0, 10).await.unwrap();
    assert_eq!(documents.len(), 2);
    assert_eq!(documents[0].group, None);
    let worst = store.worst(jobs["finished"], 1, 1).await.unwrap();
    assert_eq!(worst[0].index, 1);
    let job = store.job(jobs["finished"]).await.unwrap().unwrap();
    assert_eq!(job.progress.datasets[1].method, rolling);
    assert!(!job.token_output);

    // What was running runs on, with the prefix it was planned with.
    let context = store.run_context(jobs["running"]).await.unwrap().unwrap();
    assert_eq!(context.datasets[1].prefix, Some(7));
    assert_eq!(context.datasets[1].method, rolling);
    let worker = uuid::Uuid::now_v7();
    let new = assay_store::NewWorker {
        id: worker,
        name: "new",
        version: "test",
        devices: &[],
    };
    store
        .register_worker(&new, crate::support::LEASE, None)
        .await
        .unwrap();
    let claims = store.claim(&claimant(worker), None).await;
    let claim = claims.unwrap().remove(0);
    let Work::Plan(plan) = claim.work else {
        panic!("the job that was queued is planned first")
    };
    assert_eq!(claim.job, jobs["queued"]);
    let rows: Vec<_> = plan.rows.iter().map(|(d, m)| (d.name(), m)).collect();
    assert_eq!(rows, [("a", &rolling), ("b", &rolling)]);
    let claims = store.claim(&claimant(worker), None).await;
    let claim = claims.unwrap().remove(0);
    let Work::Shard(shard) = claim.work else {
        panic!("one shard is left")
    };
    assert_eq!((claim.job, shard.split_depth), (jobs["running"], 0));
    let outcome = compute(&shard);
    let outcomes = [(claim.fence, &outcome)];
    store.commit_shards(worker, &outcomes).await.unwrap();
    let done = store.job(jobs["running"]).await.unwrap().unwrap();
    assert_eq!(done.state, JobState::Succeeded);
}

#[tokio::test]
async fn what_was_running_before_there_were_kinds_of_attempts_goes_on() {
    let (database, jobs) = old_ledger().await;
    let mut connection = database.connect().await;
    MIGRATIONS.run_to(2, &mut connection).await.unwrap();
    connection.execute(ATTEMPTS_OF_BEFORE).await.unwrap();
    let store = Store::connect(database.url(), 4).await.unwrap();
    store.migrate().await.unwrap();

    // What remains is known, for the size of claims.
    let rows = sqlx::query(
        "select j.name, array_agg(d.flops_left order by d.index) as left
         from datasets d join jobs j on j.id = d.job_id group by j.name",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let left: HashMap<String, Vec<f64>> = rows
        .into_iter()
        .map(|row| (row.get("name"), row.get("left")))
        .collect();
    assert_eq!(left["finished"], [0.0, 0.0]);
    assert_eq!(left["running"], [0.0, 5.0]);
    assert_eq!(left["queued"], [0.0, 0.0]);

    // The old worker still knows its attempt.
    let old = "01900000-0000-7000-8000-00000000000a".parse().unwrap();
    let live = store.renew(old, &[], crate::support::LEASE, None).await;
    let live = live.unwrap().live;
    assert_eq!(live.len(), 1);
    let running = store.shards(jobs["running"], 1, 1).await.unwrap();
    let attempts: Vec<_> = running[0]
        .attempts
        .iter()
        .map(|a| (a.kind, a.outcome))
        .collect();
    assert_eq!(
        attempts,
        [
            (AttemptKind::Primary, Some(AttemptOutcome::Failed)),
            (AttemptKind::Primary, None)
        ]
    );

    // Its lease has run out. It failed the shard, but is alone.
    assert_eq!(store.reap(None).await.unwrap().attempts, 1);
    let job = store.job(jobs["running"]).await.unwrap().unwrap();
    assert_eq!((job.priority, job.baseline), (0, BaselineRequest::Auto));
    store.cancel_job(jobs["queued"]).await.unwrap();
    let claims = store.claim(&claimant(old), None).await.unwrap();
    assert_eq!(claims.len(), 1);
    let Work::Shard(shard) = &claims[0].work else {
        panic!("a shard is left")
    };
    assert_eq!((claims[0].job, shard.index), (jobs["running"], 1));
    assert!(claims[0].fence > live[0]);
    let context = store.run_context(jobs["running"]).await.unwrap().unwrap();
    assert_eq!(context.rate_key, None, "no rate is learned from it");
    let outcome = compute(shard);
    let late = [(live[0], &outcome), (claims[0].fence, &outcome)];
    let answers = store.commit_shards(old, &late).await.unwrap();
    assert_eq!(answers, [CommitOutcome::Late, CommitOutcome::Counted]);
    let done = store.job(jobs["running"]).await.unwrap().unwrap();
    assert_eq!(done.state, JobState::Succeeded);
    let rates: i64 = sqlx::query_scalar("select count(*) from device_rates")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(rates, 0);
    for name in ["finished", "running"] {
        let result = store.result(jobs[name]).await.unwrap().unwrap();
        assert_eq!(result.performance.baseline, None);
        assert!(result.audited.abs() < 1e-9);
        assert_eq!(result.performance.counted_tokens, 10);
    }
}

/// As a server that knows no projects posts a job.
const POST_OF_BEFORE: &str = "
insert into jobs (id, name, model, method, dtype, tags, body, idempotency_key, datasets_left, priority)
values ($1, 'posted', 'm', '{\"convention\": \"rolling\", \"window\": 8}', 'float32', '{}', '{}', 'key',
        1, 3)
on conflict on constraint jobs_idempotency_key_unique do nothing";

#[tokio::test]
async fn what_knew_no_projects_belongs_to_the_default_one() {
    let database = TestDatabase::fresh().await;
    let mut connection = database.connect().await;
    MIGRATIONS.run_to(11, &mut connection).await.unwrap();
    let [before, while_new, again] = std::array::from_fn(|_| uuid::Uuid::now_v7());
    let mut post = async |id: JobId| {
        let posted = sqlx::query(POST_OF_BEFORE).bind(id);
        let posted = posted.execute(&mut connection).await.unwrap();
        posted.rows_affected()
    };
    assert_eq!(post(before).await, 1);
    let upload = "insert into uploads (name, digest, bytes) values ('u', 'sha256:1', 1)";
    let mut other = database.connect().await;
    other.execute(upload).await.unwrap();
    let store = Store::connect(database.url(), 4).await.unwrap();
    store.migrate().await.unwrap();

    // A server of before goes on while the schema is that of now.
    assert_eq!(post(again).await, 0, "the idempotency key is known");
    let renamed = POST_OF_BEFORE.replace("'key'", "'another key'");
    sqlx::query(sqlx::AssertSqlSafe(renamed))
        .bind(while_new)
        .execute(&mut other)
        .await
        .unwrap();
    let own = crate::keys::within(&store, assay_store::ProjectId::DEFAULT);
    for id in [before, while_new] {
        assert_eq!(own.job(id).await.unwrap().unwrap().priority, 3);
    }
    assert!(own.upload("u").await.unwrap().is_some());
    let ranks: Vec<i32> = sqlx::query_scalar("select rank from jobs")
        .fetch_all(&mut other)
        .await
        .unwrap();
    assert_eq!(ranks, [3, 3]);
    let projects = store.projects().await.unwrap();
    let names: Vec<&str> = projects.iter().map(|project| &*project.name).collect();
    assert_eq!(names, ["default"]);
}
