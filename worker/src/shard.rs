//! Running a shard on a device.

use std::sync::Arc;
use std::time::Instant;

use assay_api::ErrorCode;
use assay_decoder::{Decoder, Sequence};
use assay_scoring::{NllError, ShardSums, Window, spans_digest, to_units};
use assay_store::{ShardClaim, ShardOutcome, SpanToken, TokenSpan};

use crate::failure::Failure;
use crate::faults::Faults;
use crate::lease::Lease;
use crate::rate::duration;
use crate::resources::{JobResources, RunnableRow};
use crate::split::{deepest, fitting, parts};

/// Operations per second of a device whose rate is not known, as far as its being hung goes: a
/// device is at a tenth of that. Ten cores that emulate a dtype are at about that.
const UNKNOWN_RATE: f64 = 1e11;

/// A shard with all that a device needs to run it.
#[derive(Clone)]
pub(crate) struct ShardWork {
    /// The shard.
    pub(crate) shard: Arc<ShardClaim>,
    /// The split depth that is recorded on it.
    pub(crate) depth: u32,
    /// Operations per second of the device, if known.
    pub(crate) rate: Option<f64>,
    /// The job it belongs to.
    pub(crate) job: Arc<JobResources>,
    /// The attempt.
    pub(crate) lease: Arc<Lease>,
}

/// Why a shard was not scored.
pub(crate) enum Interrupted {
    /// An error, and the tokens scored before it.
    Failed {
        /// Why.
        failure: Failure,
        /// Tokens scored.
        computed_tokens: u64,
    },
    /// Its micro-batches do not fit in memory, but would at this split depth, which has to be
    /// recorded first.
    TooLarge {
        /// The depth.
        depth: u32,
    },
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed {
                failure: Failure::Error { detail, .. },
                ..
            } => f.write_str(detail),
            Self::Failed { .. } => f.write_str("stopped"),
            Self::TooLarge { .. } => f.write_str("not enough memory"),
        }
    }
}

impl Interrupted {
    /// A failure before anything was scored.
    pub(crate) fn before(failure: Failure) -> Self {
        Self::Failed {
            failure,
            computed_tokens: 0,
        }
    }
}

/// Scores the micro-batches of a shard, or their parts, one after the other and adds up exact
/// sums. In between it looks whether to stop. `budget` is the memory that one part may take, in
/// bytes; the NLL of each counted token is added to `nlls`, if given, in the order of the spans.
///
/// # Errors
/// The decoder fails, a token's NLL is not a finite number, the lease was stopped, or the shard
/// has to be split more deeply.
pub(crate) fn run_shard(
    decoder: &Decoder,
    work: &ShardWork,
    budget: Option<u64>,
    faults: &Faults,
    nlls: Option<&mut Vec<f64>>,
) -> Result<ShardOutcome, Interrupted> {
    let shard = &work.shard;
    let row = usize::try_from(shard.dataset).ok();
    let row = row.and_then(|index| work.job.rows.get(index));
    let row = row.ok_or_else(|| {
        let detail = format!("the job has no dataset {}", shard.dataset);
        Interrupted::before(Failure::error(ErrorCode::Internal, detail))
    })?;
    check_budget(decoder, work, budget)?;
    let mut run = Run {
        row,
        sums: ShardSums::default(),
        spans: work.job.token_output.then(Vec::new),
        nlls,
    };
    let started = Instant::now();
    let all = shard.micro_batches.iter();
    let all: Vec<_> = all
        .flat_map(|micro_batch| parts(micro_batch, work.depth))
        .collect();
    let part_flops = shard.flops / all.len().max(1) as f64;
    for (index, part) in all.iter().enumerate() {
        if work.lease.is_stopped() {
            return Err(run.failed(Failure::Stopped));
        }
        let left = (all.len() - index) as f64;
        let longest = duration(part_flops, work.rate.unwrap_or(UNKNOWN_RATE));
        let left = work.rate.map(|rate| duration(left * part_flops, rate));
        work.lease.advance(longest, left);
        faults
            .before_micro_batch()
            .map_err(|failure| run.failed(failure))?;
        match run.score(decoder, part) {
            Ok(()) => {}
            Err(failure)
                if failure.is_out_of_memory() && work.depth < deepest(&shard.micro_batches) =>
            {
                return Err(Interrupted::TooLarge {
                    depth: work.depth + 1,
                });
            }
            Err(failure) => return Err(run.failed(failure)),
        }
    }
    let mut outcome = ShardOutcome {
        seconds: started.elapsed().as_secs_f64(),
        // Of what was run, not of what was claimed: the ledger compares the two.
        spans_digest: spans_digest(&shard.micro_batches),
        computed_tokens: run.sums.scored(),
        sums: run.sums.into_vec(),
        tokens: run.spans.unwrap_or_default(),
        split_depth: work.depth,
        // Known to others.
        dtype: None,
        compared: None,
        claim_seconds: 0.0,
        load_seconds: 0.0,
        commit_seconds: 0.0,
    };
    faults.after_shard(&mut outcome);
    Ok(outcome)
}

/// Refuses to start what is known not to fit.
fn check_budget(
    decoder: &Decoder,
    work: &ShardWork,
    budget: Option<u64>,
) -> Result<(), Interrupted> {
    let Some(budget) = budget else { return Ok(()) };
    let needed = |part: &[Window]| decoder.memory_needed(part.iter().map(|w| w.len as usize));
    let micro_batches = &work.shard.micro_batches;
    match fitting(micro_batches, work.depth, |part| needed(part) <= budget) {
        Some(depth) if depth == work.depth => Ok(()),
        Some(depth) => Err(Interrupted::TooLarge { depth }),
        None => {
            let windows = micro_batches.iter().flat_map(|m| &m.0);
            let longest = windows.max_by_key(|w| w.len).map_or(0, |w| w.len);
            let detail = format!(
                "one window of {longest} tokens takes about {} MB of memory and {} MB are to be \
                 had; ask for a smaller window, or give the worker more memory or fewer devices",
                decoder.memory_needed(std::iter::once(longest as usize)) / 1_000_000,
                budget / 1_000_000
            );
            Err(Interrupted::before(Failure::error(
                ErrorCode::OutOfMemory,
                detail,
            )))
        }
    }
}

/// A shard in the middle of being scored.
struct Run<'a> {
    row: &'a RunnableRow,
    sums: ShardSums,
    /// The NLL of each token, if asked for.
    spans: Option<Vec<TokenSpan>>,
    /// The same as plain numbers, for a comparison.
    nlls: Option<&'a mut Vec<f64>>,
}

impl Run<'_> {
    fn failed(&self, failure: Failure) -> Interrupted {
        Interrupted::Failed {
            failure,
            computed_tokens: self.sums.scored(),
        }
    }

    fn score(&mut self, decoder: &Decoder, windows: &[Window]) -> Result<(), Failure> {
        let sequences: Vec<Sequence> = windows
            .iter()
            .map(|window| sequence(window, self.row))
            .collect::<Result<_, _>>()?;
        let nlls = decoder.score(&sequences)?;
        for (window, nlls) in windows.iter().zip(&nlls) {
            self.add(window, nlls)?;
            if let Some(all) = &mut self.nlls {
                all.extend(nlls);
            }
        }
        Ok(())
    }

    /// Adds a window's NLLs to the clusters of their tokens.
    fn add(&mut self, window: &Window, nlls: &[f64]) -> Result<(), Failure> {
        let RunnableRow {
            name,
            row,
            clusters,
        } = self.row;
        let stream = window.document;
        let mut span = self
            .spans
            .is_some()
            .then(|| token_span(window, self.row))
            .transpose()?;
        for (token, nll) in row.counted(window).zip(nlls) {
            let document = row.owner(stream, token);
            self.sums
                .add(clusters.cluster(document, token), *nll)
                .map_err(|error| refused(name, document, token, error))?;
            if let Some(span) = &mut span {
                let offset = usize::try_from(token - window.from).expect("a window fits in memory");
                let units =
                    to_units(*nll).map_err(|error| refused(name, document, token, error))?;
                span.tokens[offset].units = Some(units);
            }
        }
        if let Some(spans) = &mut self.spans {
            spans.extend(span);
        }
        Ok(())
    }
}

fn refused(name: &str, document: u32, token: u64, error: NllError) -> Failure {
    let code = match error {
        NllError::NonFinite { .. } => ErrorCode::NonFinite,
        NllError::OutOfRange { .. } | NllError::SumOutOfRange { .. } => ErrorCode::NllOutOfRange,
    };
    let detail = format!(
        "{name}: token {token} of document {document}: {error}; look for NaN or infinity in the \
         checkpoint, or choose float32"
    );
    Failure::fatal(code, detail)
}

/// The input and the counted targets of a window.
fn sequence(window: &Window, runnable: &RunnableRow) -> Result<Sequence, Failure> {
    let row = &runnable.row;
    let ids = row.stream(window.document);
    let out_of_range = || {
        let detail = format!("{window:?} does not fit its stream of {} tokens", ids.len());
        Failure::fatal(ErrorCode::CountsDisagree, detail)
    };
    let input = row.input(window).ok_or_else(out_of_range)?;
    if usize::try_from(window.to).map_or(true, |to| to > ids.len()) {
        return Err(out_of_range());
    }
    let mut positions = Vec::new();
    let mut targets = Vec::new();
    for token in row.counted(window) {
        // The output at input index i predicts token start + i + 1.
        let position = token.cast_signed() - 1 - window.start;
        positions.push(u32::try_from(position).map_err(|_| out_of_range())?);
        let index = usize::try_from(token).map_err(|_| out_of_range())?;
        targets.push(*ids.get(index).ok_or_else(out_of_range)?);
    }
    Ok(Sequence {
        input,
        positions,
        targets,
    })
}

/// The tokens that a window predicts, none of them counted yet.
fn token_span(window: &Window, runnable: &RunnableRow) -> Result<TokenSpan, Failure> {
    let row = &runnable.row;
    let stream = window.document;
    let ids = row.stream(stream);
    let tokens = (window.from..window.to)
        .map(|token| {
            let bytes = row.tokens.offsets(row.stored(stream, token))?;
            Some(SpanToken {
                id: *ids.get(usize::try_from(token).ok()?)?,
                bytes: u32::try_from(bytes.start).ok()?..u32::try_from(bytes.end).ok()?,
                units: None,
            })
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Failure::error(ErrorCode::Internal, "the token cache has no offsets"))?;
    Ok(TokenSpan {
        stream,
        first: window.from,
        tokens,
    })
}
