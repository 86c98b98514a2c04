//! The places of weights in the decoder.

/// What a weight is for. Shapes: [`crate::Architecture::shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Token embedding.
    Embedding,
    /// Embedding of learned positions.
    Positions,
    /// From the width of the embedding to that of the residual stream.
    ProjectIn,
    /// Norm of what attention reads.
    AttentionNorm,
    /// Query projection.
    Query,
    /// Key projection.
    Key,
    /// Value projection.
    Value,
    /// Norm of the queries.
    QueryNorm,
    /// Norm of the keys.
    KeyNorm,
    /// Output projection of attention.
    Output,
    /// Norm behind attention.
    AttentionPostNorm,
    /// Norm of what the MLP reads.
    MlpNorm,
    /// Gate projection.
    Gate,
    /// Up projection.
    Up,
    /// Down projection.
    Down,
    /// Scores of the experts.
    Router,
    /// Gate projection of an expert.
    ExpertGate,
    /// Up projection of an expert.
    ExpertUp,
    /// Down projection of an expert.
    ExpertDown,
    /// Norm behind the MLP.
    MlpPostNorm,
    /// Norm before the head.
    FinalNorm,
    /// From the width of the residual stream to that of the head.
    ProjectOut,
    /// Head.
    Head,
}

impl Place {
    /// Whether each block has such a place.
    pub const fn is_in_block(self) -> bool {
        !matches!(
            self,
            Self::Embedding
                | Self::Positions
                | Self::ProjectIn
                | Self::FinalNorm
                | Self::ProjectOut
                | Self::Head
        )
    }
}

/// Which parameter of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// What is multiplied by.
    Weight,
    /// What is added.
    Bias,
}

/// One weight of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// What it is for.
    pub place: Place,
    /// Index of its block; 0 outside of the blocks.
    pub layer: usize,
    /// Index of its expert; 0 where there are none.
    pub expert: usize,
    /// Weight or bias.
    pub param: Param,
}

impl Slot {
    /// A weight outside of the blocks.
    pub const fn model(place: Place) -> Self {
        Self::block(0, place)
    }

    /// A weight of the block with this index.
    pub const fn block(layer: usize, place: Place) -> Self {
        Self {
            place,
            layer,
            expert: 0,
            param: Param::Weight,
        }
    }

    /// The same of the expert with this index.
    #[must_use]
    pub const fn of_expert(self, expert: usize) -> Self {
        Self { expert, ..self }
    }

    /// The bias beside this weight.
    #[must_use]
    pub const fn bias(self) -> Self {
        Self {
            param: Param::Bias,
            ..self
        }
    }
}
