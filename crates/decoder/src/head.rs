//! From the residual stream to the negative log-likelihood of the targets.

use assay_kernels::Logits;
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Batch, signed};
use crate::engine::Engine;
use crate::linear::Linear;
use crate::loss::nll;
use crate::model::HEAD_ROWS;
use crate::norm::Norm;
use crate::profile::Stage;
use crate::torch::Output;
use crate::view::{rows, with_element};

/// What follows the last block.
pub(crate) struct Head {
    pub(crate) norm: Option<Norm>,
    /// From the residual stream to the width of the embedding, where they differ.
    pub(crate) project: Option<Linear>,
    /// `[vocab_size, embedding]`; the embedding itself when tied.
    pub(crate) linear: Linear,
    pub(crate) vocab_size: usize,
    /// Multiplies logits.
    pub(crate) scale: f64,
    /// Bounds them.
    pub(crate) softcap: Option<f64>,
}

/// The rows that count and their targets, on the device.
struct Counted {
    /// Row numbers, filled up with row 0 to a multiple of [`HEAD_ROWS`].
    rows: Tensor,
    targets: Tensor,
}

impl Counted {
    /// From the host in two copies, which on a GPU nothing waits for.
    fn new(batch: &Batch, device: Device) -> Result<Self, DecoderError> {
        let mut padded = batch.counted.clone();
        padded.resize(padded.len().next_multiple_of(HEAD_ROWS), 0);
        Ok(Self {
            rows: crate::torch::upload(&padded, device)?,
            targets: crate::torch::upload(&batch.targets, device)?,
        })
    }
}

impl Head {
    /// The NLL in nats of each target of the batch; `outputs` is the residual stream after the
    /// last block, `[rows, hidden]`.
    pub(crate) fn nll(
        &self,
        outputs: &Tensor,
        batch: &Batch,
        engine: &Engine,
    ) -> Result<Vec<f64>, DecoderError> {
        let _timer = engine.recorder.enter(Stage::Head);
        if self.linear.is_fused() {
            return self.fused(outputs, batch, engine);
        }
        let counted = Counted::new(batch, outputs.device())?;
        let options = (outputs.f_kind()?, outputs.device());
        let shape = [signed(HEAD_ROWS), signed(self.vocab_size)];
        let mut logits = Tensor::f_empty(shape, options)?;
        // Collected before one of them is waited for.
        let mut on_device = Vec::new();
        let mut values = Vec::with_capacity(batch.targets.len());
        for (chunk, targets) in batch.targets.chunks(HEAD_ROWS).enumerate() {
            let start = signed(chunk * HEAD_ROWS);
            let x = self.input(outputs, &counted.rows.f_narrow(0, start, shape[0])?, engine)?;
            self.linear
                .apply(&x, &mut logits, Output::Replace, engine)?;
            let mut counted_logits = logits.f_narrow(0, 0, signed(targets.len()))?;
            let _timer = engine.recorder.enter(Stage::Loss);
            if let Some(cpu) = engine.cpu() {
                let targets = unsigned(targets);
                values.extend(with_element!(options.0, T => {
                    let logits = rows::<T>(&counted_logits)?;
                    Ok(assay_kernels::nll(cpu, logits, self.logits(), &targets))
                })?);
            } else {
                self.change(&mut counted_logits)?;
                let targets = counted.targets.f_narrow(0, start, signed(targets.len()))?;
                on_device.push(nll(&counted_logits, &targets)?);
            }
        }
        if !on_device.is_empty() {
            let _timer = engine.recorder.enter(Stage::Loss);
            values = Vec::try_from(Tensor::f_cat(&on_device, 0)?)?;
        }
        Ok(values)
    }

    /// Products and losses by a kernel of our own: logits exist a few at a time.
    fn fused(
        &self,
        outputs: &Tensor,
        batch: &Batch,
        engine: &Engine,
    ) -> Result<Vec<f64>, DecoderError> {
        let counted = Tensor::f_from_slice(&batch.counted)?;
        let x = self.input(outputs, &counted, engine)?;
        let targets = unsigned(&batch.targets);
        with_element!(x.f_kind()?, T => {
            let (Some(cpu), Some(weight)) = (engine.multiplies(), self.linear.panels::<T>()?) else {
                return Err(DecoderError::Torch("no panels of the head".to_owned()));
            };
            let head = assay_kernels::Head {
                weight,
                bias: self.linear.bias()?,
                vocab_size: self.vocab_size,
                logits: self.logits(),
            };
            Ok(head.nll(cpu, rows::<T>(&x)?, &targets))
        })
    }

    /// What the head multiplies: the rows with these numbers.
    fn input(
        &self,
        outputs: &Tensor,
        counted: &Tensor,
        engine: &Engine,
    ) -> Result<Tensor, DecoderError> {
        let mut x = outputs.f_index_select(0, counted)?;
        if let Some(norm) = &self.norm {
            x = norm.apply(&x, engine)?;
        }
        match &self.project {
            Some(project) => project.of(&x, engine),
            None => Ok(x),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // logits are float32
    fn logits(&self) -> Logits {
        Logits {
            scale: self.scale as f32,
            softcap: self.softcap.map(|cap| cap as f32),
        }
    }

    /// Makes logits of the head's outputs.
    fn change(&self, outputs: &mut Tensor) -> Result<(), DecoderError> {
        if self.scale.to_bits() != 1_f64.to_bits() {
            let _ = outputs.f_mul_scalar_(self.scale)?;
        }
        if let Some(cap) = self.softcap {
            let _ = outputs.f_div_scalar_(cap)?.f_tanh_()?.f_mul_scalar_(cap)?;
        }
        Ok(())
    }

    /// Computes the products with the head for so many rows, and nothing else.
    pub(crate) fn products(
        &self,
        rows: usize,
        options: (Kind, Device),
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let (outputs, inputs) = self.linear.size()?;
        if !self.linear.is_fused() {
            let x = Tensor::f_zeros([signed(HEAD_ROWS), inputs], options)?;
            let mut logits = Tensor::f_empty([signed(HEAD_ROWS), outputs], options)?;
            for _ in 0..rows.div_ceil(HEAD_ROWS) {
                self.linear
                    .apply(&x, &mut logits, Output::Replace, engine)?;
            }
            return Ok(());
        }
        let x = Tensor::f_zeros([signed(rows), inputs], options)?;
        self.linear.in_parts(&x, engine)
    }
}

fn unsigned(targets: &[i64]) -> Vec<usize> {
    targets
        .iter()
        .map(|&id| usize::try_from(id).unwrap_or(usize::MAX))
        .collect()
}
