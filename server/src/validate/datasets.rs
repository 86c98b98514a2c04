//! The datasets of a job: which documents, where they are, which of them and of their tokens.

use std::collections::HashMap;

use assay_api::{DatasetFormat, DatasetRef, ErrorCode, Score};
use assay_data::Source;
use serde_json::Value;

use super::Grounds;
use super::labels::text;
use crate::faults::Faults;
use crate::remote::Role;
use crate::routes::datasets::UploadName;

/// Datasets of a job.
pub(crate) const MAX_DATASETS: usize = 100;
/// Bytes of the documents of a request, as JSON.
const MAX_INLINE: usize = 1_000_000;

/// Checks the datasets and fills in their names and the digests of uploads.
pub(super) fn resolve(
    datasets: &[DatasetRef],
    grounds: &Grounds,
    faults: &mut Faults,
) -> Vec<DatasetRef> {
    let count = datasets.len();
    faults.require(
        count >= 1,
        "datasets",
        "is empty; name at least one dataset",
    );
    faults.require(
        count <= MAX_DATASETS,
        "datasets",
        format!("has {count} datasets; a job takes {MAX_DATASETS}, post several jobs"),
    );
    let mut names = HashMap::new();
    let mut resolved = Vec::with_capacity(count);
    let mut inline = 0;
    for (index, entry) in datasets.iter().take(MAX_DATASETS).enumerate() {
        let at = format!("datasets[{index}]");
        resolved.push(one(entry, &at, grounds, faults));
        inline += entry.documents.as_ref().map_or(0, |list| json_bytes(list));
        if let Some(first) = names.insert(entry.name(), index) {
            let name = entry.name();
            faults.add(
                ErrorCode::InvalidRequest,
                format!("{at}.name"),
                format!("{name:?} is datasets[{first}] already; give each a `name` of its own"),
            );
        }
    }
    faults.require(
        inline <= MAX_INLINE,
        "datasets",
        format!(
            "has documents of {inline} bytes; a request takes {MAX_INLINE}, upload a larger \
             dataset with PUT /datasets/{{name}} and name it in `upload`"
        ),
    );
    resolved
}

/// The same for one dataset; `at` is what it is called in errors.
pub(super) fn one(
    entry: &DatasetRef,
    at: &str,
    grounds: &Grounds,
    faults: &mut Faults,
) -> DatasetRef {
    let mut resolved = entry.clone();
    resolved.name = Some(entry.name().to_owned());
    if let Some(name) = &entry.name {
        text(&format!("{at}.name"), name, faults);
    }
    amounts(entry, at, faults);
    faults.require(
        entry.upload_digest.is_none(),
        &format!("{at}.upload_digest"),
        "is filled in by the service; leave it out, `upload` alone names the dataset",
    );
    // The files of a directory say what its name does not.
    let found = found(&mut resolved, at, grounds, faults);
    let format = found.as_ref().map(Source::format).or(entry.format);
    if let Some(format) = format {
        options(entry, format, at, faults);
        if format != resolved.format() {
            resolved.format = Some(format);
        }
    }
    resolved
}

/// The files of a dataset, or the documents of the request.
fn found(
    dataset: &mut DatasetRef,
    at: &str,
    grounds: &Grounds,
    faults: &mut Faults,
) -> Option<Source> {
    if !has_one_origin(dataset, at, faults) {
        return None;
    }
    if let Some(name) = &dataset.upload {
        let Some(upload) = grounds.uploaded.get(name) else {
            let detail = match name.parse::<UploadName>() {
                Err(detail) => detail,
                Ok(_) => format!(
                    "there is no uploaded dataset {name:?}; GET /datasets lists them, and PUT \
                     /datasets/{name} uploads one"
                ),
            };
            let code = ErrorCode::DatasetUnreadable;
            faults.add(code, format!("{at}.upload"), detail);
            return None;
        };
        dataset.upload_digest = Some(upload.digest.clone());
    }
    if let Some(documents) = &dataset.documents
        && !inline_is_sound(dataset, documents, at, faults)
    {
        return None;
    }
    let remote = &grounds.remote;
    if let Some(path) = &dataset.path
        && remote.refuses(Role::Dataset, path, &format!("{at}.path"), faults)
    {
        return None;
    }
    Source::resolve(dataset, &grounds.data, &remote.fetched, &grounds.uploads)
        .map_err(|error| {
            let field = format!("{at}.{}", error.field());
            faults.add(error.code(), field, error.to_string());
        })
        .ok()
}

/// Options against the format.
fn options(entry: &DatasetRef, format: DatasetFormat, at: &str, faults: &mut Faults) {
    let is_pairs = format == DatasetFormat::Pairs;
    let has_records = format != DatasetFormat::Text;
    let fields = [
        (
            "field",
            &entry.field,
            has_records && !is_pairs,
            "`jsonl`, `parquet` and `chat`",
        ),
        ("prompt_field", &entry.prompt_field, is_pairs, "`pairs`"),
        ("response_field", &entry.response_field, is_pairs, "`pairs`"),
        (
            "group_by",
            &entry.group_by,
            has_records,
            "formats with records: `jsonl`, `parquet`, `chat` and `pairs`",
        ),
    ];
    for (option, value, fits, of) in fields {
        let Some(value) = value else { continue };
        let field = format!("{at}.{option}");
        text(&field, value, faults);
        faults.require(
            fits,
            &field,
            format!(
                "is an option of {of}, and the format is `{}`; leave it out or set `format`",
                name_of(format)
            ),
        );
    }
    faults.require(
        !is_pairs || entry.prompt_field() != entry.response_field(),
        &format!("{at}.response_field"),
        "is the field of the prompt too; name the field that holds the response",
    );
    let fits = match entry.score {
        None | Some(Score::All) => true,
        Some(Score::Assistant) => format == DatasetFormat::Chat,
        Some(Score::Response) => is_pairs,
    };
    faults.require(
        fits,
        &format!("{at}.score"),
        format!(
            "`assistant` is for the format `chat` and `response` for `pairs`, and the format is \
             `{}`; leave it out or set `format`",
            name_of(format)
        ),
    );
}

/// Limits and the sample.
fn amounts(entry: &DatasetRef, at: &str, faults: &mut Faults) {
    // The ledger's integers are signed.
    let most = i64::MAX.unsigned_abs();
    let sample = entry.sample.map(|sample| sample.documents);
    for (name, amount) in [
        ("limit_documents", entry.limit_documents),
        ("limit_tokens", entry.limit_tokens),
        ("sample.documents", sample),
    ] {
        faults.require(
            amount.is_none_or(|amount| (1..=most).contains(&amount)),
            &format!("{at}.{name}"),
            format!("takes a number from 1 to {most}; leave it out to take all"),
        );
    }
    faults.require(
        sample.is_none() || entry.limit_documents.is_none(),
        &format!("{at}.limit_documents"),
        "does not go together with `sample`, which says how many documents to take; leave one out",
    );
}

/// Whether exactly one of `path`, `upload` and `documents` is there.
fn has_one_origin(entry: &DatasetRef, at: &str, faults: &mut Faults) -> bool {
    let given: Vec<&str> = [
        ("path", entry.path.is_some()),
        ("upload", entry.upload.is_some()),
        ("documents", entry.documents.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect();
    match given[..] {
        [_] => return true,
        [] => faults.add(
            ErrorCode::InvalidRequest,
            at,
            "names no documents; give a `path` below the data root, the name of an `upload`, or \
             the `documents` themselves",
        ),
        [first, second, ..] => faults.add(
            ErrorCode::InvalidRequest,
            format!("{at}.{second}"),
            format!("comes beside `{first}`; a dataset takes one of `path`, `upload`, `documents`"),
        ),
    }
    false
}

/// Whether the documents of a request are what the format asks for. They are here already, so
/// the caller learns at once what a file would tell only while it is planned.
fn inline_is_sound(entry: &DatasetRef, documents: &[Value], at: &str, faults: &mut Faults) -> bool {
    let at = format!("{at}.documents");
    let format = entry.format();
    let fault = if documents.is_empty() {
        Some((at, "is empty; give at least one document".to_owned()))
    } else if matches!(format, DatasetFormat::Text | DatasetFormat::Parquet) {
        let detail = format!(
            "are records or strings, not a `{}` file; leave `format` out, or set `jsonl`, `chat` \
             or `pairs`",
            name_of(format)
        );
        Some((at, detail))
    } else {
        documents.iter().enumerate().find_map(|(index, document)| {
            document_fault(entry, document).map(|detail| (format!("{at}[{index}]"), detail))
        })
    };
    match fault {
        None => true,
        Some((field, detail)) => {
            faults.add(ErrorCode::DatasetInvalid, field, detail);
            false
        }
    }
}

fn document_fault(entry: &DatasetRef, document: &Value) -> Option<String> {
    let format = entry.format();
    let record = match document {
        Value::Object(record) => record,
        Value::String(_) if format == DatasetFormat::Jsonl => {
            return entry.group_by.as_ref().map(|field| {
                format!("is a string, which has no field `{field}` to group by; give an object")
            });
        }
        _ if format == DatasetFormat::Jsonl => {
            return Some(format!(
                "takes a string, or an object with a string in `{}`",
                entry.field()
            ));
        }
        _ => {
            return Some(format!(
                "takes an object, a record of the format `{}`",
                name_of(format)
            ));
        }
    };
    let (wanted, kind): (&[&str], _) = match format {
        DatasetFormat::Pairs => (&[entry.prompt_field(), entry.response_field()], "a string"),
        DatasetFormat::Chat => (&[entry.field()], "a list of messages"),
        _ => (&[entry.field()], "a string"),
    };
    let sound = |value: &Value| match format {
        DatasetFormat::Chat => value.is_array(),
        _ => value.is_string(),
    };
    wanted
        .iter()
        .find(|field| !record.get(**field).is_some_and(sound))
        .map(|field| format!("has no field `{field}` with {kind}; give one, or name another field"))
}

fn json_bytes(documents: &[Value]) -> usize {
    serde_json::to_vec(documents).map_or(0, |json| json.len())
}

/// The format as it travels.
pub(super) fn name_of(format: DatasetFormat) -> &'static str {
    match format {
        DatasetFormat::Text => "text",
        DatasetFormat::Jsonl => "jsonl",
        DatasetFormat::Parquet => "parquet",
        DatasetFormat::Chat => "chat",
        DatasetFormat::Pairs => "pairs",
    }
}
