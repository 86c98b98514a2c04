//! What a shard reports: a sum and a count per cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exact::{NllError, to_units};

/// What one shard adds to one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSum {
    /// The cluster.
    pub cluster: u32,
    /// The sum in units of 2^-32 nat.
    pub units: i64,
    /// Tokens counted.
    pub scored: u64,
}

/// The sums of one shard, or of a part of it, per cluster touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSums(BTreeMap<u32, (i64, u64)>);

impl ShardSums {
    /// Counts one token.
    ///
    /// # Errors
    /// The errors of [`to_units`], and [`NllError::SumOutOfRange`] once the cluster's sum leaves
    /// 64 bits. The sums are then of no use: part of the shard is missing.
    pub fn add(&mut self, cluster: u32, nll: f64) -> Result<(), NllError> {
        self.add_units(cluster, to_units(nll)?, 1)
    }

    /// Adds the sums of another part of the same shard.
    ///
    /// # Errors
    /// [`NllError::SumOutOfRange`], as for [`ShardSums::add`].
    pub fn merge(&mut self, other: &Self) -> Result<(), NllError> {
        other
            .0
            .iter()
            .try_for_each(|(&cluster, &(units, n))| self.add_units(cluster, units, n))
    }

    fn add_units(&mut self, cluster: u32, units: i64, scored: u64) -> Result<(), NllError> {
        let entry = self.0.entry(cluster).or_default();
        entry.0 = entry
            .0
            .checked_add(units)
            .ok_or(NllError::SumOutOfRange { cluster })?;
        entry.1 += scored;
        Ok(())
    }

    /// The sums, ordered by cluster.
    pub fn into_vec(self) -> Vec<ClusterSum> {
        self.0
            .into_iter()
            .map(|(cluster, (units, scored))| ClusterSum {
                cluster,
                units,
                scored,
            })
            .collect()
    }

    /// Tokens counted in all clusters.
    pub fn scored(&self) -> u64 {
        self.0.values().map(|&(_, scored)| scored).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_leaves_64_bits_is_an_error() {
        let mut sums = ShardSums::default();
        sums.add(4, 2_147_483_647.0).unwrap();
        let mut half = ShardSums::default();
        half.add(4, 2_147_483_647.0).unwrap();
        assert_eq!(
            sums.clone().add(4, 2.0),
            Err(NllError::SumOutOfRange { cluster: 4 })
        );
        assert_eq!(
            sums.merge(&half),
            Err(NllError::SumOutOfRange { cluster: 4 })
        );
    }
}
