//! One block of the decoder: attention and MLP, each added to the residual stream.

use assay_checkpoint::{Architecture, LayerSlot, Slot};
use tch::Tensor;

use crate::DecoderError;
use crate::batch::{Group, signed};
use crate::norm::rms_norm;
use crate::rope::Rotation;
use crate::torch::{Output, linear};
use crate::weights::Loader;

/// Sizes of a block, as libtorch wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_dim: i64,
    pub(crate) intermediate: i64,
    pub(crate) norm_eps: f64,
}

impl Sizes {
    pub(crate) fn of(architecture: &Architecture) -> Self {
        Self {
            heads: signed(architecture.heads),
            kv_heads: signed(architecture.kv_heads),
            head_dim: signed(architecture.head_dim),
            intermediate: signed(architecture.intermediate_size),
            norm_eps: architecture.norm_eps,
        }
    }
}

/// The weights of a block.
pub(crate) struct Layer {
    attention_norm: Tensor,
    /// Query, key and value below each other, `[(heads + 2 kv_heads) * head_dim, hidden]`.
    qkv: Tensor,
    output: Tensor,
    mlp_norm: Tensor,
    /// Gate and up below each other, `[2 * intermediate, hidden]`.
    gate_up: Tensor,
    down: Tensor,
}

/// Memory that every block writes anew. It is kept for the length of a forward pass: the system
/// would map fresh memory page by page for each block.
pub(crate) struct Scratch {
    /// `[rows, (heads + 2 kv_heads) * head_dim]`
    qkv: Tensor,
    /// `[rows, heads * head_dim]`; rows of padding stay zero.
    attended: Tensor,
    /// `[rows, 2 * intermediate]`
    gate_up: Tensor,
}

impl Scratch {
    /// For as many rows as `x` has, in its dtype and on its device.
    pub(crate) fn new(x: &Tensor, sizes: Sizes) -> Result<Self, DecoderError> {
        let (rows, _) = x.size2()?;
        let options = (x.f_kind()?, x.device());
        let heads = sizes.heads + 2 * sizes.kv_heads;
        Ok(Self {
            qkv: Tensor::f_empty([rows, heads * sizes.head_dim], options)?,
            attended: Tensor::f_zeros([rows, sizes.heads * sizes.head_dim], options)?,
            gate_up: Tensor::f_empty([rows, 2 * sizes.intermediate], options)?,
        })
    }
}

impl Layer {
    pub(crate) fn load(
        loader: &Loader<'_>,
        architecture: &Architecture,
        index: usize,
    ) -> Result<Self, DecoderError> {
        let at = |slot| Slot::Layer(index, slot);
        let heads = architecture.heads + 2 * architecture.kv_heads;
        Ok(Self {
            attention_norm: loader.one(at(LayerSlot::AttentionNorm))?,
            qkv: loader.stacked(
                &[
                    at(LayerSlot::Query),
                    at(LayerSlot::Key),
                    at(LayerSlot::Value),
                ],
                heads * architecture.head_dim,
            )?,
            output: loader.one(at(LayerSlot::Output))?,
            mlp_norm: loader.one(at(LayerSlot::MlpNorm))?,
            gate_up: loader.stacked(
                &[at(LayerSlot::Gate), at(LayerSlot::Up)],
                2 * architecture.intermediate_size,
            )?,
            down: loader.one(at(LayerSlot::Down))?,
        })
    }

    /// Adds the block's output to `x`, `[rows, hidden]`, in place.
    pub(crate) fn forward(
        &self,
        x: &mut Tensor,
        sizes: Sizes,
        rotation: &Rotation,
        groups: &[Group],
        scratch: &mut Scratch,
    ) -> Result<(), DecoderError> {
        let normed = rms_norm(x, &self.attention_norm, sizes.norm_eps)?;
        linear(&normed, &self.qkv, &mut scratch.qkv, Output::Replace)?;
        rotation.apply(&mut heads(
            &scratch.qkv,
            sizes,
            0,
            sizes.heads + sizes.kv_heads,
        )?)?;
        for &group in groups {
            attend(scratch, sizes, group)?;
        }
        linear(&scratch.attended, &self.output, x, Output::Add)?;

        let normed = rms_norm(x, &self.mlp_norm, sizes.norm_eps)?;
        linear(
            &normed,
            &self.gate_up,
            &mut scratch.gate_up,
            Output::Replace,
        )?;
        let mut gate = scratch.gate_up.f_narrow(1, 0, sizes.intermediate)?;
        let up = scratch
            .gate_up
            .f_narrow(1, sizes.intermediate, sizes.intermediate)?;
        let _ = gate.f_silu_()?.f_mul_(&up)?;
        linear(&gate, &self.down, x, Output::Add)
    }

    /// The matrix products of [`Layer::forward`] and nothing else.
    pub(crate) fn products(
        &self,
        x: &mut Tensor,
        scratch: &mut Scratch,
    ) -> Result<(), DecoderError> {
        linear(x, &self.qkv, &mut scratch.qkv, Output::Replace)?;
        linear(&scratch.attended, &self.output, x, Output::Add)?;
        linear(x, &self.gate_up, &mut scratch.gate_up, Output::Replace)?;
        let (_, columns) = self.down.size2()?;
        linear(
            &scratch.gate_up.f_narrow(1, 0, columns)?,
            &self.down,
            x,
            Output::Add,
        )
    }
}

/// Causal attention within each window of `group`.
fn attend(scratch: &mut Scratch, sizes: Sizes, group: Group) -> Result<(), DecoderError> {
    let Sizes {
        heads: query_heads,
        kv_heads,
        head_dim,
        ..
    } = sizes;
    let Group {
        start,
        windows,
        len,
    } = group;
    let rows = scratch.qkv.f_narrow(0, start, windows * len)?;
    let part = |first: i64, count: i64| -> Result<Tensor, DecoderError> {
        let part = heads(&rows, sizes, first, count)?;
        Ok(part
            .f_view([windows, len, count, head_dim])?
            .f_transpose(1, 2)?)
    };
    let attended = Tensor::f_scaled_dot_product_attention(
        &part(0, query_heads)?,
        &part(query_heads, kv_heads)?,
        &part(query_heads + kv_heads, kv_heads)?,
        None::<Tensor>,
        0.0,
        true,
        None,
        query_heads != kv_heads,
    )?;
    let attended = attended
        .f_transpose(1, 2)?
        .f_reshape([windows * len, query_heads * head_dim])?;
    scratch
        .attended
        .f_narrow(0, start, windows * len)?
        .f_copy_(&attended)?;
    Ok(())
}

/// The `count` heads from `first` on of fused projections `[rows, columns]`, as a view
/// `[rows, count, head_dim]`.
fn heads(qkv: &Tensor, sizes: Sizes, first: i64, count: i64) -> Result<Tensor, DecoderError> {
    let columns = qkv.f_narrow(1, first * sizes.head_dim, count * sizes.head_dim)?;
    Ok(columns.f_unflatten(1, [count, sizes.head_dim])?)
}
