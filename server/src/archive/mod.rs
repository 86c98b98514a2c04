//! The archive of a job: a ZIP file with its JSON answers and its documents and tokens as Parquet.
//!
//! It is written to an unnamed file, so that a failure can still be answered as such and nothing
//! of it stays behind. Blocks; the ledger is asked page by page.

mod table;
mod tables;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_api::{DatasetRef, Job, JobResult};
use assay_store::{ProjectStore, StoreError};
use serde::Serialize;
use tokio::runtime::Handle;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::ApiError;
use crate::uploads::on_disk;

/// Characters of a dataset's name in the name of a file.
const MAX_NAME: usize = 80;

type Zip = ZipWriter<Noting>;

/// Writes the archive of a job that has ended into an unnamed file in `dir`, and rewinds it.
///
/// # Errors
/// The disk is full, the ledger fails, or nobody waits for the archive any longer.
pub(crate) fn write(
    store: &ProjectStore,
    dir: &Path,
    job: &Job,
    result: &JobResult,
    cancelled: &AtomicBool,
) -> Result<File, ApiError> {
    let is_full = Arc::new(AtomicBool::new(false));
    let ledger = Ledger {
        store,
        job,
        cancelled,
    };
    let create = || -> Result<File, ArchiveError> {
        let noting = Noting {
            file: tempfile::tempfile_in(dir)?,
            is_full: Arc::clone(&is_full),
        };
        let mut zip = ZipWriter::new(noting).set_auto_large_file();
        write_json(&mut zip, "job.json", job)?;
        write_json(&mut zip, "result.json", result)?;
        tables::write_all(&mut zip, &ledger)?;
        let mut file = zip.finish()?.file;
        file.rewind()?;
        Ok(file)
    };
    create().map_err(|error| match error {
        _ if is_full.load(Ordering::Relaxed) => {
            on_disk("the archive", &io::ErrorKind::StorageFull.into())
        }
        ArchiveError::Store(error) => error.into(),
        ArchiveError::Io(error) => on_disk("the archive", &error),
        other => ApiError::Internal(format!("cannot write an archive: {other}")),
    })
}

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
enum ArchiveError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Zip(#[from] zip::result::ZipError),
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The numbers of a row contradict each other.
    #[error("the ledger holds {0}")]
    Ledger(String),
    /// Whoever asked for it is gone.
    #[error("nobody waits for it any longer")]
    Cancelled,
}

/// What is asked about the job.
struct Ledger<'a> {
    store: &'a ProjectStore,
    job: &'a Job,
    cancelled: &'a AtomicBool,
}

impl Ledger<'_> {
    fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, ArchiveError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(ArchiveError::Cancelled);
        }
        Ok(Handle::current().block_on(question)?)
    }
}

fn write_json(zip: &mut Zip, name: &str, value: &impl Serialize) -> Result<(), ArchiveError> {
    let deflated = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    zip.start_file(name, deflated)?;
    zip.write_all(&serde_json::to_vec_pretty(value)?)?;
    zip.write_all(b"\n")?;
    Ok(())
}

/// `NN-name`, which no dataset's name can lead out of the archive.
fn table_name(row: usize, rows: usize, dataset: &DatasetRef) -> String {
    let digits = (rows.max(1) - 1).to_string().len().max(2);
    let name: String = dataset
        .name()
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
            _ => '_',
        })
        .take(MAX_NAME)
        .collect();
    format!("{row:0digits$}-{name}")
}

/// A file that remembers that the disk was full, which the libraries above it do not tell.
struct Noting {
    file: File,
    is_full: Arc<AtomicBool>,
}

impl Noting {
    fn note<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.inspect_err(|error| {
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) {
                self.is_full.store(true, Ordering::Relaxed);
            }
        })
    }
}

impl Write for Noting {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let outcome = self.file.write(buffer);
        self.note(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.file.flush();
        self.note(outcome)
    }
}

impl Seek for Noting {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain_and_in_order() {
        let named = |name: &str| DatasetRef {
            name: Some(name.to_owned()),
            ..DatasetRef::default()
        };
        assert_eq!(
            table_name(3, 4, &named("web/a b.jsonl")),
            "03-web_a_b.jsonl"
        );
        assert_eq!(table_name(3, 101, &named("../../etc")), "003-.._.._etc");
        assert_eq!(table_name(0, 1, &named("\u{e9}t\u{e9}")), "00-_t_");
        assert_eq!(table_name(0, 1, &named(&"x".repeat(300))).len(), 83);
    }
}
