//! RMS norm and layer norm.

use assay_checkpoint::{Architecture, NormKind};
use tch::{Kind, Tensor};

use crate::DecoderError;

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

    /// `x`, normed: computed in float32, in the dtype of `x`.
    pub(crate) fn apply(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
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
