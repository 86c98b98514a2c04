//! Cutting a stream into the windows of a convention.

use std::ops::Range;

use crate::convention::Convention;
use crate::scope::Scope;
use crate::window::Window;

/// The windows of all streams of `scope` that have something to count, in order of stream and
/// start.
pub(crate) fn windows(scope: &Scope<'_>) -> Vec<Window> {
    let mut windows = Vec::new();
    for (stream, tokens) in (0_u32..).zip(scope.streams()) {
        let cut = cut(scope.convention, stream, tokens, scope.prefix);
        windows.extend(cut.filter(|window| counts(scope, window)));
    }
    windows
}

fn counts(scope: &Scope<'_>, window: &Window) -> bool {
    let mut counted = scope.counted(window.document as usize, window.from..window.to);
    counted.next().is_some()
}

/// The windows of one stream of `tokens` tokens.
fn cut(
    convention: Convention,
    document: u32,
    tokens: u64,
    prefix: bool,
) -> Box<dyn Iterator<Item = Window>> {
    let stream = Stream {
        document,
        offset: u64::from(prefix),
        positions: tokens.saturating_add(u64::from(prefix)),
    };
    match convention {
        Convention::Rolling { window } if prefix => Box::new(rolling(document, tokens, window)),
        Convention::Rolling { window } => Box::new(unprefixed(document, tokens, window)),
        Convention::Blocks { window, score_tail } => Box::new(
            stream
                .blocks(window)
                .filter(move |block| score_tail || length(block) == u64::from(window))
                .map(move |block| stream.window(&block, block.start + 1)),
        ),
        Convention::Strided { window, stride } => Box::new(stream.strided(window, stride)),
        Convention::LlamaCpp { window } => Box::new(
            stream
                .blocks(window)
                .filter(move |block| length(block) == u64::from(window))
                .map(move |block| stream.window(&block, block.start + u64::from(window / 2) + 1)),
        ),
    }
}

/// A stream by positions.
#[derive(Clone, Copy)]
struct Stream {
    document: u32,
    /// Position of token 0.
    offset: u64,
    /// Positions there are.
    positions: u64,
}

impl Stream {
    /// Disjoint blocks of `window` positions, the last of them perhaps shorter.
    fn blocks(self, window: u32) -> impl Iterator<Item = Range<u64>> {
        let window = u64::from(window.max(1));
        let mut start = 0_u64;
        std::iter::from_fn(move || {
            let block = start..start.saturating_add(window).min(self.positions);
            start = block.end;
            (!block.is_empty()).then_some(block)
        })
    }

    /// Windows that start every `stride` positions until one reaches the end; each counts what
    /// lies behind the window before it.
    fn strided(self, window: u32, stride: u32) -> impl Iterator<Item = Window> {
        let (mut start, mut reached) = (0, 0_u64);
        std::iter::from_fn(move || {
            if reached >= self.positions {
                return None;
            }
            let end = u64::saturating_add(start, window.into()).min(self.positions);
            let next = self.window(&(start..end), reached.max(1));
            start += u64::from(stride);
            reached = end;
            Some(next)
        })
    }

    /// The window that holds the positions `held`, of which those from `first` on are targets.
    fn window(self, held: &Range<u64>, first: u64) -> Window {
        Window {
            document: self.document,
            start: held.start.cast_signed() - self.offset.cast_signed(),
            len: u32::try_from(length(held)).unwrap_or(u32::MAX),
            from: first - self.offset,
            to: held.end.max(first) - self.offset,
        }
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
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

/// The windows of [`rolling`] where no prefix goes before a document: its first token takes that
/// place, as context that is never a target.
fn unprefixed(document: u32, tokens: u64, window: u32) -> impl Iterator<Item = Window> {
    rolling(document, tokens.saturating_sub(1), window).map(|w| Window {
        start: w.start + 1,
        from: w.from + 1,
        to: w.to + 1,
        ..w
    })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a mask may be one range
mod tests {
    use super::*;

    type Cut = (i64, u32, u64, u64);

    fn parts(windows: impl Iterator<Item = Window>) -> Vec<Cut> {
        windows.map(|w| (w.start, w.len, w.from, w.to)).collect()
    }

    fn cut_of(convention: Convention, tokens: u64, prefix: bool) -> Vec<Cut> {
        parts(cut(convention, 0, tokens, prefix))
    }

    #[test]
    fn rolling_by_hand() {
        let windows = |tokens, window| parts(rolling(3, tokens, window));
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
    fn rolling_without_a_prefix_by_hand() {
        let windows = |tokens| cut_of(Convention::Rolling { window: 4 }, tokens, false);
        assert_eq!(windows(0), []);
        assert_eq!(windows(1), []);
        assert_eq!(windows(2), [(0, 1, 1, 2)]);
        assert_eq!(windows(5), [(0, 4, 1, 5)]);
        assert_eq!(windows(6), [(0, 4, 1, 5), (1, 4, 5, 6)]);
        assert_eq!(windows(9), [(0, 4, 1, 5), (4, 4, 5, 9)]);
    }

    #[test]
    fn blocks_by_hand() {
        let windows = |tokens, prefix, score_tail| {
            let window = 4;
            cut_of(Convention::Blocks { window, score_tail }, tokens, prefix)
        };
        assert_eq!(windows(0, false, true), []);
        assert_eq!(windows(3, false, false), []);
        assert_eq!(windows(3, false, true), [(0, 3, 1, 3)]);
        assert_eq!(windows(3, true, false), [(-1, 4, 0, 3)]);
        assert_eq!(windows(8, false, true), [(0, 4, 1, 4), (4, 4, 5, 8)]);
        assert_eq!(windows(8, true, false), [(-1, 4, 0, 3), (3, 4, 4, 7)]);
        assert_eq!(windows(10, false, false), [(0, 4, 1, 4), (4, 4, 5, 8)]);
        assert_eq!(
            windows(10, true, true),
            [(-1, 4, 0, 3), (3, 4, 4, 7), (7, 3, 8, 10)]
        );
    }

    #[test]
    fn strided_by_hand() {
        let windows = |tokens, prefix, stride| {
            cut_of(Convention::Strided { window: 5, stride }, tokens, prefix)
        };
        assert_eq!(windows(0, false, 2), []);
        assert_eq!(windows(2, false, 2), [(0, 2, 1, 2)]);
        assert_eq!(windows(5, false, 2), [(0, 5, 1, 5)]);
        assert_eq!(windows(6, false, 2), [(0, 5, 1, 5), (2, 4, 5, 6)]);
        assert_eq!(windows(7, false, 2), [(0, 5, 1, 5), (2, 5, 5, 7)]);
        assert_eq!(
            windows(9, false, 2),
            [(0, 5, 1, 5), (2, 5, 5, 7), (4, 5, 7, 9)]
        );
        assert_eq!(
            windows(9, true, 4),
            [(-1, 5, 0, 4), (3, 5, 4, 8), (7, 2, 8, 9)]
        );
        assert_eq!(windows(6, false, 4), [(0, 5, 1, 5), (4, 2, 5, 6)]);
    }

    #[test]
    fn llamacpp_by_hand() {
        let windows =
            |tokens, prefix, window| cut_of(Convention::LlamaCpp { window }, tokens, prefix);
        assert_eq!(windows(3, false, 4), []);
        assert_eq!(windows(9, false, 4), [(0, 4, 3, 4), (4, 4, 7, 8)]);
        assert_eq!(windows(9, true, 4), [(-1, 4, 2, 3), (3, 4, 6, 7)]);
        assert_eq!(windows(10, false, 5), [(0, 5, 3, 5), (5, 5, 8, 10)]);
        // llama.cpp's fixtures: of 64 positions, the outputs at 32 to 62 count.
        assert_eq!(windows(64, false, 64), [(0, 64, 33, 64)]);
    }

    #[test]
    fn windows_without_a_counted_target_are_dropped() {
        let masks = [vec![2..4, 9..10], vec![], vec![0..1]];
        let scope = |prefix| Scope {
            convention: Convention::Rolling { window: 4 },
            lengths: &[10, 6, 6],
            prefix,
            counted: Some(&masks),
        };
        let kept = |prefix| -> Vec<(u32, u64, u64)> {
            let windows = windows(&scope(prefix));
            windows.iter().map(|w| (w.document, w.from, w.to)).collect()
        };
        assert_eq!(kept(true), [(0, 0, 4), (0, 8, 10), (2, 0, 4)]);
        // The first token is not predicted here, whether it may count or not.
        assert_eq!(kept(false), [(0, 1, 5), (0, 9, 10)]);
    }
}
