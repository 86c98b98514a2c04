//! The schema refuses what no program should write.

use crate::support::Ledger;

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
        ("update datasets set scored_tokens = 41", "datasets_never_overcounted"),
        ("update datasets set shards_left = -1", "datasets_shards_left_range"),
        ("update datasets set finished_at = now()", "datasets_finished_is_complete"),
        (
            "update datasets set finished_at = now(), statistics = '{}', shards_left = 0",
            "datasets_finished_is_complete",
        ),
        ("update shards set state = 'done'", "shards_done_has_sums"),
        ("update attempts set outcome = 'lost'", "attempts_ended_has_time"),
        ("update attempts set outcome = 'failed', finished_at = now()", "attempts_failed_has_error"),
        (
            "insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until)
             select job_id, shard, kind, worker_id, device, device_kind, lease_until
             from attempts where outcome is null",
            "attempts_one_live",
        ),
        ("update document_chunks set words = '{}'", "document_chunks_aligned"),
    ] {
        let error = sqlx::query(statement).execute(&mut connection).await.unwrap_err();
        let violated = error.as_database_error().and_then(|e| e.constraint().map(str::to_owned));
        assert_eq!(violated.as_deref(), Some(constraint), "{statement}: {error}");
    }
}
