//! Comparisons of two jobs, and the gates that rest on them.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{JobId, Method};

/// A job by its id, or the newest succeeded one with a tag that is older than the job it is held
/// against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSelector {
    /// The job of this id.
    Id(JobId),
    /// The newest one with this tag, as `key:value`.
    Tag(String),
}

/// A tag, as it travels.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaggedJob {
    /// `key:value`: the newest succeeded job with this tag, of those that are older than the job it
    /// is held against.
    #[schema(example = "branch:main")]
    tag: String,
}

/// The id of a job, or an object with a tag that it has.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = JobSelector)]
pub enum JobSelectorSchema {
    /// The job of this id.
    #[schema(value_type = Uuid)]
    Id(JobId),
    /// The newest succeeded job with this tag.
    Tagged(TaggedJob),
}

impl fmt::Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Tag(tag) => write!(f, "the newest job tagged {tag}"),
        }
    }
}

impl Serialize for JobSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Id(id) => id.serialize(serializer),
            Self::Tag(tag) => TaggedJob { tag: tag.clone() }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for JobSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdOrTag;

        // As of `ModelRef`: a visitor keeps the name of the field that is wrong.
        impl<'de> Visitor<'de> for IdOrTag {
            type Value = JobSelector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of a job, or an object with a `tag`")
            }

            fn visit_str<E: Error>(self, id: &str) -> Result<Self::Value, E> {
                let id = id.parse().map_err(|_| {
                    E::custom(format!("{id:?} is not the id of a job, which is a UUID"))
                })?;
                Ok(JobSelector::Id(id))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let TaggedJob { tag } = TaggedJob::deserialize(MapAccessDeserializer::new(map))?;
                Ok(JobSelector::Tag(tag))
            }
        }

        deserializer.deserialize_any(IdOrTag)
    }
}

/// The body of `POST /comparisons`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonRequest {
    /// What is compared with: a job, or `{"tag": "key:value"}` for the newest succeeded job with
    /// this tag that is older than the candidate.
    #[schema(value_type = JobSelectorSchema)]
    pub baseline: JobSelector,
    /// The job that is judged.
    #[schema(value_type = Uuid)]
    pub candidate: JobId,
    /// Names of the candidate's datasets to compare; all of them if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
    /// The largest increase of the mean NLL that passes, in nats per token of the baseline; 0.01
    /// is 1 % of perplexity. With it the comparison has a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_increase: Option<f64>,
    /// How many documents `worst` and `best` name at most.
    #[serde(default = "ten")]
    #[schema(minimum = 0, maximum = 1000, default = 10)]
    pub documents: u32,
}

fn ten() -> u32 {
    10
}

/// What a job is held against once it has succeeded: `gate` of `POST /jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateRequest {
    /// What it is compared with: a job, or `{"tag": "key:value"}` for the newest succeeded job with
    /// this tag when the job is posted.
    #[schema(value_type = JobSelectorSchema)]
    pub baseline: JobSelector,
    /// The largest increase of the mean NLL that passes, in nats per token of the baseline; 0.01
    /// is 1 % of perplexity.
    #[schema(minimum = 0)]
    pub max_increase: f64,
    /// Names of the datasets that are judged; all of them if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
}

/// The gate of a job: what was asked for, the baseline resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    /// The job it is compared with.
    #[schema(value_type = Uuid)]
    pub baseline: JobId,
    /// The largest increase of the mean NLL that passes, in nats per token of the baseline.
    pub max_increase: f64,
    /// Names of the datasets that are judged; all of them if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
}

/// What a gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The 95 % interval of the increase lies below the largest that passes.
    Pass,
    /// The interval lies above it.
    Fail,
    /// It holds it, or there is none.
    Inconclusive,
}

impl Verdict {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// The answer of `GET /jobs/{id}/gate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateResult {
    /// The job that is judged.
    #[schema(value_type = Uuid)]
    pub job_id: JobId,
    /// What was asked for.
    pub gate: Gate,
    /// Null until both jobs have ended.
    pub verdict: Option<Verdict>,
    /// Why, in a sentence.
    pub reason: String,
    /// What the verdict rests on; null if the jobs cannot be compared, or not yet.
    pub comparison: Option<Comparison>,
}

/// The answer of `POST /comparisons`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// The job that was compared with.
    #[schema(value_type = Uuid)]
    pub baseline: JobId,
    /// The job that is judged.
    #[schema(value_type = Uuid)]
    pub candidate: JobId,
    /// One entry per dataset and method of the candidate, in its order.
    pub datasets: Vec<DatasetComparison>,
    /// `fail` if one dataset fails, else `inconclusive` if one is, else `pass`; null unless
    /// `max_increase` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// What a mean NLL is a mean over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Counted tokens, which are the same in both jobs.
    Token,
    /// Bytes of the text: the tokens differ.
    Byte,
}

impl Unit {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Byte => "byte",
        }
    }
}

/// The paired difference of one dataset under one method, candidate minus baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetComparison {
    /// Name of the dataset.
    pub name: String,
    /// Its name in the baseline, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_name: Option<String>,
    /// The method.
    pub method: Method,
    /// What the means are over.
    pub unit: Unit,
    /// The numbers of the whole dataset.
    #[serde(flatten)]
    pub difference: PairedDifference,
    /// The largest increase that passes, in nats per `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_increase: Option<f64>,
    /// Whether the increase passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The numbers of each group of the candidate, ordered by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupComparison>,
    /// The documents whose mean NLL rose most, the most first.
    pub worst: Vec<DocumentChange>,
    /// The documents whose mean NLL fell most, the most first.
    pub best: Vec<DocumentChange>,
}

/// The paired difference of a group of documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupComparison {
    /// The value that its documents have in the field.
    pub name: String,
    /// The numbers of the group.
    #[serde(flatten)]
    pub difference: PairedDifference,
}

/// A difference of means over the same text. Clusters are documents; with one document that has
/// counted tokens, its 50 equal spans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PairedDifference {
    /// Documents.
    pub documents: u64,
    /// Tokens or bytes that the means are over.
    pub units: u64,
    /// Mean NLL of the baseline in nats per unit; null if nothing is counted.
    pub baseline_mean_nll: Option<f64>,
    /// Mean NLL of the candidate in nats per unit.
    pub candidate_mean_nll: Option<f64>,
    /// Candidate minus baseline, in nats per unit: the exact difference of the sums over the units.
    pub difference: Option<f64>,
    /// Candidate minus baseline of the sums, an exact integer in units of 2^-32 nat.
    pub nll_difference_exact: String,
    /// exp(difference): the candidate's perplexity over the baseline's; null if it overflows.
    pub perplexity_ratio: Option<f64>,
    /// Standard error of the difference, clustered: of the differences and not of the means, whose
    /// errors are far larger and mostly shared. Null under 5 clusters.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the difference, t(G-1); null with
    /// `standard_error`.
    pub confidence_95: Option<f64>,
    /// Clusters with counted tokens, the G of the standard error.
    pub clusters: u32,
    /// Clusters whose NLL rose.
    pub worse: u64,
    /// Clusters whose NLL fell.
    pub better: u64,
    /// Clusters whose NLL is the same to the last unit of 2^-32 nat.
    pub equal: u64,
    /// Two-sided p of the sign test: how likely `worse` and `better` are at least as uneven if a
    /// cluster rises as often as it falls. Exact, equal ones left out.
    pub sign_test_p: f64,
}

/// A document in both jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChange {
    /// Index of the document in the dataset, from 0.
    pub index: u64,
    /// Its group, if the candidate has groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Tokens or bytes that the means are over.
    pub units: u64,
    /// Mean NLL in the baseline, in nats per unit.
    pub baseline_mean_nll: f64,
    /// Mean NLL in the candidate.
    pub candidate_mean_nll: f64,
    /// Candidate minus baseline.
    pub difference: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_selected_by_id_or_tag() {
        let id = r#""01932c07-209c-7f3c-a4ac-6f2b5f9f0a51""#;
        for json in [id, r#"{"tag":"branch:main"}"#] {
            let selector: JobSelector = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&selector).unwrap(), json);
        }
        for (json, words) in [
            ("3", "the id of a job, or an object with a `tag`"),
            (r#""main""#, "\"main\" is not the id of a job"),
            ("{}", "missing field `tag`"),
            (r#"{"tags":"a:b"}"#, "unknown field `tags`"),
        ] {
            let error = serde_json::from_str::<JobSelector>(json).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
