//! Planning a job: tokens, windows, shards, digests. Pure in its inputs: two workers that plan the
//! same job with the same files make the same plan.

use assay_api::{ErrorCode, ModelFacts, TokenizerFacts};
use assay_scoring::{CostModel, DocumentFacts, NUMERICS_VERSION, PlanConstants, plan};
use assay_store::{NewDatasetPlan, NewPlan, PlanClaim, PlanFacts};

use crate::failure::Failure;
use crate::resources::Host;

/// Input ids that a result shows.
const SHOWN_IDS: usize = 8;

/// Plans a job.
///
/// # Errors
/// The checkpoint, the tokenizer or a dataset is refused, or the method does not fit them.
pub(crate) fn plan_job(host: &Host, claim: &PlanClaim) -> Result<NewPlan, Failure> {
    let (checkpoint, digest) = host.checkpoint(&claim.model)?;
    let architecture = checkpoint.architecture();
    if claim.method.window as usize > architecture.max_positions {
        let detail = format!(
            "the window of {} tokens is longer than the {} positions of {}",
            claim.method.window, architecture.max_positions, claim.model
        );
        return Err(Failure::fatal(ErrorCode::MethodInvalid, detail).of_field("method.window"));
    }
    let tokenizer = checkpoint.tokenizer()?;
    let prefix = tokenizer.prefix()?;

    let mut stores = Vec::with_capacity(claim.datasets.len());
    for (index, dataset) in claim.datasets.iter().enumerate() {
        let store = host.tokens(dataset, &tokenizer);
        stores.push(store.map_err(|failure| failure.of_field(format!("datasets[{index}]")))?);
    }
    let documents: Vec<Vec<DocumentFacts>> = stores
        .iter()
        .map(|store| {
            (0..store.documents())
                .map(|document| store.facts(document))
                .collect()
        })
        .collect();
    let lengths: Vec<Vec<u64>> = documents
        .iter()
        .map(|documents| documents.iter().map(|document| document.tokens).collect())
        .collect();
    let lengths: Vec<&[u64]> = lengths.iter().map(Vec::as_slice).collect();

    let constants = PlanConstants::default();
    let cost = CostModel {
        linear_flops_per_token: architecture.linear_flops_per_token(),
        attention_flops_per_pair: architecture.attention_flops_per_pair(),
    };
    let plans = plan(&lengths, claim.method.window, &cost, &constants)
        .map_err(|error| Failure::fatal(ErrorCode::DatasetEmpty, error.to_string()))?;

    let first = stores
        .iter()
        .flat_map(|store| (0..store.documents()).map(|d| store.ids(d)));
    let first = first
        .into_iter()
        .find(|ids| !ids.is_empty())
        .unwrap_or_default();
    let first_token_ids = std::iter::once(prefix)
        .chain(first.iter().copied())
        .take(SHOWN_IDS)
        .collect();
    let facts = PlanFacts {
        model: ModelFacts {
            path: claim.model.clone(),
            family: architecture.family.name().to_owned(),
            parameters: checkpoint.parameters(),
            digest,
        },
        tokenizer: TokenizerFacts {
            digest: tokenizer.digest().to_owned(),
            adds_bos: tokenizer.adds_bos(),
            first_token_ids,
        },
        prefix,
        constants,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        numerics_version: NUMERICS_VERSION,
        warnings: checkpoint.warnings().to_vec(),
    };
    let datasets = stores
        .iter()
        .zip(documents)
        .zip(plans)
        .map(|((store, documents), plan)| NewDatasetPlan {
            digest: store.data_digest().to_owned(),
            tokens_digest: store.tokens_digest().to_owned(),
            documents,
            plan,
        })
        .collect();
    Ok(NewPlan { facts, datasets })
}
