//! The negative log-likelihood of targets under logits.

use tch::{Kind, Tensor};

use crate::DecoderError;

/// Terms that may be added in float32 before the sum goes on in float64. A float32 sum over a
/// whole vocabulary would be off by some 1e-6.
const FLOAT32_TERMS: i64 = 1024;
/// Rows taken at a time, so that the passes over them find them in cache.
const ROWS: i64 = 16;

/// `-ln softmax(logits)[target]` of each row in nats, float64 `[rows]`.
///
/// `logits` is `[rows, vocab_size]`, float32 or bfloat16, and is overwritten; `targets` is
/// `[rows]`, int64. Maximum and exponential are float32, the sum is float64 over float32 blocks of
/// [`FLOAT32_TERMS`], logarithm and subtraction are float64. NaN in a row, or an infinite maximum,
/// gives NaN.
pub(crate) fn nll(logits: &Tensor, targets: &Tensor) -> Result<Tensor, DecoderError> {
    let (rows, vocab_size) = logits.size2()?;
    let blocked = vocab_size - vocab_size % FLOAT32_TERMS;
    let mut parts = Vec::new();
    let mut start = 0;
    while start < rows {
        let len = ROWS.min(rows - start);
        let mut logits = logits.f_narrow(0, start, len)?.f_to_kind(Kind::Float)?;
        let targets = targets.f_narrow(0, start, len)?.f_unsqueeze(1)?;
        let highest = logits.f_amax(-1, true)?;
        let wanted = logits.f_gather(1, &targets, false)?;

        let terms = logits.f_sub_(&highest)?.f_exp_()?;
        let blocks = terms
            .f_narrow(1, 0, blocked)?
            .f_unflatten(1, [-1, FLOAT32_TERMS])?;
        let rest = terms.f_narrow(1, blocked, vocab_size - blocked)?;
        let mut sum = sum_last(&sum_last(&blocks, Kind::Float)?, Kind::Double)?;
        let sum = sum.f_add_(&sum_last(&rest, Kind::Float)?.f_to_kind(Kind::Double)?)?;

        let margin = highest
            .f_to_kind(Kind::Double)?
            .f_sub(&wanted.f_to_kind(Kind::Double)?)?;
        parts.push(sum.f_log()?.f_add(&margin.f_squeeze_dim(1)?)?);
        start += len;
    }
    Ok(Tensor::f_cat(&parts, 0)?)
}

fn sum_last(x: &Tensor, kind: Kind) -> Result<Tensor, DecoderError> {
    Ok(x.f_sum_dim_intlist(-1, false, kind)?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn of(logits: &Tensor, targets: &[i64]) -> Vec<f64> {
        Vec::try_from(nll(&logits.copy(), &Tensor::from_slice(targets)).unwrap()).unwrap()
    }

    /// The same in float64 throughout, without a shift by the maximum.
    fn reference(logits: &Tensor, targets: &[i64]) -> Vec<f64> {
        let wide = logits.to_kind(Kind::Double);
        let wanted = wide
            .gather(1, &Tensor::from_slice(targets).unsqueeze(1), false)
            .squeeze();
        Vec::try_from(wide.exp().sum_dim_intlist(1, false, Kind::Double).log() - wanted).unwrap()
    }

    #[test]
    fn a_large_vocabulary_is_summed_to_float64_precision() {
        tch::manual_seed(1);
        let rows = 35; // two full slices of rows and a rest
        let logits = Tensor::randn([rows, 49_152 + 77], (Kind::Float, Device::Cpu)) * 3.0;
        let targets: Vec<i64> = (0..rows).map(|row| row * 1000).collect();
        for (got, wanted) in of(&logits, &targets)
            .into_iter()
            .zip(reference(&logits, &targets))
        {
            assert!((got - wanted).abs() < 3e-7, "{got} {wanted}");
        }
    }

    #[test]
    fn small_vocabularies_and_both_dtypes_agree_with_the_definition() {
        for (vocab_size, kind) in [
            (1, Kind::Float),
            (1024, Kind::BFloat16),
            (300, Kind::BFloat16),
        ] {
            tch::manual_seed(2);
            let logits = Tensor::randn([3, vocab_size], (Kind::Float, Device::Cpu)).to_kind(kind);
            let targets = [0, vocab_size / 2, vocab_size - 1];
            for (got, wanted) in of(&logits, &targets)
                .into_iter()
                .zip(reference(&logits, &targets))
            {
                assert!(
                    (got - wanted).abs() < 1e-6,
                    "{vocab_size} {kind:?}: {got} {wanted}"
                );
            }
        }
    }

    #[test]
    fn a_certain_target_costs_nothing_and_an_impossible_one_everything() {
        let logits = Tensor::from_slice(&[0_f32, f32::NEG_INFINITY, 1000.0]).view([1, 3]);
        assert_eq!(of(&logits, &[2]), [0.0]);
        assert_eq!(of(&logits, &[0]), [1000.0]);
        assert_eq!(of(&logits, &[1]), [f64::INFINITY]);
    }

    #[test]
    fn what_is_not_a_number_stays_so_in_its_row_only() {
        for bad in [f32::NAN, f32::INFINITY] {
            let logits = Tensor::from_slice(&[0.0, bad, 0.0, 0.0, 0.0, 0.0]).view([2, 3]);
            let got = of(&logits, &[0, 0]);
            assert!(
                got[0].is_nan() && (got[1] - 3_f64.ln()).abs() < 1e-7,
                "{got:?}"
            );
        }
    }
}
