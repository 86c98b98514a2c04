//! Causal attention within windows.

use std::collections::BTreeMap;

use assay_checkpoint::{Architecture, Block, Place, Positions, QkNorm, Slot};
use assay_kernels::bf16;
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Group, signed};
use crate::engine::Engine;
use crate::linear::Linear;
use crate::mask::{QUERY_ROWS, Tile};
use crate::norm::Norm;
use crate::profile::Stage;
use crate::rope::Rotation;
use crate::torch::Output;
use crate::view::{numbers_mut, rows, rows_mut, with_element};
use crate::weights::Loader;

/// Sizes of attention, as libtorch wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_dim: i64,
}

impl Sizes {
    pub(crate) fn of(architecture: &Architecture) -> Self {
        Self {
            heads: signed(architecture.heads),
            kv_heads: signed(architecture.kv_heads),
            head_dim: signed(architecture.head_dim),
        }
    }

    /// Whether kernels of our own can multiply heads of this size.
    fn takes(self, kind: Kind) -> bool {
        let head_dim = self.kernel().head_dim;
        match kind {
            Kind::Float => assay_kernels::Attention::takes::<f32>(head_dim),
            Kind::BFloat16 => assay_kernels::Attention::takes::<bf16>(head_dim),
            _ => false,
        }
    }

    /// Plain attention of these sizes, as kernels want them.
    fn kernel(self) -> assay_kernels::Attention<'static> {
        let of = |size: i64| usize::try_from(size).unwrap_or(0);
        assay_kernels::Attention {
            heads: of(self.heads),
            kv_heads: of(self.kv_heads),
            head_dim: of(self.head_dim),
            scale: 1.0,
            softcap: None,
            reach: None,
            bias: None,
        }
    }
}

/// The attention of one block.
pub(crate) struct Attention {
    sizes: Sizes,
    /// Query, key and value below each other, `[(heads + 2 kv_heads) * head_dim, hidden]`.
    pub(crate) qkv: Linear,
    /// Norms of queries and of keys, and whether they run over all heads together.
    norms: Option<(Norm, Norm, bool)>,
    pub(crate) output: Linear,
    rope: Option<usize>,
    /// Number of tokens that a token attends to at most.
    window: Option<i64>,
    scale: f64,
    softcap: Option<f64>,
    /// `[heads]`: what a step of distance takes from a score before it is scaled.
    slopes: Option<Tensor>,
}

/// Memory that every block writes anew, and what depends on the micro-batch alone.
pub(crate) struct AttentionScratch {
    /// `[rows, (heads + 2 kv_heads) * head_dim]`
    pub(crate) qkv: Tensor,
    /// `[rows, heads * head_dim]`; rows of padding stay zero.
    pub(crate) attended: Tensor,
    /// By the window.
    masks: BTreeMap<i64, Tensor>,
    /// The windows, and where kernels of our own lay out their keys and values.
    laid_out: Option<(Vec<assay_kernels::Window>, Tensor)>,
}

impl AttentionScratch {
    /// For so many rows, in groups of windows.
    pub(crate) fn new(
        rows: i64,
        groups: &[Group],
        sizes: Sizes,
        options: (Kind, Device),
        engine: &Engine,
    ) -> Result<Self, DecoderError> {
        let heads = sizes.heads + 2 * sizes.kv_heads;
        let laid_out = if sizes.takes(options.0) && engine.multiplies().is_some() {
            let windows: Vec<_> = groups.iter().flat_map(Group::windows).collect();
            let attention = sizes.kernel();
            let len: usize = windows
                .iter()
                .map(|w| attention.laid_out_len(w.len()))
                .sum();
            Some((windows, Tensor::f_zeros([signed(len)], options)?))
        } else {
            None
        };
        Ok(Self {
            qkv: Tensor::f_empty([rows, heads * sizes.head_dim], options)?,
            attended: Tensor::f_zeros([rows, sizes.heads * sizes.head_dim], options)?,
            masks: BTreeMap::new(),
            laid_out,
        })
    }
}

impl Attention {
    pub(crate) fn load(
        loader: &Loader<'_>,
        architecture: &Architecture,
        layer: usize,
        block: Block,
    ) -> Result<Self, DecoderError> {
        let at = |place| Slot::block(layer, place);
        let norms = match architecture.qk_norm {
            None => None,
            Some(over) => {
                let each = over == QkNorm::EachHead;
                Some((
                    loader.norm(at(Place::QueryNorm), each.then_some(architecture.heads))?,
                    loader.norm(at(Place::KeyNorm), each.then_some(architecture.kv_heads))?,
                    over == QkNorm::Projection,
                ))
            }
        };
        let slopes = match architecture.positions {
            Positions::Alibi => {
                let slopes = Tensor::f_from_slice(&slopes(architecture.heads))?;
                Some(slopes.f_to_device(loader.device)?)
            }
            _ => None,
        };
        Ok(Self {
            sizes: Sizes::of(architecture),
            qkv: loader.linears(&[at(Place::Query), at(Place::Key), at(Place::Value)])?,
            norms,
            output: loader.linear(at(Place::Output))?,
            rope: block.rope,
            window: block.window.map(signed),
            scale: block.attention_scale,
            softcap: architecture.softcaps.attention,
            slopes,
        })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Writes what each row of `x` attends to into `scratch.attended`; the output projection is
    /// the caller's.
    pub(crate) fn attend(
        &self,
        x: &Tensor,
        rotations: &[Rotation],
        groups: &[Group],
        scratch: &mut AttentionScratch,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        self.qkv
            .apply(x, &mut scratch.qkv, Output::Replace, engine)?;
        let Sizes {
            heads,
            kv_heads,
            head_dim,
        } = self.sizes;
        let part =
            |first: i64, count: i64| scratch.qkv.f_narrow(1, first * head_dim, count * head_dim);
        if let Some((queries, keys, together)) = &self.norms {
            let groups = |heads: i64| if *together { 1 } else { heads };
            queries.replace(&mut part(0, heads)?, groups(heads), engine)?;
            keys.replace(&mut part(heads, kv_heads)?, groups(kv_heads), engine)?;
        }
        if let Some(rotation) = self.rope.and_then(|index| rotations.get(index)) {
            rotation.apply(&mut part(0, heads + kv_heads)?, head_dim, engine)?;
        }
        let _timer = engine.recorder.enter(Stage::Attention);
        if scratch.laid_out.is_some() {
            return self.own(scratch, engine);
        }
        groups
            .iter()
            .try_for_each(|group| self.group(*group, scratch))
    }

    /// Attention by a kernel of our own, of all windows at once.
    #[allow(clippy::cast_possible_truncation)] // scores are float32
    fn own(&self, scratch: &mut AttentionScratch, engine: &Engine) -> Result<(), DecoderError> {
        let AttentionScratch {
            qkv,
            attended,
            laid_out,
            ..
        } = scratch;
        let (Some((windows, laid_out)), Some(cpu)) = (laid_out, engine.multiplies()) else {
            return Err(DecoderError::Torch("no kernel of attention".to_owned()));
        };
        let bias = match &self.slopes {
            None => None,
            Some(slopes) => {
                let longest = windows
                    .iter()
                    .map(ExactSizeIterator::len)
                    .max()
                    .unwrap_or(0);
                Some(
                    self.distances(slopes, 0, signed(longest))?
                        .f_squeeze_dim(1)?,
                )
            }
        };
        let attention = assay_kernels::Attention {
            scale: self.scale as f32,
            softcap: self.softcap.map(|cap| cap as f32),
            reach: self.window.and_then(|window| usize::try_from(window).ok()),
            bias: bias.as_ref().map(rows::<f32>).transpose()?,
            ..self.sizes.kernel()
        };
        with_element!(qkv.f_kind()?, T => {
            let (qkv, out) = (rows::<T>(qkv)?, rows_mut::<T>(attended)?);
            attention.apply(cpu, qkv, windows, numbers_mut::<T>(laid_out)?, out);
            Ok(())
        })
    }

    /// Attention of windows of equal length.
    fn group(&self, group: Group, scratch: &mut AttentionScratch) -> Result<(), DecoderError> {
        let Group {
            start,
            windows,
            len,
        } = group;
        let Sizes {
            heads,
            kv_heads,
            head_dim,
        } = self.sizes;
        let rows = scratch.qkv.f_narrow(0, start, windows * len)?;
        let part = |first: i64, count: i64| -> Result<Tensor, DecoderError> {
            let part = self.heads(&rows, first, count)?;
            Ok(part
                .f_view([windows, len, count, head_dim])?
                .f_transpose(1, 2)?)
        };
        let (queries, keys, values) = (
            part(0, heads)?,
            part(heads, kv_heads)?,
            part(heads + kv_heads, kv_heads)?,
        );
        let target = scratch
            .attended
            .f_narrow(0, start, windows * len)?
            .f_view([windows, len, heads * head_dim])?;
        let heads_of = |first: i64, count: i64| -> Result<Tensor, DecoderError> {
            // As attention gives it, `[windows, heads, count, head_dim]`.
            let rows = target.f_narrow(1, first, count)?;
            Ok(rows.f_unflatten(2, [heads, head_dim])?.f_transpose(1, 2)?)
        };
        let changed = self.softcap.is_some() || self.slopes.is_some();
        let window = self.window.filter(|window| *window < len);
        if window.is_none() && !changed {
            let attended = self.fused(&queries, &keys, &values, None)?;
            heads_of(0, len)?.f_copy_(&attended)?;
            return Ok(());
        }
        let mut first = 0;
        while first < len {
            let rows = QUERY_ROWS.min(len - first);
            let from = window.map_or(0, |window| (first + 1 - window).max(0));
            let tile = Tile {
                rows,
                keys: first + rows - from,
                before: first - from,
            };
            let queries = queries.f_narrow(2, first, rows)?;
            let keys = keys.f_narrow(2, from, tile.keys)?;
            let values = values.f_narrow(2, from, tile.keys)?;
            let mut target = heads_of(first, rows)?;
            if changed {
                // Without a window, only keys behind a query are excluded, and these are its own
                // tile's.
                let tile = match window {
                    Some(_) => tile,
                    None => Tile {
                        keys: rows,
                        before: 0,
                        ..tile
                    },
                };
                let window = window.unwrap_or(QUERY_ROWS);
                let mask = tile.mask(&mut scratch.masks, window, &queries)?;
                self.explicit([&queries, &keys, &values], &mask, from, &target)?;
            } else {
                let window = window.unwrap_or(len);
                let mask = tile.mask(&mut scratch.masks, window, &queries)?;
                target.f_copy_(&self.fused(&queries, &keys, &values, Some(&mask))?)?;
            }
            first += rows;
        }
        Ok(())
    }

    /// libtorch's fused attention; causal without a mask.
    fn fused(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor, DecoderError> {
        Ok(Tensor::f_scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask,
            0.0,
            mask.is_none(),
            Some(self.scale),
            self.sizes.heads != self.sizes.kv_heads,
        )?)
    }

    /// Attention whose scores are capped or lowered by distance, which no fused kernel does: one
    /// window at a time, so that scores exist for one tile of one window. The mask is that of the
    /// last keys; all queries attend to those before. `from` is the position of the first key,
    /// `target` what is written, `[windows, heads, rows, head_dim]`.
    fn explicit(
        &self,
        [queries, keys, values]: [&Tensor; 3],
        mask: &Tensor,
        from: i64,
        target: &Tensor,
    ) -> Result<(), DecoderError> {
        let Sizes {
            heads,
            kv_heads,
            head_dim,
        } = self.sizes;
        let (windows, _, rows, _) = queries.size4()?;
        let (_, _, count, _) = keys.size4()?;
        let kind = queries.f_kind()?;
        let bias = match &self.slopes {
            None => None,
            Some(slopes) => Some(self.distances(slopes, from, count)?),
        };
        let (_, masked) = mask.size2()?;
        for window in 0..windows {
            // The query heads of a key head are rows of one product with it.
            let grouped = queries.f_select(0, window)?.f_reshape([
                kv_heads,
                heads / kv_heads * rows,
                head_dim,
            ])?;
            let keys = keys.f_select(0, window)?.f_transpose(1, 2)?;
            let mut scores = grouped.f_matmul(&keys)?.f_mul_scalar_(self.scale)?;
            if let Some(cap) = self.softcap {
                scores = scores.f_div_scalar_(cap)?.f_tanh_()?.f_mul_scalar_(cap)?;
            }
            let mut by_head = scores.f_view([heads, rows, -1])?;
            if let Some(bias) = &bias {
                let _ = by_head.f_add_(bias)?;
            }
            let _ = by_head.f_narrow(2, count - masked, masked)?.f_add_(mask)?;
            let weights = scores.f_softmax(-1, Kind::Float)?.f_to_kind(kind)?;
            let attended = weights.f_matmul(&values.f_select(0, window)?)?;
            let attended = attended.f_view([heads, rows, head_dim])?;
            target.f_select(0, window)?.f_copy_(&attended)?;
        }
        Ok(())
    }

    /// `[heads, 1, keys]`: what is added to the scores of the keys from position `from` on. As
    /// transformers' Falcon: slope times position in bfloat16, scaled with the scores.
    fn distances(&self, slopes: &Tensor, from: i64, keys: i64) -> Result<Tensor, DecoderError> {
        let positions = Tensor::f_arange_start(from, from + keys, (Kind::Int64, slopes.device()))?;
        let products = slopes
            .f_to_kind(Kind::BFloat16)?
            .f_view([-1, 1, 1])?
            .f_mul(&positions)?;
        Ok(products.f_to_kind(Kind::Float)?.f_mul_scalar_(self.scale)?)
    }

    /// The `count` heads from `first` on of fused projections `[rows, columns]`, as a view
    /// `[rows, count, head_dim]`.
    fn heads(&self, qkv: &Tensor, first: i64, count: i64) -> Result<Tensor, DecoderError> {
        let width = self.sizes.head_dim;
        let columns = qkv.f_narrow(1, first * width, count * width)?;
        Ok(columns.f_unflatten(1, [count, width])?)
    }
}

/// The slope of each head (Press et al. 2022, as in transformers' `build_alibi_tensor`): a
/// geometric sequence for a power of two of heads, with every other term of the next longer one
/// for the heads beyond.
#[allow(clippy::cast_possible_truncation)] // to float32 is what is meant
fn slopes(heads: usize) -> Vec<f32> {
    let power = 1 << heads.ilog2();
    let base = |heads: usize| (-8.0 / heads as f64).exp2();
    let of = |base: f64, exponent: usize| base.powf(exponent as f64) as f32;
    let own = (1..=power).map(|exponent| of(base(power), exponent));
    let more = (0..heads - power).map(|index| of(base(2 * power), 2 * index + 1));
    own.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_a_power_of_two_and_of_more() {
        let close = |got: &[f32], wanted: &[f32]| {
            assert_eq!(got.len(), wanted.len());
            for (got, wanted) in got.iter().zip(wanted) {
                assert!((got - wanted).abs() < 1e-6, "{got} {wanted}");
            }
        };
        close(&slopes(4), &[0.25, 0.0625, 0.015_625, 0.003_906_25]);
        close(&slopes(6)[4..], &[0.5, 0.125]);
    }
}
