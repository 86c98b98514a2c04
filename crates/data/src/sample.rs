//! Which documents a sample takes.

use std::collections::BinaryHeap;

use assay_api::Sample;
use sha2::{Digest, Sha256};

/// The numbers of the documents that `sample` takes of `documents`, ascending.
pub(crate) fn indices(sample: Sample, documents: u64) -> Vec<u64> {
    if sample.documents >= documents {
        return (0..documents).collect();
    }
    // The largest of those taken is on top, and goes when a smaller one comes. Equal keys, should
    // there ever be some, are ordered by number.
    let mut taken = BinaryHeap::new();
    for index in 0..documents {
        taken.push((key(sample.seed, index), index));
        if taken.len() as u64 > sample.documents {
            taken.pop();
        }
    }
    let mut indices: Vec<u64> = taken.into_iter().map(|(_, index)| index).collect();
    indices.sort_unstable();
    indices
}

fn key(seed: u64, index: u64) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(seed.to_le_bytes());
    hasher.update(index.to_le_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(documents: u64, seed: u64, of: u64) -> Vec<u64> {
        indices(Sample { documents, seed }, of)
    }

    /// The values are those of Python's `hashlib` and `struct.pack("<QQ", seed, i)`.
    #[test]
    fn a_sample_is_the_documented_one() {
        assert_eq!(sample(5, 0, 20), [0, 9, 10, 14, 19]);
        assert_eq!(sample(5, 7, 20), [6, 8, 10, 13, 19]);
    }

    #[test]
    fn samples_grow_by_adding_and_end_with_all() {
        for of in [0, 1, 10, 1000] {
            let mut before = Vec::new();
            for documents in [1, 2, of / 2, of, of + 1, u64::MAX] {
                let taken = sample(documents, 3, of);
                assert_eq!(taken.len() as u64, documents.min(of));
                assert!(taken.is_sorted_by(|a, b| a < b));
                if documents >= before.len() as u64 {
                    assert!(before.iter().all(|index| taken.contains(index)));
                }
                before = taken;
            }
        }
    }
}
