//! Random numbers that can be had again.

use std::time::SystemTime;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Seeded by `ASSAY_TEST_SEED`, or else by the clock; prints the seed, so that a failed run
    /// can be repeated.
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("ASSAY_TEST_SEED").map_or_else(
            |_| {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                u64::from(now.expect("the clock is past 1970").subsec_nanos())
            },
            |seed| seed.parse().expect("ASSAY_TEST_SEED is a number"),
        );
        println!("ASSAY_TEST_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An integer below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
