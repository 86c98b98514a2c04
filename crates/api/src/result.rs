//! Results: exact perplexities and what produced them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Dtype, JobId, Method, ModelRef, OneOrMany, Performance, Precision};

/// The answer of `GET /jobs/{id}/results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    /// The job.
    #[schema(value_type = Uuid)]
    pub job_id: JobId,
    /// Whether every token of the plan is counted. Numbers of datasets that have not ended are
    /// null until then.
    pub complete: bool,
    /// The checkpoint; null until the job is planned.
    pub model: Option<ModelFacts>,
    /// The tokenizer; null until the job is planned.
    pub tokenizer: Option<TokenizerFacts>,
    /// The method or methods.
    pub method: OneOrMany<Method>,
    /// The dtype of the computation; of an adaptive job see `precision`.
    pub dtype: Dtype,
    /// What was computed in which dtype; null of a job whose numerics are uniform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The device kinds that computed counted tokens. Bits are promised within one kind, if the
    /// numerics are uniform.
    pub device_kinds: Vec<String>,
    /// The version of Assay that planned the job.
    pub version: String,
    /// Changes whenever a change of the program moves a bit of a result.
    pub numerics_version: u32,
    /// One entry per dataset and method, in the order of the request: all methods of the first
    /// dataset, then of the second.
    pub datasets: Vec<DatasetResult>,
    /// Shards whose micro-batches were split to fit in memory. Bits are promised for equal
    /// splits.
    #[serde(default)]
    pub split_shards: u64,
    /// The share of the counted tokens that another worker, or where there was none another device,
    /// computed again and agreed on. Less than was asked for where neither was there.
    #[serde(default)]
    pub audited: f64,
    /// How fast it went.
    pub performance: Performance,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// Facts of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelFacts {
    /// Path below the model root.
    pub path: String,
    /// Path of the LoRA adapter below the model root, if one was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Family, such as `llama`.
    pub family: String,
    /// Parameters; tied weights count once.
    pub parameters: u64,
    /// `sha256:` of the weight files, those of an adapter among them.
    pub digest: String,
}

impl ModelFacts {
    /// What a request names it by.
    pub fn reference(&self) -> ModelRef {
        ModelRef {
            path: self.path.clone(),
            adapter: self.adapter.clone(),
        }
    }
}

/// Facts of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenizerFacts {
    /// `sha256:` of the tokenizer.
    pub digest: String,
    /// Whether the tokenizer's post-processor puts a BOS in front.
    pub adds_bos: bool,
    /// The first input ids of the first dataset (8 at most), prefix included, as the model saw them.
    pub first_token_ids: Vec<u32>,
    /// `sha256:` of the chat template, if a dataset was rendered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
}

/// The numbers of one dataset under one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetResult {
    /// Name of the dataset.
    pub name: String,
    /// The method.
    pub method: Method,
    /// The job that scored it, if its numbers were taken from an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    pub reused_from: Option<JobId>,
    /// `sha256:` of the dataset's bytes; null until the job is planned.
    pub digest: Option<String>,
    /// Documents taken.
    pub documents: Option<u64>,
    /// Documents without a scored token.
    pub unscored_documents: Option<u64>,
    /// Bytes of the taken documents in UTF-8.
    pub bytes: Option<u64>,
    /// Words of the scored documents, as Python's `len(re.split(r"\s+", text))`.
    pub words: Option<u64>,
    /// Tokens of the taken documents.
    pub tokens: Option<u64>,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// Summed negative log-likelihood in nats.
    pub nll: Option<f64>,
    /// The same sum as an exact integer in units of 2^-32 nat.
    pub nll_exact: Option<String>,
    /// exp(nll / scored_tokens); null if it overflows, see `overflow`.
    pub perplexity: Option<f64>,
    /// exp(nll / words); null where the convention does not score every token.
    pub word_perplexity: Option<f64>,
    /// exp(nll / bytes); null where the convention does not score every token.
    pub byte_perplexity: Option<f64>,
    /// nll / bytes / ln 2; null where the convention does not score every token.
    pub bits_per_byte: Option<f64>,
    /// exp of the mean over documents of their mean NLL.
    pub macro_perplexity: Option<f64>,
    /// Standard error of the mean NLL in nats per token, clustered by document (one document:
    /// by 50 equal spans); null under 5 clusters.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, t(G-1); null with
    /// `standard_error`.
    pub confidence_95: Option<f64>,
    /// An exponential overflowed; the mean NLL is still exact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// Device seconds of the counted shards.
    pub seconds: f64,
    /// Counted tokens per device second.
    pub tokens_per_second: Option<f64>,
    /// The numbers of each group, if `group_by` was asked for, ordered by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
}

/// The numbers of one group of documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupResult {
    /// The value that its documents have in the field.
    pub name: String,
    /// Documents.
    pub documents: u64,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// Summed negative log-likelihood in nats.
    pub nll: f64,
    /// The same sum as an exact integer in units of 2^-32 nat.
    pub nll_exact: String,
    /// exp(nll / scored_tokens); null if it overflows or nothing is counted.
    pub perplexity: Option<f64>,
    /// exp of the mean over documents of their mean NLL.
    pub macro_perplexity: Option<f64>,
    /// Standard error of the mean NLL in nats per token, clustered by document; null under 5
    /// documents with counted tokens.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, t(G-1).
    pub confidence_95: Option<f64>,
}

/// One row of `GET /jobs/{id}/documents`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentRow {
    /// Index of the document in the dataset, from 0.
    pub index: u64,
    /// Tokens of the document.
    pub tokens: u64,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// Bytes in UTF-8.
    pub bytes: u64,
    /// Words, as Python's `len(re.split(r"\s+", text))`.
    pub words: u64,
    /// Summed negative log-likelihood in nats.
    pub nll: f64,
    /// The same sum as an exact integer in units of 2^-32 nat.
    pub nll_exact: String,
    /// Its group, if `group_by` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// One token of `GET /jobs/{id}/tokens`: a token that some window predicts.
///
/// The first token of a block, a dropped tail and a BOS are predicted by none and not listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRow {
    /// Index of the token in the document, from 0.
    pub index: u64,
    /// Its id.
    pub id: u32,
    /// Offset of its first byte in the document's text.
    pub start: u64,
    /// Offset after its last byte. The last token of a document may end in the separator or in
    /// the next document, under a joined convention.
    pub end: u64,
    /// Its negative log-likelihood in nats; null if it does not count.
    pub nll: Option<f64>,
    /// The same as an exact integer in units of 2^-32 nat.
    pub nll_exact: Option<String>,
}
