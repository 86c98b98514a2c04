//! What the decoder has to build: sizes, positions, and the weights it needs.

use crate::Family;

/// The architecture of a checkpoint, in the terms of the one decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// The family the names and defaults come from.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads of a block.
    pub heads: usize,
    /// Key and value heads of a block; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Longest input the model was made for, in tokens.
    pub max_positions: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// The head is the embedding; [`Slot::Head`] is then absent.
    pub tied_head: bool,
}

/// Rotary position embedding over the whole of a head, halves rotated against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// How the frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

/// How rotary frequencies are changed for longer contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Llama 3.1: low frequencies are divided by `factor`, high ones kept, those between blended.
    Llama3 {
        /// Divides the low frequencies.
        factor: f64,
        /// Wavelengths above `original_max_positions / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_positions / high_freq_factor` are high frequencies.
        high_freq_factor: f64,
        /// Positions the model was first trained with.
        original_max_positions: f64,
    },
    /// One divisor for each of the `head_dim / 2` frequencies: llama.cpp's `rope_freqs.weight`.
    Divisors(Vec<f32>),
}

impl Rope {
    /// The `head_dim / 2` angular frequencies in radians per token, scaled.
    ///
    /// As transformers: `1 / theta^(2i / head_dim)` rounded to float32, then scaled
    /// (`_compute_llama3_parameters`) and rounded again.
    #[allow(clippy::cast_possible_truncation)] // to float32 is what is meant
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|index| {
                let exponent = (2 * index) as f64 / head_dim as f64;
                let plain = f64::from(self.theta.powf(exponent).recip() as f32);
                match &self.scaling {
                    RopeScaling::None => plain as f32,
                    RopeScaling::Llama3 {
                        factor,
                        low_freq_factor,
                        high_freq_factor,
                        original_max_positions,
                    } => {
                        let wavelength = std::f64::consts::TAU / plain;
                        let turns = original_max_positions / wavelength;
                        let keep = ((turns - low_freq_factor)
                            / (high_freq_factor - low_freq_factor))
                            .clamp(0.0, 1.0);
                        ((1.0 - keep) * plain / factor + keep * plain) as f32
                    }
                    RopeScaling::Divisors(divisors) => plain as f32 / divisors[index],
                }
            })
            .collect()
    }
}

/// The place of a weight in the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Token embedding, `[vocab_size, hidden_size]`.
    Embedding,
    /// Norm before the head, `[hidden_size]`.
    FinalNorm,
    /// Head, `[vocab_size, hidden_size]`; absent when tied.
    Head,
    /// A weight of the block with this index.
    Layer(usize, LayerSlot),
}

/// The place of a weight in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerSlot {
    /// Norm before attention, `[hidden_size]`.
    AttentionNorm,
    /// Query projection, `[heads * head_dim, hidden_size]`.
    Query,
    /// Key projection, `[kv_heads * head_dim, hidden_size]`.
    Key,
    /// Value projection, `[kv_heads * head_dim, hidden_size]`.
    Value,
    /// Output projection of attention, `[hidden_size, heads * head_dim]`.
    Output,
    /// Norm before the MLP, `[hidden_size]`.
    MlpNorm,
    /// Gate projection, `[intermediate_size, hidden_size]`.
    Gate,
    /// Up projection, `[intermediate_size, hidden_size]`.
    Up,
    /// Down projection, `[hidden_size, intermediate_size]`.
    Down,
}

impl LayerSlot {
    /// All of a block, in the order of computation.
    pub const ALL: [Self; 9] = [
        Self::AttentionNorm,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::MlpNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];
}

impl Architecture {
    /// Floating-point operations of all matrices for one token: 2 per parameter, the head
    /// included (tied or not), the embedding, which is a lookup, left out.
    pub fn linear_flops_per_token(&self) -> f64 {
        let block: f64 = LayerSlot::ALL
            .iter()
            .map(|&slot| self.layer_shape(slot))
            .filter(|shape| shape.len() == 2)
            .map(|shape| elements(&shape))
            .sum();
        let head = elements(&[self.vocab_size, self.hidden_size]);
        2.0 * (self.layers as f64 * block + head)
    }

    /// Floating-point operations of attention for one causal pair of a query and a key: two for
    /// the score and two for the weighted sum, per element of every head of every block.
    pub fn attention_flops_per_pair(&self) -> f64 {
        4.0 * elements(&[self.layers, self.heads, self.head_dim])
    }

    /// Every weight of the model with its shape (`[out, in]` for matrices), in the order of
    /// computation. The head is left out when tied.
    pub fn slots(&self) -> Vec<(Slot, Vec<usize>)> {
        let matrix = vec![self.vocab_size, self.hidden_size];
        let blocks = (0..self.layers).flat_map(|layer| {
            LayerSlot::ALL.map(|slot| (Slot::Layer(layer, slot), self.layer_shape(slot)))
        });
        std::iter::once((Slot::Embedding, matrix.clone()))
            .chain(blocks)
            .chain(std::iter::once((Slot::FinalNorm, vec![self.hidden_size])))
            .chain((!self.tied_head).then_some((Slot::Head, matrix)))
            .collect()
    }

    fn layer_shape(&self, slot: LayerSlot) -> Vec<usize> {
        let hidden = self.hidden_size;
        match slot {
            LayerSlot::AttentionNorm | LayerSlot::MlpNorm => vec![hidden],
            LayerSlot::Query => vec![self.heads * self.head_dim, hidden],
            LayerSlot::Key | LayerSlot::Value => vec![self.kv_heads * self.head_dim, hidden],
            LayerSlot::Output => vec![hidden, self.heads * self.head_dim],
            LayerSlot::Gate | LayerSlot::Up => vec![self.intermediate_size, hidden],
            LayerSlot::Down => vec![hidden, self.intermediate_size],
        }
    }
}

fn elements(shape: &[usize]) -> f64 {
    shape.iter().map(|&size| size as f64).product()
}
