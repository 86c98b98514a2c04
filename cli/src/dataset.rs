//! Datasets on the command line.

use assay_api::{DatasetFormat, DatasetRef, Sample, Score};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

/// Options of datasets that are given as plain paths.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Options of datasets given as plain paths")]
pub(crate) struct DatasetOptions {
    /// What the documents are [default: by the name of the file]
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: Option<DatasetFormat>,
    /// Field that holds the text, or the messages of a chat [default: text, messages]
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// pairs: field that holds the prompt [default: prompt]
    #[arg(long, value_name = "NAME")]
    prompt_field: Option<String>,
    /// pairs: field that holds the response [default: response]
    #[arg(long, value_name = "NAME")]
    response_field: Option<String>,
    /// Which tokens count [default: chat: assistant, pairs: response, else all]
    #[arg(long, value_name = "WHICH", value_parser = scores())]
    score: Option<Score>,
    /// Field whose values divide the documents into groups, each with its own numbers
    #[arg(long, value_name = "NAME")]
    group_by: Option<String>,
    /// Take a reproducible sample of N documents; another seed, another sample
    #[arg(long, value_name = "N[:SEED]", value_parser = sample, conflicts_with = "limit_documents")]
    sample: Option<Sample>,
    /// Take this many documents at most, from the start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit_documents: Option<u64>,
    /// Take whole documents until this many tokens are reached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit_tokens: Option<u64>,
}

impl DatasetOptions {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the options that are given.
    pub(crate) fn apply(&self, dataset: &mut DatasetRef) {
        let given = DatasetRef {
            name: dataset.name.take(),
            path: dataset.path.take(),
            upload: dataset.upload.take(),
            upload_digest: dataset.upload_digest.take(),
            documents: dataset.documents.take(),
            format: self.format.or(dataset.format),
            field: self.field.clone().or(dataset.field.take()),
            prompt_field: self.prompt_field.clone().or(dataset.prompt_field.take()),
            response_field: self
                .response_field
                .clone()
                .or(dataset.response_field.take()),
            score: self.score.or(dataset.score),
            group_by: self.group_by.clone().or(dataset.group_by.take()),
            sample: self.sample.or(dataset.sample),
            limit_documents: self.limit_documents.or(dataset.limit_documents),
            limit_tokens: self.limit_tokens.or(dataset.limit_tokens),
        };
        *dataset = given;
    }
}

/// A dataset argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DatasetArg {
    pub(crate) dataset: DatasetRef,
    /// Whether it is given as a plain path, to which [`DatasetOptions`] apply.
    pub(crate) plain: bool,
}

/// Parses `PATH`, `NAME=PATH`, `upload:NAME`, `NAME=upload:NAME` or a JSON object.
pub(crate) fn dataset(text: &str) -> Result<DatasetArg, String> {
    if text.trim_start().starts_with('{') {
        let dataset = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return Ok(DatasetArg {
            dataset,
            plain: false,
        });
    }
    // `NAME=` ends before the first slash: `lang=en/part.jsonl` would be a name, and is said to
    // need the form of an object in the help.
    let (name, place) = match text.split_once('=') {
        Some((name, place)) if !name.contains('/') => (Some(name.to_owned()), place),
        _ => (None, text),
    };
    if place.is_empty() || name.as_ref().is_some_and(String::is_empty) {
        return Err("a dataset is PATH, NAME=PATH, upload:NAME or a JSON object".to_owned());
    }
    let dataset = match place.strip_prefix("upload:") {
        Some(upload) => DatasetRef {
            upload: Some(upload.to_owned()),
            ..DatasetRef::default()
        },
        None => DatasetRef::at(place),
    };
    Ok(DatasetArg {
        dataset: DatasetRef { name, ..dataset },
        plain: true,
    })
}

fn sample(text: &str) -> Result<Sample, String> {
    let (documents, seed) = text.split_once(':').unwrap_or((text, "0"));
    match (documents.parse(), seed.parse()) {
        (Ok(documents @ 1..), Ok(seed)) => Ok(Sample { documents, seed }),
        _ => Err("a sample is N or N:SEED, such as 1000 or 1000:7".to_owned()),
    }
}

fn formats() -> impl TypedValueParser<Value = DatasetFormat> {
    words(vec![
        PossibleValue::new("text").help("The whole file is one document"),
        PossibleValue::new("jsonl").help("One JSON object a line"),
        PossibleValue::new("parquet").help("Each row is a document"),
        PossibleValue::new("chat").help("Chat messages; the checkpoint's template makes the text"),
        PossibleValue::new("pairs").help("A prompt and a response"),
    ])
}

fn scores() -> impl TypedValueParser<Value = Score> {
    words(vec![
        PossibleValue::new("all").help("All tokens"),
        PossibleValue::new("assistant").help("chat: those of the assistant's turns"),
        PossibleValue::new("response").help("pairs: those of the response"),
    ])
}

/// Parses the words of an enum of the API.
fn words<T>(values: Vec<PossibleValue>) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values)
        .try_map(|word| serde_json::from_value::<T>(serde_json::Value::String(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_has_four_forms() {
        let parsed = dataset("web/a=b.jsonl").unwrap();
        assert_eq!(parsed.dataset, DatasetRef::at("web/a=b.jsonl"));
        let parsed = dataset("moby=texts/moby.txt").unwrap();
        assert_eq!(parsed.dataset.name(), "moby");
        assert_eq!(parsed.dataset.path.as_deref(), Some("texts/moby.txt"));
        let parsed = dataset("c=upload:chats.jsonl").unwrap();
        assert_eq!(parsed.dataset.upload.as_deref(), Some("chats.jsonl"));
        assert!(parsed.plain);
        let parsed = dataset(r#"{"documents": ["a"], "name": "one"}"#).unwrap();
        assert_eq!(parsed.dataset.name(), "one");
        assert!(!parsed.plain);
        for wrong in ["", "=a", "a=", r#"{"pth": "a"}"#] {
            assert!(dataset(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_are_set_where_they_are_given() {
        let mut dataset = DatasetRef {
            field: Some("body".to_owned()),
            ..DatasetRef::at("a.jsonl")
        };
        let options = DatasetOptions {
            sample: Some(sample("10:7").unwrap()),
            ..DatasetOptions::default()
        };
        options.apply(&mut dataset);
        assert_eq!(dataset.field(), "body");
        assert_eq!(dataset.sample.unwrap().seed, 7);
        assert_eq!(dataset.path.as_deref(), Some("a.jsonl"));
    }

    #[test]
    fn a_sample_may_have_a_seed() {
        assert_eq!(sample("5").unwrap().seed, 0);
        for wrong in ["0", "", "5:", "x", "5:7:9"] {
            assert!(sample(wrong).is_err(), "{wrong}");
        }
    }
}
