//! Counts of all time, of which what is settled is remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use super::{CLAIM_LATENCY_BOUNDS, ClaimLatency, DeviceTotals};
use crate::StoreError;
use crate::rows::{bigint, count};

/// Counts of all time.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) attempts: BTreeMap<(String, String), u64>,
    pub(super) device_kinds: BTreeMap<String, DeviceTotals>,
    pub(super) claim_latency: BTreeMap<String, ClaimLatency>,
}

/// What has been counted for good.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    /// Every attempt up to this fence.
    fence: i64,
    totals: Totals,
}

/// Microseconds that the attempts of a group told of themselves. Whole ones, since a sum of floats
/// depends on the order: it could shrink in the last place, which reads as a counter that was
/// reset. Bounded, since an attempt may tell anything.
macro_rules! microseconds {
    ($column:literal) => {
        concat!(
            "coalesce(sum(round(least(greatest(",
            $column,
            ", 0), 1e9) * 1e6)::bigint) filter (where a.outcome in ('committed', 'revoked')),
                      0)::bigint"
        )
    };
}

pub(super) use microseconds;

/// Attempts of one kind that ended in one way on one device kind.
#[derive(FromRow)]
struct AttemptsRow {
    settled: bool,
    kind: String,
    outcome: String,
    device_kind: String,
    attempts: i64,
    tokens: i64,
    recent_tokens: i64,
    computing: i64,
    claiming: i64,
    loading: i64,
    committing: i64,
}

/// First claims of one class.
#[derive(FromRow)]
struct LatencyRow {
    settled: bool,
    work: String,
    class: i32,
    claims: i64,
    microseconds: i64,
}

/// Attempts `a` of which `$which` is true, by kind, outcome and device kind, with the columns
/// `$more` before. Tokens of a shard never change, and are joined for attempts that were counted
/// alone. A macro, because sqlx takes statements as literals.
macro_rules! attempts {
    ($more:literal, $which:literal, $groups:literal) => {
        concat!(
            "select ",
            $more,
            "a.kind::text as kind,
                    case a.outcome when 'revoked' then 'committed' else a.outcome::text end
                        as outcome,
                    a.device_kind, count(*) as attempts,
                    coalesce(sum(s.scored_tokens), 0)::bigint as tokens, ",
            microseconds!("a.seconds"),
            " as computing, ",
            microseconds!("a.claim_seconds"),
            " as claiming, ",
            microseconds!("a.load_seconds"),
            " as loading, ",
            microseconds!("a.commit_seconds"),
            " as committing,
                    count(*) filter (where a.late) as late,
                    count(*) filter (where a.outcome = 'revoked') as revoked
             from attempts a
             left join shards s on s.job_id = a.job_id and s.index = a.shard
                 and a.kind in ('primary', 'copy') and a.outcome in ('committed', 'revoked')
             where ",
            $which,
            " and a.outcome is not null
             group by ",
            $groups
        )
    };
}
pub(super) use attempts;

/// The first claims `told` of plannings and shards, where `$attempt` is true of the attempt `a`,
/// `$other` of any attempt of the job, and `$first` of the first one `f`: `work`, `fence`, `class`
/// by the bounds in `$bounds`, `microseconds`.
macro_rules! first_claims {
    ($attempt:literal, $other:literal, $first:literal, $bounds:literal) => {
        concat!(
            "first as (
                 select 'planning' as work, a.fence, a.started_at - j.created_at as waited
                 from attempts a join jobs j on j.id = a.job_id
                 where ",
            $attempt,
            " and a.kind = 'plan' and not exists (
                     select from attempts b
                     where b.job_id = a.job_id and b.shard is null and b.fence < a.fence
                 )
                 union all
                 select 'shards', f.fence, f.started_at - p.finished_at
                 from (
                     select distinct job_id from attempts where ",
            $other,
            " and kind <> 'plan'
                 ) j
                 cross join lateral (
                     select a.fence, a.started_at from attempts a
                     where a.job_id = j.job_id and a.kind <> 'plan'
                     order by a.started_at, a.fence
                     limit 1
                 ) f
                 join attempts p on p.job_id = j.job_id and coalesce(p.shard, -1) = -1
                     and p.kind <> 'audit' and p.outcome = 'committed'
                 where ",
            $first,
            "
             ), waited as (
                 select work, fence,
                        greatest(round(extract(epoch from waited) * 1e6), 0)::bigint
                            as microseconds
                 from first
             ), told as (
                 select *, width_bucket(microseconds - 1, ",
            $bounds,
            "::bigint[]) as class
                 from waited
             )"
        )
    };
}
pub(super) use first_claims;

/// The bounds of [`CLAIM_LATENCY_BOUNDS`] in microseconds. `width_bucket` counts the bounds that are
/// not above its argument; one microsecond less makes of that those that are below it, since a bound
/// belongs to its class.
pub(super) fn latency_bounds() -> Result<Vec<i64>, StoreError> {
    CLAIM_LATENCY_BOUNDS
        .iter()
        .map(|bound| bigint(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
        .collect()
}

impl Settled {
    /// What was counted of jobs that have been deleted since.
    pub(super) async fn of_removed(tx: &mut PgConnection) -> Result<Self, StoreError> {
        let mut settled = Self::default();
        let attempts: Vec<AttemptsRow> = sqlx::query_as(
            "select true as settled, *, 0::bigint as recent_tokens from removed_attempts",
        )
        .fetch_all(&mut *tx)
        .await?;
        for row in &attempts {
            settled.totals.add_attempts(row)?;
        }
        let claims: Vec<LatencyRow> =
            sqlx::query_as("select true as settled, * from removed_claims")
                .fetch_all(tx)
                .await?;
        for row in &claims {
            settled.totals.add_latency(row)?;
        }
        Ok(settled)
    }

    /// What is settled when what ended until `before` is, and all that is known by now.
    pub(super) async fn advance(
        &self,
        tx: &mut PgConnection,
        before: DateTime<Utc>,
    ) -> Result<(Self, Totals), StoreError> {
        let mut settled = self.clone();
        settled.fence = self.settled_fence(tx, before).await?;
        let mut totals = self.totals.clone();
        for row in self.attempts(tx, settled.fence, before).await? {
            totals.add_attempts(&row)?;
            if row.settled {
                settled.totals.add_attempts(&row)?;
            }
        }
        for row in self.latencies(tx, settled.fence).await? {
            totals.add_latency(&row)?;
            if row.settled {
                settled.totals.add_latency(&row)?;
            }
        }
        Ok((settled, totals))
    }

    /// The last fence up to which every attempt had ended by then.
    async fn settled_fence(
        &self,
        tx: &mut PgConnection,
        before: DateTime<Utc>,
    ) -> Result<i64, StoreError> {
        // Here and below planned for each call: how much there is behind a fence differs by all of
        // the ledger, and a plan for all of it would be kept.
        let fence = sqlx::query_scalar(
            "select coalesce(
                 min(fence) filter (where outcome is null or finished_at > $2) - 1,
                 max(fence),
                 $1
             )
             from attempts where fence > $1",
        )
        .bind(self.fence)
        .bind(before)
        .persistent(false)
        .fetch_one(tx)
        .await?;
        Ok(fence)
    }

    /// The attempts behind the fence that have ended, those up to `settled` apart.
    async fn attempts(
        &self,
        tx: &mut PgConnection,
        settled: i64,
        before: DateTime<Utc>,
    ) -> Result<Vec<AttemptsRow>, StoreError> {
        let rows = sqlx::query_as(attempts!(
            "a.fence <= $2 as settled,
             coalesce(sum(s.scored_tokens) filter (where a.finished_at > $3), 0)::bigint
                 as recent_tokens, ",
            "a.fence > $1",
            "1, 3, 4, 5"
        ))
        .bind(self.fence)
        .bind(settled)
        .bind(before)
        .persistent(false)
        .fetch_all(tx)
        .await?;
        Ok(rows)
    }

    /// Of the attempts behind the fence those that were the first at their job's planning, or at
    /// any of its shards.
    async fn latencies(
        &self,
        tx: &mut PgConnection,
        settled: i64,
    ) -> Result<Vec<LatencyRow>, StoreError> {
        let bounds = latency_bounds()?;
        let rows = sqlx::query_as(concat!(
            "with ",
            first_claims!("a.fence > $1", "fence > $1", "f.fence > $1", "$3"),
            "select fence <= $2 as settled, work, class, count(*) as claims,
                    sum(microseconds)::bigint as microseconds
             from told group by 1, 2, 3"
        ))
        .bind(self.fence)
        .bind(settled)
        .bind(bounds)
        .persistent(false)
        .fetch_all(tx)
        .await?;
        Ok(rows)
    }
}

impl Totals {
    fn add_attempts(&mut self, row: &AttemptsRow) -> Result<(), StoreError> {
        let ended = (row.kind.clone(), row.outcome.clone());
        *self.attempts.entry(ended).or_default() += count(row.attempts)?;
        let of_kind = self
            .device_kinds
            .entry(row.device_kind.clone())
            .or_default();
        of_kind.tokens += count(row.tokens)?;
        of_kind.recent_tokens += count(row.recent_tokens)?;
        of_kind.computing += duration(row.computing)?;
        of_kind.claiming += duration(row.claiming)?;
        of_kind.loading += duration(row.loading)?;
        of_kind.committing += duration(row.committing)?;
        Ok(())
    }

    fn add_latency(&mut self, row: &LatencyRow) -> Result<(), StoreError> {
        let latency = self.claim_latency.entry(row.work.clone()).or_default();
        let class = usize::try_from(row.class)
            .ok()
            .and_then(|class| latency.classes.get_mut(class))
            .ok_or_else(|| StoreError::Unexpected(format!("class {} of a latency", row.class)))?;
        *class += count(row.claims)?;
        latency.sum += duration(row.microseconds)?;
        Ok(())
    }
}

fn duration(microseconds: i64) -> Result<Duration, StoreError> {
    Ok(Duration::from_micros(count(microseconds)?))
}
