//! What can be said of a checkpoint or a dataset without scoring it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DatasetFormat, DatasetRef, Dtype};

/// A checkpoint by its headers: nothing of the weights is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelInspection {
    /// The path asked for.
    pub path: String,
    /// Name of the directory of the LoRA adapter that is added, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Family, such as `llama`.
    pub family: String,
    /// Parameters; tied weights count once.
    pub parameters: u64,
    /// What the weights are stored as, the most parameters first; empty for a reference to a hub,
    /// whose weights are not fetched.
    pub stored: Vec<StoredDtype>,
    /// The dtype of the computation under `auto`.
    pub dtype: Dtype,
    /// Positions: the longest window.
    pub max_positions: u64,
    /// Blocks.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub key_value_heads: u64,
    /// Rows of the embedding.
    pub vocab_size: u64,
    /// Whether the head is the embedding.
    pub tied_head: bool,
    /// The weight files.
    pub files: Vec<FileSize>,
    /// What scoring takes, by dtype.
    pub memory: Vec<MemoryNeed>,
    /// The tokenizer.
    pub tokenizer: TokenizerInspection,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// Parameters stored in one dtype or quantisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredDtype {
    /// Such as `bfloat16` or `Q4_1`.
    pub dtype: String,
    /// Parameters stored so.
    pub parameters: u64,
}

/// A file and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileSize {
    /// Its name below the path asked for.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Memory of a computation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryNeed {
    /// The dtype of the computation.
    pub dtype: Dtype,
    /// Bytes of the weights.
    pub weight_bytes: u64,
}

/// A tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenizerInspection {
    /// `sha256:` of the tokenizer.
    pub digest: String,
    /// The kind of its model, such as `BPE`.
    pub kind: String,
    /// Largest id and one.
    pub vocab_size: u64,
    /// The BOS token.
    pub bos: Option<Token>,
    /// The EOS token.
    pub eos: Option<Token>,
    /// Whether the post-processor puts a BOS in front.
    pub adds_bos: bool,
    /// `sha256:` of the chat template, if there is one.
    pub chat_template: Option<String>,
}

/// A token of a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
}

/// The body of `POST /datasets/inspect`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetInspectionRequest {
    /// The dataset, as in a job.
    pub dataset: DatasetRef,
    /// Path of a checkpoint below the model root, whose tokenizer counts the tokens. Needed for
    /// `chat`, whose text its template makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A dataset, counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetInspection {
    /// Name of the dataset.
    pub name: String,
    /// What the documents are.
    pub format: DatasetFormat,
    /// `sha256:` of the dataset's bytes.
    pub digest: String,
    /// Its files, in order; none for inline documents.
    pub files: Vec<FileSize>,
    /// Documents, limits and sample applied.
    pub documents: u64,
    /// Documents without text.
    pub empty_documents: u64,
    /// Documents whose text an earlier document has too.
    pub duplicate_documents: u64,
    /// Bytes in UTF-8.
    pub bytes: u64,
    /// Words, as Python's `len(re.split(r"\s+", text))`.
    pub words: u64,
    /// Tokens; null without a model.
    pub tokens: Option<u64>,
    /// Tokens that count; null without a model.
    pub counted_tokens: Option<u64>,
    /// Lengths of the documents, in tokens or, without a model, in bytes.
    pub lengths: Lengths,
    /// Groups with their number of documents, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSize>,
}

/// How long the documents are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lengths {
    /// `tokens` or `bytes`.
    pub unit: LengthUnit,
    /// The shortest.
    pub min: u64,
    /// Half of the documents are at most this long.
    pub median: u64,
    /// The longest.
    pub max: u64,
    /// Documents by length; each bin is twice as wide as the one before it.
    pub histogram: Vec<HistogramBin>,
}

/// What lengths are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LengthUnit {
    /// Bytes in UTF-8.
    #[default]
    Bytes,
    /// Tokens.
    Tokens,
}

/// Documents of some lengths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistogramBin {
    /// The shortest length of the bin.
    pub from: u64,
    /// One past the longest.
    pub to: u64,
    /// Documents in it.
    pub documents: u64,
}

/// A group and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSize {
    /// The group.
    pub name: String,
    /// Its documents.
    pub documents: u64,
}
