//! What a job is held against, and how much it may be worse: options of several commands.

use assay_api::JobSelector;

/// Parses the id of a job, or a tag as `KEY:VALUE`.
pub(crate) fn selector(text: &str) -> Result<JobSelector, String> {
    if let Ok(id) = text.parse() {
        return Ok(JobSelector::Id(id));
    }
    match text.split_once(':') {
        Some((key, _)) if !key.is_empty() => Ok(JobSelector::Tag(text.to_owned())),
        _ => Err(
            "a baseline is the UUID of a job, which `assay jobs` lists, or a tag as KEY:VALUE, \
             such as branch:main"
                .to_owned(),
        ),
    }
}

/// Parses the largest increase that passes. JSON has no numbers for infinities and NaN.
pub(crate) fn increase(text: &str) -> Result<f64, String> {
    let limit = text.parse().ok();
    let limit = limit.filter(|limit: &f64| limit.is_finite() && *limit >= 0.0);
    limit.ok_or_else(|| {
        "an increase is a number of nats per token, 0 or more; 0.01 is 1 % of perplexity".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_is_an_id_or_a_tag() {
        let id = "0192d3a4-0000-7000-8000-000000000001";
        assert_eq!(selector(id), Ok(JobSelector::Id(id.parse().unwrap())));
        for tag in ["branch:main", "release:v1:rc", "nightly:"] {
            assert_eq!(selector(tag), Ok(JobSelector::Tag(tag.to_owned())));
        }
        // The second is an id that lost its first digit.
        for wrong in ["branch=main", &id[1..], ":main", ""] {
            let error = selector(wrong).unwrap_err();
            assert!(error.contains("KEY:VALUE, such as branch:main"), "{wrong}");
        }
    }

    #[test]
    fn an_increase_is_a_number_from_0_on() {
        assert_eq!(increase("0.01"), Ok(0.01));
        assert_eq!(increase("0"), Ok(0.0));
        for wrong in ["-0.01", "1%", "nan", "inf", ""] {
            let error = increase(wrong).unwrap_err();
            assert!(error.contains("nats per token"), "{wrong}: {error}");
        }
    }
}
