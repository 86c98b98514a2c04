//! How a file holds documents, which its name tells.

use std::path::Path;

use assay_api::{DatasetFormat, format_of};
use serde::Serialize;

/// Endings of the files of a directory that belong to the dataset, compression left aside.
const KNOWN: [&str; 4] = [".txt", ".jsonl", ".ndjson", ".parquet"];

/// How the bytes of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the name of a file.
    pub(crate) fn of(name: &str) -> Self {
        let suffix = Path::new(name).extension().unwrap_or_default();
        if suffix.eq_ignore_ascii_case("gz") {
            Self::Gzip
        } else if suffix.eq_ignore_ascii_case("zst") {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

/// How a file holds documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Layout {
    /// The whole file is a document.
    Text,
    /// A record a line.
    JsonLines,
    /// A record a row.
    Parquet,
}

impl Layout {
    /// Of a file with this name in a dataset of this format.
    pub(crate) fn of(name: &str, format: DatasetFormat) -> Self {
        match format {
            DatasetFormat::Text => Self::Text,
            _ if is_parquet(name) => Self::Parquet,
            _ => Self::JsonLines,
        }
    }
}

/// Whether the name is that of a Parquet file.
pub(crate) fn is_parquet(name: &str) -> bool {
    format_of(name) == DatasetFormat::Parquet
}

/// Whether a file of this name, met in a directory, belongs to the dataset.
pub(crate) fn is_known(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let plain = [".gz", ".zst"]
        .iter()
        .find_map(|suffix| lower.strip_suffix(suffix))
        .unwrap_or(&lower);
    KNOWN.iter().any(|suffix| plain.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_what_a_file_holds() {
        for (name, known, parquet, compression) in [
            ("a.txt", true, false, Compression::None),
            ("a.JSONL", true, false, Compression::None),
            ("a.ndjson.GZ", true, false, Compression::Gzip),
            ("a.parquet.zst", true, true, Compression::Zstd),
            ("a.parquet", true, true, Compression::None),
            ("a.gz", false, false, Compression::Gzip),
            ("a.json", false, false, Compression::None),
            ("README.md", false, false, Compression::None),
            ("a.jsonl.zip", false, false, Compression::None),
        ] {
            assert_eq!(is_known(name), known, "{name}");
            assert_eq!(is_parquet(name), parquet, "{name}");
            assert_eq!(Compression::of(name), compression, "{name}");
        }
    }
}
