//! Products with weights.

use assay_kernels::{After, PANEL, Panels, gated_slots, product};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::signed;
use crate::engine::Engine;
use crate::profile::Stage;
use crate::torch::{Output, linear};
use crate::view::{Element, numbers, numbers_mut, rows, rows_mut, with_element};

/// A matrix `[outputs, inputs]`.
pub(crate) enum Weight {
    /// As libtorch multiplies it.
    Rows(Tensor),
    /// As kernels of our own do: see [`Panels`].
    Panels {
        panels: Tensor,
        outputs: usize,
        inputs: usize,
    },
}

/// How rows are laid out in panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In their order.
    Rows,
    /// The first half of the rows are gates, the second their ups: see [`gated_slots`].
    Gated,
}

impl Layout {
    /// Places for so many rows.
    pub(crate) fn places(self, outputs: usize) -> usize {
        match self {
            Self::Rows => outputs,
            Self::Gated => (outputs / 2).div_ceil(PANEL / 2) * PANEL,
        }
    }

    /// The place of a row.
    pub(crate) fn place(self, row: usize, outputs: usize) -> usize {
        match self {
            Self::Rows => row,
            Self::Gated => {
                let half = outputs / 2;
                gated_slots(row % half)[row / half]
            }
        }
    }
}

/// The bias of gates and ups below each other, where [`Layout::Gated`] has their rows; zero
/// elsewhere.
pub(crate) fn gated_bias(bias: &Tensor) -> Result<Tensor, DecoderError> {
    let outputs = bias.numel();
    let places = Layout::Gated.places(outputs);
    let mut laid_out = Tensor::f_zeros([signed(places)], (bias.f_kind()?, Device::Cpu))?;
    with_element!(bias.f_kind()?, T => {
        let (from, to) = (numbers::<T>(bias)?, numbers_mut::<T>(&mut laid_out)?);
        for (row, number) in from.iter().enumerate() {
            to[Layout::Gated.place(row, outputs)] = *number;
        }
        Ok(())
    })?;
    Ok(laid_out)
}

impl Weight {
    /// The same memory once more.
    pub(crate) fn shared(&self) -> Self {
        match self {
            Self::Rows(rows) => Self::Rows(rows.shallow_clone()),
            Self::Panels {
                panels,
                outputs,
                inputs,
            } => Self::Panels {
                panels: panels.shallow_clone(),
                outputs: *outputs,
                inputs: *inputs,
            },
        }
    }

    /// Its rows with these numbers, `[rows, inputs]`.
    pub(crate) fn select(&self, ids: &Tensor) -> Result<Tensor, DecoderError> {
        match self {
            Self::Rows(rows) => Ok(rows.f_index_select(0, ids)?),
            Self::Panels { panels, inputs, .. } => {
                let ids: Vec<i64> = Vec::try_from(ids)?;
                let kind = panels.f_kind()?;
                let shape = [signed(ids.len()), signed(*inputs)];
                let mut out = Tensor::f_empty(shape, (kind, Device::Cpu))?;
                with_element!(kind, T => {
                    let panels = Panels::new(numbers::<T>(panels)?, *inputs);
                    let rows = numbers_mut::<T>(&mut out)?.chunks_exact_mut(*inputs);
                    for (id, row) in ids.iter().zip(rows) {
                        panels.copy_row(usize::try_from(*id).unwrap_or(usize::MAX), row);
                    }
                    Ok(())
                })?;
                Ok(out)
            }
        }
    }
}

/// A matrix `[outputs, inputs]`, and what is added to its products.
pub(crate) struct Linear {
    pub(crate) weight: Weight,
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    /// Outputs and inputs.
    pub(crate) fn size(&self) -> Result<(i64, i64), DecoderError> {
        match &self.weight {
            Weight::Rows(rows) => Ok(rows.size2()?),
            Weight::Panels {
                outputs, inputs, ..
            } => Ok((signed(*outputs), signed(*inputs))),
        }
    }

    /// Columns of the product alone, what fills up panels included, and inputs.
    pub(crate) fn width(&self) -> Result<(i64, i64), DecoderError> {
        match &self.weight {
            Weight::Rows(rows) => Ok(rows.size2()?),
            Weight::Panels { panels, inputs, .. } => {
                Ok((signed(panels.numel() / inputs), signed(*inputs)))
            }
        }
    }

    /// `out = x @ weight^T` and nothing else; `out` is `[rows, width]`.
    pub(crate) fn product_alone(
        &self,
        x: &Tensor,
        out: &mut Tensor,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        if let Weight::Rows(weight) = &self.weight {
            return linear(x, weight, out, Output::Replace);
        }
        with_element!(x.f_kind()?, T => {
            let (Some(cpu), Some(weight)) = (engine.multiplies(), self.panels::<T>()?) else {
                return Err(DecoderError::Torch("no panels to multiply with".to_owned()));
            };
            product(cpu, rows::<T>(x)?, weight, None, After::Replace, rows_mut::<T>(out)?);
            Ok(())
        })
    }

    /// Whether what follows a product can be done with it.
    pub(crate) fn is_fused(&self) -> bool {
        matches!(self.weight, Weight::Panels { .. })
    }

    /// `out = x @ weight^T + bias`, or the same added to `out`.
    pub(crate) fn apply(
        &self,
        x: &Tensor,
        out: &mut Tensor,
        output: Output,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let _timer = engine.recorder.enter(Stage::Products);
        match &self.weight {
            Weight::Rows(weight) => {
                linear(x, weight, out, output)?;
                if let Some(bias) = &self.bias {
                    let _ = out.f_add_(bias)?;
                }
                Ok(())
            }
            Weight::Panels { .. } => {
                let after = match output {
                    Output::Replace => After::Replace,
                    Output::Add => After::Add,
                };
                self.multiply(x, out, after, engine)
            }
        }
    }

    /// `out = after(x @ weight^T + bias)`, where [`Linear::is_fused`].
    pub(crate) fn multiply(
        &self,
        x: &Tensor,
        out: &mut Tensor,
        after: After,
        engine: &Engine,
    ) -> Result<(), DecoderError> {
        let _timer = engine.recorder.enter(Stage::Products);
        with_element!(x.f_kind()?, T => {
            let (Some(cpu), Some(weight)) = (engine.multiplies(), self.panels::<T>()?) else {
                return Err(DecoderError::Torch("no panels to multiply with".to_owned()));
            };
            product(cpu, rows::<T>(x)?, weight, self.bias()?, after, rows_mut::<T>(out)?);
            Ok(())
        })
    }

    /// Computes the product with `x` and nothing else, a part of the outputs at a time, where
    /// [`Linear::is_fused`].
    pub(crate) fn in_parts(&self, x: &Tensor, engine: &Engine) -> Result<(), DecoderError> {
        /// Panels of a part.
        const PANELS: usize = 16;
        let (rows_of_x, _) = x.size2()?;
        let options = (x.f_kind()?, x.device());
        let out = Tensor::f_empty([rows_of_x, signed(PANELS * PANEL)], options)?;
        with_element!(options.0, T => {
            let (Some(cpu), Some(weight)) = (engine.multiplies(), self.panels::<T>()?) else {
                return Err(DecoderError::Torch("no panels to multiply with".to_owned()));
            };
            for first in (0..weight.count()).step_by(PANELS) {
                let part = weight.part(first, PANELS);
                let mut out = out.f_narrow(1, 0, signed(part.count() * PANEL))?;
                let out = rows_mut::<T>(&mut out)?;
                product(cpu, rows::<T>(x)?, part, None, After::Replace, out);
            }
            Ok(())
        })
    }

    /// The matrix in panels, if it is.
    pub(crate) fn panels<T: Element + assay_kernels::Factor>(
        &self,
    ) -> Result<Option<Panels<'_, T>>, DecoderError> {
        match &self.weight {
            Weight::Rows(_) => Ok(None),
            Weight::Panels { panels, inputs, .. } => {
                Ok(Some(Panels::new(numbers::<T>(panels)?, *inputs)))
            }
        }
    }

    /// The numbers of the bias.
    pub(crate) fn bias<T: Element>(&self) -> Result<Option<&[T]>, DecoderError> {
        self.bias.as_ref().map(numbers::<T>).transpose()
    }

    /// A product into new memory.
    pub(crate) fn of(&self, x: &Tensor, engine: &Engine) -> Result<Tensor, DecoderError> {
        let (rows, _) = x.size2()?;
        let (columns, _) = self.size()?;
        let mut out = Tensor::f_empty([rows, columns], (x.f_kind()?, x.device()))?;
        self.apply(x, &mut out, Output::Replace, engine)?;
        Ok(out)
    }
}

/// Empty memory for products.
pub(crate) fn space(
    rows: i64,
    columns: i64,
    options: (Kind, Device),
) -> Result<Tensor, DecoderError> {
    Ok(Tensor::f_empty([rows, columns], options)?)
}
