//! Names that several families share.

use crate::Place;
use crate::names::{Row, Take};

/// Of blocks, in directories.
pub(super) const BLOCK: &str = "model.layers.{layer}.";
/// Of blocks, in GGUF files.
pub(super) const GGUF_BLOCK: &str = "blk.{layer}.";
/// Buffers of rotary embeddings.
pub(super) const BUFFERS: &[&str] = &["rotary_emb.inv_freq"];

/// Embedding and head.
pub(super) const ENDS: &[Row] = &[
    (Place::Embedding, "model.embed_tokens", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];

/// The norm before the head.
pub(super) const FINAL_NORM: &[Row] = &[(Place::FinalNorm, "model.norm", Take::Whole)];

/// A norm before attention and one before the MLP.
pub(super) const NORMS: &[Row] = &[
    (Place::AttentionNorm, "input_layernorm", Take::Whole),
    (Place::MlpNorm, "post_attention_layernorm", Take::Whole),
];

/// Separate projections.
pub(super) const ATTENTION: &[Row] = &[
    (Place::Query, "self_attn.q_proj", Take::Whole),
    (Place::Key, "self_attn.k_proj", Take::Whole),
    (Place::Value, "self_attn.v_proj", Take::Whole),
    (Place::Output, "self_attn.o_proj", Take::Whole),
];

/// Norms of queries and keys.
pub(super) const QK_NORMS: &[Row] = &[
    (Place::QueryNorm, "self_attn.q_norm", Take::Whole),
    (Place::KeyNorm, "self_attn.k_norm", Take::Whole),
];

/// Separate projections of a gated MLP.
pub(super) const GATED_MLP: &[Row] = &[
    (Place::Gate, "mlp.gate_proj", Take::Whole),
    (Place::Up, "mlp.up_proj", Take::Whole),
    (Place::Down, "mlp.down_proj", Take::Whole),
];

/// What is outside of the blocks, in GGUF files.
pub(super) const GGUF_ENDS: &[Row] = &[
    (Place::Embedding, "token_embd", Take::Whole),
    (Place::FinalNorm, "output_norm", Take::Whole),
    (Place::Head, "output", Take::Whole),
];

/// A norm before attention and one before the MLP, in GGUF files.
pub(super) const GGUF_NORMS: &[Row] = &[
    (Place::AttentionNorm, "attn_norm", Take::Whole),
    (Place::MlpNorm, "ffn_norm", Take::Whole),
];

/// Separate projections, in GGUF files.
pub(super) const GGUF_ATTENTION: &[Row] = &[
    (Place::Query, "attn_q", Take::Whole),
    (Place::Key, "attn_k", Take::Whole),
    (Place::Value, "attn_v", Take::Whole),
    (Place::Output, "attn_output", Take::Whole),
];

/// Norms of queries and keys, in GGUF files.
pub(super) const GGUF_QK_NORMS: &[Row] = &[
    (Place::QueryNorm, "attn_q_norm", Take::Whole),
    (Place::KeyNorm, "attn_k_norm", Take::Whole),
];

/// Separate projections of a gated MLP, in GGUF files.
pub(super) const GGUF_MLP: &[Row] = &[
    (Place::Gate, "ffn_gate", Take::Whole),
    (Place::Up, "ffn_up", Take::Whole),
    (Place::Down, "ffn_down", Take::Whole),
];
