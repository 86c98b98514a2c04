//! A dataset of a request, its files found and checked.

use std::path::{Component, Path, PathBuf};

use assay_api::{DatasetFormat, DatasetRef, ErrorCode, Sample, Score, format_of};
use assay_checkpoint::FileState;
use serde_json::Value;

use crate::container::is_parquet;
use crate::fetched::Fetched;
use crate::find;
use crate::root::{PathError, Root};
use crate::uploads::Uploads;

/// A dataset, its files found and checked. Nothing of them is read yet.
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) name: String,
    pub(crate) format: DatasetFormat,
    pub(crate) field: String,
    pub(crate) prompt_field: String,
    pub(crate) response_field: String,
    pub(crate) score: Score,
    pub(crate) group_by: Option<String>,
    pub(crate) sample: Option<Sample>,
    pub(crate) limit_documents: Option<u64>,
    pub(crate) limit_tokens: Option<u64>,
    pub(crate) content: Content,
}

/// Where the documents are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Files(Vec<SourceFile>),
    Inline(Vec<Value>),
}

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name below the root, or that of the upload: what errors call it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The state that its digest is of; whoever reads it takes it in no other.
    pub(crate) state: Option<FileState>,
}

impl SourceFile {
    pub(crate) fn new(name: String, path: PathBuf) -> Self {
        Self {
            name,
            path,
            state: None,
        }
    }
}

/// Why a request's dataset is refused before anything of it is read. The texts name no path of
/// this machine, so they can be sent.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The path is refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// None or several of the places where documents can be.
    #[error("takes exactly one of `path`, `upload` and `documents`")]
    NotOne,
    /// No file matches the glob.
    #[error(
        "no file below the root matches {pattern:?}; check the spelling: `*` and `?` stay within \
         a name, `**` does not, and hidden files are left out"
    )]
    NoMatch {
        /// The glob.
        pattern: String,
    },
    /// The directory has no file that could belong to a dataset.
    #[error(
        "no file below {path:?} ends in .txt, .jsonl, .ndjson or .parquet, also with .gz or .zst \
         behind; name other files by a glob such as \"{path}/*\""
    )]
    NoFiles {
        /// The directory.
        path: String,
    },
    /// The glob is not one.
    #[error("{pattern:?} is not a glob: {detail}")]
    BadPattern {
        /// The glob.
        pattern: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A symbolic link leads to a directory above it.
    #[error("{path:?} is a link to a directory above it, so the files have no end; remove it")]
    Loop {
        /// The link.
        path: String,
    },
    /// More files than a dataset may have.
    #[error("{path:?} stands for more than {files} files; join them into fewer, larger ones")]
    TooManyFiles {
        /// The directory or the glob.
        path: String,
        /// How many are taken.
        files: usize,
    },
    /// The files are of several formats.
    #[error(
        "{first:?} is {first_format} and {second:?} is {second_format}; make them two datasets, \
         name the files of one format by a glob, or give the `format` that all have"
    )]
    Mixed {
        /// A file.
        first: String,
        /// Its format, with an article.
        first_format: &'static str,
        /// A file of another format.
        second: String,
        /// Its format, with an article.
        second_format: &'static str,
    },
    /// The format is `parquet`, the name is not.
    #[error("{0:?} is not named as a Parquet file; give a name that ends in .parquet")]
    NotParquet(String),
    /// There is no such upload.
    #[error(
        "there is no upload named {0:?}; upload it by PUT /datasets/{{name}}, or list those there are"
    )]
    NoUpload(String),
    /// The bytes of the upload are not where they should be.
    #[error(
        "the bytes of the upload {0:?} are missing on this host; let all nodes see the same \
         directory of uploads, or upload it again"
    )]
    UploadGone(String),
    /// There is nothing at a path of the command line.
    #[error("{0:?} does not exist; check the spelling")]
    NotThere(String),
    /// Whole texts have no fields.
    #[error("takes records, and the files of format `text` have none; leave it out")]
    NoRecords,
}

impl SourceError {
    /// The field of the dataset that is at fault.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Mixed { .. } | Self::NotParquet(_) => "format",
            Self::NoUpload(_) | Self::UploadGone(_) => "upload",
            Self::NoRecords => "group_by",
            _ => "path",
        }
    }

    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Path(error) => error.code(ErrorCode::DatasetUnreadable),
            Self::NotOne | Self::Mixed { .. } | Self::NotParquet(_) | Self::NoRecords => {
                ErrorCode::InvalidRequest
            }
            _ => ErrorCode::DatasetUnreadable,
        }
    }
}

impl Source {
    /// Finds the files of `dataset`: below `data`, in what was `fetched`, or among `uploads` by its
    /// `upload_digest`. Which options fit which format is for the caller to check.
    ///
    /// # Errors
    /// See [`SourceError`]. A file that belongs to the dataset and cannot be read is an error,
    /// never left out.
    pub fn resolve(
        dataset: &DatasetRef,
        data: &Root,
        fetched: &Fetched,
        uploads: &Uploads,
    ) -> Result<Self, SourceError> {
        let content = match (&dataset.path, &dataset.upload, &dataset.documents) {
            (Some(path), None, None) => Content::Files(match fetched.get(path) {
                Some(file) => vec![SourceFile::new(path.clone(), file.to_owned())],
                None => find::files(data, path)?,
            }),
            (None, Some(name), None) => {
                let digest = dataset.upload_digest.as_deref();
                let digest = digest.ok_or_else(|| SourceError::NoUpload(name.clone()))?;
                let path = uploads.path(digest).filter(|path| path.is_file());
                let path = path.ok_or_else(|| SourceError::UploadGone(name.clone()))?;
                let name = name.clone();
                Content::Files(vec![SourceFile::new(name, path)])
            }
            (None, None, Some(documents)) => Content::Inline(documents.clone()),
            _ => return Err(SourceError::NotOne),
        };
        Self::of(dataset, content)
    }

    /// Finds the files of `dataset` anywhere on this machine: its `path` is one of the command
    /// line, absolute or from the current directory. Files are named as from there.
    ///
    /// # Errors
    /// See [`SourceError`]; uploads are not found.
    pub fn local(dataset: &DatasetRef) -> Result<Self, SourceError> {
        let Some(path) = &dataset.path else {
            let documents = dataset.documents.clone().ok_or(SourceError::NotOne)?;
            return Self::of(dataset, Content::Inline(documents));
        };
        let unreadable = |source| PathError::Unreadable {
            path: path.clone(),
            source,
        };
        let root = Root::open(Path::new("/")).map_err(unreadable)?;
        // Leading dots are walked here, since the root takes none.
        let mut base = std::env::current_dir().map_err(unreadable)?;
        let mut prefix = PathBuf::new();
        let mut components = Path::new(path).components().peekable();
        while let Some(component) = components.peek() {
            match component {
                Component::RootDir => base = PathBuf::from("/"),
                Component::ParentDir => {
                    base = base.join("..").canonicalize().map_err(unreadable)?;
                }
                Component::CurDir => {}
                Component::Normal(_) | Component::Prefix(_) => break,
            }
            prefix.push(component);
            components.next();
        }
        let rest: PathBuf = components.collect();
        let absolute = base.join(&rest);
        let below = absolute.strip_prefix("/").unwrap_or(&absolute);
        let below = below.to_str().ok_or(PathError::Malformed)?;
        let below = if below.is_empty() { "." } else { below };
        let mut files = find::files(&root, below).map_err(|error| match error {
            // There is no root that a user of the command line knows of.
            SourceError::Path(PathError::Missing(name)) if name == below => {
                SourceError::NotThere(path.clone())
            }
            error => error,
        })?;
        let base = base.strip_prefix("/").unwrap_or(&base);
        for file in &mut files {
            let name = Path::new(&file.name);
            let name = prefix.join(name.strip_prefix(base).unwrap_or(name));
            file.name = name.to_string_lossy().into_owned();
        }
        Self::of(dataset, Content::Files(files))
    }

    fn of(dataset: &DatasetRef, content: Content) -> Result<Self, SourceError> {
        let format = match (&content, dataset.format) {
            (_, Some(format)) => format,
            (Content::Files(files), None) => common_format(files)?,
            (Content::Inline(_), None) => dataset.format(),
        };
        if format == DatasetFormat::Parquet {
            let other = match &content {
                Content::Files(files) => {
                    let mut names = files.iter().map(|file| &*file.name);
                    names.find(|name| !is_parquet(name))
                }
                Content::Inline(_) => Some("documents"),
            };
            if let Some(name) = other {
                return Err(SourceError::NotParquet(name.to_owned()));
            }
        }
        if format == DatasetFormat::Text && dataset.group_by.is_some() {
            return Err(SourceError::NoRecords);
        }
        Ok(Self {
            name: dataset.name().to_owned(),
            format,
            field: dataset.field().to_owned(),
            prompt_field: dataset.prompt_field().to_owned(),
            response_field: dataset.response_field().to_owned(),
            score: dataset.score(),
            group_by: dataset.group_by.clone(),
            sample: dataset.sample,
            limit_documents: dataset.limit_documents,
            limit_tokens: dataset.limit_tokens,
            content,
        })
    }

    /// The dataset's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the documents are: as the request says, else by the names of the files.
    pub fn format(&self) -> DatasetFormat {
        self.format
    }

    /// The files in their order; none for inline documents.
    pub fn files(&self) -> &[SourceFile] {
        match &self.content {
            Content::Files(files) => files,
            Content::Inline(_) => &[],
        }
    }

    /// Whether only some tokens of a document count.
    pub fn is_masked(&self) -> bool {
        matches!(
            (self.format, self.score),
            (DatasetFormat::Chat, Score::Assistant) | (DatasetFormat::Pairs, Score::Response)
        )
    }

    /// The field that holds chat messages, if the records have some.
    pub(crate) fn messages_field(&self) -> Option<&str> {
        (self.format == DatasetFormat::Chat).then_some(&self.field)
    }

    /// Whether a document is a text as it stands.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self.format, DatasetFormat::Chat | DatasetFormat::Pairs)
    }

    /// What errors about the whole call it: its only file, else its name.
    pub(crate) fn label(&self) -> String {
        match self.files() {
            [file] => file.name.clone(),
            _ => self.name.clone(),
        }
    }
}

fn common_format(files: &[SourceFile]) -> Result<DatasetFormat, SourceError> {
    let format = format_of(&files[0].name);
    match files.iter().find(|file| format_of(&file.name) != format) {
        None => Ok(format),
        Some(other) => Err(SourceError::Mixed {
            first: files[0].name.clone(),
            first_format: described(format),
            second: other.name.clone(),
            second_format: described(format_of(&other.name)),
        }),
    }
}

fn described(format: DatasetFormat) -> &'static str {
    match format {
        DatasetFormat::Text => "plain text",
        DatasetFormat::Parquet => "a Parquet file",
        _ => "a JSON Lines file",
    }
}
