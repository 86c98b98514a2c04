//! Quantised blocks to float32, with the arithmetic of ggml's `dequantize_row_*`: each value is
//! one or two float32 operations on a float16 scale, so the results are the same bits.

use half::f16;

use crate::tensor::Format;

/// Little-endian float32 values of the stored blocks. Plain formats are not blocks and pass
/// through as they are.
pub(crate) fn dequantise(format: Format, stored: &[u8]) -> Vec<u8> {
    let write: fn(&[u8], &mut Vec<u8>) = match format {
        Format::Plain(_) => return stored.to_vec(),
        Format::Q8_0 => q8_0,
        Format::Q4_0 => q4_0,
        Format::Q4_1 => q4_1,
    };
    let blocks = stored.chunks_exact(format.block_bytes());
    let mut values = Vec::with_capacity(blocks.len() * format.block_elements() * size_of::<f32>());
    for block in blocks {
        write(block, &mut values);
    }
    values
}

fn q8_0(block: &[u8], values: &mut Vec<u8>) {
    let scale = half_at(block, 0);
    for quant in &block[2..] {
        push(values, f32::from(quant.cast_signed()) * scale);
    }
}

fn q4_0(block: &[u8], values: &mut Vec<u8>) {
    let scale = half_at(block, 0);
    for quant in halves(&block[2..]) {
        push(values, (f32::from(quant) - 8.0) * scale);
    }
}

fn q4_1(block: &[u8], values: &mut Vec<u8>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for quant in halves(&block[4..]) {
        push(values, f32::from(quant) * scale + minimum);
    }
}

/// The low halves of all bytes, then the high ones: the order of elements in a block.
fn halves(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let low = bytes.iter().map(|byte| byte & 0x0f);
    low.chain(bytes.iter().map(|byte| byte >> 4))
}

fn half_at(block: &[u8], position: usize) -> f32 {
    f16::from_le_bytes([block[position], block[position + 1]]).to_f32()
}

fn push(values: &mut Vec<u8>, value: f32) {
    values.extend_from_slice(&value.to_le_bytes());
}
