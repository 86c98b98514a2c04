//! Weights from the checkpoint to the device, a few rows at a time.

use std::ops::Range;

use assay_checkpoint::{Architecture, Checkpoint, LowRank, Place, Slot, WeightDtype};
use assay_kernels::{Panels, bf16};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::signed;
use crate::linear::{Layout, Linear, Weight, gated_bias};
use crate::norm::Norm;
use crate::view::{numbers_mut, rows, with_element};

/// Bytes in float32 of the rows that are on their way to the device.
pub(crate) const CHUNK: usize = 1 << 19;

/// Reads weights in one dtype to one device.
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) kind: Kind,
    pub(crate) device: Device,
    /// Whether matrices are laid out for kernels of our own.
    pub(crate) panels: bool,
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
        let weight = self.matrix(slots, Layout::Rows)?;
        let bias = self.biases(slots, self.kind)?;
        Ok(Linear { weight, bias })
    }

    /// Gate and up of an MLP, so that they meet in one product, if matrices are laid out here; else
    /// below each other.
    pub(crate) fn gated(&self, gate: Slot, up: Slot) -> Result<Linear, DecoderError> {
        let slots = [gate, up];
        if !self.panels_for(gate)? {
            return self.linears(&slots);
        }
        let weight = self.matrix(&slots, Layout::Gated)?;
        let bias = match self.biases(&slots, self.kind)? {
            None => None,
            Some(bias) => Some(gated_bias(&bias)?),
        };
        Ok(Linear { weight, bias })
    }

    /// The matrix at a place of the model without its bias, to be shared.
    pub(crate) fn shared(&self, slot: Slot) -> Result<Weight, DecoderError> {
        self.matrix(&[slot], Layout::Rows)
    }

    /// A matrix that is there already, with the bias of `slot`.
    pub(crate) fn with_bias(&self, weight: Weight, slot: Slot) -> Result<Linear, DecoderError> {
        let bias = self.biases(&[slot], self.kind)?;
        Ok(Linear { weight, bias })
    }

    /// Whether the matrix at `slot` is laid out in panels.
    fn panels_for(&self, slot: Slot) -> Result<bool, DecoderError> {
        let inputs = self.checkpoint.weight(slot)?.shape()[1];
        Ok(self.panels && (self.kind == Kind::Float || Panels::<bf16>::takes(inputs)))
    }

    /// Matrices below each other, in panels if that can be.
    fn matrix(&self, slots: &[Slot], layout: Layout) -> Result<Weight, DecoderError> {
        if !self.panels_for(slots[0])? {
            return self.stacked(slots, self.kind).map(Weight::Rows);
        }
        let mut outputs = 0;
        let mut inputs = 0;
        for slot in slots {
            let weight = self.checkpoint.weight(*slot)?;
            outputs += weight.shape()[0];
            inputs = weight.shape()[1];
        }
        let places = layout.places(outputs);
        let len = Panels::<f32>::len_of(places, inputs);
        let mut panels = Tensor::f_zeros([signed(len)], (self.kind, self.device))?;
        let mut start = 0;
        for slot in slots {
            let mut parts = Parts::new(self, *slot)?;
            while let Some((first, part)) = parts.next()? {
                let part = part.f_to_kind(self.kind)?;
                with_element!(self.kind, T => {
                    let place = |row| layout.place(start + first + row, outputs);
                    Panels::fill(numbers_mut::<T>(&mut panels)?, rows::<T>(&part)?, place);
                    Ok(())
                })?;
            }
            start += parts.rows;
            self.checkpoint.release(*slot);
        }
        Ok(Weight::Panels {
            panels,
            outputs,
            inputs,
        })
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
        let mut parts = Parts::new(self, slot)?;
        while let Some((first, part)) = parts.next()? {
            let count = part.size()[0];
            whole
                .f_narrow(0, start + signed(first), count)?
                .f_copy_(&part)?;
        }
        Ok(start + signed(parts.rows))
    }
}

/// A weight, a few rows at a time.
struct Parts<'a> {
    slot: Slot,
    weight: assay_checkpoint::Weight<'a>,
    kind: Kind,
    added: Option<Added<'a>>,
    rows: usize,
    next: usize,
}

impl<'a> Parts<'a> {
    fn new(loader: &Loader<'a>, slot: Slot) -> Result<Self, DecoderError> {
        let weight = loader.checkpoint.weight(slot)?;
        let kind = match weight.dtype() {
            WeightDtype::F32 => Kind::Float,
            WeightDtype::F16 => Kind::Half,
            WeightDtype::Bf16 => Kind::BFloat16,
        };
        let added = match weight.low_rank() {
            Some(low_rank) => Some(Added::new(low_rank, loader.device)?),
            None => None,
        };
        let rows = weight.shape()[0];
        Ok(Self {
            slot,
            weight,
            kind,
            added,
            rows,
            next: 0,
        })
    }

    /// The next rows, and the number of the first.
    fn next(&mut self) -> Result<Option<(usize, Tensor)>, DecoderError> {
        let first = self.next;
        if first >= self.rows {
            return Ok(None);
        }
        let rest = &self.weight.shape()[1..];
        let width: usize = rest.iter().product();
        let count = (CHUNK / (width * size_of::<f32>())).clamp(1, self.rows - first);
        let bytes = self.weight.rows(first..first + count);
        let mut shape = vec![signed(count)];
        shape.extend(rest.iter().map(|&size| signed(size)));
        // tch copies as many bytes as the shape says, so it must not say more than there are.
        let expected = count * width * self.kind.elt_size_in_bytes();
        if bytes.len() != expected {
            return Err(DecoderError::Torch(format!(
                "{:?} has {} bytes instead of {expected}",
                self.slot,
                bytes.len(),
            )));
        }
        let mut part = Tensor::f_from_data_size(&bytes, &shape, self.kind)?;
        if let Some(added) = &self.added {
            part = added.to(&part, first..first + count)?;
        }
        self.next += count;
        Ok(Some((first, part)))
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
