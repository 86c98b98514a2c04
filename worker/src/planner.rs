//! Planning a job: tokens, windows, shards, digests. Pure in its inputs: two workers that plan the
//! same job with the same files make the same plan.

use std::fmt::Write as _;

use assay_api::{Dtype, ErrorCode, ModelFacts, Numerics, ProfiledWork, TokenizerFacts};
use assay_checkpoint::Checkpoint;
use assay_data::{Fetched, RowScope, prefix};
use assay_scoring::{CostModel, DocumentFacts, NUMERICS_VERSION, PlanConstants, PlanError, plan};
use assay_store::{NewDatasetPlan, NewPlan, PlanClaim, PlanFacts};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::profile::Track;
use crate::resources::{Host, Reader};
use crate::row::Row;

/// Input ids that a result shows.
const SHOWN_IDS: usize = 8;

/// Plans a job.
///
/// # Errors
/// The checkpoint, the tokenizer or a dataset is refused, or the method does not fit them.
pub(crate) fn plan_job(
    host: &Host,
    claim: &PlanClaim,
    fetched: &Fetched,
    track: &Track,
) -> Result<NewPlan, Failure> {
    let opened = track.time(ProfiledWork::Open, || {
        let (checkpoint, digest) = host.checkpoint(&claim.model, fetched)?;
        let reader = host.reader(&checkpoint, claim.rows.iter().map(|(source, _)| source))?;
        Ok::<_, Failure>((checkpoint, digest, reader))
    });
    let (checkpoint, digest, reader) = opened?;
    let rows = track.time(ProfiledWork::Tokenize, || {
        let rows = (0..claim.rows.len()).map(|index| {
            row((host, fetched), claim, index, &checkpoint, &reader)
                .map_err(|failure| failure.of_missing_field(field(claim, index)))
        });
        rows.collect::<Result<Vec<_>, _>>()
    })?;
    track.time(ProfiledWork::Plan, || {
        cut(claim, (&checkpoint, digest), &reader, &rows)
    })
}

/// The plan of what was opened and tokenized.
fn cut(
    claim: &PlanClaim,
    (checkpoint, digest): (&Checkpoint, String),
    reader: &Reader,
    rows: &[Row],
) -> Result<NewPlan, Failure> {
    let constants = PlanConstants::default();
    let architecture = checkpoint.architecture();
    let cost = CostModel {
        linear_flops_per_token: architecture.linear_flops_per_token(),
        attention_flops_per_pair: architecture.attention_flops_per_pair(),
    };
    let facts: Vec<Vec<DocumentFacts>> = rows.iter().map(document_facts).collect();
    let plans = plan_rows(claim, rows, &cost, &constants)?;
    let datasets = rows
        .iter()
        .zip(&claim.rows)
        .zip(facts)
        .zip(plans)
        .map(|(((row, (_, method)), documents), plan)| {
            let content = Content {
                tokens: row.tokens.key(),
                weights: &digest,
                method,
                dtype: claim.dtype.as_str(),
                prefix: row.prefix,
                constants: &constants,
                numerics_version: NUMERICS_VERSION,
            };
            NewDatasetPlan {
                digest: row.tokens.data_digest().to_owned(),
                tokens_digest: row.tokens.tokens_digest().to_owned(),
                documents,
                plan,
                prefix: row.prefix,
                // Only then is every byte of the text accounted for.
                text_measures: !row.is_joined && row.prefix.is_some() && !row.tokens.has_mask(),
                content_key: content.key(),
                groups: groups(row),
                warnings: row.tokens.warnings(),
            }
        })
        .collect();
    let longest = claim.rows.iter().map(|(_, method)| method.window).max();
    let facts = PlanFacts {
        rate_key: Some(format!(
            "{}/{}/{}/{}",
            architecture.family.name(),
            checkpoint.parameters(),
            match (claim.numerics, claim.dtype) {
                // Not every device computes in it.
                (Numerics::Adaptive, Dtype::Bfloat16) => "adaptive-bfloat16",
                (_, dtype) => dtype.as_str(),
            },
            longest.unwrap_or_default()
        )),
        model: ModelFacts {
            path: claim.model.path.clone(),
            adapter: claim.model.adapter.clone(),
            family: architecture.family.name().to_owned(),
            parameters: checkpoint.parameters(),
            digest,
        },
        tokenizer: TokenizerFacts {
            digest: reader.tokenizer.digest().to_owned(),
            adds_bos: reader.tokenizer.adds_bos(),
            first_token_ids: first_token_ids(rows),
            chat_template: reader.chat.as_ref().map(|chat| chat.digest().to_owned()),
        },
        constants,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        numerics_version: NUMERICS_VERSION,
        warnings: checkpoint.warnings().to_vec(),
    };
    Ok(NewPlan { facts, datasets })
}

/// The tokens of a dataset under its method.
fn row(
    (host, fetched): (&Host, &Fetched),
    claim: &PlanClaim,
    index: usize,
    checkpoint: &Checkpoint,
    reader: &Reader,
) -> Result<Row, Failure> {
    let (source, method) = &claim.rows[index];
    let positions = checkpoint.architecture().max_positions;
    if method.window as usize > positions {
        let detail = format!(
            "the window of {} tokens is longer than the {positions} positions of {}",
            method.window, claim.model
        );
        return Err(Failure::fatal(ErrorCode::MethodInvalid, detail).of_field("method.window"));
    }
    let prefix = prefix(method, source.format(), &reader.tokenizer)?;
    let tokens = host.tokens((source, fetched), method, reader, claim.token_output)?;
    Ok(Row::new(tokens, method, prefix))
}

/// `datasets[i]` of the request. The rows of a dataset lie side by side, and its name is its own.
fn field(claim: &PlanClaim, index: usize) -> String {
    let names = claim.rows[..=index].iter().map(|(source, _)| source.name());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    format!("datasets[{}]", names.len() - 1)
}

fn document_facts(row: &Row) -> Vec<DocumentFacts> {
    let documents = 0..row.tokens.documents();
    documents
        .map(|document| row.tokens.facts(document))
        .collect()
}

fn plan_rows(
    claim: &PlanClaim,
    rows: &[Row],
    cost: &CostModel,
    constants: &PlanConstants,
) -> Result<Vec<assay_scoring::DatasetPlan>, Failure> {
    let scopes = rows
        .iter()
        .zip(&claim.rows)
        .map(|(row, (_, method))| Ok(RowScope::new(&row.tokens, method, row.prefix)?))
        .collect::<Result<Vec<_>, Failure>>()?;
    let scopes: Vec<_> = scopes.iter().map(RowScope::scope).collect();
    plan(&scopes, cost, constants).map_err(|error| match error {
        PlanError::NothingToScore { dataset, .. } => {
            let (source, _) = &claim.rows[dataset];
            let detail = format!("{}: {error}", source.name());
            Failure::fatal(ErrorCode::DatasetEmpty, detail).of_field(field(claim, dataset))
        }
        error => Failure::fatal(ErrorCode::MethodInvalid, error.to_string()).of_field("method"),
    })
}

/// What the numbers of a row follow from, the device kind and the splits apart.
#[derive(Serialize)]
struct Content<'a> {
    tokens: &'a str,
    weights: &'a str,
    method: &'a assay_api::Method,
    dtype: &'a str,
    prefix: Option<u32>,
    constants: &'a PlanConstants,
    numerics_version: u32,
}

impl Content<'_> {
    fn key(&self) -> String {
        let json = serde_json::to_vec(self).expect("a struct of strings and numbers");
        Sha256::digest(json)
            .iter()
            .fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").expect("writing to a string succeeds");
                text
            })
    }
}

/// Names of the groups and the group of each document.
fn groups(row: &Row) -> Option<(Vec<String>, Vec<u32>)> {
    let of_documents: Option<Vec<u32>> = (0..row.tokens.documents())
        .map(|document| row.tokens.group(document))
        .collect();
    Some((row.tokens.group_names().to_vec(), of_documents?))
}

/// The first input of the first row, as the model sees it.
fn first_token_ids(rows: &[Row]) -> Vec<u32> {
    let Some(row) = rows.first() else {
        return Vec::new();
    };
    row.prefix
        .into_iter()
        .chain(row.tokens.stream().iter().copied())
        .take(SHOWN_IDS)
        .collect()
}
