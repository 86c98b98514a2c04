//! RMS norm and layer norm.

use assay_checkpoint::{Architecture, NormKind};
use assay_kernels::{Cpu, RmsNorm};
use tch::{Kind, Tensor};

use crate::DecoderError;
use crate::engine::Engine;
use crate::profile::Stage;
use crate::view::{Element, numbers, rows, rows_mut, with_element};

/// A norm over the last dimension.
pub(crate) struct Norm {
    kind: NormKind,
    eps: f64,
    /// `[size]`, or `[heads, size]` where each head has a weight of its own.
    weight: Tensor,
    /// `[size]`.
    bias: Option<Tensor>,
}

impl Norm {
    /// The norm of an architecture, with these parameters.
    pub(crate) fn new(architecture: &Architecture, weight: Tensor, bias: Option<Tensor>) -> Self {
        Self {
            kind: architecture.norm,
            eps: architecture.norm_eps,
            weight,
            bias,
        }
    }

    /// The dtype its parameters are wanted in, where the computation is in `kind`.
    pub(crate) fn parameters_in(architecture: &Architecture, kind: Kind) -> Kind {
        match architecture.norm {
            NormKind::Rms => kind,
            NormKind::RmsFloat | NormKind::Layer => Kind::Float,
        }
    }

    /// `x`, `[rows, size]`, normed: computed in float32, in the dtype of `x`.
    pub(crate) fn apply(&self, x: &Tensor, engine: &Engine) -> Result<Tensor, DecoderError> {
        let _timer = engine.recorder.enter(Stage::Norm);
        let Some(cpu) = self.kernel(engine) else {
            return self.by_libtorch(x);
        };
        let mut out = Tensor::f_empty(x.size(), (x.f_kind()?, x.device()))?;
        with_element!(x.f_kind()?, T => {
            let (x, out) = (rows::<T>(x)?, rows_mut::<T>(&mut out)?);
            match self.kind {
                NormKind::Rms => self.parameters::<T>(true)?.apply(cpu, x, out),
                _ => self.parameters::<f32>(false)?.apply(cpu, x, out),
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Norms groups of numbers side by side in place: `x` is `[rows, groups * size]`.
    pub(crate) fn replace(
        &self,
        x: &mut Tensor,
        groups: i64,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let _timer = engine.recorder.enter(Stage::Norm);
        let Some(cpu) = self.kernel(engine) else {
            let mut x = x.f_unflatten(1, [groups, -1])?;
            let normed = self.by_libtorch(&x)?;
            x.f_copy_(&normed)?;
            return Ok(());
        };
        with_element!(x.f_kind()?, T => {
            let x = rows_mut::<T>(x)?;
            match self.kind {
                NormKind::Rms => self.parameters::<T>(true)?.apply_in_place(cpu, x),
                _ => self.parameters::<f32>(false)?.apply_in_place(cpu, x),
            }
            Ok(())
        })
    }

    /// The processor, if there is a kernel for this norm.
    fn kernel<'a>(&self, engine: &'a Engine) -> Option<Cpu<'a>> {
        engine
            .cpu()
            .filter(|_| self.kind != NormKind::Layer && self.weight.dim() == 1)
    }

    #[allow(clippy::cast_possible_truncation)] // libtorch adds it in float32 too
    fn parameters<W: Element>(&self, rounds_first: bool) -> Result<RmsNorm<'_, W>, DecoderError> {
        Ok(RmsNorm {
            weight: numbers(&self.weight)?,
            eps: self.eps as f32,
            rounds_first,
        })
    }

    fn by_libtorch(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
        let is_one = self.weight.dim() == 1 && self.weight.f_kind()? == x.f_kind()?;
        if x.device().is_cuda() && self.kind != NormKind::Layer && is_one {
            return self.fused(x);
        }
        match self.kind {
            NormKind::Rms => {
                let rounded = self.rms(x)?.f_to_kind(x.f_kind()?)?;
                Ok({ rounded }.f_mul_(&self.weight)?)
            }
            NormKind::RmsFloat => {
                let weighted = self.rms(x)?.f_mul_(&self.weight)?;
                Ok(weighted.f_to_kind(x.f_kind()?)?)
            }
            NormKind::Layer => Ok(self.layer(x)?.f_to_kind(x.f_kind()?)?),
        }
    }

    /// An RMS norm in one kernel, of a weight in the dtype of `x`: rounded once, at the end.
    fn fused(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
        Ok(x.f_rms_norm(self.weight.size(), Some(&self.weight), self.eps)?)
    }

    /// `x / sqrt(mean(x^2) + eps)` in float32.
    fn rms(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
        let exact = x.f_to_kind(Kind::Float)?; // `x` itself if it is float32
        let scale = exact
            .f_square()?
            .f_mean_dim(-1, true, Kind::Float)?
            .f_add_scalar_(self.eps)?
            .f_rsqrt_()?;
        Ok(exact.f_mul(&scale)?)
    }

    /// `(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias` in float32.
    fn layer(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
        let exact = x.f_to_kind(Kind::Float)?;
        let size = *x.size().last().unwrap_or(&0);
        // libtorch knows no weight for each head.
        let by_head = self.weight.dim() > 1;
        let weight = Some(&self.weight).filter(|_| !by_head);
        let normed = exact.f_layer_norm([size], weight, self.bias.as_ref(), self.eps, false)?;
        if by_head {
            Ok({ normed }.f_mul_(&self.weight)?)
        } else {
            Ok(normed)
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// What a GPU computes in one kernel, libtorch computes on processors too.
    #[test]
    fn one_kernel_is_the_formula() {
        tch::manual_seed(3);
        let x = Tensor::randn([7, 3, 40], (Kind::Float, Device::Cpu));
        let norm = Norm {
            kind: NormKind::Rms,
            eps: 1e-5,
            weight: Tensor::randn([40], (Kind::Float, Device::Cpu)),
            bias: None,
        };
        let (fused, plain) = (norm.fused(&x).unwrap(), norm.by_libtorch(&x).unwrap());
        assert!(fused.allclose(&plain, 1e-5, 1e-6, false));
    }
}
