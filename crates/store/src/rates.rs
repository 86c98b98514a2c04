//! How fast devices are: learned from the shards they computed, asked for by claims.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection, PgExecutor};

use crate::StoreError;
use crate::rows::count;

/// The devices of all live workers in service, by kind.
pub(crate) struct Pool {
    kinds: Vec<PoolKind>,
}

#[derive(FromRow)]
struct PoolKind {
    kind: String,
    /// 0: the kind that was asked about besides those that are there.
    devices: i64,
    /// Planned floating-point operations per second of one of them; none while unknown.
    rate: Option<f64>,
}

impl Pool {
    /// The devices that are there, and what is known of their rates at jobs of this key; `kind`
    /// is looked up too, whether it is there or not.
    pub(crate) async fn read(
        executor: impl PgExecutor<'_>,
        rate_key: Option<&str>,
        kind: &str,
        now: Option<DateTime<Utc>>,
    ) -> Result<Self, StoreError> {
        let kinds = sqlx::query_as(
            "select k.kind, k.devices, r.flops_per_second as rate
             from (
                 select d.kind, count(*) - count(*) filter (where d.asked) as devices
                 from (
                     select e ->> 'kind' as kind, false as asked
                     from workers w cross join jsonb_array_elements(w.devices) e
                     where w.stopped_at is null and w.lease_until > coalesce($3, now())
                       and w.out_of_service_at is null
                     union all
                     select $2, true
                 ) d
                 group by d.kind
             ) k
             left join device_rates r on r.device_kind = k.kind and r.rate_key = $1
             order by k.kind",
        )
        .bind(rate_key)
        .bind(kind)
        .bind(now)
        .fetch_all(executor)
        .await?;
        Ok(Self { kinds })
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> Result<u32, StoreError> {
        let devices = count(self.kinds.iter().map(|kind| kind.devices).sum::<i64>())?;
        Ok(u32::try_from(devices).unwrap_or(u32::MAX))
    }

    /// The rate of a kind, if it is known.
    pub(crate) fn rate_of(&self, kind: &str) -> Option<f64> {
        self.kinds.iter().find(|k| k.kind == kind)?.rate
    }

    /// The rate of all devices together; those of unknown kinds count with `unknown` each.
    pub(crate) fn rate_with(&self, unknown: f64) -> f64 {
        let of_kind = |kind: &PoolKind| kind.devices as f64 * kind.rate.unwrap_or(unknown);
        self.kinds.iter().map(of_kind).sum()
    }

    /// The rate of all devices together, if that of each is known.
    pub(crate) fn known_rate(&self) -> Option<f64> {
        let there = || self.kinds.iter().filter(|kind| kind.devices > 0);
        there()
            .all(|kind| kind.rate.is_some())
            .then(|| self.rate_with(0.0))
    }

    /// Whether devices of more than one kind are there.
    pub(crate) fn has_several_kinds(&self) -> bool {
        self.kinds.iter().filter(|kind| kind.devices > 0).count() > 1
    }

    /// The fastest kind that is there. None if no rate of those is known.
    pub(crate) fn fastest(&self) -> Option<&str> {
        let known = self.kinds.iter().filter(|kind| kind.devices > 0);
        known
            .filter_map(|kind| Some((kind.rate?, &*kind.kind)))
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, kind)| kind)
    }
}

/// Learns from counted attempts of a job: the first rate of a device kind as measured, then a
/// moving mean, to which each shard adds a fifth. The caller holds the job's lock and has written
/// everything else, `seconds` of the attempts included: rows of `device_rates` are shared by jobs,
/// and locked last, in order of the kind.
pub(crate) async fn learn(tx: &mut PgConnection, fences: &[i64]) -> Result<(), StoreError> {
    // By their fences alone: a plan made while the ledger was small found them by their outcome,
    // among all that the job had committed.
    sqlx::query(
        "with committing as materialized (
             select * from attempts where fence = any($1)
         ), measured as (
             select a.device_kind, j.rate_key, sum(s.flops) / sum(a.seconds) as rate,
                    count(*) as shards
             from committing a
             join shards s on s.job_id = a.job_id and s.index = a.shard
             join jobs j on j.id = a.job_id
             where a.kind <> 'audit' and a.outcome = 'committed'
               and a.seconds > 0 and s.flops > 0 and j.rate_key is not null
             group by a.device_kind, j.rate_key
         )
         insert into device_rates as r (device_kind, rate_key, flops_per_second)
         select device_kind, rate_key, rate from measured order by device_kind
         on conflict (device_kind, rate_key) do update
         set (flops_per_second, updated_at) = (
             select m.rate + (r.flops_per_second - m.rate) * power(0.8, m.shards), now()
             from measured m where m.device_kind = excluded.device_kind
         )",
    )
    .bind(fences)
    .execute(tx)
    .await?;
    Ok(())
}
