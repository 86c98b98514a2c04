//! Workers and their leases.

use std::time::Duration;

use assay_api::{DeviceStatus, ErrorCode, JobId, JobState, WorkerId};
use chrono::{DateTime, Utc};

use crate::end::{self, Ended};
use crate::rows::{detail, to_json};
use crate::{Store, StoreError, audit, baseline};

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

/// What a worker learns when it renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Fences of its live attempts. An attempt of the worker that is missing here has ended: the
    /// worker stops it.
    pub live: Vec<i64>,
    /// Why it is given no work any more, if so.
    pub out_of_service: Option<String>,
}

/// What the reaper did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Attempts whose lease had run out, or whose worker is out of service.
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

    /// Renews the worker's own lease and those of its `attempts`, given by their fences, each with
    /// the seconds that it still needs as far as its device can tell. Answers which of the worker's
    /// attempts are live.
    ///
    /// # Errors
    /// The database does not answer, or the worker is unknown.
    pub async fn renew(
        &self,
        worker: WorkerId,
        attempts: &[(i64, Option<f64>)],
        lease: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<Renewed, StoreError> {
        // A statement of its own, so that it waits for the row while it holds no other.
        let out_of_service: Option<Option<String>> = sqlx::query_scalar(
            "update workers
             set last_seen_at = coalesce($3, now()),
                 lease_until = coalesce($3, now()) + make_interval(secs => $2)
             where id = $1
             returning out_of_service_reason",
        )
        .bind(worker)
        .bind(lease.as_secs_f64())
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let out_of_service = out_of_service.ok_or(StoreError::UnknownWorker(worker))?;
        // `skip locked`: an attempt that is being ended or committed right now need not be
        // renewed, and waiting for it while holding the others could close a circle of waits.
        // A claim that raced with the end of its job leaves a live attempt of an ended job.
        let live = sqlx::query_scalar(
            "with renewed as (
                 update attempts a
                 set lease_until = coalesce($5, now()) + make_interval(secs => $4),
                     expected_at = case
                         when r.needs is null then a.expected_at
                         else coalesce($5, now()) + make_interval(secs => least(r.needs, 1e9))
                     end
                 from unnest($2::bigint[], $3::double precision[]) as r(fence, needs)
                 where a.fence = r.fence and a.fence in (
                     select fence from attempts
                     where worker_id = $1 and fence = any($2) and outcome is null
                     for no key update skip locked
                 )
             )
             select a.fence from attempts a join jobs j on j.id = a.job_id
             where a.worker_id = $1 and a.outcome is null and j.finished_at is null
             order by a.fence",
        )
        .bind(worker)
        .bind(attempts.iter().map(|(fence, _)| *fence).collect::<Vec<_>>())
        .bind(attempts.iter().map(|(_, needs)| *needs).collect::<Vec<_>>())
        .bind(lease.as_secs_f64())
        .bind(now)
        .fetch_all(&self.pool)
        .await?;
        Ok(Renewed {
            live,
            out_of_service,
        })
    }

    /// Keeps the last trouble that a worker tells of itself, for `GET /workers`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn report_trouble(
        &self,
        worker: WorkerId,
        code: ErrorCode,
        what: &str,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "update workers set error_code = $2, error = $3, error_at = now() where id = $1",
        )
        .bind(worker)
        .bind(code.as_str())
        .bind(detail(what))
        .execute(&self.pool)
        .await?;
        Ok(())
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

    /// Ends the attempts whose lease has run out, and those of workers out of service, so that
    /// their shards can be claimed again; and settles what waits for a worker that will not come:
    /// audits, baselines. Fails the jobs that are past a deadline. Several reapers may run at once.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn reap(&self, now: Option<DateTime<Utc>>) -> Result<Reaped, StoreError> {
        self.end_overdue(now).await?;
        let jobs: Vec<JobId> = sqlx::query_scalar(
            "select distinct a.job_id
             from attempts a join workers w on w.id = a.worker_id
             where a.outcome is null
               and (a.lease_until <= coalesce($1, now()) or w.out_of_service_at is not null)",
        )
        .bind(now)
        .fetch_all(&self.pool)
        .await?;
        let mut reaped = Reaped::default();
        for job in jobs {
            reaped.attempts += self.reap_job(job, now).await?;
        }
        for (job, wants_baseline) in self.waiting_jobs().await? {
            if !wants_baseline && !audit::is_stuck(&self.pool, job).await? {
                continue;
            }
            // Whoever holds the job looks after it, and the next reaper comes soon.
            if let Some(mut tx) = self.try_lock_running(job).await? {
                baseline::give_up(&mut tx, job, now).await?;
                audit::sweep(&mut tx, job).await?;
                tx.commit().await?;
            }
        }
        Ok(reaped)
    }

    /// Running jobs that may wait for a worker that will not come: whose baseline no device has
    /// begun to measure (true), with a dispute, or with nothing left to do but audits.
    async fn waiting_jobs(&self) -> Result<Vec<(JobId, bool)>, StoreError> {
        Ok(sqlx::query_as(
            "select j.id, coalesce(j.baseline_state = 'wanted', false) from jobs j
             where j.state = 'running' and (
                 j.baseline_state = 'wanted'
                 or j.audits_left > 0 and (
                     not exists (
                         select from datasets d where d.job_id = j.id and d.shards_left > 0
                     )
                     or exists (
                         select from shards s
                         where s.job_id = j.id and s.state = 'done' and s.audit = 'disputed'
                     )
                 )
             )
             order by j.id",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    async fn reap_job(&self, job: JobId, now: Option<DateTime<Utc>>) -> Result<u64, StoreError> {
        let Some((mut tx, state)) = self.lock_job(job).await? else {
            return Ok(0);
        };
        // Read again under the job's lock: a renewal or a commit may have come first.
        let released: Vec<Option<i32>> = sqlx::query_scalar(
            "update attempts a set outcome = 'released', finished_at = coalesce($2, clock_timestamp())
             from workers w
             where a.job_id = $1 and a.outcome is null
               and w.id = a.worker_id and w.out_of_service_at is not null
             returning a.shard",
        )
        .bind(job)
        .bind(now)
        .fetch_all(&mut *tx)
        .await?;
        if !released.is_empty() {
            end::put_back(&mut tx, job, &released).await?;
        }
        let lost: Vec<Ended> = sqlx::query_as(
            "update attempts a set outcome = 'lost', finished_at = coalesce($2, clock_timestamp())
             from workers w
             where a.job_id = $1 and a.outcome is null and a.lease_until <= coalesce($2, now())
               and w.id = a.worker_id
             returning a.shard, a.kind::text as kind, w.name as worker",
        )
        .bind(job)
        .bind(now)
        .fetch_all(&mut *tx)
        .await?;
        for loss in &lost {
            end::count_loss(&mut tx, job, loss).await?;
        }
        if state == JobState::Running {
            baseline::settle(&mut tx, job).await?;
            audit::sweep(&mut tx, job).await?;
        }
        tx.commit().await?;
        Ok((released.len() + lost.len()) as u64)
    }
}
