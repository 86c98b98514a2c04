//! The schema refuses what no program should write.

use assay_api::{AttemptKind, JobRequest};
use sqlx::PgConnection;

use crate::audits::{bring, planned, take, worker as live};
use crate::support::{Ledger, compute, new_plan, request, spans};

async fn refused(connection: &mut PgConnection, statement: &'static str, constraint: &str) {
    let error = sqlx::query(statement).execute(connection).await;
    let error = error.expect_err(statement);
    let violated = error
        .as_database_error()
        .and_then(|e| e.constraint().map(str::to_owned));
    assert_eq!(
        violated.as_deref(),
        Some(constraint),
        "{statement}: {error}"
    );
}

#[tokio::test]
async fn the_schema_enforces_the_state_machine() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    ledger.planned(worker, &[20, 20]).await;
    ledger.claim_shard(worker).await;
    let mut connection = ledger.database.connect().await;
    for (statement, constraint) in [
        ("update jobs set state = 'succeeded'", "jobs_ended_has_time"),
        ("update jobs set state = 'succeeded', finished_at = now()", "jobs_succeeded_is_complete"),
        ("update jobs set state = 'failed', finished_at = now()", "jobs_failed_has_error"),
        ("update jobs set plan = null", "jobs_run_has_plan"),
        ("update jobs set state = 'queued'", "jobs_plan_precedes_run"),
        ("update jobs set datasets_left = -1", "jobs_datasets_left_range"),
        ("update jobs set download_bytes = 1", "jobs_download_range"),
        ("update jobs set run_seconds = 0", "jobs_deadlines_range"),
        (
            "update jobs set download_bytes = 2, download_total_bytes = 1",
            "jobs_download_range",
        ),
        ("update datasets set scored_tokens = 41", "datasets_never_overcounted"),
        ("update datasets set shards_left = -1", "datasets_shards_left_range"),
        ("update datasets set finished_at = now()", "datasets_finished_is_complete"),
        (
            "update datasets set finished_at = now(), statistics = '{}', shards_left = 0",
            "datasets_finished_is_complete",
        ),
        ("update datasets set digest = null", "datasets_planned_at_once"),
        ("update datasets set shards = 0, shards_left = 0", "datasets_planned_has_source"),
        ("update datasets set reused_from = job_id", "datasets_planned_has_source"),
        ("update datasets set device_kind = 'test'", "datasets_device_kind_at_the_end"),
        ("update datasets set prefix = -1", "datasets_prefix_range"),
        ("update datasets set method_index = -1", "datasets_index_range"),
        (
            "insert into datasets (job_id, index, name, source, method, dataset_index, method_index)
             select job_id, 1, 'b', source, method, dataset_index, 1 from datasets",
            "datasets_method_unique",
        ),
        (
            "insert into datasets (job_id, index, name, source, method, dataset_index, method_index)
             select job_id, 1, name, source, method, 1, method_index from datasets",
            "datasets_row_unique",
        ),
        ("update shards set state = 'done'", "shards_done_has_sums"),
        ("update shards set split_depth = -1", "shards_split_depth_range"),
        ("update attempts set outcome = 'lost'", "attempts_ended_has_time"),
        ("update attempts set outcome = 'failed', finished_at = now()", "attempts_failed_has_error"),
        (
            "insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until)
             select job_id, shard, kind, worker_id, device, device_kind, lease_until
             from attempts where outcome is null",
            "attempts_one_live",
        ),
        ("update document_chunks set words = '{}'", "document_chunks_aligned"),
        ("update document_chunks set groups = '{0}'", "document_chunks_groups_aligned"),
        ("update document_chunks set groups = '{0, null}'", "document_chunks_groups_aligned"),
    ] {
        refused(&mut connection, statement, constraint).await;
    }
}

#[tokio::test]
async fn the_schema_enforces_audits_and_baselines() {
    let ledger = Ledger::fresh().await;
    let one = live(&ledger, "one", &["test"]).await;
    let two = live(&ledger, "two", &["test"]).await;
    planned(&ledger, one, &[8, 8, 8], 1.0).await;
    bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
    bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
    bring(&ledger, two, "test", AttemptKind::Primary, 0).await;
    bring(&ledger, two, "test", AttemptKind::Audit, 0).await;
    take(&ledger, two, "test", AttemptKind::Audit).await;
    let mut connection = ledger.database.connect().await;
    for (statement, constraint) in [
        ("update jobs set priority = 101", "jobs_priority_range"),
        ("update jobs set audit = 1.5", "jobs_audit_range"),
        ("update jobs set audits_left = -1", "jobs_audits_left_range"),
        ("update jobs set baseline = 'perhaps'", "jobs_baseline_known"),
        ("update jobs set baseline_result = '{}'", "jobs_baseline_result_at_the_end"),
        (
            "update jobs set state = 'succeeded', finished_at = now(), datasets_left = 0",
            "jobs_succeeded_is_audited",
        ),
        ("update attempts set units = null where kind = 'audit'", "attempts_audit_has_sums"),
        (
            "update attempts set clusters = null, units = null, scored = null
             where kind = 'audit' and outcome = 'committed'",
            "attempts_audit_has_sums",
        ),
        (
            "update attempts set outcome = 'lost' where kind = 'audit' and outcome = 'committed'",
            "attempts_audit_has_sums",
        ),
        (
            "update attempts set outcome = 'committed', finished_at = now()
             where kind = 'audit' and outcome is null",
            "attempts_audit_has_sums",
        ),
        (
            "update attempts set clusters = '{0}', units = '{0}', scored = '{0}'
             where kind = 'primary'",
            "attempts_audit_has_sums",
        ),
        (
            "update attempts set scored = '{}' where kind = 'audit' and outcome = 'committed'",
            "attempts_sums_aligned",
        ),
        (
            "update attempts set kind = 'copy', clusters = null, units = null, scored = null
             where kind = 'audit' and outcome = 'committed'",
            "attempts_one_commit",
        ),
        (
            "insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until)
             select job_id, shard, kind, worker_id, device, device_kind, lease_until
             from attempts where outcome is null",
            "attempts_one_live",
        ),
        (
            "update workers set out_of_service_at = now()",
            "workers_out_of_service_has_reason",
        ),
        ("update workers set error = 'boom'", "workers_error_has_time"),
        (
            "update device_rates set flops_per_second = 0",
            "device_rates_flops_per_second_check",
        ),
    ] {
        refused(&mut connection, statement, constraint).await;
    }
}

#[tokio::test]
async fn a_row_that_was_taken_has_no_shards_and_all_numbers() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    ledger.planned(worker, &[20, 20]).await;
    ledger.run_all(worker).await;
    ledger.planned(worker, &[20, 20]).await;
    let mut connection = ledger.database.connect().await;
    for (statement, constraint) in [
        (
            "update datasets set reused_from = null where reused_from is not null",
            "datasets_planned_has_source",
        ),
        (
            "update datasets set statistics = null, finished_at = null, device_kind = null where reused_from is not null",
            "datasets_reused_is_finished",
        ),
        (
            "update datasets set finished_at = null, device_kind = null where reused_from is not null",
            "datasets_finished_is_complete",
        ),
        (
            "update datasets set device_kind = null where reused_from is not null",
            "datasets_reused_is_finished",
        ),
        (
            "update datasets set content_key = null where reused_from is not null",
            "datasets_reused_is_finished",
        ),
        (
            "update datasets set reused_from = job_id where reused_from is not null",
            "datasets_reused_is_finished",
        ),
        (
            "update datasets set seconds = 1 where reused_from is not null",
            "datasets_reused_is_finished",
        ),
        (
            "update datasets set shards = 1 where reused_from is not null",
            "datasets_planned_has_source",
        ),
        (
            "update datasets set scored_tokens = 39 where reused_from is not null",
            "datasets_finished_is_complete",
        ),
        (
            "delete from jobs where id in (select reused_from from datasets)",
            "datasets_reused_from_fkey",
        ),
    ] {
        refused(&mut connection, statement, constraint).await;
    }
}

#[tokio::test]
async fn tokens_belong_to_a_shard_that_is_done() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let wanted = JobRequest {
        token_output: true,
        ..request(&["a"])
    };
    ledger.job_of(&wanted).await;
    ledger.commit_plan(worker, &new_plan(&[&[20, 20]])).await;
    let (fence, shard) = ledger.claim_shard(worker).await;
    let (other, _) = ledger.claim_shard(worker).await;
    let mut outcome = compute(&shard);
    outcome.tokens = spans(&shard);
    let committed = ledger.commit(worker, fence, &outcome).await;
    assert_eq!(committed, assay_store::CommitOutcome::Counted);
    assert_eq!((shard.index, other), (0, fence + 1));
    let mut connection = ledger.database.connect().await;
    for (statement, constraint) in [
        (
            "update token_spans set fence = fence + 1",
            "token_spans_job_id_dataset_shard_fence_fkey",
        ),
        (
            "update token_spans set shard = 1",
            "token_spans_job_id_dataset_shard_fence_fkey",
        ),
        (
            "update token_spans set shard = 1, fence = fence + 1",
            "token_spans_job_id_dataset_shard_fence_fkey",
        ),
        (
            "update token_spans set dataset = 1",
            "token_spans_job_id_dataset_shard_fence_fkey",
        ),
        (
            "update shards set state = 'queued', fence = null where index = 0",
            "token_spans_job_id_dataset_shard_fence_fkey",
        ),
        (
            "insert into token_spans select * from token_spans limit 1",
            "token_spans_pkey",
        ),
        ("update token_spans set units = ids", "token_spans_aligned"),
        (
            "update token_spans set ids = '', starts = '', ends = '', units = ''",
            "token_spans_aligned",
        ),
        ("update token_spans set first = -1", "token_spans_range"),
    ] {
        refused(&mut connection, statement, constraint).await;
    }
}
