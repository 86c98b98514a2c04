//! Running a shard on a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_api::ErrorCode;
use assay_decoder::{Decoder, Sequence};
use assay_scoring::{NllError, ShardSums, Window, spans_digest};
use assay_store::{ShardClaim, ShardOutcome};

use crate::failure::Failure;
use crate::lease::Lease;
use crate::resources::{JobResources, RunnableDataset};

/// A shard with all that a device needs to run it.
pub(crate) struct ShardWork {
    /// The shard.
    pub(crate) shard: ShardClaim,
    /// The job it belongs to.
    pub(crate) job: Arc<JobResources>,
    /// The attempt.
    pub(crate) lease: Arc<Lease>,
}

/// Floating-point operations per second of a device, as measured so far.
#[derive(Debug, Default)]
pub(crate) struct Rate(Option<f64>);

impl Rate {
    /// The time that `flops` should take; zero while nothing is known.
    fn predict(&self, flops: f64) -> Duration {
        self.0.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(flops / rate).unwrap_or(Duration::MAX)
        })
    }

    fn learn(&mut self, flops: f64, seconds: f64) {
        if flops > 0.0 && seconds > 0.0 {
            self.0 = Some(flops / seconds);
        }
    }
}

/// An error, and the tokens scored before it.
pub(crate) struct Interrupted {
    /// Why.
    pub(crate) failure: Failure,
    /// Tokens scored.
    pub(crate) computed_tokens: u64,
}

/// Scores the micro-batches of a shard one after the other and adds up exact sums. Between two
/// micro-batches it looks whether to stop.
///
/// # Errors
/// The decoder fails, a token's NLL is not a finite number, or the lease was stopped.
pub(crate) fn run_shard(
    decoder: &Decoder,
    work: &ShardWork,
    rate: &mut Rate,
) -> Result<ShardOutcome, Interrupted> {
    let mut sums = ShardSums::default();
    let started = Instant::now();
    let interrupted = |failure, sums: &ShardSums| Interrupted {
        failure,
        computed_tokens: sums.scored(),
    };
    let dataset = usize::try_from(work.shard.dataset).ok();
    let Some(dataset) = dataset.and_then(|index| work.job.datasets.get(index)) else {
        let detail = format!("the job has no dataset {}", work.shard.dataset);
        return Err(interrupted(
            Failure::error(ErrorCode::Internal, detail),
            &sums,
        ));
    };
    let batches = work.shard.micro_batches.len().max(1);
    let predicted = rate.predict(work.shard.flops / batches as f64);
    for micro_batch in &work.shard.micro_batches {
        if work.lease.is_stopped() {
            return Err(interrupted(Failure::Stopped, &sums));
        }
        work.lease.advance(predicted);
        let sequences: Vec<Sequence> = micro_batch
            .0
            .iter()
            .map(|window| sequence(window, work.job.prefix, dataset))
            .collect::<Result<_, _>>()
            .map_err(|failure| interrupted(failure, &sums))?;
        let nlls = decoder
            .score(&sequences)
            .map_err(|error| interrupted(error.into(), &sums))?;
        for (window, nlls) in micro_batch.0.iter().zip(&nlls) {
            add_window(&mut sums, window, nlls, dataset)
                .map_err(|failure| interrupted(failure, &sums))?;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    rate.learn(work.shard.flops, seconds);
    Ok(ShardOutcome {
        // Of what was run, not of what was claimed: the ledger compares the two.
        spans_digest: spans_digest(&work.shard.micro_batches),
        computed_tokens: sums.scored(),
        sums: sums.into_vec(),
        seconds,
    })
}

/// The input and targets of a window. Token index -1 is the prefix.
fn sequence(window: &Window, prefix: u32, dataset: &RunnableDataset) -> Result<Sequence, Failure> {
    let ids = dataset.tokens.ids(u64::from(window.document));
    let out_of_range = || {
        let detail = format!("{window:?} does not fit document of {} tokens", ids.len());
        Failure::fatal(ErrorCode::CountsDisagree, detail)
    };
    let end = usize::try_from(window.start + i64::from(window.len)).map_err(|_| out_of_range())?;
    let input = if let Ok(start) = usize::try_from(window.start) {
        ids.get(start..end).ok_or_else(out_of_range)?.to_vec()
    } else {
        let tokens = ids.get(..end).ok_or_else(out_of_range)?;
        std::iter::once(prefix)
            .chain(tokens.iter().copied())
            .collect()
    };
    let range = usize::try_from(window.from)
        .ok()
        .zip(usize::try_from(window.to).ok());
    let targets = range
        .and_then(|(from, to)| ids.get(from..to))
        .ok_or_else(out_of_range)?;
    // The output at input index i predicts token start + i + 1.
    let first_counted = i64::try_from(window.from)
        .ok()
        .and_then(|from| usize::try_from(from - 1 - window.start).ok())
        .ok_or_else(out_of_range)?;
    Ok(Sequence {
        input,
        first_counted,
        targets: targets.to_vec(),
    })
}

/// Adds a window's NLLs to the clusters of their tokens.
fn add_window(
    sums: &mut ShardSums,
    window: &Window,
    nlls: &[f64],
    dataset: &RunnableDataset,
) -> Result<(), Failure> {
    for (token, nll) in (window.from..window.to).zip(nlls) {
        let cluster = dataset.clusters.cluster(window.document, token);
        sums.add(cluster, *nll).map_err(|error| {
            let code = match error {
                NllError::NonFinite { .. } => ErrorCode::NonFinite,
                NllError::OutOfRange { .. } | NllError::SumOutOfRange { .. } => {
                    ErrorCode::NllOutOfRange
                }
            };
            let detail = format!(
                "{}: token {token} of document {}: {error}; look for NaN or infinity in the \
                 checkpoint, or choose float32",
                dataset.name, window.document
            );
            Failure::fatal(code, detail)
        })?;
    }
    Ok(())
}
