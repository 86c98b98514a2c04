//! Rotary position embedding, halves rotated against each other.

use tch::{Kind, Tensor};

use crate::DecoderError;

/// The rotation of each row of a micro-batch.
pub(crate) struct Rotation {
    /// `[rows, 1, head_dim]`, the cosines twice.
    cos: Tensor,
    /// `[rows, 1, head_dim]`, the sines negated for the first half.
    sin: Tensor,
    half: i64,
}

impl Rotation {
    /// The rotation at `positions` (`[rows]`, float32) by `frequencies` (`[head_dim / 2]`, radians
    /// per token, float32). Angles, sine and cosine are taken in float32 and then rounded to
    /// `kind`, as transformers does.
    pub(crate) fn new(
        positions: &Tensor,
        frequencies: &Tensor,
        kind: Kind,
    ) -> Result<Self, DecoderError> {
        let angles = positions.f_outer(frequencies)?;
        let (cos, sin) = (
            angles.f_cos()?.f_to_kind(kind)?,
            angles.f_sin()?.f_to_kind(kind)?,
        );
        Ok(Self {
            cos: Tensor::f_cat(&[&cos, &cos], -1)?.f_unsqueeze(1)?,
            sin: Tensor::f_cat(&[&sin.f_neg()?, &sin], -1)?.f_unsqueeze(1)?,
            half: frequencies.size1()?,
        })
    }

    /// Rotates `heads`, `[rows, heads, head_dim]`, in place: with a head's halves `(a, b)`, to
    /// `(a cos - b sin, b cos + a sin)`.
    pub(crate) fn apply(&self, heads: &mut Tensor) -> Result<(), DecoderError> {
        let swapped = heads.f_roll([self.half], [-1])?;
        let _ = heads.f_mul_(&self.cos)?;
        let _ = heads.f_addcmul_(&swapped, &self.sin)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn a_quarter_turn_swaps_the_halves() {
        let quarter = std::f32::consts::FRAC_PI_2;
        let rotation = Rotation::new(
            &Tensor::from_slice(&[0_f32, 1.0]),
            &Tensor::from_slice(&[quarter, 2.0 * quarter]),
            Kind::Float,
        )
        .unwrap();
        let row = [1_f32, 2.0, 3.0, 4.0];
        let mut heads = Tensor::from_slice(&[row, row].concat()).view([2, 1, 4]);
        rotation.apply(&mut heads).unwrap();
        let expected = Tensor::from_slice(&[1_f32, 2.0, 3.0, 4.0, -3.0, -2.0, 1.0, -4.0]);
        assert!(
            heads.view(-1).allclose(&expected, 0.0, 1e-6, false),
            "{heads}"
        );
        assert_eq!(heads.device(), Device::Cpu);
    }
}
