//! Rotary position embedding: frequencies and how they are changed for longer contexts.

/// Rotary position embedding over the first `dims` numbers of a head, halves of these rotated
/// against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Numbers of a head that are rotated; even.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// How the frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

/// How rotary frequencies are changed for longer contexts. Formulas as in transformers'
/// `modeling_rope_utils`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies are divided by this factor.
    Linear(f64),
    /// Llama 3.1: low frequencies are divided by `factor`, high ones kept, those between blended.
    Llama3 {
        /// Divides the low frequencies.
        factor: f64,
        /// Wavelengths above `original_max_positions / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_positions / high_freq_factor` are high frequencies.
        high_freq_factor: f64,
        /// Positions the model was first trained with.
        original_max_positions: f64,
    },
    /// YaRN (Peng et al. 2023): divided by `factor` from frequency number `ramp.1` on, kept up to
    /// `ramp.0`, blended between.
    Yarn {
        /// Divides the low frequencies.
        factor: f64,
        /// Where blending starts and ends, in numbers of frequencies.
        ramp: (f64, f64),
        /// Cosines and sines are multiplied by it.
        magnitude: f64,
    },
    /// LongRoPE (Ding et al. 2024): a divisor for each frequency, of one list for windows of up to
    /// `original_max_positions` tokens and of another for longer ones.
    LongRope {
        /// Divisors of short windows, `dims / 2`.
        short: Vec<f32>,
        /// Divisors of long windows, `dims / 2`.
        long: Vec<f32>,
        /// The longest short window, in tokens.
        original_max_positions: usize,
        /// Cosines and sines are multiplied by it.
        magnitude: f64,
    },
    /// One divisor for each of the `dims / 2` frequencies: llama.cpp's `rope_freqs.weight`.
    Divisors(Vec<f32>),
}

impl Rope {
    /// The `dims / 2` angular frequencies in radians per token, scaled, for a window of `tokens`.
    ///
    /// Each step is rounded to float32, in the order of transformers: the exponent, the power
    /// `theta^(2i / dims)`, its reciprocal, and those of the scaling. Rounding once instead moves
    /// the last bits of a third of the frequencies, and tokens of long windows by 5e-4 nats.
    #[allow(clippy::cast_possible_truncation)] // to float32 is what is meant
    pub fn frequencies(&self, tokens: usize) -> Vec<f32> {
        (0..self.dims / 2)
            .map(|index| {
                let exponent = (2 * index) as f32 / self.dims as f32;
                let power = f64::from(self.theta as f32).powf(f64::from(exponent)) as f32;
                self.scaling.scaled(index, power, tokens)
            })
            .collect()
    }

    /// What cosines and sines are multiplied by.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { magnitude, .. } | RopeScaling::LongRope { magnitude, .. } => {
                magnitude
            }
            _ => 1.0,
        }
    }

    /// The longest window of the first of two sets of frequencies, where there are two.
    pub fn switches_after(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::LongRope {
                original_max_positions,
                ..
            } => Some(original_max_positions),
            _ => None,
        }
    }
}

impl RopeScaling {
    /// The frequency with this index, of which `power` is the reciprocal before scaling.
    #[allow(clippy::cast_possible_truncation)] // to float32 is what is meant
    fn scaled(&self, index: usize, power: f32, tokens: usize) -> f32 {
        let plain = power.recip();
        match self {
            Self::None => plain,
            Self::Linear(factor) => plain / *factor as f32,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => {
                let [factor, low, high, original] = [
                    *factor,
                    *low_freq_factor,
                    *high_freq_factor,
                    *original_max_positions,
                ]
                .map(|number| number as f32);
                let wavelength = std::f32::consts::TAU / plain;
                if wavelength > original / low {
                    plain / factor
                } else if wavelength < original / high {
                    plain
                } else {
                    let keep = (original / wavelength - low) / (high - low);
                    (1.0 - keep) * plain / factor + keep * plain
                }
            }
            Self::Yarn {
                factor,
                ramp: (start, end),
                ..
            } => {
                let divided = (index as f32 - *start as f32) / (end - start) as f32;
                let keep = 1.0 - divided.clamp(0.0, 1.0);
                (*factor as f32 * power).recip() * (1.0 - keep) + plain * keep
            }
            Self::LongRope {
                short,
                long,
                original_max_positions,
                ..
            } => {
                let divisors = if tokens > *original_max_positions {
                    long
                } else {
                    short
                };
                (divisors[index] * power).recip()
            }
            Self::Divisors(divisors) => plain / divisors[index],
        }
    }
}
