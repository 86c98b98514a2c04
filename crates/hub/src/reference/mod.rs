//! References: what a user writes to name a repository, or a file of one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Snapshot;

/// What a reference begins with.
pub const SCHEME: &str = "hf://";

const DATASETS: &str = "datasets";
const DEFAULT_REVISION: &str = "main";

/// The limits are the hub's for names and the common file systems' for the rest, because
/// revisions and paths become names of files in the cache.
const NAME_LIMIT: usize = 96;
const REVISION_LIMIT: usize = 255;
const SEGMENT_LIMIT: usize = 255;
const PATH_LIMIT: usize = 1024;

/// A repository of the hub.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Repository {
    kind: Kind,
    name: String,
}

/// What a repository holds. The hub has a name space for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A model.
    Model,
    /// Files of data.
    Dataset,
}

impl Repository {
    /// What it holds.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// `org/name`, or only `name` for a few old models.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the name is one; it may not have been parsed.
    pub(crate) fn is_sound(&self) -> bool {
        split_name(self.kind, &self.name).is_ok_and(|(_, rest)| rest.is_empty())
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Model => f.write_str(&self.name),
            Kind::Dataset => write!(f, "{DATASETS}/{}", self.name),
        }
    }
}

/// `hf://org/name@revision`, a model, or `hf://datasets/org/name@revision/path`, a file of a
/// dataset. Without `@revision` it is `main`; a few old models have no `org/`.
///
/// A revision is a branch, a tag, a commit or a reference such as `refs/pr/1`. In a dataset's
/// reference only `refs/pr/N` and `refs/convert/NAME` may have their slashes; those of another
/// revision are written `%2F`, as a path follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    repository: Repository,
    revision: String,
    path: Option<String>,
}

impl Reference {
    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Branch, tag, commit or other reference.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The file that is meant: there is one in every reference to a dataset and none in one to a
    /// model.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The same at the commit that it was found to stand for, which does not move.
    #[must_use]
    pub fn pinned(&self, snapshot: &Snapshot) -> Self {
        Self {
            revision: snapshot.commit.clone(),
            ..self.clone()
        }
    }
}

/// Displays as it is parsed, always with the revision.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@", self.repository)?;
        match &self.path {
            None => f.write_str(&self.revision),
            Some(path) if special_length(&self.revision) == Some(self.revision.len()) => {
                write!(f, "{}/{path}", self.revision)
            }
            Some(path) => write!(f, "{}/{path}", self.revision.replace('/', "%2F")),
        }
    }
}

/// Why a text is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{reference}` is not a reference to the hub: {problem}; write hf://org/name@revision for a \
     model or hf://datasets/org/name@revision/path/to/file.jsonl for a file of a dataset"
)]
pub struct ReferenceError {
    /// The text, or its beginning.
    pub reference: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A part of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The user or organisation.
    Organisation,
    /// The repository's name within it.
    Name,
    /// What is between `@` and the path.
    Revision,
    /// The file within the repository.
    Path,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Organisation => "organisation",
            Self::Name => "name",
            Self::Revision => "revision",
            Self::Path => "path",
        })
    }
}

/// What is wrong with a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It begins otherwise.
    #[error("it does not begin with hf://")]
    Scheme,
    /// A part, or a segment of it, has no characters.
    #[error("the {0} is empty or has an empty segment")]
    Empty(Part),
    /// A part, or a segment of it, is too long.
    #[error("the {part} is longer than {limit} bytes")]
    TooLong {
        /// The part.
        part: Part,
        /// The most bytes it may have.
        limit: usize,
    },
    /// A character that the part cannot have.
    #[error("the {part} has the character {character:?}")]
    Character {
        /// The part.
        part: Part,
        /// The first such character.
        character: char,
    },
    /// Characters that are fine alone and not together or not there.
    #[error("the {part} {rule}")]
    Form {
        /// The part.
        part: Part,
        /// What is not allowed.
        rule: &'static str,
    },
    /// A dataset is many files, and one is meant.
    #[error("it names a dataset and no file of it")]
    PathMissing,
    /// A model is used as a whole.
    #[error("it names a file, but a model is used as a whole")]
    PathOfModel,
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ReferenceError {
            reference: text.chars().take(200).collect(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Reference, Problem> {
    let rest = text.strip_prefix(SCHEME).ok_or(Problem::Scheme)?;
    let dataset = rest
        .strip_prefix(DATASETS)
        .and_then(|rest| rest.strip_prefix('/'));
    let (kind, rest) = match dataset {
        Some(rest) => (Kind::Dataset, rest),
        None => (Kind::Model, rest),
    };

    let (name, rest) = split_name(kind, rest)?;
    let (revision, path) = match rest.strip_prefix('@') {
        Some(rest) => split_revision(kind, rest),
        None => (DEFAULT_REVISION, rest.strip_prefix('/')),
    };
    let revision = revision.replace("%2F", "/");
    check_revision(&revision)?;
    match (kind, path) {
        (Kind::Model, Some(_)) => return Err(Problem::PathOfModel),
        (Kind::Dataset, None) => return Err(Problem::PathMissing),
        (Kind::Model, None) => {}
        (Kind::Dataset, Some(path)) => check_path(path)?,
    }
    Ok(Reference {
        repository: Repository {
            kind,
            name: name.to_owned(),
        },
        revision,
        path: path.map(str::to_owned),
    })
}

/// `org/name` and what follows it.
fn split_name(kind: Kind, text: &str) -> Result<(&str, &str), Problem> {
    let end = |from: usize| {
        text[from..]
            .find(['/', '@'])
            .map_or(text.len(), |at| from + at)
    };
    let first = end(0);
    let alone = !text[first..].starts_with('/');
    if alone && kind == Kind::Model {
        check_name(Part::Name, &text[..first])?;
        return Ok(text.split_at(first));
    }
    check_name(Part::Organisation, &text[..first])?;
    if alone {
        return Err(Problem::Empty(Part::Name));
    }
    let second = end(first + 1);
    check_name(Part::Name, &text[first + 1..second])?;
    Ok(text.split_at(second))
}

/// The revision, and the path after it where there can be one.
fn split_revision(kind: Kind, text: &str) -> (&str, Option<&str>) {
    if kind == Kind::Model {
        return (text, None);
    }
    let end = special_length(text)
        .or_else(|| text.find('/'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].strip_prefix('/'))
}

/// The length of `refs/pr/N` or `refs/convert/NAME` at the beginning of a text.
fn special_length(text: &str) -> Option<usize> {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let forms: [(&str, &dyn Fn(u8) -> bool); 2] =
        [("refs/pr/", &is_digit), ("refs/convert/", &is_word)];
    forms.iter().find_map(|(prefix, allowed)| {
        let last = text.strip_prefix(prefix)?.split('/').next()?;
        let fits = !last.is_empty() && last.bytes().all(allowed);
        fits.then_some(prefix.len() + last.len())
    })
}

/// The hub's own rules for names of users, organisations and repositories.
fn check_name(part: Part, name: &str) -> Result<(), Problem> {
    let form = |rule| Err(Problem::Form { part, rule });
    if name.is_empty() {
        return Err(Problem::Empty(part));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(character) = name.chars().find(|&c| !allowed(c)) {
        return Err(Problem::Character { part, character });
    }
    check_length(part, name, NAME_LIMIT)?;
    if name.contains("..") || name.contains("--") {
        return form("has `..` or `--`");
    }
    let edge = ['.', '-'];
    if name.starts_with(edge) || name.ends_with(edge) {
        return form("begins or ends with `.` or `-`");
    }
    if name.strip_suffix(".git").is_some() {
        return form("ends with `.git`");
    }
    Ok(())
}

/// Git's rules for the names of references, and no percent sign, which is for `%2F`.
fn check_revision(revision: &str) -> Result<(), Problem> {
    let part = Part::Revision;
    let allowed = |c: char| c.is_ascii_graphic() && !"~^:?*[\\@%".contains(c);
    if let Some(character) = revision.chars().find(|&c| !allowed(c)) {
        return Err(Problem::Character { part, character });
    }
    check_length(part, revision, REVISION_LIMIT)?;
    for segment in revision.split('/') {
        if segment.is_empty() {
            return Err(Problem::Empty(part));
        }
        if segment.starts_with(['.', '-']) || segment.contains("..") {
            let rule = "has `..`, or a segment that begins with `.` or `-`";
            return Err(Problem::Form { part, rule });
        }
    }
    Ok(())
}

/// Whether a path stays within the directory it is joined to, on every system.
pub(crate) fn check_path(path: &str) -> Result<(), Problem> {
    let part = Part::Path;
    if let Some(character) = path.chars().find(|&c| c.is_control() || c == '\\') {
        return Err(Problem::Character { part, character });
    }
    check_length(part, path, PATH_LIMIT)?;
    for segment in path.split('/') {
        if segment.is_empty() {
            return Err(Problem::Empty(part));
        }
        check_length(part, segment, SEGMENT_LIMIT)?;
        if segment == "." || segment == ".." {
            let rule = "has the segment `.` or `..`";
            return Err(Problem::Form { part, rule });
        }
    }
    Ok(())
}

fn check_length(part: Part, text: &str, limit: usize) -> Result<(), Problem> {
    if text.len() > limit {
        return Err(Problem::TooLong { part, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
