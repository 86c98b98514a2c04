//! What references to a hub stand for on this host. Such a place is not below a root: it is in a
//! cache of this program's own, into which no path of a request leads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::root::{PathError, Root};

/// Where the things are that references stand for: the directory of a model or an adapter, the
/// file of a dataset.
#[derive(Clone, Debug, Default)]
pub struct Fetched(BTreeMap<String, PathBuf>);

impl Fetched {
    /// Notes where the thing is that a reference stands for.
    pub fn insert(&mut self, reference: &str, place: PathBuf) {
        self.0.insert(reference.to_owned(), place);
    }

    /// Where it is, if the text is such a reference.
    pub fn get(&self, reference: &str) -> Option<&Path> {
        self.0.get(reference).map(PathBuf::as_path)
    }

    /// What `path` of a request names: what was fetched, or else the file or directory below
    /// `root`.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn or_below(&self, root: &Root, path: &str) -> Result<PathBuf, PathError> {
        match self.get(path) {
            Some(place) => Ok(place.to_owned()),
            None => root.file_or_directory(path),
        }
    }
}
