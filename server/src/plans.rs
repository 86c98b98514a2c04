//! Jobs planned and compared, without being stored or run. Reads whole datasets, so it blocks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_api::{
    DatasetRef, ErrorCode, Method, PlanComparison, PlanRequest, Spread, Strategy,
    StrategyPrediction,
};
use assay_checkpoint::DigestCache;
use assay_data::{
    DataError, Fetched, MethodError, Reading, Root, RowScope, Source, TokenStore, Uploads, prefix,
    tokenize_until,
};
use assay_scoring::{Comparison, CostModel, PlanConstants, PlanError, Scope};

use crate::error::ApiError;
use crate::validate::PlannedJob;

/// Windows of a plan here, about 300 bytes of memory each. A job may have more.
const MAX_WINDOWS: u64 = 4_000_000;

/// Where a job is planned.
pub(crate) struct Host<'a> {
    /// Where datasets are.
    pub(crate) data: &'a Root,
    /// Where datasets of the hub are.
    pub(crate) fetched: &'a Fetched,
    /// Where uploads are.
    pub(crate) uploads: &'a Uploads,
    /// Digests of files, remembered.
    pub(crate) digests: &'a DigestCache,
    /// Where token files are made that are forgotten.
    pub(crate) scratch: &'a Path,
    /// Set once nobody waits any more.
    pub(crate) cancelled: &'a AtomicBool,
}

impl Host<'_> {
    fn go_on(&self) -> Result<(), ApiError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(ApiError::new(ErrorCode::Timeout, "nobody waits any more"));
        }
        Ok(())
    }
}

/// What the job would come to on the devices of `request` by each strategy.
///
/// # Errors
/// A dataset is refused, or there is nothing to score.
pub(crate) fn compare(
    job: &PlannedJob,
    request: &PlanRequest,
    host: &Host<'_>,
) -> Result<PlanComparison, ApiError> {
    // As short-lived as the answer: the workers' caches are theirs.
    let dir = tempfile::Builder::new()
        .prefix("plan-")
        .tempdir_in(host.scratch)
        .map_err(|error| ApiError::Internal(format!("cannot make a directory: {error}")))?;
    let mut rows = Vec::new();
    let mut documents = 0;
    for (index, dataset) in job.resolved.datasets.iter().enumerate() {
        let of_dataset = rows.len();
        for method in job.resolved.methods.as_slice() {
            rows.push(row(job, (index, dataset), method, host, dir.path())?);
        }
        let first = rows.get(of_dataset).map(RowScope::scope);
        documents += first.map_or(0, |scope| scope.lengths.len() as u64);
    }
    let scopes: Vec<Scope<'_>> = rows.iter().map(RowScope::scope).collect();
    few_windows(&scopes)?;
    host.go_on()?;

    let architecture = job.model.architecture();
    let cost = CostModel {
        linear_flops_per_token: architecture.linear_flops_per_token(),
        attention_flops_per_pair: architecture.attention_flops_per_pair(),
    };
    let plans = assay_scoring::plan(&scopes, &cost, &PlanConstants::default());
    let plans = plans.map_err(|error| refused(error, job))?;
    let shards = plans.iter().flat_map(|plan| &plan.shards);
    let flops: f64 = shards.map(|shard| shard.flops).sum();
    let tokens: u64 = plans.iter().map(|plan| plan.scored_tokens).sum();
    let flops_per_token = flops / tokens as f64;
    host.go_on()?;
    let devices: Vec<f64> = request
        .devices
        .iter()
        .flat_map(|device| {
            let flops_per_second = device.tokens_per_second * flops_per_token;
            std::iter::repeat_n(flops_per_second, device.count as usize)
        })
        .collect();
    let compared = assay_scoring::compare(&scopes, &plans, &cost, &devices, request.seed);
    Ok(answer(compared, documents))
}

/// A dataset under one method.
fn row(
    job: &PlannedJob,
    (index, dataset): (usize, &DatasetRef),
    method: &Method,
    host: &Host<'_>,
    dir: &Path,
) -> Result<RowScope, ApiError> {
    let at = format!("job.datasets[{index}]");
    let source =
        Source::resolve(dataset, host.data, host.fetched, host.uploads).map_err(|error| {
            let field = format!("{at}.{}", error.field());
            ApiError::of_field(error.code(), field, error.to_string())
        })?;
    let reading = Reading {
        tokenizer: &job.tokenizer,
        chat: job.chat.as_ref(),
        join: method.join.as_deref(),
        offsets: false,
    };
    let cancelled = || host.cancelled.load(Ordering::Relaxed);
    let tokens: TokenStore = tokenize_until(&source, &reading, dir, host.digests, &cancelled)
        .map_err(|error| data_error(&error, &at))?;
    let of_method = |error: MethodError| {
        let field = format!("job.{}", error.field());
        ApiError::of_field(error.code(), field, error.to_string())
    };
    let prefix = prefix(method, dataset.format(), &job.tokenizer).map_err(of_method)?;
    RowScope::new(&tokens, method, prefix).map_err(of_method)
}

/// What is wrong with a dataset is the caller's to mend; what is wrong with the scratch directory
/// is not, unless it is full.
fn data_error(error: &DataError, at: &str) -> ApiError {
    match (error, error.code()) {
        (DataError::Cache(cause), _) if cause.kind() == std::io::ErrorKind::StorageFull => {
            ApiError::new(
                ErrorCode::StorageFull,
                "there is no room for the tokens of the datasets; use a `sample` or a limit, or \
                 make room in the server's --state-dir",
            )
        }
        (_, ErrorCode::Internal) => ApiError::Internal(error.to_string()),
        (_, code) => ApiError::of_field(code, at, error.to_string()),
    }
}

/// Refuses what would take the memory of the server. Without planning: a window for each step,
/// and one more for each document.
fn few_windows(scopes: &[Scope<'_>]) -> Result<(), ApiError> {
    use assay_scoring::Convention::{Blocks, LlamaCpp, Rolling, Strided};

    let windows = scopes.iter().map(|scope| {
        let step = match scope.convention {
            Rolling { window } | Blocks { window, .. } | LlamaCpp { window } => window,
            Strided { stride, .. } => stride,
        };
        let tokens: u64 = scope.lengths.iter().sum();
        let ends = if scope.convention.is_joined() {
            1
        } else {
            scope.lengths.len() as u64
        };
        tokens / u64::from(step.max(1)) + ends
    });
    let windows: u64 = windows.sum();
    if windows <= MAX_WINDOWS {
        return Ok(());
    }
    Err(ApiError::of_field(
        ErrorCode::InvalidRequest,
        "job.datasets",
        format!(
            "make about {windows} windows, and plans are compared for {MAX_WINDOWS} at most; use \
             a `sample` or a limit (a job may have more)"
        ),
    ))
}

/// As the worker that plans the job reports it.
fn refused(error: PlanError, job: &PlannedJob) -> ApiError {
    match error {
        PlanError::NothingToScore { dataset: row, .. } => {
            let dataset = row / job.resolved.methods.as_slice().len().max(1);
            let name = job.resolved.datasets.get(dataset).map(DatasetRef::name);
            ApiError::of_field(
                ErrorCode::DatasetEmpty,
                format!("job.datasets[{dataset}]"),
                format!("{}: {error}", name.unwrap_or_default()),
            )
        }
        error => ApiError::of_field(ErrorCode::MethodInvalid, "job.method", error.to_string()),
    }
}

fn answer(compared: Comparison, documents: u64) -> PlanComparison {
    let bound = compared.lower_bound_seconds;
    let predicted = compared.strategies.into_iter();
    let predicted = predicted.map(|(strategy, device_seconds)| {
        let seconds = Spread::of(&device_seconds).unwrap_or_default();
        StrategyPrediction {
            strategy: match strategy {
                assay_scoring::Strategy::Random => Strategy::Random,
                assay_scoring::Strategy::Even => Strategy::Even,
                assay_scoring::Strategy::Length => Strategy::Length,
                assay_scoring::Strategy::Dynamic => Strategy::Dynamic,
            },
            device_seconds,
            seconds,
            over_lower_bound: seconds.max / bound,
        }
    });
    PlanComparison {
        documents,
        windows: compared.windows,
        scored_tokens: compared.scored_tokens,
        flops: compared.flops,
        shards: compared.shards,
        lower_bound_seconds: bound,
        strategies: predicted.collect(),
    }
}

#[cfg(test)]
mod tests {
    use assay_scoring::Convention;

    use super::*;

    #[test]
    fn what_would_not_fit_in_memory_is_refused_before_it_is_planned() {
        let documents = [1_000_000_000, 1];
        let scope = |convention| Scope {
            convention,
            lengths: &documents,
            prefix: false,
            counted: None,
        };
        let strided = |stride| Convention::Strided {
            window: 1000,
            stride,
        };
        for (convention, fits) in [
            (Convention::Rolling { window: 249 }, false),
            (Convention::Rolling { window: 251 }, true),
            (strided(249), false),
            (strided(251), true),
            (Convention::LlamaCpp { window: 249 }, false),
        ] {
            assert_eq!(
                few_windows(&[scope(convention)]).is_ok(),
                fits,
                "{convention}"
            );
        }
        let halves = [scope(strided(499)); 2];
        assert!(few_windows(&halves).is_err(), "all rows together");
    }
}
