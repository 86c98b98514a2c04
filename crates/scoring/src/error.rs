//! Why no plan can be made, or why one is not to be trusted.

use crate::convention::Convention;
use crate::window::Window;

/// Why no plan can be made, or why one is not to be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A window in which nothing could count.
    #[error(
        "`{convention}` takes a window of at least {least} token{}, not {window}",
        plural(*least)
    )]
    WindowTooSmall {
        /// The convention.
        convention: Convention,
        /// The window asked for.
        window: u32,
        /// The smallest one.
        least: u32,
    },
    /// A stride that leaves gaps, or does not advance.
    #[error(
        "a stride of {stride} does not go with a window of {window}: it takes 1 to {}",
        window.saturating_sub(1)
    )]
    StrideOutOfRange {
        /// The window.
        window: u32,
        /// The stride asked for.
        stride: u32,
    },
    /// More documents than a plan can number.
    #[error(
        "dataset {dataset} has {documents} documents, more than the 2^32 - 1 a plan can number"
    )]
    TooManyDocuments {
        /// Index of the dataset.
        dataset: usize,
        /// Its documents.
        documents: usize,
    },
    /// Ranges of counted tokens that mean nothing.
    #[error("the counted tokens of dataset {dataset} cannot be used: {detail}")]
    CountedInvalid {
        /// Index of the dataset.
        dataset: usize,
        /// What is wrong.
        detail: String,
    },
    /// A dataset of which nothing counts, which could never finish.
    #[error("dataset {dataset} {}", nothing(*convention, *masked))]
    NothingToScore {
        /// Index of the dataset.
        dataset: usize,
        /// The convention.
        convention: Convention,
        /// Whether only some of its tokens may count.
        masked: bool,
    },
    /// A window of a document that the dataset does not have.
    #[error("a window names document {document}, but there are {documents}")]
    UnknownDocument {
        /// The document named.
        document: u32,
        /// Documents there are; 1 under a joined convention.
        documents: usize,
    },
    /// A window that leaves its document, or counts targets it does not predict.
    #[error("{window:?} does not fit its document of {tokens} tokens")]
    WindowDoesNotFit {
        /// The window.
        window: Window,
        /// Tokens of the document.
        tokens: u64,
    },
    /// A token that should count and that no window counts.
    #[error("token {token} of document {document} is not counted by any window")]
    NotCounted {
        /// The document.
        document: usize,
        /// The first such token.
        token: u64,
    },
    /// A token that two windows count.
    #[error("token {token} of document {document} is counted more than once")]
    CountedTwice {
        /// The document.
        document: usize,
        /// The first such token.
        token: u64,
    },
    /// A token that a window counts and the convention does not.
    #[error("token {token} of document {document} is counted, but `{convention}` leaves it out")]
    WronglyCounted {
        /// The convention.
        convention: Convention,
        /// The document.
        document: usize,
        /// The first such token.
        token: u64,
    },
    /// A window whose targets would be predicted from another context than the convention's.
    #[error("{window:?} is none of the windows of {convention:?}")]
    WindowDiffers {
        /// The convention.
        convention: Convention,
        /// The window.
        window: Window,
    },
    /// A shard whose total is not that of its windows.
    #[error("shard {shard} claims {claimed} counted tokens, its windows count {counted}")]
    CountDiffers {
        /// Index of the shard among those verified.
        shard: usize,
        /// What it claims.
        claimed: u64,
        /// What its windows count.
        counted: u64,
    },
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn nothing(convention: Convention, masked: bool) -> String {
    match convention {
        _ if masked => "has no counted token to score".to_owned(),
        Convention::Rolling { .. } => "has no token to score".to_owned(),
        Convention::Blocks {
            score_tail: true, ..
        }
        | Convention::Strided { .. } => format!(
            "has nothing to score under `{convention}`, which takes two tokens at least, a BOS \
             included"
        ),
        Convention::Blocks { window, .. } => format!(
            "has fewer tokens than one block of {window}, so `blocks` has nothing to score: choose \
             a smaller window, or score the tail"
        ),
        Convention::LlamaCpp { window } => format!(
            "has fewer tokens than one block of {window}, so `llamacpp` has nothing to score: \
             choose a smaller window"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_score_names_the_convention_and_what_would_help() {
        let text = |convention, masked| {
            PlanError::NothingToScore {
                dataset: 2,
                convention,
                masked,
            }
            .to_string()
        };
        let rolling = Convention::Rolling { window: 8 };
        assert_eq!(text(rolling, false), "dataset 2 has no token to score");
        assert_eq!(
            text(rolling, true),
            "dataset 2 has no counted token to score"
        );
        let blocks = |score_tail| Convention::Blocks {
            window: 8,
            score_tail,
        };
        let dropped = text(blocks(false), false);
        assert!(
            dropped.contains("fewer tokens than one block of 8"),
            "{dropped}"
        );
        let kept = text(blocks(true), false);
        assert!(kept.contains("under `blocks`"), "{kept}");
        let llamacpp = text(Convention::LlamaCpp { window: 9 }, false);
        assert!(
            llamacpp.contains("one block of 9, so `llamacpp`"),
            "{llamacpp}"
        );
    }
}
