//! How fast a job went, from what its attempts say.

use assay_api::{
    Baseline, BaselineRequest, BaselineSource, DevicePerformance, JobId, Performance, Spread,
};
use sqlx::{FromRow, PgConnection};

use crate::StoreError;
use crate::baseline::BaselineFacts;
use crate::rows::{count, json, parse};

/// Rates of a job.
#[derive(FromRow)]
struct JobRow {
    baseline: String,
    baseline_result: Option<serde_json::Value>,
    /// Of all counted shards.
    flops: f64,
    tokens: i64,
    /// From the first claim of a shard to the last commit; null before one.
    seconds: Option<f64>,
    computed_tokens: i64,
}

/// The part of a job in which all devices may compute, audits included.
#[derive(FromRow)]
struct Phase {
    flops: f64,
    seconds: Option<f64>,
}

/// A device that had a claim.
#[derive(FromRow)]
struct DeviceRow {
    worker: String,
    device: String,
    device_kind: String,
    shards: i64,
    tokens: i64,
    busy_seconds: f64,
    claim_seconds: f64,
    commit_seconds: f64,
    load_seconds: f64,
    present_seconds: f64,
    /// Whether a shard of the distributed phase was counted or audited by it.
    took_part: bool,
    /// Operations per second of its kind alone, if ever measured.
    solo: Option<f64>,
}

/// When the device of the attempt `a` began to compute what was counted; null where a version that
/// kept no account of time counted it. A macro, because sqlx takes statements as literals only.
macro_rules! began {
    () => {
        "case when a.seconds + a.commit_seconds is not null then greatest(
             a.started_at,
             a.finished_at - make_interval(secs => a.seconds + a.commit_seconds)
         ) end"
    };
}

/// What the ledger knows of the speed of a job. Null, rather than wrong, where it does not know.
pub(crate) async fn read(tx: &mut PgConnection, job: JobId) -> Result<Performance, StoreError> {
    let row: JobRow = sqlx::query_as(
        "select j.baseline, j.baseline_result,
                coalesce(s.flops, 0) as flops, coalesce(s.tokens, 0)::bigint as tokens,
                extract(epoch from s.last - (
                    select min(started_at) from attempts where job_id = $1 and kind <> 'plan'
                ))::double precision as seconds,
                (select coalesce(sum(computed_tokens), 0)::bigint from attempts
                 where job_id = $1) as computed_tokens
         from jobs j, (
             select sum(flops) as flops, sum(scored_tokens) as tokens, max(committed_at) as last
             from shards where job_id = $1 and state = 'done'
         ) s
         where j.id = $1",
    )
    .bind(job)
    .fetch_one(&mut *tx)
    .await?;
    let measured: Option<BaselineFacts> = row.baseline_result.map(json).transpose()?;
    let phase: Phase = sqlx::query_as(concat!(
        "select coalesce(sum(s.flops), 0) as flops,
                    extract(epoch from max(a.finished_at) - min(",
        began!(),
        "))::double precision as seconds
             from attempts a join shards s on s.job_id = a.job_id and s.index = a.shard
             where a.job_id = $1 and a.outcome = 'committed' and not (a.solo and $2)"
    ))
    .bind(job)
    .bind(measured.is_some())
    .fetch_one(&mut *tx)
    .await?;
    let devices = devices(tx, job, measured.is_some()).await?;
    let worker_seconds = worker_seconds(tx, job, measured.is_some()).await?;

    let tokens_per_flop = (row.flops > 0.0).then(|| row.tokens as f64 / row.flops);
    let in_tokens = |rate: f64| tokens_per_flop.map(|tokens| rate * tokens);
    let seconds = row.seconds.unwrap_or(0.0);
    let distributed = positive(phase.flops / phase.seconds.unwrap_or(0.0));
    let request: BaselineRequest = parse(row.baseline)?;
    let alone = alone(request, measured.as_ref(), &devices);
    let speedup = distributed
        .zip(alone.as_ref())
        .map(|(all, (_, one, _))| all / one);
    let baseline = alone.and_then(|(source, rate, device_kind)| {
        Some(Baseline {
            source,
            tokens_per_second: in_tokens(rate)?,
            device_kind,
        })
    });
    Ok(Performance {
        tokens_per_second: positive(row.tokens as f64 / seconds),
        seconds,
        counted_tokens: count(row.tokens)?,
        computed_tokens: count(row.computed_tokens)?,
        speedup: baseline.as_ref().and(speedup),
        efficiency: efficiency(distributed, measured.as_ref(), &devices),
        baseline,
        distributed_tokens_per_second: distributed.and_then(in_tokens),
        communication_share: communication_share(&devices),
        worker_seconds,
        devices: devices
            .into_iter()
            .map(to_device)
            .collect::<Result<_, _>>()?,
    })
}

fn positive(rate: f64) -> Option<f64> {
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Operations per second of one device alone, and its kind: as measured in this job, or in an
/// earlier one on the fastest of the kinds that took part.
fn alone(
    request: BaselineRequest,
    measured: Option<&BaselineFacts>,
    devices: &[DeviceRow],
) -> Option<(BaselineSource, f64, String)> {
    if let Some(facts) = measured {
        let rate = positive(facts.flops / facts.seconds)?;
        return Some((BaselineSource::Measured, rate, facts.device_kind.clone()));
    }
    if request == BaselineRequest::Skip {
        return None;
    }
    devices
        .iter()
        .filter(|device| device.took_part)
        .filter_map(|device| Some((device.solo?, &device.device_kind)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(rate, kind)| (BaselineSource::Calibrated, rate, kind.clone()))
}

/// The distributed rate over the sum of what its devices do alone, if that is known of each.
fn efficiency(
    distributed: Option<f64>,
    measured: Option<&BaselineFacts>,
    devices: &[DeviceRow],
) -> Option<f64> {
    let solo = |device: &DeviceRow| {
        let here = measured.filter(|facts| facts.device_kind == device.device_kind);
        here.map_or(device.solo, |facts| positive(facts.flops / facts.seconds))
    };
    let took_part = devices.iter().filter(|device| device.took_part);
    let sum: f64 = took_part.map(solo).sum::<Option<f64>>()?;
    positive(distributed? / sum)
}

/// Results are counted while the device computes the next shard, so `commit_seconds` is no part of
/// it; what a device waits until a result is taken from it is in `claim_seconds`.
fn communication_share(devices: &[DeviceRow]) -> Option<f64> {
    let sum = |of: fn(&DeviceRow) -> f64| devices.iter().map(of).sum::<f64>();
    let talking = sum(|device| device.claim_seconds);
    let busy = sum(|device| device.busy_seconds);
    (busy > 0.0).then(|| talking / (talking + busy))
}

async fn devices(
    tx: &mut PgConnection,
    job: JobId,
    measured: bool,
) -> Result<Vec<DeviceRow>, StoreError> {
    Ok(sqlx::query_as(
        "select w.name as worker, a.device, a.device_kind,
                count(*) filter (where s.fence = a.fence) as shards,
                coalesce(sum(s.scored_tokens) filter (where s.fence = a.fence), 0)::bigint
                    as tokens,
                coalesce(sum(a.seconds), 0) as busy_seconds,
                coalesce(sum(a.claim_seconds), 0) as claim_seconds,
                coalesce(sum(a.commit_seconds), 0) as commit_seconds,
                coalesce(sum(a.load_seconds), 0) as load_seconds,
                coalesce(extract(epoch from (
                    select max(finished_at) from attempts
                    where job_id = $1 and kind <> 'plan' and outcome in ('committed', 'revoked')
                ) - min(a.started_at)), 0)::double precision as present_seconds,
                coalesce(bool_or(a.outcome = 'committed' and not (a.solo and $2)), false)
                    as took_part,
                r.solo_flops_per_second as solo
         from attempts a
         join shards s on s.job_id = a.job_id and s.index = a.shard
         join workers w on w.id = a.worker_id
         join jobs j on j.id = a.job_id
         left join device_rates r on r.device_kind = a.device_kind and r.rate_key = j.rate_key
         where a.job_id = $1
         group by w.id, a.device, a.device_kind, r.solo_flops_per_second
         order by w.name, w.id, a.device",
    )
    .bind(job)
    .bind(measured)
    .fetch_all(tx)
    .await?)
}

fn to_device(row: DeviceRow) -> Result<DevicePerformance, StoreError> {
    // It is counted while the next shard is computed.
    let used = row.busy_seconds + row.claim_seconds + row.load_seconds;
    Ok(DevicePerformance {
        worker: row.worker,
        device: row.device,
        device_kind: row.device_kind,
        shards: count(row.shards)?,
        tokens: count(row.tokens)?,
        busy_seconds: row.busy_seconds,
        claim_seconds: row.claim_seconds,
        commit_seconds: row.commit_seconds,
        load_seconds: row.load_seconds,
        idle_seconds: (row.present_seconds - used).max(0.0),
    })
}

/// How even the ends of the workers are in the distributed phase.
async fn worker_seconds(
    tx: &mut PgConnection,
    job: JobId,
    measured: bool,
) -> Result<Option<Spread>, StoreError> {
    let seconds: Vec<f64> = sqlx::query_scalar(concat!(
        "with counted as (
             select a.worker_id, a.finished_at, ",
        began!(),
        " as began
             from attempts a
             where a.job_id = $1 and a.shard is not null and a.outcome = 'committed'
               and not (a.solo and $2)
         )
         select extract(epoch from
             max(finished_at) - (select min(began) from counted))::double precision
         from counted
         where (select min(began) from counted) is not null
         group by worker_id
         order by 1"
    ))
    .bind(job)
    .bind(measured)
    .fetch_all(tx)
    .await?;
    Ok(Spread::of(&seconds))
}
