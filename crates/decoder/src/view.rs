//! The memory of libtorch's tensors as slices.
//!
//! Kernels take slices, and libtorch has none; this module and `torch.rs` are the only places with
//! `unsafe`.
#![allow(unsafe_code)]

use assay_kernels::{Number, Rows, RowsMut, bf16};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;

/// A dtype that kernels compute in.
pub(crate) trait Element: Number {
    /// Its name in libtorch.
    const KIND: Kind;
}

impl Element for f32 {
    const KIND: Kind = Kind::Float;
}

impl Element for bf16 {
    const KIND: Kind = Kind::BFloat16;
}

/// Runs an expression with `$element` standing for the dtype of a [`Kind`].
macro_rules! with_element {
    ($kind:expr, $element:ident => $body:expr) => {
        match $kind {
            tch::Kind::Float => {
                type $element = f32;
                $body
            }
            tch::Kind::BFloat16 => {
                type $element = assay_kernels::bf16;
                $body
            }
            other => Err($crate::DecoderError::Torch(format!(
                "kernels do not know {other:?}"
            ))),
        }
    };
}
pub(crate) use with_element;

/// A matrix whose columns lie side by side.
pub(crate) fn rows<T: Element>(tensor: &Tensor) -> Result<Rows<'_, T>, DecoderError> {
    let Shape {
        count,
        columns,
        stride,
        len,
    } = shape::<T>(tensor)?;
    // SAFETY: a live tensor's memory on the host, of this dtype, as long as its shape says. Nothing
    // writes to it meanwhile: writers hold other tensors.
    let data = unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<T>(), len) };
    Ok(Rows::new(data, count, columns, stride))
}

/// The same, to be written. Tensors that share its memory are not read meanwhile.
pub(crate) fn rows_mut<T: Element>(tensor: &mut Tensor) -> Result<RowsMut<'_, T>, DecoderError> {
    let Shape {
        count,
        columns,
        stride,
        len,
    } = shape::<T>(tensor)?;
    // SAFETY: as above, and the caller has the tensor alone.
    let data = unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<T>(), len) };
    Ok(RowsMut::new(data, count, columns, stride))
}

/// All numbers of a contiguous tensor.
pub(crate) fn numbers<T: Element>(tensor: &Tensor) -> Result<&[T], DecoderError> {
    let len = flat::<T>(tensor)?;
    // SAFETY: as of `rows`.
    Ok(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<T>(), len) })
}

/// The same, to be written.
pub(crate) fn numbers_mut<T: Element>(tensor: &mut Tensor) -> Result<&mut [T], DecoderError> {
    let len = flat::<T>(tensor)?;
    // SAFETY: as of `rows_mut`.
    Ok(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<T>(), len) })
}

struct Shape {
    count: usize,
    columns: usize,
    stride: usize,
    len: usize,
}

fn shape<T: Element>(tensor: &Tensor) -> Result<Shape, DecoderError> {
    check::<T>(tensor)?;
    let (count, columns) = tensor.size2()?;
    let strides = tensor.stride();
    if columns > 1 && strides[1] != 1 {
        return Err(DecoderError::Torch("columns lie apart".to_owned()));
    }
    let of = |size: i64| usize::try_from(size).unwrap_or(0);
    let (count, columns) = (of(count), of(columns));
    let stride = if count > 1 { of(strides[0]) } else { columns };
    let len = count
        .checked_sub(1)
        .map_or(0, |last| last * stride + columns);
    Ok(Shape {
        count,
        columns,
        stride,
        len,
    })
}

fn flat<T: Element>(tensor: &Tensor) -> Result<usize, DecoderError> {
    check::<T>(tensor)?;
    if !tensor.is_contiguous() {
        return Err(DecoderError::Torch("numbers lie apart".to_owned()));
    }
    Ok(tensor.numel())
}

fn check<T: Element>(tensor: &Tensor) -> Result<(), DecoderError> {
    let (kind, device) = (tensor.f_kind()?, tensor.device());
    if kind == T::KIND && device == Device::Cpu && !tensor.data_ptr().is_null() {
        return Ok(());
    }
    if kind == T::KIND && device == Device::Cpu && tensor.numel() == 0 {
        return Err(DecoderError::Torch("an empty matrix".to_owned()));
    }
    Err(DecoderError::Torch(format!(
        "{kind:?} on {device:?} instead of {:?}",
        T::KIND
    )))
}
