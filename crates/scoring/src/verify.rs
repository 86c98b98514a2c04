//! The proof that a plan counts what its convention counts, each token once.
//!
//! Nothing here cuts windows: which tokens count, and whether a window is one of the convention's,
//! is decided from positions by formulas of their own, so that a fault of the cutting cannot hide
//! itself.

use std::ops::Range;

use crate::convention::Convention;
use crate::error::PlanError;
use crate::plan::ShardPlan;
use crate::scope::{Scope, tokens};
use crate::window::Window;

/// Proves that the shards of one dataset count every token that should count exactly once and no
/// other, each in a window of the convention.
///
/// Of a window's targets those count that may count by [`Scope::counted`]. A window none of whose
/// targets may count need not be there.
///
/// # Errors
/// The first fault found: the scope's own, or one of the last seven of [`PlanError`].
pub fn verify_spans(scope: &Scope<'_>, shards: &[ShardPlan]) -> Result<(), PlanError> {
    scope.check(shards.first().map_or(0, |shard| shard.dataset as usize))?;
    let streams = scope.streams();
    let mut spans = Vec::new();
    for (shard, plan) in shards.iter().enumerate() {
        let mut counted = 0_u64;
        for window in plan.windows() {
            let stream = window.document as usize;
            let &length = streams.get(stream).ok_or(PlanError::UnknownDocument {
                document: window.document,
                documents: streams.len(),
            })?;
            if !window.fits(length, scope.prefix) {
                return Err(PlanError::WindowDoesNotFit {
                    window: *window,
                    tokens: length,
                });
            }
            counted = counted.saturating_add(tokens(scope.counted(stream, window.from..window.to)));
            spans.push((stream, window.from, window.to));
        }
        if counted != plan.scored_tokens {
            let claimed = plan.scored_tokens;
            return Err(PlanError::CountDiffers {
                shard,
                claimed,
                counted,
            });
        }
    }
    spans.sort_unstable();
    verify_coverage(scope, &streams, &spans)?;

    let convention = scope.convention;
    for window in shards.iter().flat_map(ShardPlan::windows) {
        let positions = positions(scope, streams[window.document as usize]);
        if !is_window(convention, window, scope.offset(), positions) {
            return Err(PlanError::WindowDiffers {
                convention,
                window: *window,
            });
        }
    }
    Ok(())
}

/// Proves that `spans` of (stream, from, to), sorted, hold every token that should count once, and
/// none that the convention leaves out.
fn verify_coverage(
    scope: &Scope<'_>,
    streams: &[u64],
    spans: &[(usize, u64, u64)],
) -> Result<(), PlanError> {
    let mut spans = spans.iter().peekable();
    for (document, &length) in streams.iter().enumerate() {
        let counts = |token: u64| {
            let positions = positions(scope, length);
            counts(scope.convention, token + scope.offset(), positions)
        };
        // Only what may count is missed.
        let missed = |gap| {
            let mut gap = scope.counted(document, gap);
            match gap.find_map(|mut part| part.find(|&token| counts(token))) {
                Some(token) => Err(PlanError::NotCounted { document, token }),
                None => Ok(()),
            }
        };
        let mut next = 0;
        while let Some(&(_, from, to)) = spans.next_if(|span| span.0 == document) {
            if from < next {
                return Err(PlanError::CountedTwice {
                    document,
                    token: from,
                });
            }
            missed(next..from)?;
            if let Some(token) = Range::find(&mut (from..to), |&token| !counts(token)) {
                return Err(PlanError::WronglyCounted {
                    convention: scope.convention,
                    document,
                    token,
                });
            }
            next = to;
        }
        missed(next..length)?;
    }
    Ok(())
}

fn positions(scope: &Scope<'_>, tokens: u64) -> u64 {
    tokens.saturating_add(scope.offset())
}

/// Whether the convention counts `position` of a stream of `positions`.
fn counts(convention: Convention, position: u64, positions: u64) -> bool {
    match convention {
        Convention::Rolling { .. } | Convention::Strided { .. } => position >= 1,
        Convention::Blocks { window, score_tail } => {
            let window = u64::from(window);
            let in_tail = position >= positions - positions % window;
            !position.is_multiple_of(window) && (score_tail || !in_tail)
        }
        Convention::LlamaCpp { window } => {
            let window = u64::from(window);
            position % window > window / 2 && position < positions - positions % window
        }
    }
}

/// Whether `window`, which fits its stream, is one of the convention's: its targets are predicted
/// from the context that the convention gives them, and are all that it counts there.
fn is_window(convention: Convention, window: &Window, offset: u64, positions: u64) -> bool {
    // All in positions; a window that fits does not start before 0.
    let start = window.start.saturating_add_unsigned(offset).cast_unsigned();
    let end = start + u64::from(window.len);
    let (from, to) = (window.from + offset, window.to + offset);
    let reach = |start: u64, size: u32| start.saturating_add(size.into()).min(positions);
    if from >= to {
        return false;
    }
    match convention {
        Convention::Rolling { window: size } => {
            (from - 1).is_multiple_of(size.into())
                && to == reach(from, size)
                && end == to - 1
                && end - start == end.min(size.into())
        }
        Convention::Blocks {
            window: size,
            score_tail,
        } => {
            start.is_multiple_of(size.into())
                && end == reach(start, size)
                && (score_tail || window.len == size)
                && (from, to) == (start + 1, end)
        }
        Convention::Strided {
            window: size,
            stride,
        } => {
            // What the window before it, `stride` earlier, did not hold.
            let first = (start + u64::from(size))
                .checked_sub(stride.into())
                .filter(|_| start > 0);
            start.is_multiple_of(stride.into())
                && end == reach(start, size)
                && (from, to) == (first.unwrap_or(1), end)
        }
        Convention::LlamaCpp { window: size } => {
            start.is_multiple_of(size.into())
                && window.len == size
                && (from, to) == (start + u64::from(size / 2) + 1, end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(convention: Convention, positions: u64) -> Vec<u64> {
        (0..positions)
            .filter(|&position| counts(convention, position, positions))
            .collect()
    }

    #[test]
    fn what_counts_by_hand() {
        let blocks = |score_tail| Convention::Blocks {
            window: 4,
            score_tail,
        };
        assert_eq!(counted(blocks(false), 10), [1, 2, 3, 5, 6, 7]);
        assert_eq!(counted(blocks(true), 10), [1, 2, 3, 5, 6, 7, 9]);
        assert_eq!(counted(blocks(true), 9), [1, 2, 3, 5, 6, 7]);
        let strided = Convention::Strided {
            window: 4,
            stride: 2,
        };
        assert_eq!(counted(strided, 4), [1, 2, 3]);
        assert_eq!(counted(Convention::Rolling { window: 2 }, 4), [1, 2, 3]);
        assert_eq!(
            counted(Convention::LlamaCpp { window: 6 }, 15),
            [4, 5, 10, 11]
        );
        assert_eq!(counted(Convention::LlamaCpp { window: 5 }, 9), [3, 4]);
    }
}
