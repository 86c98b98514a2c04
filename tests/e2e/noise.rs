//! Copies of checkpoints with noise in their weights: models that are worse by as much as asked.

use std::f64::consts::TAU;
use std::fs;
use std::ops::Range;
use std::path::Path;

use assay_testkit::Roots;
use half::f16;

use crate::checkpoint::Damaged;
use crate::random::Random;

/// The numbers of ggml's Q4_1: a block of 32 elements is a float16 scale, a float16 minimum and 16
/// bytes of quants.
const Q4_1: u32 = 3;
const BLOCK_ELEMENTS: u64 = 32;
const BLOCK_BYTES: usize = 20;
/// Where tensors begin in a GGUF file that names no other alignment.
const ALIGNMENT: usize = 32;

/// Factors `1 + strength * g` with standard normal g, the same each time.
struct Noise {
    random: Random,
    strength: f64,
}

impl Noise {
    fn new(strength: f64) -> Self {
        Self {
            random: Random(1),
            strength,
        }
    }

    fn times(&mut self, number: f64) -> f64 {
        // Box and Muller, 1958; the logarithm's argument is above 0.
        let radius = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
        let normal = radius * (TAU * self.random.unit()).cos();
        number * (1.0 + self.strength * normal)
    }
}

/// Adds a fixture of float32 weights to the model root, and under `name` its copy with noise in
/// each weight.
pub(crate) fn add_noisy_model(roots: &Roots, fixture: &str, name: &str, strength: f64) {
    let target = roots.models().join(name);
    fs::rename(roots.add_model(fixture), &target).expect("the model root can be written");
    let mut noise = Noise::new(strength);
    #[expect(clippy::cast_possible_truncation, reason = "weights are float32")]
    Damaged(&target).each(|number| noise.times(number.into()) as f32);
    roots.add_model(fixture);
}

/// Copies a GGUF file with noise in the scale and in the minimum of each block of Q4_1.
pub(crate) fn copy_noisy_gguf(from: &Path, to: &Path, strength: f64) {
    let mut bytes = fs::read(from).expect("the checkpoint can be read");
    let mut noise = Noise::new(strength);
    let tensors = Header {
        bytes: &bytes,
        at: 0,
    }
    .q4_1();
    assert!(!tensors.is_empty(), "{} has no Q4_1", from.display());
    for tensor in tensors {
        for block in bytes[tensor].chunks_exact_mut(BLOCK_BYTES) {
            for half in block[..4].chunks_exact_mut(2) {
                let number = f16::from_le_bytes([half[0], half[1]]);
                let changed = f16::from_f64(noise.times(number.into()));
                half.copy_from_slice(&changed.to_le_bytes());
            }
        }
    }
    fs::write(to, bytes).expect("the model root can be written");
}

/// The header of a GGUF file that is known to be whole, read up to `at`.
struct Header<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Header<'_> {
    /// Where the tensors of Q4_1 lie in the file.
    fn q4_1(mut self) -> Vec<Range<usize>> {
        self.skip(8);
        let (tensors, values) = (self.u64(), self.u64());
        for _ in 0..values {
            self.skip_text();
            let kind = self.u32();
            self.skip_value(kind);
        }
        let mut found = Vec::new();
        for _ in 0..tensors {
            self.skip_text();
            let elements: u64 = (0..self.u32()).map(|_| self.u64()).product();
            let (kind, offset) = (self.u32(), self.u64());
            if kind == Q4_1 {
                found.push((size(offset), size(elements / BLOCK_ELEMENTS) * BLOCK_BYTES));
            }
        }
        let data = self.at.next_multiple_of(ALIGNMENT);
        let ranges = found.into_iter().map(|(offset, length)| {
            let start = data + offset;
            start..start + length
        });
        ranges.collect()
    }

    fn skip(&mut self, count: usize) {
        self.at += count;
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.skip(N);
        let taken = self.bytes[self.at - N..self.at].try_into();
        taken.expect("N bytes")
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn skip_text(&mut self) {
        let length = size(self.u64());
        self.skip(length);
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => self.skip(1),
            2 | 3 => self.skip(2),
            4..=6 => self.skip(4),
            8 => self.skip_text(),
            9 => {
                let kind = self.u32();
                for _ in 0..self.u64() {
                    self.skip_value(kind);
                }
            }
            10..=12 => self.skip(8),
            other => panic!("metadata of type {other}"),
        }
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).expect("it fits in memory")
}
