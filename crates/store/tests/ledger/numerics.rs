//! Jobs whose devices compute in dtypes of their own.

use assay_api::AttemptKind::{Audit, Primary};
use assay_api::{AuditState, Dtype, DtypeRequest, ErrorCode, JobRequest, JobState, Numerics};
use assay_store::{CommitOutcome, Compared, ShardOutcome};

use crate::audits::{audited, outcomes, right, shard, take, worker};
use crate::support::{Ledger, new_plan, request};

const LENGTHS: &[u64] = &[8, 8, 8, 8];

fn adaptive(request: JobRequest) -> JobRequest {
    JobRequest {
        dtype: DtypeRequest::Bfloat16,
        numerics: Numerics::Adaptive,
        reuse: false,
        ..request
    }
}

/// What a worker computes in a dtype of its own, and found by scoring the shard in both.
fn in_float32(outcome: ShardOutcome, compared: Option<Compared>) -> ShardOutcome {
    ShardOutcome {
        dtype: Some(Dtype::Float32),
        compared,
        ..outcome
    }
}

#[tokio::test]
async fn what_was_computed_in_what_is_told() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["new"]).await;
    let two = worker(&ledger, "two", &["old"]).await;
    let job = ledger.job_of(&adaptive(audited(0.0))).await;
    assert_eq!(ledger.state(job).await.numerics, Numerics::Adaptive);
    ledger.commit_plan(one, &new_plan(&[LENGTHS])).await;
    let precision = async || {
        let result = ledger.store.result(job).await.unwrap().unwrap();
        result.precision.expect("it is adaptive")
    };
    let nothing = precision().await;
    assert_eq!((nothing.shares.len(), nothing.effect), (0, None));

    let (fence, first) = take(&ledger, one, "new", Primary).await;
    ledger.commit(one, fence, &right(&first)).await;
    let uniform = precision().await;
    assert_eq!(uniform.shares[0].dtype, Dtype::Bfloat16);
    assert_eq!(uniform.effect, None);

    let compared = Compared {
        tokens: 8,
        difference: 0.08,
        squares: 0.0036,
    };
    for compared in [Some(compared), None, None] {
        let (fence, shard) = take(&ledger, two, "old", Primary).await;
        let outcome = in_float32(right(&shard), compared);
        let counted = ledger.commit(two, fence, &outcome).await;
        assert_eq!(counted, CommitOutcome::Counted);
    }
    let mixed = precision().await;
    let told: Vec<_> = mixed
        .shares
        .iter()
        .map(|s| (&*s.device_kind, s.dtype, s.tokens))
        .collect();
    assert_eq!(
        told,
        [("old", Dtype::Float32, 24), ("new", Dtype::Bfloat16, 8)]
    );
    assert!((mixed.shares[0].share - 0.75).abs() < 1e-12);
    // A mean of 0.01 over 8 tokens; a variance of (0.0036 - 8 * 0.0001) / 7 = 0.0004; of 3/4.
    let effect = mixed.effect.unwrap();
    assert_eq!(effect.compared_tokens, 8);
    assert!((effect.nll_per_token - 0.0075).abs() < 1e-12);
    let error = 0.75 * (0.0004_f64 / 8.0).sqrt();
    assert!((effect.standard_error.unwrap() - error).abs() < 1e-12);
    assert!((effect.perplexity_factor - 0.0075_f64.exp()).abs() < 1e-12);
    assert!(ledger.state(job).await.state.is_final());
}

/// No other dtype in a uniform job, and never less precision than was asked for.
#[tokio::test]
async fn other_dtypes_are_refused() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let uniform = JobRequest {
        dtype: DtypeRequest::Bfloat16,
        ..request(&["a"])
    };
    let float32 = JobRequest {
        dtype: DtypeRequest::Float32,
        ..adaptive(request(&["a"]))
    };
    let bfloat16 = adaptive(request(&["a"]));
    for (wanted, dtype) in [
        (uniform, Dtype::Float32),
        (float32, Dtype::Bfloat16),
        (bfloat16, Dtype::Bfloat16),
    ] {
        let job = ledger.job_of(&wanted).await;
        ledger.commit_plan(one, &new_plan(&[LENGTHS])).await;
        let (fence, shard) = ledger.claim_shard(one).await;
        let outcome = ShardOutcome {
            dtype: Some(dtype),
            ..right(&shard)
        };
        let refused = ledger.commit(one, fence, &outcome).await;
        assert_eq!(refused, CommitOutcome::Disagrees, "{wanted:?}");
        let ended = ledger.state(job).await;
        assert_eq!(ended.state, JobState::Failed);
        let error = ended.error.unwrap();
        assert_eq!(error.code, ErrorCode::CountsDisagree);
        let told = format!("was computed in {}", dtype.as_str());
        assert!(error.detail.contains(&told), "{error:?}");
        let result = ledger.store.result(job).await.unwrap().unwrap();
        let is_adaptive = wanted.numerics == Numerics::Adaptive;
        assert_eq!(result.precision.is_some(), is_adaptive);
    }
}

/// Samples of late results are told, those of a device kind for a shard once, and none of a worker
/// that was found to compute wrong numbers.
#[tokio::test]
async fn each_sample_is_told_once() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["old"]).await;
    let two = worker(&ledger, "two", &["old"]).await;
    let job = ledger.job_of(&adaptive(audited(1.0))).await;
    ledger.commit_plan(one, &new_plan(&[&[8, 8]])).await;
    let compared = Some(Compared {
        tokens: 8,
        difference: 0.08,
        squares: 0.0036,
    });
    let tokens = async || {
        let result = ledger.store.result(job).await.unwrap().unwrap();
        let effect = result.precision.unwrap().effect;
        effect.map_or(0, |effect| effect.compared_tokens)
    };
    let (fence, shard) = take(&ledger, one, "old", Primary).await;
    let first = in_float32(right(&shard), compared);
    ledger.commit(one, fence, &first).await;
    assert_eq!(tokens().await, 8);
    let (fence, other) = take(&ledger, one, "old", Primary).await;
    ledger.store.release_attempt(one, fence, 0).await.unwrap();
    let late = in_float32(right(&other), compared);
    assert_eq!(ledger.commit(one, fence, &late).await, CommitOutcome::Late);
    assert_eq!(tokens().await, 16);
    let (fence, other) = take(&ledger, two, "old", Primary).await;
    let last = in_float32(right(&other), None);
    ledger.commit(two, fence, &last).await;
    // The audit of the first shard has the same differences.
    let (fence, again) = take(&ledger, two, "old", Audit).await;
    assert_eq!(again.index, shard.index);
    let again = in_float32(right(&again), compared);
    ledger.commit(two, fence, &again).await;
    assert_eq!(tokens().await, 16);
    sqlx::query(
        "update workers set out_of_service_at = now(), out_of_service_reason = 'wrong'
         where id = $1",
    )
    .bind(one)
    .execute(&mut ledger.database.connect().await)
    .await
    .unwrap();
    assert_eq!(tokens().await, 8);
}

/// Devices of one kind that computed in two dtypes are held to a tolerance, not to bits.
#[tokio::test]
async fn audits_between_dtypes_have_a_tolerance() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = ledger.job_of(&adaptive(audited(1.0))).await;
    ledger.commit_plan(one, &new_plan(&[&[8, 8]])).await;
    for _ in 0..2 {
        let (fence, shard) = take(&ledger, one, "test", Primary).await;
        ledger.commit(one, fence, &right(&shard)).await;
    }
    for (index, dtype) in [(0, Some(Dtype::Float32)), (1, None)] {
        let (fence, audited) = take(&ledger, two, "test", Audit).await;
        assert_eq!(audited.index, index);
        let mut outcome = right(&audited);
        outcome.sums[0].units += 1;
        outcome.dtype = dtype;
        let compared = ledger.commit(two, fence, &outcome).await;
        assert_eq!(
            compared,
            CommitOutcome::Compared,
            "{:?}",
            outcomes(&ledger, job, index).await
        );
    }
    assert_eq!(shard(&ledger, job, 0).await.audit, Some(AuditState::Agreed));
    // The same unit in the same dtype is one too many, and there is no third worker.
    let ended = ledger.state(job).await.error.unwrap();
    assert_eq!(ended.code, ErrorCode::AuditDisagrees);
}
