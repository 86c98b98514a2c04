//! The numbers of groups of documents.

use serde::{Deserialize, Serialize};

use crate::cluster::total;
use crate::exact::ExactSum;
use crate::standard_error::{ClusteredError, FEW_CLUSTERS};
use crate::statistics::{mean_of_means, ratio};

/// Groups that a warning names.
const NAMED: usize = 5;

/// The numbers of one group of documents of a finished dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupStatistics {
    /// Its name.
    pub name: String,
    /// Documents.
    pub documents: u64,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// Summed negative log-likelihood.
    pub nll: ExactSum,
    /// exp(nll / scored tokens); none if it overflows or nothing is counted.
    pub perplexity: Option<f64>,
    /// exp of the mean over scored documents of their mean NLL; none likewise.
    pub macro_perplexity: Option<f64>,
    /// Standard error of the mean NLL in nats per token, clustered by document; none below 5
    /// scored documents.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, by t(G - 1).
    pub confidence_95: Option<f64>,
    /// Documents with scored tokens, the G of the standard error.
    #[serde(default)]
    pub clusters: u32,
}

/// The statistics of each group, ordered by name. `groups` has the index in `names` of each
/// document, `documents` its sum and count.
pub(crate) fn group_statistics(
    names: &[String],
    groups: &[u32],
    documents: &[(ExactSum, u64)],
) -> Vec<GroupStatistics> {
    let mut members = vec![Vec::new(); names.len()];
    for (&group, &document) in groups.iter().zip(documents) {
        if let Some(members) = members.get_mut(group as usize) {
            members.push(document);
        }
    }
    let mut statistics: Vec<_> = names.iter().zip(&members).map(of).collect();
    statistics.sort_by(|a, b| a.name.cmp(&b.name));
    statistics
}

/// What a reader of the groups' numbers should know.
pub(crate) fn group_warning(groups: &[GroupStatistics]) -> Option<String> {
    let few = groups
        .iter()
        .filter(|group| group.standard_error.is_some() && group.clusters < FEW_CLUSTERS);
    let names: Vec<String> = few.map(|group| format!("{:?}", group.name)).collect();
    let shown = names.len().min(NAMED);
    let more = match names.len() - shown {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (shown > 0).then(|| {
        format!(
            "groups with fewer than {FEW_CLUSTERS} scored documents, whose standard errors may \
             be too small: {}{more}",
            names[..shown].join(", ")
        )
    })
}

fn of((name, documents): (&String, &Vec<(ExactSum, u64)>)) -> GroupStatistics {
    let (nll, scored_tokens) = total(documents);
    let exp = |mean: Option<f64>| mean.map(f64::exp).filter(|value| value.is_finite());
    let error = ClusteredError::of(documents);
    GroupStatistics {
        name: name.clone(),
        documents: documents.len() as u64,
        scored_tokens,
        nll,
        perplexity: exp(ratio(nll.nats(), scored_tokens)),
        macro_perplexity: exp(mean_of_means(documents)),
        standard_error: error.standard_error,
        confidence_95: error.confidence_95(),
        clusters: error.clusters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (units of a nat, tokens) of documents of two groups, and of one with nothing scored.
    fn documents() -> (Vec<u32>, Vec<(ExactSum, u64)>) {
        let documents = (0_u32..12).map(|index| {
            let tokens = 4 + u64::from(index % 3);
            (
                index % 2,
                (ExactSum::from(i64::from(10 + index) << 32), tokens),
            )
        });
        let (mut groups, mut sums): (Vec<_>, Vec<_>) = documents.unzip();
        groups.push(2);
        sums.push((ExactSum::default(), 0));
        (groups, sums)
    }

    #[test]
    fn each_group_stands_for_itself() {
        let (groups, sums) = documents();
        let names = ["web", "books", "nothing"].map(str::to_owned);
        let statistics = group_statistics(&names, &groups, &sums);
        let order: Vec<_> = statistics.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(order, ["books", "nothing", "web"]);

        let web: Vec<_> = sums.iter().step_by(2).take(6).copied().collect();
        let group = &statistics[2];
        assert_eq!((group.documents, group.scored_tokens), (6, 30));
        assert_eq!(group.nll, ExactSum::from(90 << 32));
        assert_eq!(group.perplexity, Some(3_f64.exp()));
        let means: f64 = web.iter().map(|d| d.0.nats() / d.1 as f64).sum();
        assert_eq!(group.macro_perplexity, Some((means / 6.0).exp()));
        // sqrt(6/5 * sum((S - 3 N)^2)) / 30, by hand.
        let squares: f64 = web
            .iter()
            .map(|d| (d.0.nats() - 3.0 * d.1 as f64).powi(2))
            .sum();
        let expected = (1.2 * squares).sqrt() / 30.0;
        let error = group.standard_error.unwrap();
        assert!(
            (error / expected - 1.0).abs() < 1e-13,
            "{error} is not {expected}"
        );
        assert!(group.confidence_95.unwrap() > 2.0 * error);

        assert_eq!(
            group_warning(&statistics).unwrap(),
            "groups with fewer than 20 scored documents, whose standard errors may be too small: \
             \"books\", \"web\""
        );
        let nothing = &statistics[1];
        assert_eq!((nothing.documents, nothing.scored_tokens), (1, 0));
        assert_eq!((nothing.perplexity, nothing.standard_error), (None, None));
    }

    #[test]
    fn groups_add_up_to_the_dataset() {
        let (groups, sums) = documents();
        let names = ["a", "b", "c"].map(str::to_owned);
        let statistics = group_statistics(&names, &groups, &sums);
        let nll: ExactSum = statistics.iter().map(|group| group.nll).sum();
        assert_eq!(
            (nll, statistics.iter().map(|g| g.scored_tokens).sum()),
            total(&sums)
        );
    }

    #[test]
    fn a_group_of_few_documents_has_no_error() {
        let sums = [(ExactSum::from(3 << 32), 2); 4];
        let group = &group_statistics(&["few".to_owned()], &[0; 4], &sums)[0];
        assert_eq!(group.perplexity, Some(1.5_f64.exp()));
        assert_eq!((group.standard_error, group.confidence_95), (None, None));
        let huge = [(ExactSum::from(1000 << 32), 1)];
        let group = &group_statistics(&["huge".to_owned()], &[0], &huge)[0];
        assert_eq!((group.perplexity, group.macro_perplexity), (None, None));
    }
}
