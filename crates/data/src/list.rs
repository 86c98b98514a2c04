//! What lies directly in a directory below a root, for those who choose from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use crate::container::is_known;
use crate::root::{PathError, Root};

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Its path below the root.
    pub path: String,
    /// Bytes of the file; none of a directory.
    pub bytes: Option<u64>,
}

/// Whether a file of this name is read as a dataset when it is met in a directory.
pub fn is_dataset(name: &str) -> bool {
    is_known(name)
}

impl Root {
    /// The directories in the directory `under` (`.` is the root) and those of its files whose names
    /// `takes` takes, ordered by the bytes of their names: those behind `after`, at most `limit`.
    ///
    /// Left out are hidden names, names that are not UTF-8, links out of the root or to nothing, and
    /// what is neither file nor directory. Nothing is opened; only the entries of the answer are
    /// looked at closer.
    ///
    /// # Errors
    /// See [`PathError`]; a directory with more than 100,000 entries is of the wrong kind.
    pub fn list(
        &self,
        under: &str,
        after: Option<&str>,
        limit: usize,
        takes: impl Fn(&str) -> bool,
    ) -> Result<Vec<Entry>, PathError> {
        let wrong = |expected| PathError::WrongKind {
            path: under.to_owned(),
            expected,
        };
        let found = self.resolve(under)?;
        if !found.is_dir() {
            return Err(wrong("a directory"));
        }
        let unreadable = |source| PathError::Unreadable {
            path: under.to_owned(),
            source,
        };
        let mut names = BTreeSet::new();
        for (index, entry) in fs::read_dir(&found).map_err(unreadable)?.enumerate() {
            if index == MAX_ENTRIES {
                return Err(wrong(
                    "a directory with at most 100,000 entries, so what is in it is named by its \
                     whole path",
                ));
            }
            let entry = entry.map_err(unreadable)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_file = entry.file_type().map_err(unreadable)?.is_file();
            if name.starts_with('.')
                || after.is_some_and(|after| name.as_str() <= after)
                || is_file && !takes(&name)
            {
                continue;
            }
            names.insert(name);
        }
        let below = joined(under);
        let entries = names
            .into_iter()
            .filter_map(|name| self.entry(&below, name, &takes));
        Ok(entries.take(limit).collect())
    }

    /// None of what is left out.
    fn entry(&self, below: &str, name: String, takes: impl Fn(&str) -> bool) -> Option<Entry> {
        let path = match below {
            "" => name.clone(),
            below => format!("{below}/{name}"),
        };
        let found = fs::metadata(self.resolve(&path).ok()?).ok()?;
        let bytes = if found.is_dir() {
            None
        } else if found.is_file() && takes(&name) {
            Some(found.len())
        } else {
            return None;
        };
        Some(Entry { name, path, bytes })
    }
}

/// A path with single slashes between its names and without dots.
fn joined(path: &str) -> String {
    let names: Vec<_> = Path::new(path)
        .components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .map(|component| component.as_os_str().to_string_lossy())
        .collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("root");
        for name in [
            "b.jsonl",
            "a.txt",
            "notes.md",
            ".hidden.txt",
            "web/c.jsonl.gz",
            "web/deep/d.parquet",
            ".git/e.txt",
        ] {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let root = Root::open(&base).unwrap();
        (dir, root)
    }

    fn names(root: &Root, under: &str) -> Vec<(String, Option<u64>)> {
        let entries = root.list(under, None, 100, is_dataset).unwrap();
        entries.into_iter().map(|e| (e.path, e.bytes)).collect()
    }

    #[test]
    fn one_level_is_listed_by_the_bytes_of_its_names() {
        let (_dir, root) = tree();
        let named = |name: &str, bytes| (name.to_owned(), bytes);
        let top = [
            named("a.txt", Some(5)),
            named("b.jsonl", Some(7)),
            named("web", None),
        ];
        assert_eq!(names(&root, "."), top);
        let web = [named("web/c.jsonl.gz", Some(14)), named("web/deep", None)];
        for under in ["web", "./web//"] {
            assert_eq!(names(&root, under), web);
        }
    }

    #[test]
    fn pages_follow_each_other() {
        let (_dir, root) = tree();
        let page = |after| root.list(".", after, 2, is_dataset).unwrap();
        let first = page(None);
        assert_eq!(first.len(), 2);
        let second = page(Some(&first[1].name));
        assert_eq!((second.len(), second[0].name.as_str()), (1, "web"));
        assert_eq!(page(Some("web")), []);
    }

    #[test]
    fn links_are_shown_if_they_stay_below_the_root() {
        let (dir, root) = tree();
        let base = dir.path().join("root");
        fs::write(dir.path().join("secret.txt"), "s").unwrap();
        symlink("../secret.txt", base.join("out.txt")).unwrap();
        symlink("..", base.join("up")).unwrap();
        symlink("nowhere.txt", base.join("gone.txt")).unwrap();
        symlink("web/c.jsonl.gz", base.join("linked.jsonl.gz")).unwrap();
        symlink("notes.md", base.join("notes")).unwrap();
        symlink("web", base.join("more")).unwrap();
        let shown: Vec<_> = names(&root, ".")
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(
            shown,
            ["a.txt", "b.jsonl", "linked.jsonl.gz", "more", "web"]
        );
        assert!(matches!(
            root.list("up", None, 9, is_dataset),
            Err(PathError::Outside(_))
        ));
    }

    #[test]
    fn what_is_no_directory_below_the_root_is_refused() {
        let (_dir, root) = tree();
        for (under, expected) in [
            ("..", "without `..`"),
            ("/", "not relative"),
            ("", "1 to 1024"),
            ("none", "does not exist"),
            ("a.txt", "not a directory"),
        ] {
            let error = root.list(under, None, 9, is_dataset).unwrap_err();
            assert!(error.to_string().contains(expected), "{under}: {error}");
        }
    }
}
