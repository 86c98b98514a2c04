//! One block of the decoder: attention and MLP, each added to the residual stream.

use assay_checkpoint::{Architecture, BlockForm, Place};
use tch::Tensor;

use crate::DecoderError;
use crate::attention::{Attention, AttentionScratch, Sizes};
use crate::batch::Group;
use crate::engine::Engine;
use crate::linear::Linear;
use crate::mlp::Mlp;
use crate::norm::Norm;
use crate::rope::Rotation;
use crate::torch::Output;
use crate::weights::Loader;

/// A block.
pub(crate) struct Layer {
    form: BlockForm,
    attention_norm: Option<Norm>,
    attention: Attention,
    attention_post_norm: Option<Norm>,
    mlp_norm: Option<Norm>,
    mlp: Mlp,
    mlp_post_norm: Option<Norm>,
    residual_scale: f64,
}

/// Memory that every block writes anew. It is kept for the length of a forward pass: the system
/// would map fresh memory page by page for each block.
pub(crate) struct Scratch {
    attention: AttentionScratch,
    /// `[rows, 2 * intermediate]`, or half of it where gate and up meet while they are made; nothing
    /// where all blocks have experts.
    up: Tensor,
    /// `[rows, hidden]`: the output of a branch that is not added as it is.
    branch: Option<Tensor>,
}

impl Scratch {
    /// For as many rows as `x` has, in its dtype and on its device.
    pub(crate) fn new(
        x: &Tensor,
        groups: &[Group],
        layers: &[Layer],
        engine: &Engine,
    ) -> Result<Self, DecoderError> {
        let (rows, _) = x.size2()?;
        let options = (x.f_kind()?, x.device());
        let sizes = layers.first().map(|layer| layer.attention.sizes());
        let sizes = sizes.unwrap_or(Sizes {
            heads: 0,
            kv_heads: 0,
            head_dim: 0,
        });
        let dense = layers.iter().find_map(|layer| match &layer.mlp {
            Mlp::Dense(dense) => Some(dense),
            Mlp::Mixture(_) => None,
        });
        let up = match dense {
            Some(dense) => dense.space(rows, options)?,
            None => Tensor::f_empty([0, 0], options)?,
        };
        let direct = layers.iter().all(Layer::adds_directly);
        let branch = if direct {
            None
        } else {
            Some(x.f_empty_like()?)
        };
        Ok(Self {
            attention: AttentionScratch::new(rows, groups, sizes, options, engine)?,
            up,
            branch,
        })
    }
}

impl Layer {
    pub(crate) fn load(
        loader: &Loader<'_>,
        architecture: &Architecture,
        index: usize,
    ) -> Result<Self, DecoderError> {
        let block = architecture.blocks[index];
        let has = |place| architecture.has(block, place);
        let norm = |place| loader.norm_if(has(place), index, place);
        Ok(Self {
            form: architecture.form,
            attention_norm: norm(Place::AttentionNorm)?,
            attention: Attention::load(loader, architecture, index, block)?,
            attention_post_norm: norm(Place::AttentionPostNorm)?,
            mlp_norm: norm(Place::MlpNorm)?,
            mlp: Mlp::load(loader, architecture, index, block)?,
            mlp_post_norm: norm(Place::MlpPostNorm)?,
            residual_scale: architecture.scales.residual,
        })
    }

    /// Replaces `x`, `[rows, hidden]`, by the block's output.
    pub(crate) fn forward(
        &self,
        x: &mut Tensor,
        rotations: &[Rotation],
        groups: &[Group],
        scratch: &mut Scratch,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let normed = read(self.attention_norm.as_ref(), x, engine)?;
        // What the MLP reads, if it does not wait for attention.
        let beside = match self.form {
            BlockForm::Parallel => Some(read(self.mlp_norm.as_ref(), x, engine)?),
            BlockForm::ParallelShared => Some(normed.shallow_clone()),
            _ => None,
        };
        self.attention
            .attend(&normed, rotations, groups, &mut scratch.attention, engine)?;
        drop(normed);
        let attended = scratch.attention.attended.shallow_clone();
        let behind = self.attention_post_norm.as_ref();
        self.add(
            &self.attention.output,
            &attended,
            behind,
            x,
            scratch,
            engine,
        )?;

        let input = match beside {
            Some(input) => input,
            None => read(self.mlp_norm.as_ref(), x, engine)?,
        };
        let behind = self.mlp_post_norm.as_ref();
        match &self.mlp {
            Mlp::Dense(dense) => {
                let inner = dense.inner(&input, &mut scratch.up, engine)?;
                self.add(&dense.down, &inner, behind, x, scratch, engine)
            }
            Mlp::Mixture(mixture) => {
                self.add_branch(mixture.of(&input, engine)?, behind, x, engine)
            }
        }
    }

    /// Adds the output of a branch, the product of `input` with `last`, to the residual stream.
    fn add(
        &self,
        last: &Linear,
        input: &Tensor,
        behind: Option<&Norm>,
        x: &mut Tensor,
        scratch: &mut Scratch,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        match &mut scratch.branch {
            Some(branch) if !self.adds_directly() => {
                last.apply(input, branch, Output::Replace, engine)?;
                self.add_branch(branch.shallow_clone(), behind, x, engine)
            }
            _ => {
                last.apply(input, x, Output::Add, engine)?;
                self.norm_sum(behind, x, engine)
            }
        }
    }

    /// Adds what a branch has come to.
    fn add_branch(
        &self,
        mut branch: Tensor,
        behind: Option<&Norm>,
        x: &mut Tensor,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        if self.form != BlockForm::ResidualNorm
            && let Some(norm) = behind
        {
            branch = norm.apply(&branch, engine)?;
        }
        if self.is_scaled() {
            branch = branch.f_mul_scalar(self.residual_scale)?;
        }
        let _ = x.f_add_(&branch)?;
        self.norm_sum(behind, x, engine)
    }

    /// The norm over the sum, in blocks of that form.
    fn norm_sum(
        &self,
        behind: Option<&Norm>,
        x: &mut Tensor,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        if self.form == BlockForm::ResidualNorm
            && let Some(norm) = behind
        {
            let normed = norm.apply(x, engine)?;
            x.f_copy_(&normed)?;
        }
        Ok(())
    }

    fn is_scaled(&self) -> bool {
        self.residual_scale.to_bits() != 1_f64.to_bits()
    }

    /// Whether outputs of branches are added as they are, so that the last product can do it.
    fn adds_directly(&self) -> bool {
        let normed = matches!(self.form, BlockForm::Sandwich | BlockForm::PostNorm);
        !normed && !self.is_scaled()
    }

    /// The matrices that [`Layer::forward`] multiplies `rows` rows with, and the rows of each.
    pub(crate) fn linears(&self, rows: i64) -> Vec<(&Linear, i64)> {
        let attention = [&self.attention.qkv, &self.attention.output];
        let mut linears: Vec<_> = attention.into_iter().map(|linear| (linear, rows)).collect();
        match &self.mlp {
            Mlp::Dense(dense) => linears.extend([(&dense.up, rows), (&dense.down, rows)]),
            Mlp::Mixture(mixture) => linears.extend(mixture.linears(rows)),
        }
        linears
    }
}

/// What a branch reads of `x`.
fn read(norm: Option<&Norm>, x: &Tensor, engine: &Engine) -> Result<Tensor, DecoderError> {
    match norm {
        Some(norm) => norm.apply(x, engine),
        None => Ok(x.shallow_clone()),
    }
}
