//! Families: which configurations they cover and what their weights are called. Data only.

use crate::{LayerSlot, Slot};

/// A family of architectures that share their names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Llama 1 to 3 and everything stored under its name.
    Llama,
}

impl Family {
    /// The name as it travels, such as `llama`.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    pub(crate) const fn spec(self) -> &'static FamilySpec {
        match self {
            Self::Llama => &LLAMA,
        }
    }

    pub(crate) const ALL: &[Family] = &[Self::Llama];
}

/// Everything that tells one family from another.
#[derive(Debug)]
pub(crate) struct FamilySpec {
    pub(crate) name: &'static str,
    /// `model_type` of config.json.
    pub(crate) model_type: &'static str,
    /// The class in `architectures` of config.json that has a language-model head.
    pub(crate) class: &'static str,
    /// `general.architecture` of a GGUF file, also the prefix of its keys.
    pub(crate) gguf_architecture: &'static str,
    /// Names of the weights in safetensors files.
    pub(crate) safetensors: NameTable,
    /// Names of the weights in GGUF files.
    pub(crate) gguf: NameTable,
    /// Ends of the names of stored buffers that are computed anew and so not read.
    pub(crate) buffers: &'static [&'static str],
    /// Weights whose rows GGUF stores with the halves of each head interleaved.
    pub(crate) gguf_interleaved: &'static [LayerSlot],
    /// Values that the family's configuration class takes for fields left out.
    pub(crate) defaults: Defaults,
}

/// Names of the weights of a family in one file format.
#[derive(Debug)]
pub(crate) struct NameTable {
    embedding: &'static str,
    final_norm: &'static str,
    head: &'static str,
    layer_prefix: &'static str,
    layers: [(LayerSlot, &'static str); 9],
}

impl NameTable {
    /// What the weight of this slot is called.
    pub(crate) fn name(&self, slot: Slot) -> String {
        match slot {
            Slot::Embedding => self.embedding.to_owned(),
            Slot::FinalNorm => self.final_norm.to_owned(),
            Slot::Head => self.head.to_owned(),
            Slot::Layer(layer, slot) => {
                let suffix = self.layers.iter().find(|(named, _)| *named == slot);
                let (_, suffix) = suffix.expect("a name table names every slot of a block");
                format!("{}.{layer}.{suffix}", self.layer_prefix)
            }
        }
    }
}

/// Defaults of config.json, as the family's configuration class in transformers has them.
#[derive(Debug)]
pub(crate) struct Defaults {
    pub(crate) max_positions: usize,
    pub(crate) norm_eps: f64,
    pub(crate) rope_theta: f64,
    pub(crate) hidden_act: &'static str,
    pub(crate) tied_head: bool,
}

const LLAMA: FamilySpec = FamilySpec {
    name: "llama",
    model_type: "llama",
    class: "LlamaForCausalLM",
    gguf_architecture: "llama",
    safetensors: NameTable {
        embedding: "model.embed_tokens.weight",
        final_norm: "model.norm.weight",
        head: "lm_head.weight",
        layer_prefix: "model.layers",
        layers: [
            (LayerSlot::AttentionNorm, "input_layernorm.weight"),
            (LayerSlot::Query, "self_attn.q_proj.weight"),
            (LayerSlot::Key, "self_attn.k_proj.weight"),
            (LayerSlot::Value, "self_attn.v_proj.weight"),
            (LayerSlot::Output, "self_attn.o_proj.weight"),
            (LayerSlot::MlpNorm, "post_attention_layernorm.weight"),
            (LayerSlot::Gate, "mlp.gate_proj.weight"),
            (LayerSlot::Up, "mlp.up_proj.weight"),
            (LayerSlot::Down, "mlp.down_proj.weight"),
        ],
    },
    gguf: NameTable {
        embedding: "token_embd.weight",
        final_norm: "output_norm.weight",
        head: "output.weight",
        layer_prefix: "blk",
        layers: [
            (LayerSlot::AttentionNorm, "attn_norm.weight"),
            (LayerSlot::Query, "attn_q.weight"),
            (LayerSlot::Key, "attn_k.weight"),
            (LayerSlot::Value, "attn_v.weight"),
            (LayerSlot::Output, "attn_output.weight"),
            (LayerSlot::MlpNorm, "ffn_norm.weight"),
            (LayerSlot::Gate, "ffn_gate.weight"),
            (LayerSlot::Up, "ffn_up.weight"),
            (LayerSlot::Down, "ffn_down.weight"),
        ],
    },
    buffers: &["rotary_emb.inv_freq"],
    gguf_interleaved: &[LayerSlot::Query, LayerSlot::Key],
    defaults: Defaults {
        max_positions: 2048,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        hidden_act: "silu",
        tied_head: false,
    },
};
