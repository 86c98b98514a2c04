//! What the decoder has to build: sizes, the form of its blocks, and the weights it needs.

use std::iter;

use crate::{Family, Place, Rope, Slot};

/// The architecture of a checkpoint, in the terms of the one decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// The family the names and defaults come from.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the embedding and of the head. Where it is not that of the residual stream,
    /// projections lead from one to the other.
    pub embedding_size: usize,
    /// Width inside the MLP; that of experts is in `experts`.
    pub intermediate_size: usize,
    /// Query heads of a block.
    pub heads: usize,
    /// Key and value heads of a block; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Longest input the model was made for, in tokens.
    pub max_positions: usize,
    /// How the model knows positions.
    pub positions: Positions,
    /// The blocks, in the order of computation.
    pub blocks: Vec<Block>,
    /// Where norms are in a block, and what is added when.
    pub form: BlockForm,
    /// The formula of the norms.
    pub norm: NormKind,
    /// Epsilon of the norms.
    pub norm_eps: f64,
    /// Whether there is a norm before the head.
    pub final_norm: bool,
    /// What the norm of queries and keys runs over, if they have one.
    pub qk_norm: Option<QkNorm>,
    /// Which weights have a bias beside them.
    pub biases: Biases,
    /// The activation of the MLP.
    pub activation: Activation,
    /// Whether the MLP multiplies the activated gate with a second projection; else the up
    /// projection itself is activated.
    pub gated: bool,
    /// The experts of the blocks that have them.
    pub experts: Option<Experts>,
    /// Constants that activations are multiplied by.
    pub scales: Scales,
    /// Bounds of scores and logits.
    pub softcaps: Softcaps,
    /// The head is the embedding; [`Place::Head`] is then absent.
    pub tied_head: bool,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Which rotary embedding queries and keys get, as index in [`Positions::Rotary`].
    pub rope: Option<usize>,
    /// Number of tokens that a token attends to at most, itself included.
    pub window: Option<usize>,
    /// What products of queries and keys are multiplied by.
    pub attention_scale: f64,
    /// Whether the MLP is a mixture of experts.
    pub experts: bool,
}

/// How a model knows positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// Queries and keys are rotated.
    Rotary(Vec<Rope>),
    /// Each position has a learned vector, added to the embedding.
    Learned,
    /// Scores are lowered in proportion to the distance (Press et al. 2022).
    Alibi,
}

/// Where norms are in a block, and what is added when. `x` is the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockForm {
    /// `x += attention(norm(x)); x += mlp(norm(x))`.
    PreNorm,
    /// `x += norm(attention(norm(x))); x += norm(mlp(norm(x)))`.
    Sandwich,
    /// `x += norm(attention(x)); x += norm(mlp(x))`.
    PostNorm,
    /// `x = norm(x + attention(x)); x = norm(x + mlp(x))`.
    ResidualNorm,
    /// `x += attention(norm(x)) + mlp(norm(x))`, each with a norm of its own.
    Parallel,
    /// `x += attention(y) + mlp(y)`, where `y = norm(x)`.
    ParallelShared,
}

/// The formula of a norm over the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps) * weight`; rounded to the dtype before it is weighted.
    Rms,
    /// The same, rounded when it is weighted.
    RmsFloat,
    /// `(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias`.
    Layer,
}

/// What a norm of queries and keys runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head, all with the same weight.
    Head,
    /// Each head, each with a weight of its own.
    EachHead,
    /// All heads together.
    Projection,
}

/// Which weights have a bias beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // any of them may be there without the others
pub struct Biases {
    /// Query, key and value projections.
    pub qkv: bool,
    /// The output projection of attention.
    pub output: bool,
    /// All projections of the MLP.
    pub mlp: bool,
    /// The norms, but those of queries and keys.
    pub norm: bool,
    /// The norms of queries and keys.
    pub qk_norm: bool,
    /// The head.
    pub head: bool,
}

/// The activation of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * Phi(x)` by the error function.
    Gelu,
    /// GELU by its approximation with the hyperbolic tangent.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

/// A mixture of experts. A token is computed by the experts with the highest softmax of the
/// router's scores, whose outputs are weighted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Number of experts in a block.
    pub count: usize,
    /// Number of experts that compute a token.
    pub per_token: usize,
    /// Width inside an expert.
    pub intermediate_size: usize,
    /// Whether the weights of a token's experts are divided by their sum.
    pub normalised: bool,
}

/// Constants that activations are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// The embedding.
    pub embedding: f64,
    /// Whether `embedding` is rounded to the dtype of the computation first.
    pub rounds_embedding: bool,
    /// What attention and MLP add to the residual stream.
    pub residual: f64,
    /// The logits.
    pub logits: f64,
}

impl Scales {
    /// Nothing is multiplied.
    pub const NONE: Self = Self {
        embedding: 1.0,
        rounds_embedding: false,
        residual: 1.0,
        logits: 1.0,
    };
}

/// Bounds of scores and logits: `cap * tanh(x / cap)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Softcaps {
    /// Of the scores of attention.
    pub attention: Option<f64>,
    /// Of the logits.
    pub logits: Option<f64>,
}

impl Architecture {
    /// Floating-point operations of all matrices for one token: 2 per parameter, the head
    /// included (tied or not), the embedding, which is a lookup, left out; of the experts those
    /// that compute the token.
    pub fn linear_flops_per_token(&self) -> f64 {
        let head = elements(&self.shape(Place::Head));
        let matrices: f64 = self
            .each_slot()
            .filter(|(slot, shape)| {
                shape.len() == 2
                    && !matches!(
                        slot.place,
                        Place::Embedding | Place::Positions | Place::Head
                    )
            })
            .map(|(slot, shape)| elements(&shape) * self.share_computed(slot.place))
            .sum();
        2.0 * (matrices + head)
    }

    /// Floating-point operations of attention for one causal pair of a query and a key: two for
    /// the score and two for the weighted sum, per element of every head of every block.
    pub fn attention_flops_per_pair(&self) -> f64 {
        4.0 * elements(&[self.blocks.len(), self.heads, self.head_dim])
    }

    /// The share of a place's weights that one token is multiplied with.
    fn share_computed(&self, place: Place) -> f64 {
        match (place, self.experts) {
            (Place::ExpertGate | Place::ExpertUp | Place::ExpertDown, Some(experts)) => {
                experts.per_token as f64 / experts.count as f64
            }
            _ => 1.0,
        }
    }

    /// Its rotary embeddings, if positions are rotations.
    pub fn ropes(&self) -> &[Rope] {
        match &self.positions {
            Positions::Rotary(ropes) => ropes,
            Positions::Learned | Positions::Alibi => &[],
        }
    }

    /// Every weight of the model with its shape, in the order of computation. The head is left
    /// out when tied.
    pub fn slots(&self) -> Vec<(Slot, Vec<usize>)> {
        self.each_slot().collect()
    }

    /// [`Architecture::slots`] one after the other: a configuration may claim more of them than
    /// fit into memory.
    pub(crate) fn each_slot(&self) -> impl Iterator<Item = (Slot, Vec<usize>)> {
        let projected = self.embedding_size != self.hidden_size;
        let before = [
            (true, Place::Embedding),
            (self.positions == Positions::Learned, Place::Positions),
            (projected, Place::ProjectIn),
        ];
        let behind = [
            (self.final_norm, Place::FinalNorm),
            (projected, Place::ProjectOut),
            (!self.tied_head, Place::Head),
        ];
        let of_model = |places: [(bool, Place); 3]| {
            let present = places.into_iter().filter(|(present, _)| *present);
            present.map(|(_, place)| Slot::model(place))
        };
        let of_blocks = self
            .blocks
            .iter()
            .enumerate()
            .flat_map(move |(layer, block)| {
                self.places(*block).into_iter().flat_map(move |place| {
                    let slot = Slot::block(layer, place);
                    (0..self.count(place)).map(move |expert| slot.of_expert(expert))
                })
            });
        let slots = of_model(before).chain(of_blocks).chain(of_model(behind));
        let slots = slots.flat_map(move |slot| {
            let shape = self.shape(slot.place);
            let bias = self.has_bias(slot.place);
            let bias = bias.then(|| (slot.bias(), shape[..1].to_vec()));
            iter::once((slot, shape)).chain(bias)
        });
        // It is the head's own, whatever it is added to.
        let of_tied_head = self.tied_head && self.has_bias(Place::Head);
        let bias = (Slot::model(Place::Head).bias(), vec![self.vocab_size]);
        slots.chain(of_tied_head.then_some(bias))
    }

    /// Number of weights at a place of a block that has it.
    fn count(&self, place: Place) -> usize {
        match (place, self.experts) {
            (Place::ExpertGate | Place::ExpertUp | Place::ExpertDown, Some(experts)) => {
                experts.count
            }
            _ => 1,
        }
    }

    /// The places of a block, in the order of computation.
    fn places(&self, block: Block) -> Vec<Place> {
        use BlockForm::{Parallel, ParallelShared, PostNorm, PreNorm, ResidualNorm, Sandwich};
        let mut places = Vec::new();
        let mut add = |present: bool, these: &[Place]| {
            if present {
                places.extend_from_slice(these);
            }
        };
        let form = self.form;
        let before_mlp = matches!(form, PreNorm | Sandwich | Parallel);
        let behind = matches!(form, Sandwich | PostNorm | ResidualNorm);
        add(
            before_mlp || form == ParallelShared,
            &[Place::AttentionNorm],
        );
        add(true, &[Place::Query, Place::Key, Place::Value]);
        add(self.qk_norm.is_some(), &[Place::QueryNorm, Place::KeyNorm]);
        add(true, &[Place::Output]);
        add(behind, &[Place::AttentionPostNorm]);
        add(before_mlp, &[Place::MlpNorm]);
        add(
            block.experts,
            &[
                Place::Router,
                Place::ExpertGate,
                Place::ExpertUp,
                Place::ExpertDown,
            ],
        );
        add(!block.experts && self.gated, &[Place::Gate]);
        add(!block.experts, &[Place::Up, Place::Down]);
        add(behind, &[Place::MlpPostNorm]);
        places
    }

    /// Whether a block has a weight at this place.
    pub fn has(&self, block: Block, place: Place) -> bool {
        self.places(block).contains(&place)
    }

    /// Whether the weight of this place has a bias beside it.
    pub fn has_bias(&self, place: Place) -> bool {
        let Biases {
            qkv,
            output,
            mlp,
            norm,
            qk_norm,
            head,
        } = self.biases;
        match place {
            Place::Query | Place::Key | Place::Value => qkv,
            Place::Output => output,
            Place::Gate | Place::Up | Place::Down => mlp,
            Place::AttentionNorm
            | Place::AttentionPostNorm
            | Place::MlpNorm
            | Place::MlpPostNorm
            | Place::FinalNorm => norm,
            Place::QueryNorm | Place::KeyNorm => qk_norm,
            Place::Head => head,
            _ => false,
        }
    }

    /// The shape of a place's weight: `[out, in]` for matrices. Its bias, where it has one, has
    /// the first of the sizes.
    pub fn shape(&self, place: Place) -> Vec<usize> {
        let hidden = self.hidden_size;
        let experts = self.experts;
        let expert_width = experts.map_or(0, |experts| experts.intermediate_size);
        match place {
            Place::Embedding | Place::Head => vec![self.vocab_size, self.embedding_size],
            Place::Positions => vec![self.max_positions, hidden],
            Place::ProjectIn => vec![hidden, self.embedding_size],
            Place::ProjectOut => vec![self.embedding_size, hidden],
            Place::AttentionNorm
            | Place::AttentionPostNorm
            | Place::MlpNorm
            | Place::MlpPostNorm
            | Place::FinalNorm => vec![hidden],
            Place::Query => vec![self.heads * self.head_dim, hidden],
            Place::Key | Place::Value => vec![self.kv_heads * self.head_dim, hidden],
            Place::Output => vec![hidden, self.heads * self.head_dim],
            Place::QueryNorm => self.qk_norm_shape(self.heads),
            Place::KeyNorm => self.qk_norm_shape(self.kv_heads),
            Place::Gate | Place::Up => vec![self.intermediate_size, hidden],
            Place::Down => vec![hidden, self.intermediate_size],
            Place::Router => vec![experts.map_or(0, |experts| experts.count), hidden],
            Place::ExpertGate | Place::ExpertUp => vec![expert_width, hidden],
            Place::ExpertDown => vec![hidden, expert_width],
        }
    }

    fn qk_norm_shape(&self, heads: usize) -> Vec<usize> {
        match self.qk_norm {
            Some(QkNorm::EachHead | QkNorm::Projection) => vec![heads * self.head_dim],
            Some(QkNorm::Head) | None => vec![self.head_dim],
        }
    }
}

fn elements(shape: &[usize]) -> f64 {
    shape.iter().map(|&size| size as f64).product()
}
