//! RMS norm.

use tch::{Kind, Tensor};

use crate::DecoderError;

/// `x / sqrt(mean(x^2) + eps)` over the last dimension in float32, rounded to the dtype of `x`,
/// then times `weight`: the order of transformers' `LlamaRMSNorm`.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor, DecoderError> {
    let exact = x.f_to_kind(Kind::Float)?; // `x` itself if it is float32
    let scale = exact
        .f_square()?
        .f_mean_dim(-1, true, Kind::Float)?
        .f_add_scalar_(eps)?
        .f_rsqrt_()?;
    Ok(exact
        .f_mul(&scale)?
        .f_to_kind(x.f_kind()?)?
        .f_mul_(weight)?)
}
