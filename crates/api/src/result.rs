//! Results: exact perplexities and what produced them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Dtype, JobId, Method};

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
    /// The method.
    pub method: Method,
    /// The dtype of the computation.
    pub dtype: Dtype,
    /// The device kinds that computed counted tokens. Bits are promised within one kind.
    pub device_kinds: Vec<String>,
    /// The version of Assay that planned the job.
    pub version: String,
    /// Changes whenever a change of the program moves a bit of a result.
    pub numerics_version: u32,
    /// One entry per dataset, in the order of the request.
    pub datasets: Vec<DatasetResult>,
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
    /// Family, such as `llama`.
    pub family: String,
    /// Parameters; tied weights count once.
    pub parameters: u64,
    /// `sha256:` of the weight files.
    pub digest: String,
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
}

/// The numbers of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetResult {
    /// Name of the dataset.
    pub name: String,
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
}

/// How fast a job went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Performance {
    /// Counted tokens per second of wall time.
    pub tokens_per_second: Option<f64>,
    /// Wall seconds from the first claim of a shard to the last commit.
    pub seconds: f64,
    /// Tokens counted, each once.
    pub counted_tokens: u64,
    /// Tokens scored by any attempt, late and repeated ones included, as far as reported.
    pub computed_tokens: u64,
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
}
