//! Masks of attention, where libtorch computes it a tile at a time.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::DecoderError;

/// Queries that attention takes at a time where not every one attends to all keys before it, or
/// the scores are changed: a tile of scores has this many rows.
pub(crate) const QUERY_ROWS: i64 = 256;

/// A tile of scores: `rows` queries, the first of which is key number `before` of `keys`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) rows: i64,
    pub(crate) keys: i64,
    pub(crate) before: i64,
}

impl Tile {
    /// `[rows, keys]` in the dtype and on the device of `like`: 0 where a query attends to a key,
    /// else minus infinity.
    ///
    /// That depends on their distance alone, so the masks of all tiles under a window are parts of
    /// one, whose first column is the farthest key that the first query attends to.
    pub(crate) fn mask(
        self,
        made: &mut BTreeMap<i64, Tensor>,
        window: i64,
        like: &Tensor,
    ) -> Result<Tensor, DecoderError> {
        let whole = if let Some(whole) = made.get(&window) {
            whole.shallow_clone()
        } else {
            let whole = band(window, like)?;
            made.insert(window, whole.shallow_clone());
            whole
        };
        let part = whole.f_narrow(0, 0, self.rows)?;
        Ok(part.f_narrow(1, window - 1 - self.before, self.keys)?)
    }
}

/// `[QUERY_ROWS, window - 1 + QUERY_ROWS]`: query `i` attends to columns `i` to `i + window - 1`.
fn band(window: i64, like: &Tensor) -> Result<Tensor, DecoderError> {
    let numbers = (Kind::Int64, like.device());
    let columns = window - 1 + QUERY_ROWS;
    let queries = Tensor::f_arange(QUERY_ROWS, numbers)?.f_unsqueeze(1)?;
    let distance = Tensor::f_arange(columns, numbers)?.f_sub(&queries)?;
    let excluded = distance.f_lt(0)?.f_logical_or(&distance.f_ge(window)?)?;
    let options = (like.f_kind()?, like.device());
    Ok(Tensor::f_zeros([QUERY_ROWS, columns], options)?
        .f_masked_fill_(&excluded, f64::NEG_INFINITY)?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn a_mask_excludes_what_comes_later_and_what_is_too_far_back() {
        let like = Tensor::zeros([1], (Kind::Float, Device::Cpu));
        let tile = Tile {
            rows: 2,
            keys: 4,
            before: 2,
        };
        for (window, wanted) in [
            (2, [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]),
            (3, [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
            (99, [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]),
        ] {
            // The first tile under a window starts as far before it as there are keys.
            let before = tile.before.min(window - 1);
            let from = tile.before - before;
            let part = Tile {
                keys: tile.keys - from,
                before,
                ..tile
            };
            let mask = part.mask(&mut BTreeMap::new(), window, &like).unwrap();
            let allowed: Vec<f64> =
                Vec::try_from(mask.exp().to_kind(Kind::Double).reshape([-1])).unwrap();
            let skipped = usize::try_from(from).unwrap();
            let wanted: Vec<f64> = wanted
                .chunks(4)
                .flat_map(|row| row[skipped..].to_vec())
                .collect();
            assert_eq!(allowed, wanted, "window {window}");
        }
    }
}
