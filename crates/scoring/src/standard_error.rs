//! The standard error of a mean NLL, clustered.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::cluster::{ClusterLayout, total};
use crate::exact::ExactSum;

/// Clusters below which there is no standard error.
const FEWEST_CLUSTERS: u32 = 5;
/// Clusters below which the standard error comes with a warning.
pub(crate) const FEW_CLUSTERS: u32 = 20;

/// The cluster-robust standard error of a ratio of sums.
pub(crate) struct ClusteredError {
    /// Clusters with scored tokens, the G of the formulas.
    pub(crate) clusters: u32,
    /// In nats per token; none below 5 clusters.
    pub(crate) standard_error: Option<f64>,
}

impl ClusteredError {
    /// With sums S and counts N of G clusters and m = sum(S) / sum(N):
    /// `sqrt(G / (G - 1) * sum((S - m N)^2)) / sum(N)`, the linearised (sandwich) estimator.
    pub(crate) fn of(clusters: &[(ExactSum, u64)]) -> Self {
        let (nll, scored) = total(clusters);
        let touched = || clusters.iter().filter(|&&(_, scored)| scored > 0);
        let count = u32::try_from(touched().count()).unwrap_or(u32::MAX);
        let standard_error = (count >= FEWEST_CLUSTERS).then(|| {
            let mean = nll.nats() / scored as f64;
            let squares: f64 = touched()
                .map(|&(sum, n)| (sum.nats() - mean * n as f64).powi(2))
                .sum();
            let g = f64::from(count);
            (g / (g - 1.0) * squares).sqrt() / scored as f64
        });
        Self {
            clusters: count,
            standard_error,
        }
    }

    /// Half-width of the 95 % confidence interval, by t(G - 1).
    pub(crate) fn confidence_95(&self) -> Option<f64> {
        let student = StudentsT::new(0.0, 1.0, f64::from(self.clusters) - 1.0).ok()?;
        Some(student.inverse_cdf(0.975) * self.standard_error?)
    }

    /// What to say of few clusters.
    pub(crate) fn warning(&self, layout: &ClusterLayout) -> Option<String> {
        let what = match layout {
            ClusterLayout::Documents { .. } => "document",
            ClusterLayout::Spans { .. } => "span",
        };
        let of = match layout {
            ClusterLayout::Documents { .. } => "",
            ClusterLayout::Spans { .. } => " of the one document",
        };
        let clusters = self.clusters;
        let (s, have) = if clusters == 1 {
            ("", "has")
        } else {
            ("s", "have")
        };
        if clusters < FEWEST_CLUSTERS {
            Some(format!(
                "no standard error: only {clusters} {what}{s}{of} {have} scored tokens, fewer \
                 than {FEWEST_CLUSTERS}"
            ))
        } else if clusters < FEW_CLUSTERS {
            Some(format!(
                "the standard error rests on only {clusters} {what}{s}{of} with scored tokens, \
                 fewer than {FEW_CLUSTERS}, and may be too small"
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.975 quantiles of Student's t from 40 digits (mpmath).
    #[test]
    fn intervals_use_students_t() {
        for (clusters, quantile) in [
            (5, 2.776_445_105_197_794_4),
            (20, 2.093_024_054_408_309_7),
            (50, 2.009_575_237_129_239_7),
            (10_000, 1.960_201_263_621_357_7),
        ] {
            let error = ClusteredError {
                clusters,
                standard_error: Some(1.0),
            };
            let actual = error.confidence_95().unwrap();
            assert!((actual - quantile).abs() < 1e-9, "{clusters}: {actual}");
        }
    }
}
