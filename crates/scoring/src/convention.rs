//! Conventions: how a stream of tokens becomes windows and counted targets.

use std::fmt;

use crate::error::PlanError;

/// A convention with its sizes.
///
/// The positions of a stream are its tokens, behind the prefix if there is one; position 0 is
/// never predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// Each document alone: lm-evaluation-harness's rolling log-likelihood. Every position but 0
    /// counts.
    Rolling {
        /// Input tokens of a window at most; at least 1.
        window: u32,
    },
    /// The joined documents in disjoint blocks, of which every position but the first counts.
    Blocks {
        /// Positions of a block; at least 2.
        window: u32,
        /// Whether the shorter block at the end counts too.
        score_tail: bool,
    },
    /// Windows over the joined documents that start every `stride` positions; every position but 0
    /// counts, in the first window that holds it.
    Strided {
        /// Positions of a window; at least 2.
        window: u32,
        /// Positions from the start of one window to that of the next; at least 1, and less than
        /// `window`.
        stride: u32,
    },
    /// llama.cpp's: disjoint blocks of the joined documents, of which the offsets after
    /// `window / 2` count; the shorter block at the end is dropped.
    LlamaCpp {
        /// Positions of a block; at least 4.
        window: u32,
    },
}

impl Convention {
    /// Whether the documents are scored as one joined stream.
    pub const fn is_joined(&self) -> bool {
        !matches!(self, Self::Rolling { .. })
    }

    /// Tokens of a window at most.
    pub const fn window(&self) -> u32 {
        match *self {
            Self::Rolling { window }
            | Self::Blocks { window, .. }
            | Self::Strided { window, .. }
            | Self::LlamaCpp { window } => window,
        }
    }

    /// The smallest window that has something to count.
    const fn least_window(&self) -> u32 {
        match self {
            Self::Rolling { .. } => 1,
            Self::Blocks { .. } | Self::Strided { .. } => 2,
            Self::LlamaCpp { .. } => 4,
        }
    }

    /// Refuses sizes that the convention cannot be cut by.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let (window, least) = (self.window(), self.least_window());
        if window < least {
            return Err(PlanError::WindowTooSmall {
                convention: *self,
                window,
                least,
            });
        }
        match *self {
            Self::Strided { window, stride } if stride == 0 || stride >= window => {
                Err(PlanError::StrideOutOfRange { window, stride })
            }
            _ => Ok(()),
        }
    }
}

/// The name as it travels in requests and results.
impl fmt::Display for Convention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rolling { .. } => "rolling",
            Self::Blocks { .. } => "blocks",
            Self::Strided { .. } => "strided",
            Self::LlamaCpp { .. } => "llamacpp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_with_both_numbers() {
        let bad = [
            (
                Convention::Rolling { window: 0 },
                "`rolling` takes a window of at least 1 token, not 0",
            ),
            (
                Convention::Blocks {
                    window: 1,
                    score_tail: true,
                },
                "`blocks` takes a window of at least 2 tokens, not 1",
            ),
            (
                Convention::Strided {
                    window: 1,
                    stride: 1,
                },
                "`strided` takes a window of at least 2 tokens, not 1",
            ),
            (
                Convention::Strided {
                    window: 8,
                    stride: 8,
                },
                "a stride of 8 does not go with a window of 8: it takes 1 to 7",
            ),
            (
                Convention::Strided {
                    window: 8,
                    stride: 0,
                },
                "a stride of 0 does not go with a window of 8: it takes 1 to 7",
            ),
            (
                Convention::LlamaCpp { window: 3 },
                "`llamacpp` takes a window of at least 4 tokens, not 3",
            ),
        ];
        for (convention, text) in bad {
            assert_eq!(convention.check().unwrap_err().to_string(), text);
        }
        let good = [
            Convention::Rolling { window: 1 },
            Convention::Blocks {
                window: 2,
                score_tail: false,
            },
            Convention::Strided {
                window: 2,
                stride: 1,
            },
            Convention::LlamaCpp { window: 4 },
        ];
        for convention in good {
            assert_eq!(convention.check(), Ok(()), "{convention:?}");
        }
    }
}
