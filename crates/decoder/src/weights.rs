//! Weights from the checkpoint to the device, a few rows at a time.

use std::ops::Range;

use assay_checkpoint::{Architecture, Checkpoint, LowRank, Place, Slot, WeightDtype};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::signed;
use crate::norm::Norm;
use crate::torch::{Output, linear};

/// Bytes in float32 of the rows that are on their way to the device.
pub(crate) const CHUNK: usize = 1 << 19;

/// Reads weights in one dtype to one device.
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) kind: Kind,
    pub(crate) device: Device,
}

/// A matrix `[out, in]`, and what is added to its products.
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// `out = x @ weight^T + bias`, or the same added to `out`.
    pub(crate) fn apply(
        &self,
        x: &Tensor,
        out: &mut Tensor,
        output: Output,
    ) -> Result<(), DecoderError> {
        linear(x, &self.weight, out, output)?;
        if let Some(bias) = &self.bias {
            let _ = out.f_add_(bias)?;
        }
        Ok(())
    }

    /// A product into new memory.
    pub(crate) fn of(&self, x: &Tensor) -> Result<Tensor, DecoderError> {
        let (rows, _) = x.size2()?;
        let (columns, _) = self.weight.size2()?;
        let mut out = Tensor::f_empty([rows, columns], (x.f_kind()?, x.device()))?;
        self.apply(x, &mut out, Output::Replace)?;
        Ok(out)
    }
}

impl Loader<'_> {
    fn architecture(&self) -> &Architecture {
        self.checkpoint.architecture()
    }

    /// The weight at `slot`, in its own shape.
    pub(crate) fn one(&self, slot: Slot) -> Result<Tensor, DecoderError> {
        self.stacked(&[slot], self.kind)
    }

    /// The matrix at `slot` with its bias.
    pub(crate) fn linear(&self, slot: Slot) -> Result<Linear, DecoderError> {
        self.linears(&[slot])
    }

    /// The matrices at `slots` below each other with their biases: projections of the same input
    /// are then one product.
    pub(crate) fn linears(&self, slots: &[Slot]) -> Result<Linear, DecoderError> {
        let weight = self.stacked(slots, self.kind)?;
        let bias = self.biases(slots, self.kind)?;
        Ok(Linear { weight, bias })
    }

    /// A matrix that is there already, with the bias of `slot`.
    pub(crate) fn with_bias(&self, weight: Tensor, slot: Slot) -> Result<Linear, DecoderError> {
        let bias = self.biases(&[slot], self.kind)?;
        Ok(Linear { weight, bias })
    }

    /// The biases of weights below each other, if they have any.
    fn biases(&self, slots: &[Slot], kind: Kind) -> Result<Option<Tensor>, DecoderError> {
        if !self.architecture().has_bias(slots[0].place) {
            return Ok(None);
        }
        let biases: Vec<Slot> = slots.iter().map(|slot| slot.bias()).collect();
        self.stacked(&biases, kind).map(Some)
    }

    /// The norm at `slot`; its weight has `heads` rows if each head has its own.
    pub(crate) fn norm(&self, slot: Slot, heads: Option<usize>) -> Result<Norm, DecoderError> {
        let architecture = self.architecture();
        let kind = Norm::parameters_in(architecture, self.kind);
        let mut weight = self.stacked(&[slot], kind)?;
        if let Some(heads) = heads {
            weight = weight.f_view([signed(heads), -1])?;
        }
        let bias = self.biases(&[slot], kind)?;
        Ok(Norm::new(architecture, weight, bias))
    }

    /// The norm at a place of a block, if `present`.
    pub(crate) fn norm_if(
        &self,
        present: bool,
        layer: usize,
        place: Place,
    ) -> Result<Option<Norm>, DecoderError> {
        if !present {
            return Ok(None);
        }
        self.norm(Slot::block(layer, place), None).map(Some)
    }

    /// Weights below each other. Space for the whole is taken first and filled a few rows at a
    /// time, so that nothing of any size exists twice.
    fn stacked(&self, slots: &[Slot], kind: Kind) -> Result<Tensor, DecoderError> {
        let mut shape: Vec<i64> = Vec::new();
        for slot in slots {
            let own = self.checkpoint.weight(*slot)?.shape().to_vec();
            let rows = shape.first().copied().unwrap_or(0) + signed(own[0]);
            shape = own.iter().map(|&size| signed(size)).collect();
            shape[0] = rows;
        }
        let whole = Tensor::f_empty(&shape, (kind, self.device))?;
        let mut start = 0;
        for slot in slots {
            start = self.fill(*slot, &whole, start)?;
            self.checkpoint.release(*slot);
        }
        Ok(whole)
    }

    /// Writes a weight into the rows of `whole` from `start` on; the row behind its last.
    fn fill(&self, slot: Slot, whole: &Tensor, start: i64) -> Result<i64, DecoderError> {
        let weight = self.checkpoint.weight(slot)?;
        let kind = match weight.dtype() {
            WeightDtype::F32 => Kind::Float,
            WeightDtype::F16 => Kind::Half,
            WeightDtype::Bf16 => Kind::BFloat16,
        };
        let (rows, rest) = (weight.shape()[0], &weight.shape()[1..]);
        let width: usize = rest.iter().product();
        let step = (CHUNK / (width * size_of::<f32>())).max(1);
        let added = match weight.low_rank() {
            Some(low_rank) => Some(Added::new(low_rank, self.device)?),
            None => None,
        };
        let mut first = 0;
        while first < rows {
            let count = step.min(rows - first);
            let bytes = weight.rows(first..first + count);
            let mut shape = vec![signed(count)];
            shape.extend(rest.iter().map(|&size| signed(size)));
            // tch copies as many bytes as the shape says, so it must not say more than there are.
            let expected = count * width * kind.elt_size_in_bytes();
            if bytes.len() != expected {
                return Err(DecoderError::Torch(format!(
                    "{slot:?} has {} bytes instead of {expected}",
                    bytes.len(),
                )));
            }
            let mut part = Tensor::f_from_data_size(&bytes, &shape, kind)?;
            if let Some(added) = &added {
                part = added.to(&part, first..first + count)?;
            }
            let target = whole.f_narrow(0, start + signed(first), signed(count))?;
            { target }.f_copy_(&part)?;
            first += count;
        }
        Ok(start + signed(rows))
    }
}

/// What an adapter adds to a weight, with the right matrix on the device.
struct Added<'a> {
    low_rank: LowRank<'a>,
    /// `[rank, columns]`, float32.
    right: Tensor,
}

impl<'a> Added<'a> {
    fn new(low_rank: LowRank<'a>, device: Device) -> Result<Self, DecoderError> {
        let right = Tensor::f_from_slice(&low_rank.right())?
            .f_view([signed(low_rank.rank()), -1])?
            .f_to_device(device)?;
        Ok(Self { low_rank, right })
    }

    /// Rows of the weight with what is added to them, in float32: as PEFT merges, but for the
    /// rounding of a weight that is stored in less. On the device, so that all devices of a kind
    /// get the same bits, whatever the processor beside them.
    fn to(&self, part: &Tensor, rows: Range<usize>) -> Result<Tensor, DecoderError> {
        let device = self.right.device();
        let left = Tensor::f_from_slice(&self.low_rank.left(rows))?
            .f_view([-1, signed(self.low_rank.rank())])?
            .f_to_device(device)?;
        let product = left.f_matmul(&self.right)?;
        let part = part.f_to_device(device)?.f_to_kind(Kind::Float)?;
        Ok({ product }
            .f_mul_scalar_(self.low_rank.scale())?
            .f_add_(&part)?)
    }
}
