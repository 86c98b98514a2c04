//! Whether two jobs took the same documents of a dataset.
//!
//! A dataset's digest covers its files and not the options that choose among their documents and
//! tokens.

use assay_api::{DatasetFormat, DatasetRef};
use serde::Serialize;
use serde_json::Value;

/// The first option that makes other documents or tokens of the same bytes, with its values.
/// `name` and `group_by` make none.
pub(super) fn difference(
    now: &DatasetRef,
    before: &DatasetRef,
) -> Option<(&'static str, String, String)> {
    let formats = format(now).zip(format(before));
    let pair = |of: fn(&DatasetRef) -> String| (of(now), of(before));
    let sample = |dataset: &DatasetRef| {
        dataset.sample.map_or_else(none, |sample| {
            format!("{}:{}", sample.documents, sample.seed)
        })
    };
    let limit = |limit: Option<u64>| limit.map_or_else(none, |limit| limit.to_string());
    let options = [
        (
            "format",
            formats.map_or_else(
                || (String::new(), String::new()),
                |(now, before)| (word(now), word(before)),
            ),
        ),
        ("field", pair(|dataset| dataset.field().to_owned())),
        (
            "prompt_field",
            pair(|dataset| dataset.prompt_field().to_owned()),
        ),
        (
            "response_field",
            pair(|dataset| dataset.response_field().to_owned()),
        ),
        ("score", pair(|dataset| word(dataset.score()))),
        ("sample", (sample(now), sample(before))),
        (
            "limit_documents",
            (limit(now.limit_documents), limit(before.limit_documents)),
        ),
        (
            "limit_tokens",
            (limit(now.limit_tokens), limit(before.limit_tokens)),
        ),
    ];
    options
        .into_iter()
        .find(|(_, (now, before))| now != before)
        .map(|(option, (now, before))| (option, now, before))
}

/// The format, as far as the request says it: a path without a suffix may be a directory, whose
/// format is that of its files.
fn format(dataset: &DatasetRef) -> Option<DatasetFormat> {
    let format = dataset.format();
    let open = dataset.path.is_some() && dataset.format.is_none() && format == DatasetFormat::Text;
    (!open).then_some(format)
}

fn none() -> String {
    "none".to_owned()
}

/// An enum of the API as it travels.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("a word and not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dataset(options: &Value) -> DatasetRef {
        let mut object = json!({"path": "a.jsonl"});
        let fields = object.as_object_mut().unwrap();
        fields.extend(options.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_option_that_chooses_is_told_apart() {
        let plain = dataset(&json!({}));
        for (options, option, value) in [
            (json!({"format": "pairs"}), "format", "pairs"),
            (json!({"field": "body"}), "field", "body"),
            (json!({"prompt_field": "q"}), "prompt_field", "q"),
            (json!({"response_field": "a"}), "response_field", "a"),
            (json!({"score": "response"}), "score", "response"),
            (
                json!({"sample": {"documents": 5, "seed": 7}}),
                "sample",
                "5:7",
            ),
            (json!({"limit_documents": 5}), "limit_documents", "5"),
            (json!({"limit_tokens": 5}), "limit_tokens", "5"),
        ] {
            let (found, now, before) = difference(&dataset(&options), &plain).unwrap();
            assert_eq!((found, now.as_str()), (option, value));
            assert_ne!(before, value);
        }
    }

    #[test]
    fn defaults_names_and_groups_make_no_difference() {
        let plain = dataset(&json!({}));
        for options in [
            json!({"format": "jsonl", "field": "text", "score": "all"}),
            json!({"name": "n", "group_by": "lang"}),
        ] {
            assert_eq!(difference(&dataset(&options), &plain), None, "{options}");
        }
        assert_eq!(difference(&DatasetRef::at("folder"), &plain), None);
    }
}
