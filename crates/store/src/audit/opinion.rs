//! What a worker says a shard comes to, and whether two workers say the same.

use assay_api::{Dtype, WorkerId};
use sqlx::FromRow;

use crate::commit::{Columns, Committing};
use crate::rows::int;
use crate::{ShardOutcome, StoreError};

/// How far apart the sums of a shard may be on devices of two kinds in float32, relative to the
/// sum: five times what the tests hold this program and transformers to.
const TOLERANCE_FLOAT32: f64 = 1e-5;
/// The same in bfloat16, whose products carry 8 bits and so differ with the order of every sum.
const TOLERANCE_BFLOAT16: f64 = 5e-3;

/// What one worker computed for a shard.
#[derive(FromRow)]
pub(super) struct Opinion {
    pub(super) worker_id: WorkerId,
    pub(super) worker: String,
    device: String,
    device_kind: String,
    split_depth: i32,
    clusters: Vec<i32>,
    units: Vec<i64>,
    scored: Vec<i64>,
}

impl Opinion {
    pub(super) fn of(attempt: &Committing, outcome: &ShardOutcome) -> Result<Self, StoreError> {
        let Columns {
            clusters,
            units,
            scored,
        } = Columns::of(&outcome.sums)?;
        Ok(Self {
            worker_id: attempt.worker_id,
            worker: attempt.worker.clone(),
            device: attempt.device.clone(),
            device_kind: attempt.device_kind.clone(),
            split_depth: int(outcome.split_depth)?,
            clusters,
            units,
            scored,
        })
    }

    /// Whether their bits are promised to be equal.
    pub(super) fn is_comparable(&self, other: &Self) -> bool {
        self.device_kind == other.device_kind && self.split_depth == other.split_depth
    }

    /// Whether both can be right.
    pub(super) fn agrees(&self, other: &Self, dtype: Dtype) -> bool {
        if self.clusters != other.clusters || self.scored != other.scored {
            return false;
        }
        if self.is_comparable(other) {
            return self.units == other.units;
        }
        let tolerance = match dtype {
            Dtype::Float32 => TOLERANCE_FLOAT32,
            Dtype::Bfloat16 => TOLERANCE_BFLOAT16,
        };
        let (a, b) = (self.total(), other.total());
        (a - b).abs() <= tolerance * a.abs().max(b.abs())
    }

    fn total(&self) -> f64 {
        let units: i128 = self.units.iter().map(|units| i128::from(*units)).sum();
        units as f64
    }

    /// For people: who, and on what.
    pub(super) fn who(&self) -> String {
        format!("{} ({}, {})", self.worker, self.device, self.device_kind)
    }

    /// For people: the first cluster in which the two differ, and by how much the shard does.
    pub(super) fn difference(&self, other: &Self) -> String {
        let rows = |opinion: &Self| {
            let sums = opinion.units.iter().zip(&opinion.scored);
            let rows = opinion.clusters.iter().zip(sums);
            rows.map(|(cluster, (units, scored))| (*cluster, *units, *scored))
                .collect::<Vec<_>>()
        };
        let (own, others) = (rows(self), rows(other));
        let differing = own.iter().zip(&others).find(|(a, b)| a != b);
        let Some(((cluster, units, scored), (other_cluster, other_units, other_scored))) =
            differing
        else {
            return format!("{} clusters against {}", own.len(), others.len());
        };
        if (cluster, scored) != (other_cluster, other_scored) {
            return format!(
                "the one counted {scored} tokens in cluster {cluster} and the other \
                 {other_scored} in cluster {other_cluster}"
            );
        }
        let sums = if self.is_comparable(other) {
            String::new()
        } else {
            let (a, b) = (self.total(), other.total());
            let apart = (a - b).abs() / a.abs().max(b.abs());
            format!(", and the sums of the shard are {apart:.1e} apart, relatively")
        };
        format!(
            "cluster {cluster} is the first that differs, {units} against {other_units} units of \
             2^-32 nat{sums}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opinion(device_kind: &str, split_depth: i32, units: &[i64]) -> Opinion {
        Opinion {
            worker_id: WorkerId::nil(),
            worker: "w".to_owned(),
            device: "cpu:0".to_owned(),
            device_kind: device_kind.to_owned(),
            split_depth,
            clusters: (0..).take(units.len()).collect(),
            units: units.to_vec(),
            scored: vec![1; units.len()],
        }
    }

    #[test]
    fn bits_count_within_a_kind_and_sums_between_kinds() {
        let of_a = opinion("a", 0, &[600_000, 400_000]);
        for (other, float32, bfloat16) in [
            (opinion("a", 0, &[600_000, 400_000]), true, true),
            (opinion("a", 0, &[600_000, 400_001]), false, false),
            (opinion("a", 0, &[600_001, 399_999]), false, false),
            (opinion("a", 1, &[600_001, 399_999]), true, true),
            (opinion("a", 1, &[600_000, 400_010]), true, true),
            (opinion("b", 0, &[600_000, 400_011]), false, true),
            (opinion("b", 0, &[600_000, 399_989]), false, true),
            (opinion("b", 0, &[600_000, 394_000]), false, false),
            (opinion("b", 0, &[600_000, 400_000, 0]), false, false),
        ] {
            let agrees = |dtype| (of_a.agrees(&other, dtype), other.agrees(&of_a, dtype));
            assert_eq!(agrees(Dtype::Float32), (float32, float32));
            assert_eq!(agrees(Dtype::Bfloat16), (bfloat16, bfloat16));
        }
        // Nothing to be relative to.
        let none = opinion("a", 0, &[0]);
        assert!(none.agrees(&opinion("b", 0, &[0]), Dtype::Float32));
        assert!(!none.agrees(&opinion("b", 0, &[1]), Dtype::Float32));
    }

    #[test]
    fn a_difference_names_the_first_cluster() {
        let one = opinion("a", 0, &[5, 7, 9]);
        let within = one.difference(&opinion("a", 0, &[5, 8, 0]));
        assert_eq!(
            within,
            "cluster 1 is the first that differs, 7 against 8 units of 2^-32 nat"
        );
        let between = one.difference(&opinion("b", 0, &[6, 7, 9]));
        assert!(between.starts_with("cluster 0 is"), "{between}");
        assert!(
            between.ends_with("are 4.5e-2 apart, relatively"),
            "{between}"
        );
        let mut other = opinion("a", 0, &[5, 7, 9]);
        other.scored[2] = 3;
        assert!(
            one.difference(&other)
                .contains("counted 1 tokens in cluster 2")
        );
        let fewer = one.difference(&opinion("a", 0, &[5, 7]));
        assert_eq!(fewer, "3 clusters against 2");
    }
}
