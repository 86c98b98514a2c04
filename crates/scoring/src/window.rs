//! Windows: which tokens are fed to the model together, and which of its predictions count.

use serde::{Deserialize, Serialize};

/// One run of token ids of a document, scored together.
///
/// Token indices count from 0; index -1 is the prefix token. The input is the tokens
/// `start..start + len`, and the model's output at input index `i` predicts token `i + 1`.
/// The targets `from..to` count, with `start < from <= to <= start + len + 1`.
///
/// Serialises as the array `[document, start, len, from, to]`, since a plan holds many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct Window {
    /// Index of the document in its dataset.
    pub document: u32,
    /// Index of the first input token, -1 for the prefix.
    pub start: i64,
    /// Number of input tokens.
    pub len: u32,
    /// First counted target.
    pub from: u64,
    /// One past the last counted target.
    pub to: u64,
}

type Fields = (u32, i64, u32, u64, u64);

impl From<Fields> for Window {
    fn from((document, start, len, from, to): Fields) -> Self {
        Self {
            document,
            start,
            len,
            from,
            to,
        }
    }
}

impl From<Window> for Fields {
    fn from(w: Window) -> Self {
        (w.document, w.start, w.len, w.from, w.to)
    }
}

impl Window {
    /// Number of counted targets.
    pub fn scored(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// Whether every counted target is predicted by an input of the window, and all of it lies
    /// inside a document of `tokens` tokens with a prefix in front.
    pub(crate) fn fits(&self, tokens: u64) -> bool {
        // 128 bits: a window may come from a damaged plan, and must not overflow the check.
        let start = i128::from(self.start);
        let end = start + i128::from(self.len);
        let (from, to) = (i128::from(self.from), i128::from(self.to));
        let tokens = i128::from(tokens);
        start >= -1 && end <= tokens && start < from && from <= to && to <= tokens.min(end + 1)
    }
}

/// The windows of one document of `tokens` tokens under the convention `rolling`, in order.
///
/// These are the windows of lm-evaluation-harness's `get_rolling_token_windows` with a context of
/// one token: the first window is the prefix and the first `window - 1` tokens, every later one
/// holds the next `window` targets and one token of context, and the last, shorter span keeps
/// `window` inputs where the document has them. Every token is a counted target exactly once.
///
/// A document without tokens has no windows, nor has a `window` of 0.
pub fn rolling(document: u32, tokens: u64, window: u32) -> impl Iterator<Item = Window> {
    let mut from = 0_u64;
    std::iter::from_fn(move || {
        if from >= tokens || window == 0 {
            return None;
        }
        let to = from.saturating_add(u64::from(window)).min(tokens);
        // The input ends before the last target; up to there, prefix included, lie `to` tokens.
        let len = u32::try_from(to).unwrap_or(u32::MAX).min(window);
        let start = to.cast_signed() - 1 - i64::from(len);
        let next = Window {
            document,
            start,
            len,
            from,
            to,
        };
        from = to;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(tokens: u64, window: u32) -> Vec<(i64, u32, u64, u64)> {
        rolling(3, tokens, window)
            .map(|w| (w.start, w.len, w.from, w.to))
            .collect()
    }

    #[test]
    fn cuts_by_hand() {
        assert_eq!(windows(0, 4), []);
        assert_eq!(windows(1, 4), [(-1, 1, 0, 1)]);
        assert_eq!(windows(4, 4), [(-1, 4, 0, 4)]);
        assert_eq!(windows(5, 4), [(-1, 4, 0, 4), (0, 4, 4, 5)]);
        assert_eq!(windows(8, 4), [(-1, 4, 0, 4), (3, 4, 4, 8)]);
        assert_eq!(windows(10, 4), [(-1, 4, 0, 4), (3, 4, 4, 8), (5, 4, 8, 10)]);
        assert_eq!(windows(3, 1), [(-1, 1, 0, 1), (0, 1, 1, 2), (1, 1, 2, 3)]);
        assert_eq!(windows(3, 0), []);
    }

    #[test]
    fn travels_as_an_array() {
        let window = Window {
            document: 7,
            start: -1,
            len: 4,
            from: 0,
            to: 4,
        };
        let json = serde_json::to_string(&window).unwrap();
        assert_eq!(json, "[7,-1,4,0,4]");
        assert_eq!(serde_json::from_str::<Window>(&json).unwrap(), window);
    }

    #[test]
    fn a_window_outside_its_document_does_not_fit() {
        let good = Window {
            document: 0,
            start: 3,
            len: 4,
            from: 4,
            to: 8,
        };
        assert!(good.fits(8));
        let bad = [
            Window { start: -2, ..good },
            Window { from: 3, ..good },
            Window { to: 9, ..good },
            Window {
                from: 8,
                to: 7,
                ..good
            },
            Window {
                start: i64::MAX,
                len: u32::MAX,
                ..good
            },
            Window {
                from: u64::MAX,
                to: u64::MAX,
                ..good
            },
        ];
        for window in bad {
            assert!(!window.fits(8), "{window:?}");
        }
        assert!(!good.fits(6));
    }
}
