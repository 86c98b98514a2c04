//! Quantised blocks to float32, with the arithmetic of ggml's `dequantize_row_*`: each value is
//! one or two float32 operations on a scale, in the order of these functions, so the results are
//! the same bits. `d` and `m` are what ggml calls scales and minimums.

use half::f16;

use crate::tensor::Format;

/// Appends the little-endian float32 values of the stored blocks, of which there may be any whole
/// number. Plain formats are not blocks and pass through as they are.
pub(crate) fn dequantise(format: Format, stored: &[u8], values: &mut Vec<u8>) {
    match format {
        Format::Plain(_) => values.extend_from_slice(stored),
        Format::Q4_0 => each(stored, values, q4_0),
        Format::Q4_1 => each(stored, values, q4_1),
        Format::Q5_0 => each(stored, values, q5_0),
        Format::Q5_1 => each(stored, values, q5_1),
        Format::Q8_0 => each(stored, values, q8_0),
        Format::Q2K => each(stored, values, q2_k),
        Format::Q3K => each(stored, values, q3_k),
        Format::Q4K => each(stored, values, q4_k),
        Format::Q5K => each(stored, values, q5_k),
        Format::Q6K => each(stored, values, q6_k),
        Format::Iq4Nl => each(stored, values, iq4_nl),
    }
}

fn each<const BYTES: usize, const ELEMENTS: usize>(
    stored: &[u8],
    values: &mut Vec<u8>,
    read: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let (blocks, _) = stored.as_chunks::<BYTES>();
    let start = values.len();
    values.resize(start + blocks.len() * ELEMENTS * size_of::<f32>(), 0);
    let (places, _) = values[start..].as_chunks_mut::<{ size_of::<f32>() }>();
    let (places, _) = places.as_chunks_mut::<ELEMENTS>();
    let mut block_values = [0.0; ELEMENTS];
    for (block, places) in blocks.iter().zip(places) {
        read(block, &mut block_values);
        for (place, value) in places.iter_mut().zip(block_values) {
            *place = value.to_le_bytes();
        }
    }
}

/// float16 scale, 16 bytes of two unsigned halves, offset by 8.
fn q4_0(block: &[u8; 18], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(nibbles(&block[2..])) {
        *value = d * (f32::from(quant) - 8.0);
    }
}

/// float16 scale and minimum, 16 bytes of two unsigned halves.
fn q4_1(block: &[u8; 20], values: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (value, quant) in values.iter_mut().zip(nibbles(&block[4..])) {
        *value = d * f32::from(quant) + m;
    }
}

/// float16 scale, the fifth bits, 16 bytes of two low halves; offset by 16.
fn q5_0(block: &[u8; 22], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(five_bits(&block[2..])) {
        *value = d * (f32::from(quant) - 16.0);
    }
}

/// float16 scale and minimum, the fifth bits, 16 bytes of two low halves.
fn q5_1(block: &[u8; 24], values: &mut [f32; 32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (value, quant) in values.iter_mut().zip(five_bits(&block[4..])) {
        *value = d * f32::from(quant) + m;
    }
}

/// float16 scale, 32 signed bytes.
fn q8_0(block: &[u8; 34], values: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(&block[2..]) {
        *value = d * f32::from(quant.cast_signed());
    }
}

/// Groups of 16: 16 bytes of a scale and a minimum in halves, 64 of quants, then the float16 units
/// of the scales and of the minimums.
fn q2_k(block: &[u8; 84], values: &mut [f32; 256]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (unit, minimum_unit) = (half_at(block, 80), half_at(block, 82));
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = unit * f32::from(scales[group] & 0x0f);
        let m = minimum_unit * f32::from(scales[group] >> 4);
        for (value, quant) in values.iter_mut().zip(pairs_of_bits(quants, group)) {
            *value = d * f32::from(quant) - m;
        }
    }
}

/// Groups of 16: 32 bytes of third bits, 64 of low bits, 12 of packed scales, their float16 unit.
/// A third bit that is not set takes 4 off.
fn q3_k(block: &[u8; 110], values: &mut [f32; 256]) {
    let (third, low, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let unit = half_at(block, 108);
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = (packed[group % 8] >> (group / 8 * 4)) & 0x0f
            | ((packed[8 + group % 4] >> (group / 4 * 2)) & 0x03) << 4;
        let d = unit * (f32::from(scale) - 32.0);
        let third = third[group % 2 * 16..].iter();
        let quants = pairs_of_bits(low, group).zip(third.map(|byte| (byte >> (group / 2)) & 1));
        for (value, (low, third)) in values.iter_mut().zip(quants) {
            *value = d * (f32::from(low | third << 2) - 4.0);
        }
    }
}

/// Groups of 32: float16 units of scales and of minimums, 12 bytes that pack both, 128 of quants.
fn q4_k(block: &[u8; 144], values: &mut [f32; 256]) {
    let quants = &block[16..];
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (d, m) = scale_and_minimum(block, group);
        let shift = group % 2 * 4;
        for (value, byte) in values.iter_mut().zip(&quants[group / 2 * 32..]) {
            *value = d * f32::from((byte >> shift) & 0x0f) - m;
        }
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the quants.
fn q5_k(block: &[u8; 176], values: &mut [f32; 256]) {
    let (fifth, low) = (&block[16..48], &block[48..]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (d, m) = scale_and_minimum(block, group);
        let shift = group % 2 * 4;
        let quants = low[group / 2 * 32..].iter().zip(fifth);
        for (value, (low, fifth)) in values.iter_mut().zip(quants) {
            let quant = (low >> shift) & 0x0f | ((fifth >> group) & 1) << 4;
            *value = d * f32::from(quant) - m;
        }
    }
}

/// Groups of 16: 128 bytes of low halves, 64 of high pairs of bits, 16 signed scales, their float16
/// unit; offset by 32.
fn q6_k(block: &[u8; 210], values: &mut [f32; 256]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let unit = half_at(block, 208);
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = unit * f32::from(scales[group].cast_signed());
        let low = low[group / 8 * 64 + group % 4 * 16..].iter();
        let low = low.map(|byte| (byte >> (group % 8 / 4 * 4)) & 0x0f);
        let quants = low.zip(pairs_of_bits(high, group));
        for (value, (low, high)) in values.iter_mut().zip(quants) {
            *value = d * (f32::from(low | high << 4) - 32.0);
        }
    }
}

/// As [`q4_0`], with these values in place of the quants.
fn iq4_nl(block: &[u8; 18], values: &mut [f32; 32]) {
    const LEVELS: [i8; 16] = [
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
    ];
    let d = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(nibbles(&block[2..])) {
        *value = d * f32::from(LEVELS[usize::from(quant)]);
    }
}

/// The low halves of 16 bytes, then the high ones: the order of elements in a block of 32.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut nibbles = [0; 32];
    let (low, high) = nibbles.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 0x0f, byte >> 4);
    }
    nibbles
}

/// [`nibbles`] of the bytes behind the first four, and above each a bit of the first four, the
/// lowest of each byte first.
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let mut quants = nibbles(&bytes[4..]);
    for (quants, byte) in quants.chunks_exact_mut(8).zip(bytes) {
        for (bit, quant) in quants.iter_mut().enumerate() {
            *quant |= ((byte >> bit) & 1) << 4;
        }
    }
    quants
}

/// Pairs of bits of a group of 16: each half of a block has 32 bytes, whose lowest pairs come
/// first.
fn pairs_of_bits(bytes: &[u8], group: usize) -> impl Iterator<Item = u8> {
    let shift = group % 8 / 2 * 2;
    bytes[group / 8 * 32 + group % 2 * 16..]
        .iter()
        .map(move |byte| (byte >> shift) & 0x03)
}

/// Scale and minimum of a group, from the units and the six-bit numbers at the start of a block:
/// four bytes with a scale each, four with a minimum, four with the low halves of four more of
/// both, whose high bits are the ones left over in the first eight.
fn scale_and_minimum(block: &[u8], group: usize) -> (f32, f32) {
    let packed = &block[4..16];
    let (scale, minimum) = if group < 4 {
        (packed[group] & 0x3f, packed[group + 4] & 0x3f)
    } else {
        let low = packed[group + 4];
        (
            low & 0x0f | (packed[group - 4] >> 6) << 4,
            low >> 4 | (packed[group] >> 6) << 4,
        )
    };
    (
        half_at(block, 0) * f32::from(scale),
        half_at(block, 2) * f32::from(minimum),
    )
}

fn half_at(block: &[u8], position: usize) -> f32 {
    f16::from_le_bytes([block[position], block[position + 1]]).to_f32()
}
