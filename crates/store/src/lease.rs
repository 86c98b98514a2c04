//! Workers and their leases.

use std::time::Duration;

use assay_api::{DeviceStatus, JobId, WorkerId};
use chrono::{DateTime, Utc};

use crate::end::{self, Loss};
use crate::rows::to_json;
use crate::{Store, StoreError};

/// A worker that registers.
pub struct NewWorker<'a> {
    /// Id of this run of the worker.
    pub id: WorkerId,
    /// Host and process, for people.
    pub name: &'a str,
    /// Version of the program.
    pub version: &'a str,
    /// Its devices.
    pub devices: &'a [DeviceStatus],
}

/// What the reaper did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Attempts whose lease had run out.
    pub attempts: u64,
}

impl Store {
    /// Registers a worker, or registers it again under the same id.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn register_worker(
        &self,
        worker: &NewWorker<'_>,
        lease: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "insert into workers (id, name, version, devices, lease_until)
             values ($1, $2, $3, $4, coalesce($6, now()) + make_interval(secs => $5))
             on conflict (id) do update
             set lease_until = excluded.lease_until, last_seen_at = now(), stopped_at = null",
        )
        .bind(worker.id)
        .bind(worker.name)
        .bind(worker.version)
        .bind(to_json(&worker.devices)?)
        .bind(lease.as_secs_f64())
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Renews the worker's own lease and those of its attempts `fences`, and answers which of the
    /// worker's attempts are live. An attempt of the worker that is missing from the answer has
    /// ended: the worker stops it.
    ///
    /// # Errors
    /// The database does not answer, or the worker is unknown.
    pub async fn renew(
        &self,
        worker: WorkerId,
        fences: &[i64],
        lease: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<i64>, StoreError> {
        // `skip locked`: an attempt that is being ended or committed right now need not be
        // renewed, and waiting for it while holding the others could close a circle of waits.
        let known = sqlx::query(
            "with renewed as (
                 update attempts set lease_until = coalesce($4, now()) + make_interval(secs => $3)
                 where fence in (
                     select fence from attempts
                     where worker_id = $1 and fence = any($2) and outcome is null
                     for no key update skip locked
                 )
             )
             update workers
             set last_seen_at = coalesce($4, now()),
                 lease_until = coalesce($4, now()) + make_interval(secs => $3)
             where id = $1",
        )
        .bind(worker)
        .bind(fences)
        .bind(lease.as_secs_f64())
        .bind(now)
        .execute(&self.pool)
        .await?
        .rows_affected();
        if known == 0 {
            return Err(StoreError::UnknownWorker(worker));
        }
        // A claim that raced with the end of its job leaves a live attempt of an ended job.
        Ok(sqlx::query_scalar(
            "select a.fence from attempts a join jobs j on j.id = a.job_id
             where a.worker_id = $1 and a.outcome is null and j.finished_at is null",
        )
        .bind(worker)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Marks a worker as stopped in order. Its attempts have been released before.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn stop_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        sqlx::query("update workers set stopped_at = now(), last_seen_at = now() where id = $1")
            .bind(worker)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// How many workers are live.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn live_workers(&self) -> Result<u64, StoreError> {
        let n: i64 = sqlx::query_scalar(
            "select count(*) from workers where stopped_at is null and lease_until > now()",
        )
        .fetch_one(&self.pool)
        .await?;
        crate::rows::count(n)
    }

    /// Ends the attempts whose lease has run out, so that their shards can be claimed again.
    /// Several reapers may run at once.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn reap(&self, now: Option<DateTime<Utc>>) -> Result<Reaped, StoreError> {
        let jobs: Vec<JobId> = sqlx::query_scalar(
            "select distinct job_id from attempts
             where outcome is null and lease_until <= coalesce($1, now())",
        )
        .bind(now)
        .fetch_all(&self.pool)
        .await?;
        let mut reaped = Reaped::default();
        for job in jobs {
            reaped.attempts += self.reap_job(job, now).await?;
        }
        Ok(reaped)
    }

    async fn reap_job(&self, job: JobId, now: Option<DateTime<Utc>>) -> Result<u64, StoreError> {
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(0);
        };
        // Read again under the job's lock: a renewal or a commit may have come first.
        let lost: Vec<Loss> = sqlx::query_as(
            "update attempts a set outcome = 'lost', finished_at = coalesce($2, now())
             from workers w
             where a.job_id = $1 and a.outcome is null and a.lease_until <= coalesce($2, now())
               and w.id = a.worker_id
             returning a.shard, w.name as worker",
        )
        .bind(job)
        .bind(now)
        .fetch_all(&mut *tx)
        .await?;
        for loss in &lost {
            end::count_loss(&mut tx, job, loss).await?;
        }
        tx.commit().await?;
        Ok(lost.len() as u64)
    }
}
