//! What a worker says a shard comes to, and whether two workers say the same.

use assay_api::{Dtype, WorkerId};
use assay_scoring::UNITS_PER_NAT;
use sqlx::FromRow;

use crate::commit::{Columns, Committing};
use crate::rows::int;
use crate::{ShardOutcome, StoreError};

/// How far apart the sums of a shard may be that are not promised to be equal to the bit.
struct Tolerance {
    /// Relative to the sum.
    of_sum: f64,
    /// In nats, times the square root of the number of tokens: rounding moves each NLL by so much
    /// at most, however small it is, and tokens independently.
    of_token: f64,
}

/// Of the sum, five times what the tests hold this program and transformers to. Logits of 16 to 32
/// are 2e-6 apart, and what they are computed from has been rounded some hundred times.
const FLOAT32: Tolerance = Tolerance {
    of_sum: 1e-5,
    of_token: 4e-5,
};
/// In bfloat16 products carry 8 bits and so differ with the order of every sum, and logits of 16 to
/// 32 are 0.125 apart.
const BFLOAT16: Tolerance = Tolerance {
    of_sum: 5e-3,
    of_token: 0.25,
};

/// What one worker computed for a shard.
#[derive(FromRow)]
pub(super) struct Opinion {
    pub(super) worker_id: WorkerId,
    pub(super) worker: String,
    device: String,
    device_kind: String,
    /// If not the job's.
    own_dtype: Option<String>,
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
            own_dtype: outcome.dtype.map(|dtype| dtype.as_str().to_owned()),
            split_depth: int(outcome.split_depth)?,
            clusters,
            units,
            scored,
        })
    }

    /// Whether their bits are promised to be equal.
    pub(super) fn is_comparable(&self, other: &Self) -> bool {
        self.device_kind == other.device_kind
            && self.own_dtype == other.own_dtype
            && self.split_depth == other.split_depth
    }

    /// Whether both can be right, in a job of this dtype.
    pub(super) fn agrees(&self, other: &Self, dtype: Dtype) -> bool {
        if self.clusters != other.clusters || self.scored != other.scored {
            return false;
        }
        if self.is_comparable(other) {
            return self.units == other.units;
        }
        let is_float32 = |own: &Option<String>| {
            own.as_deref().unwrap_or(dtype.as_str()) == Dtype::Float32.as_str()
        };
        let tolerance = if is_float32(&self.own_dtype) && is_float32(&other.own_dtype) {
            FLOAT32
        } else {
            BFLOAT16
        };
        let (a, b) = (self.total(), other.total());
        let tokens: i64 = self.scored.iter().sum();
        let noise = tolerance.of_token * UNITS_PER_NAT * (tokens as f64).sqrt();
        (a - b).abs() <= tolerance.of_sum * a.abs().max(b.abs()) + noise
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
            own_dtype: None,
            split_depth,
            clusters: (0..).take(units.len()).collect(),
            units: units.to_vec(),
            scored: vec![1; units.len()],
        }
    }

    /// Sums of many nats, so that their size decides and not the number of tokens.
    fn large(device_kind: &str, split_depth: i32, units: &[i64]) -> Opinion {
        let units: Vec<i64> = units.iter().map(|units| units * 10_000_000_000).collect();
        opinion(device_kind, split_depth, &units)
    }

    #[test]
    fn bits_count_within_a_kind_and_sums_between_kinds() {
        let of_a = large("a", 0, &[600_000, 400_000]);
        for (other, float32, bfloat16) in [
            (large("a", 0, &[600_000, 400_000]), true, true),
            (large("a", 0, &[600_000, 400_001]), false, false),
            (large("a", 0, &[600_001, 399_999]), false, false),
            (large("a", 1, &[600_001, 399_999]), true, true),
            (large("a", 1, &[600_000, 400_010]), true, true),
            (large("b", 0, &[600_000, 400_011]), false, true),
            (large("b", 0, &[600_000, 399_989]), false, true),
            (large("b", 0, &[600_000, 394_000]), false, false),
            (large("b", 0, &[600_000, 400_000, 0]), false, false),
        ] {
            let agrees = |dtype| (of_a.agrees(&other, dtype), other.agrees(&of_a, dtype));
            assert_eq!(agrees(Dtype::Float32), (float32, float32));
            assert_eq!(agrees(Dtype::Bfloat16), (bfloat16, bfloat16));
        }
    }

    #[test]
    fn the_dtypes_of_both_decide() {
        let in_float32 = |kind, units: &[i64]| Opinion {
            own_dtype: Some("float32".to_owned()),
            ..large(kind, 0, units)
        };
        let own = in_float32("a", &[600_000, 400_000]);
        // The same kind in another dtype is another kind, and the coarser dtype counts.
        let of_job = large("a", 0, &[600_000, 400_100]);
        assert!(own.agrees(&of_job, Dtype::Bfloat16));
        assert!(own.agrees(&in_float32("b", &[600_000, 400_010]), Dtype::Bfloat16));
        assert!(!own.agrees(&in_float32("b", &[600_000, 400_011]), Dtype::Bfloat16));
    }

    #[test]
    fn small_sums_are_as_near_as_rounding_lets_tokens_be() {
        // 4e-5 nat are 171,798 units.
        let none = opinion("a", 0, &[0]);
        for (units, agrees) in [(0, true), (171_000, true), (172_000, false)] {
            let other = opinion("b", 0, &[units]);
            assert_eq!(none.agrees(&other, Dtype::Float32), agrees, "{units}");
        }
        // Errors of tokens cancel: twice as much for four.
        let mut four = opinion("a", 0, &[0]);
        four.scored = vec![4];
        for (units, agrees) in [(343_000, true), (344_000, false)] {
            let mut other = opinion("b", 0, &[units]);
            other.scored = vec![4];
            assert_eq!(four.agrees(&other, Dtype::Float32), agrees, "{units}");
        }
        assert!(none.agrees(&opinion("b", 0, &[1 << 30]), Dtype::Bfloat16));
        assert!(!none.agrees(&opinion("b", 0, &[1 << 31]), Dtype::Bfloat16));
        assert!(!none.agrees(&opinion("a", 0, &[1]), Dtype::Float32), "bits");
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
