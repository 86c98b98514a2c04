//! Windows: which tokens are fed to the model together, and which of its predictions count.

use serde::{Deserialize, Serialize};

/// One run of token ids of a stream, scored together.
///
/// Token indices count from 0; index -1 is the prefix token, or the BOS of a joined stream. The
/// input is the tokens `start..start + len`, and the model's output at input index `i` predicts
/// token `start + i + 1`. The targets `from..to` count, with
/// `start < from <= to <= start + len + 1`; if only some tokens may count, those of them.
///
/// Serialises as the array `[document, start, len, from, to]`, since a plan holds many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct Window {
    /// Index of the document in its dataset; 0 for the one stream of a joined convention.
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
    /// Number of targets in the span, counted or not.
    pub fn scored(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// Whether every target of the span is predicted by an input of the window, and all of it lies
    /// inside a stream of `tokens` tokens, with a prefix in front or not.
    pub(crate) fn fits(&self, tokens: u64, prefix: bool) -> bool {
        // 128 bits: a window may come from a damaged plan, and must not overflow the check.
        let start = i128::from(self.start);
        let end = start + i128::from(self.len);
        let (from, to) = (i128::from(self.from), i128::from(self.to));
        let tokens = i128::from(tokens);
        start >= -i128::from(prefix)
            && end <= tokens
            && start < from
            && from <= to
            && to <= tokens.min(end + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(good.fits(8, true));
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
            assert!(!window.fits(8, true), "{window:?}");
        }
        assert!(!good.fits(6, true));
        let first = Window {
            start: -1,
            from: 0,
            to: 4,
            ..good
        };
        assert!(first.fits(8, true) && !first.fits(8, false));
    }
}
