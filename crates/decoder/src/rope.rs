//! Rotary position embedding, halves rotated against each other.

use assay_checkpoint::Rope;
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Batch, signed};
use crate::engine::Engine;
use crate::profile::Stage;
use crate::view::{rows, rows_mut, with_element};

/// The frequencies of a rotary embedding.
pub(crate) struct Frequencies {
    /// `[dims / 2]`, float32, radians per token.
    usual: Tensor,
    /// Those of windows of more than so many tokens, where these differ.
    long: Option<(i64, Tensor)>,
    magnitude: f64,
}

impl Frequencies {
    pub(crate) fn new(rope: &Rope, device: Device) -> Result<Self, DecoderError> {
        let of = |tokens: usize| -> Result<Tensor, DecoderError> {
            Ok(Tensor::f_from_slice(&rope.frequencies(tokens))?.f_to_device(device)?)
        };
        let long = match rope.switches_after() {
            Some(limit) => Some((signed(limit), of(limit + 1)?)),
            None => None,
        };
        Ok(Self {
            usual: of(1)?,
            long,
            magnitude: rope.magnitude(),
        })
    }

    /// The rotation of each row of a micro-batch; `positions` are its positions, `[rows]`, float32.
    pub(crate) fn rotation(
        &self,
        batch: &Batch,
        positions: &Tensor,
        kind: Kind,
        engine: &Engine,
    ) -> Result<Rotation, DecoderError> {
        let _timer = engine.recorder.enter(Stage::Rotary);
        let angles = positions.f_outer(&self.usual)?;
        if let Some((limit, long)) = &self.long {
            for group in batch.groups.iter().filter(|group| group.len > *limit) {
                let rows = group.windows * group.len;
                let part = positions.f_narrow(0, group.start, rows)?.f_outer(long)?;
                angles.f_narrow(0, group.start, rows)?.f_copy_(&part)?;
            }
        }
        Rotation::new(&angles, self.magnitude, kind, engine)
    }
}

/// The rotation of each row of a micro-batch.
pub(crate) struct Rotation {
    /// Cosines `[rows, half]`; where libtorch computes, twice side by side, `[rows, 1, 2 * half]`.
    cos: Tensor,
    /// Sines `[rows, half]`; where libtorch computes, negated and then as they are.
    sin: Tensor,
    half: i64,
}

impl Rotation {
    /// The rotation by `angles`, `[rows, dims / 2]`, float32. Sine and cosine are taken in
    /// float32, multiplied by `magnitude` and then rounded to `kind`, as transformers does.
    fn new(
        angles: &Tensor,
        magnitude: f64,
        kind: Kind,
        engine: &Engine,
    ) -> Result<Self, DecoderError> {
        let (_, half) = angles.size2()?;
        let rounded = |values: Tensor| -> Result<Tensor, DecoderError> {
            Ok({ values }.f_mul_scalar_(magnitude)?.f_to_kind(kind)?)
        };
        let (mut cos, mut sin) = (rounded(angles.f_cos()?)?, rounded(angles.f_sin()?)?);
        if engine.cpu().is_none() {
            cos = Tensor::f_cat(&[&cos, &cos], -1)?.f_unsqueeze(1)?;
            sin = Tensor::f_cat(&[&sin.f_neg()?, &sin], -1)?.f_unsqueeze(1)?;
        }
        Ok(Self { cos, sin, half })
    }

    /// Rotates the first `dims` numbers of each head of `x`, `[rows, heads * head_dim]`, in place:
    /// with their halves `(a, b)`, to `(a cos - b sin, b cos + a sin)`.
    pub(crate) fn apply(
        &self,
        x: &mut Tensor,
        head_dim: i64,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let _timer = engine.recorder.enter(Stage::Rotary);
        if let Some(cpu) = engine.cpu() {
            let head_dim = usize::try_from(head_dim).unwrap_or(0);
            return with_element!(x.f_kind()?, T => {
                let angles = [rows::<T>(&self.cos)?, rows::<T>(&self.sin)?];
                assay_kernels::rotate(cpu, rows_mut::<T>(x)?, head_dim, angles);
                Ok(())
            });
        }
        let heads = x.f_unflatten(1, [-1, head_dim])?;
        let mut rotated = heads.f_narrow(2, 0, 2 * self.half)?;
        let swapped = rotated.f_roll([self.half], [-1])?;
        let _ = rotated.f_mul_(&self.cos)?;
        let _ = rotated.f_addcmul_(&swapped, &self.sin)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Products;

    #[test]
    fn a_quarter_turn_swaps_the_halves_and_the_rest_stays() {
        let engine = Engine::new(Device::Cpu, Products::Libtorch, 5).unwrap();
        let quarter = std::f32::consts::FRAC_PI_2;
        let angles = Tensor::from_slice(&[0_f32, 0.0, quarter, 2.0 * quarter]).view([2, 2]);
        let rotation = Rotation::new(&angles, 1.0, Kind::Float, &engine).unwrap();
        let row = [1_f32, 2.0, 3.0, 4.0, 5.0];
        let mut heads = Tensor::from_slice(&[row, row].concat()).view([2, 5]);
        rotation.apply(&mut heads, 5, &engine).unwrap();
        let expected = Tensor::from_slice(&[1_f32, 2.0, 3.0, 4.0, 5.0, -3.0, -2.0, 1.0, -4.0, 5.0]);
        assert!(
            heads.view(-1).allclose(&expected, 0.0, 1e-6, false),
            "{heads}"
        );
    }
}
