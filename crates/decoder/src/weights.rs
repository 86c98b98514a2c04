//! Weights from the checkpoint to the device, one tensor at a time.

use assay_checkpoint::{Checkpoint, Slot, Weight, WeightDtype};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::signed;

/// Reads weights in one dtype to one device.
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) kind: Kind,
    pub(crate) device: Device,
}

impl Loader<'_> {
    /// The weight at `slot`, in its own shape.
    pub(crate) fn one(&self, slot: Slot) -> Result<Tensor, DecoderError> {
        let stored = stored(&self.checkpoint.weight(slot)?)?;
        Ok(stored.f_to_device(self.device)?.f_to_kind(self.kind)?)
    }

    /// The matrices at `slots` below each other, `[sum of out, in]`: projections of the same input
    /// are then one product. Space for the whole is taken first, so that never more than one of
    /// them exists twice.
    pub(crate) fn stacked(&self, slots: &[Slot], rows: usize) -> Result<Tensor, DecoderError> {
        let mut whole: Option<Tensor> = None;
        let mut start = 0;
        for &slot in slots {
            let part = stored(&self.checkpoint.weight(slot)?)?;
            let (part_rows, columns) = part.size2()?;
            let whole = match &whole {
                Some(whole) => whole,
                None => whole.insert(Tensor::f_empty(
                    [signed(rows), columns],
                    (self.kind, self.device),
                )?),
            };
            whole.f_narrow(0, start, part_rows)?.f_copy_(&part)?;
            start += part_rows;
        }
        whole
            .filter(|_| start == signed(rows))
            .ok_or_else(|| DecoderError::Torch(format!("{slots:?} have {start} rows, not {rows}")))
    }
}

/// A weight as stored, in a tensor on the CPU.
fn stored(weight: &Weight<'_>) -> Result<Tensor, DecoderError> {
    let kind = match weight.dtype {
        WeightDtype::F32 => Kind::Float,
        WeightDtype::F16 => Kind::Half,
        WeightDtype::Bf16 => Kind::BFloat16,
    };
    let shape: Vec<i64> = weight.shape.iter().map(|&size| signed(size)).collect();
    // tch copies as many bytes as the shape says, so the shape must not say more than there are.
    let expected = weight.shape.iter().product::<usize>() * kind.elt_size_in_bytes();
    if weight.data.len() != expected {
        return Err(DecoderError::Torch(format!(
            "a weight of shape {shape:?} has {} bytes instead of {expected}",
            weight.data.len(),
        )));
    }
    Ok(Tensor::f_from_data_size(&weight.data, &shape, kind)?)
}
