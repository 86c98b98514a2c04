//! The commit of shards: one transaction for each job, that either counts everything or nothing.

use std::collections::BTreeMap;

use assay_api::{Dtype, ErrorCode, JobError, JobId, JobState, Numerics, WorkerId};
use assay_scoring::{ClusterSum, MicroBatch};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count, int, json, parse};
use crate::{Store, StoreError, TokenSpan, audit, baseline, end, finish, rates, tokens};

/// What a worker computed for a shard.
#[derive(Clone, Debug)]
pub struct ShardOutcome {
    /// Digest of the spans as computed.
    pub spans_digest: String,
    /// Exact sums by cluster.
    pub sums: Vec<ClusterSum>,
    /// The tokens that each window predicts, if the job keeps them; else empty.
    pub tokens: Vec<TokenSpan>,
    /// Device seconds.
    pub seconds: f64,
    /// Tokens scored, those thrown away included.
    pub computed_tokens: u64,
    /// Times that micro-batches were halved in what was computed.
    pub split_depth: u32,
    /// What was computed in, if not the job's dtype.
    pub dtype: Option<Dtype>,
    /// How far the job's dtype is from that, if the shard was scored in both.
    pub compared: Option<Compared>,
    /// Seconds that its device waited for its claim (those of a claim of several shards are spread
    /// over them), and until the result before was taken from it.
    pub claim_seconds: f64,
    /// Seconds of loading the model before it.
    pub load_seconds: f64,
    /// Seconds that it waited to be counted, as far as the worker knows before it is.
    pub commit_seconds: f64,
}

/// A shard that was scored in two dtypes: the sums over its counted tokens of what the NLL is more
/// in the device's own dtype than in the job's, in nats, and of the squares of that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Tokens.
    pub tokens: u64,
    /// Sum of the differences.
    pub difference: f64,
    /// Sum of their squares.
    pub squares: f64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The shard's sums count, now or by an earlier call under the same fence.
    Counted,
    /// An audit: compared with the sums that count, now or by an earlier call under the same fence.
    Compared,
    /// The attempt had ended, or its worker is out of service: the result is dropped.
    Late,
    /// The result does not agree with the plan: the job has failed.
    Disagrees,
}

/// An attempt that brings its result, as it is now.
#[derive(FromRow)]
pub(crate) struct Committing {
    pub(crate) fence: i64,
    pub(crate) shard: i32,
    kind: String,
    outcome: Option<String>,
    pub(crate) worker_id: WorkerId,
    pub(crate) worker: String,
    pub(crate) device: String,
    pub(crate) device_kind: String,
    out_of_service: bool,
    token_output: bool,
    numerics: String,
    dtype: String,
    state: String,
}

impl Committing {
    fn is_audit(&self) -> bool {
        self.kind == "audit"
    }
}

#[derive(FromRow)]
struct Planned {
    dataset: i32,
    scored_tokens: i64,
    spans_digest: String,
    /// Only if the job keeps tokens, and this attempt would be counted.
    micro_batches: Option<serde_json::Value>,
}

impl Store {
    /// Counts shards, or compares them if they are audits: in one transaction for each job. The
    /// answers are in the order of `outcomes`, which are given by their fences.
    ///
    /// A live attempt whose lease has just run out is still live until it is reaped: nobody else
    /// holds the shard, so counting it is right and saves the work. Of several live attempts at a
    /// shard the first to come counts, and the others end.
    ///
    /// Calling it again under the same fences, after a lost answer, changes nothing.
    ///
    /// # Errors
    /// The database does not answer, or refuses a count ([`StoreError::is_miscount`]): then
    /// nothing of the same job is counted, and the caller finds the one at fault by committing
    /// them one by one.
    pub async fn commit_shards(
        &self,
        worker: WorkerId,
        outcomes: &[(i64, &ShardOutcome)],
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let fences: Vec<i64> = outcomes.iter().map(|(fence, _)| *fence).collect();
        // Read without a lock: a fence never changes its job.
        let jobs: Vec<(JobId, i64)> = sqlx::query_as(
            "select job_id, fence from attempts
             where fence = any($1) and worker_id = $2 and shard is not null",
        )
        .bind(&fences)
        .bind(worker)
        .fetch_all(&self.pool)
        .await?;
        let mut by_job: BTreeMap<JobId, Vec<i64>> = BTreeMap::new();
        for (job, fence) in jobs {
            by_job.entry(job).or_default().push(fence);
        }
        let outcome_of: BTreeMap<i64, &ShardOutcome> = outcomes.iter().copied().collect();
        let mut answers = BTreeMap::new();
        for (job, mut fences) in by_job {
            fences.sort_unstable();
            let of_job: Vec<_> = fences.iter().map(|f| (*f, outcome_of[f])).collect();
            // Boxed: the finish of a row makes it large.
            let committed = Box::pin(self.commit_of_job(job, &of_job)).await?;
            answers.extend(fences.into_iter().zip(committed));
        }
        Ok(fences
            .iter()
            .map(|fence| answers.get(fence).copied().unwrap_or(CommitOutcome::Late))
            .collect())
    }

    /// Commits results of one job, given in the order of their fences.
    async fn commit_of_job(
        &self,
        job: JobId,
        outcomes: &[(i64, &ShardOutcome)],
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(vec![CommitOutcome::Late; outcomes.len()]);
        };
        let fences: Vec<i64> = outcomes.iter().map(|(fence, _)| *fence).collect();
        let live: Vec<(i64, bool)> = sqlx::query_as(
            "select fence, outcome is null from attempts where fence = any($1)
             order by fence for no key update",
        )
        .bind(&fences)
        .fetch_all(&mut *tx)
        .await?;
        let mut answers = Vec::with_capacity(outcomes.len());
        for (fence, outcome) in outcomes {
            answers.push(commit_one(&mut tx, job, *fence, outcome).await?);
        }
        // Once for all of them. The last shard that counts may have left audits that nobody is
        // there for. Rates are shared by jobs, so they come last in the order of the locks.
        if answers.contains(&CommitOutcome::Counted) {
            audit::sweep(&mut tx, job).await?;
        }
        finish::finish_ready(&mut tx, job).await?;
        baseline::settle(&mut tx, job).await?;
        // Not again from what is told again.
        let live = live.iter().filter(|(_, live)| *live);
        let fences: Vec<i64> = live.map(|(fence, _)| *fence).collect();
        rates::learn(&mut tx, &fences).await?;
        tx.commit().await?;
        Ok(answers)
    }
}

/// Takes one result. What the ones before it did (superseded this attempt, failed the job, took
/// the worker out of service) is seen.
async fn commit_one(
    tx: &mut PgConnection,
    job: JobId,
    fence: i64,
    outcome: &ShardOutcome,
) -> Result<CommitOutcome, StoreError> {
    let attempt: Committing = sqlx::query_as(
        "select a.fence, a.shard, a.kind::text as kind, a.outcome::text as outcome, a.worker_id,
                w.name as worker, a.device, a.device_kind,
                w.out_of_service_at is not null as out_of_service,
                j.token_output, j.numerics, j.dtype,
                j.state::text as state
         from attempts a join workers w on w.id = a.worker_id join jobs j on j.id = a.job_id
         where a.fence = $1",
    )
    .bind(fence)
    .fetch_one(&mut *tx)
    .await?;
    match attempt.outcome.as_deref() {
        Some("committed") if attempt.is_audit() => return Ok(CommitOutcome::Compared),
        Some("committed") => return Ok(CommitOutcome::Counted),
        Some(_) => {
            end::note_late(tx, fence, "cancelled", outcome).await?;
            return Ok(CommitOutcome::Late);
        }
        None => {}
    }
    if parse::<JobState>(attempt.state.clone())? != JobState::Running {
        end::note_late(tx, fence, "cancelled", outcome).await?;
        return Ok(CommitOutcome::Late);
    }
    if attempt.out_of_service {
        end::note_late(tx, fence, "released", outcome).await?;
        end::put_back(tx, job, &[Some(attempt.shard)]).await?;
        return Ok(CommitOutcome::Late);
    }
    let keeps_tokens = attempt.token_output && !attempt.is_audit();
    let planned: Planned = sqlx::query_as(
        "select dataset, scored_tokens, spans_digest,
                case when $3 then micro_batches end as micro_batches
         from shards where job_id = $1 and index = $2 for no key update",
    )
    .bind(job)
    .bind(attempt.shard)
    .bind(keeps_tokens)
    .fetch_one(&mut *tx)
    .await?;
    if let Some(detail) = disagreement(&attempt, &planned, outcome)? {
        let error = JobError {
            code: ErrorCode::CountsDisagree,
            detail,
            field: None,
            shard: end::location(Some(attempt.shard), &attempt.worker),
        };
        end::fail_job(tx, job, &error).await?;
        return Ok(CommitOutcome::Disagrees);
    }
    commit_attempt(tx, fence, outcome, attempt.is_audit()).await?;
    if attempt.is_audit() {
        audit::compare(tx, job, &attempt, outcome).await?;
        return Ok(CommitOutcome::Compared);
    }
    supersede(tx, job, attempt.shard).await?;
    count_shard(tx, job, attempt.shard, fence, outcome).await?;
    if keeps_tokens {
        let counted = (planned.dataset, attempt.shard, fence);
        tokens::write(tx, job, counted, &outcome.tokens).await?;
    }
    Ok(CommitOutcome::Counted)
}

/// Why the result cannot be the planned shard's, if so.
fn disagreement(
    attempt: &Committing,
    planned: &Planned,
    outcome: &ShardOutcome,
) -> Result<Option<String>, StoreError> {
    let shard = attempt.shard;
    // Precision is never lowered.
    let may_be =
        attempt.numerics == Numerics::Adaptive.as_str() && attempt.dtype != Dtype::Float32.as_str();
    if let Some(dtype) = outcome
        .dtype
        .filter(|dtype| !may_be || *dtype != Dtype::Float32)
    {
        return Ok(Some(format!(
            "shard {shard} of a job in {} ({}) was computed in {}",
            attempt.dtype,
            attempt.numerics,
            dtype.as_str()
        )));
    }
    if outcome.spans_digest != planned.spans_digest {
        return Ok(Some(format!(
            "shard {shard} was planned with spans {} and computed with spans {}",
            planned.spans_digest, outcome.spans_digest
        )));
    }
    let scored: u64 = outcome.sums.iter().map(|sum| sum.scored).sum();
    let wanted = count(planned.scored_tokens)?;
    if scored != wanted {
        return Ok(Some(format!(
            "shard {shard} was planned with {wanted} counted tokens and computed with {scored}"
        )));
    }
    let Some(micro_batches) = &planned.micro_batches else {
        return Ok(None);
    };
    let micro_batches: Vec<MicroBatch> = json(micro_batches.clone())?;
    let disagreement = tokens::disagreement(&micro_batches, &outcome.sums, &outcome.tokens);
    Ok(disagreement
        .map(|detail| format!("shard {shard} was computed otherwise than planned: {detail}")))
}

/// The sums as the ledger keeps them.
pub(crate) struct Columns {
    pub(crate) clusters: Vec<i32>,
    pub(crate) units: Vec<i64>,
    pub(crate) scored: Vec<i64>,
}

impl Columns {
    pub(crate) fn of(sums: &[ClusterSum]) -> Result<Self, StoreError> {
        Ok(Self {
            clusters: sums
                .iter()
                .map(|s| int(s.cluster))
                .collect::<Result<_, _>>()?,
            units: sums.iter().map(|s| s.units).collect(),
            scored: sums
                .iter()
                .map(|s| bigint(s.scored))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Ends the attempt, with the account of its time, and with its sums if they are to be compared.
async fn commit_attempt(
    tx: &mut PgConnection,
    fence: i64,
    outcome: &ShardOutcome,
    keep_sums: bool,
) -> Result<(), StoreError> {
    let sums = if keep_sums {
        Some(Columns::of(&outcome.sums)?)
    } else {
        None
    };
    sqlx::query(
        "update attempts
         set outcome = 'committed', finished_at = clock_timestamp(), computed_tokens = $2,
             seconds = $3, claim_seconds = $4, load_seconds = $5, commit_seconds = $6, split_depth = $7,
             clusters = $8, units = $9, scored = $10, dtype = $11, compared_tokens = $12,
             difference = $13, difference_squares = $14
         where fence = $1",
    )
    .bind(fence)
    .bind(bigint(outcome.computed_tokens)?)
    .bind(outcome.seconds)
    .bind(outcome.claim_seconds)
    .bind(outcome.load_seconds)
    .bind(outcome.commit_seconds)
    .bind(int(outcome.split_depth)?)
    .bind(sums.as_ref().map(|sums| &sums.clusters))
    .bind(sums.as_ref().map(|sums| &sums.units))
    .bind(sums.as_ref().map(|sums| &sums.scored))
    .bind(outcome.dtype.map(Dtype::as_str))
    .bind(outcome.compared.map(|c| bigint(c.tokens)).transpose()?)
    .bind(outcome.compared.map(|c| c.difference))
    .bind(outcome.compared.map(|c| c.squares))
    .execute(tx)
    .await?;
    Ok(())
}

/// Ends the other live attempts at a shard that is being counted: their workers stop at the next
/// renewal.
async fn supersede(tx: &mut PgConnection, job: JobId, shard: i32) -> Result<(), StoreError> {
    sqlx::query(
        "update attempts set outcome = 'superseded', finished_at = clock_timestamp()
         where job_id = $1 and shard = $2 and outcome is null",
    )
    .bind(job)
    .bind(shard)
    .execute(tx)
    .await?;
    Ok(())
}

async fn count_shard(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
    fence: i64,
    outcome: &ShardOutcome,
) -> Result<(), StoreError> {
    let sums = Columns::of(&outcome.sums)?;
    // The depth of what counts: another attempt may have recorded a deeper one and not be counted.
    sqlx::query(
        "with counted as (
             update shards
             set state = 'done', fence = $3, clusters = $4, units = $5, scored = $6, seconds = $7,
                 split_depth = $8, committed_at = clock_timestamp()
             where job_id = $1 and index = $2
             returning dataset, scored_tokens, flops
         )
         update datasets d
         set shards_left = d.shards_left - 1, scored_tokens = d.scored_tokens + c.scored_tokens,
             seconds = d.seconds + $7, flops_left = greatest(d.flops_left - c.flops, 0)
         from counted c where d.job_id = $1 and d.index = c.dataset",
    )
    .bind(job)
    .bind(shard)
    .bind(fence)
    .bind(sums.clusters)
    .bind(sums.units)
    .bind(sums.scored)
    .bind(outcome.seconds)
    .bind(int(outcome.split_depth)?)
    .execute(tx)
    .await?;
    Ok(())
}
