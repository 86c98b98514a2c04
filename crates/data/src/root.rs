//! Paths of requests: always below a configured root, whatever symbolic links do. The server
//! checks them to answer at once, and the worker again, whose files may differ.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use assay_api::ErrorCode;

/// Longest path that is taken, in bytes.
const MAX_LENGTH: usize = 1024;

/// A directory that paths of requests lead into.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// Why a path is refused. The texts name no path of this machine, so they can be sent.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The path is empty, too long, or has a NUL.
    #[error("takes 1 to {MAX_LENGTH} bytes without NUL")]
    Malformed,
    /// The path is absolute or has a `..`.
    #[error("{0:?} is not relative to the root; give the path below it, without `..`")]
    NotRelative(String),
    /// A symbolic link leads out of the root.
    #[error("{0:?} leads out of the root by a symbolic link; put the files below the root")]
    Outside(String),
    /// There is nothing at the path.
    #[error("{0:?} does not exist below the root; check the spelling, it counts from the root")]
    Missing(String),
    /// Something else is there.
    #[error("{path:?} is not {expected}")]
    WrongKind {
        /// The path.
        path: String,
        /// What was expected, with its article.
        expected: &'static str,
    },
    /// The operating system refuses.
    #[error("{path:?} cannot be read: {source}; give this program read permission")]
    Unreadable {
        /// The path.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
}

impl PathError {
    /// The code under which a client learns of it, where a thing that is missing or of the wrong
    /// kind has the code `unreadable`.
    pub fn code(&self, unreadable: ErrorCode) -> ErrorCode {
        match self {
            Self::Malformed | Self::NotRelative(_) | Self::Outside(_) => ErrorCode::PathOutsideRoot,
            Self::Missing(_) | Self::WrongKind { .. } | Self::Unreadable { .. } => unreadable,
        }
    }
}

impl Root {
    /// The root at `dir`.
    ///
    /// # Errors
    /// `dir` is not a directory that can be read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{} cannot be used: {error}", dir.display()),
            )
        };
        fs::read_dir(dir).map_err(named)?;
        // Absolute, but with its links: they may be changed to point at a new release.
        Ok(Self(std::path::absolute(dir).map_err(named)?))
    }

    /// The regular file at `path`, which can be opened.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn file(&self, path: &str) -> Result<PathBuf, PathError> {
        let found = self.resolve(path)?;
        if !found.is_file() {
            return Err(PathError::WrongKind {
                path: path.to_owned(),
                expected: "a regular file",
            });
        }
        fs::File::open(&found).map_err(|source| io_error(path, source))?;
        Ok(found)
    }

    /// The regular file, or the directory whose entries all lie below the root, at `path`.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn file_or_directory(&self, path: &str) -> Result<PathBuf, PathError> {
        let found = self.resolve(path)?;
        if !found.is_dir() {
            return match self.file(path) {
                Err(PathError::WrongKind { path, .. }) => Err(PathError::WrongKind {
                    path,
                    expected: "a directory or a regular file",
                }),
                other => other,
            };
        }
        for entry in fs::read_dir(&found).map_err(|source| io_error(path, source))? {
            let name: OsString = entry.map_err(|source| io_error(path, source))?.file_name();
            self.resolve(&format!("{path}/{}", name.to_string_lossy()))?;
        }
        Ok(found)
    }

    /// `path` without links, which exists below the root.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, PathError> {
        if path.is_empty() || path.len() > MAX_LENGTH || path.contains('\0') {
            return Err(PathError::Malformed);
        }
        let relative = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !relative {
            return Err(PathError::NotRelative(path.to_owned()));
        }
        let root = self
            .0
            .canonicalize()
            .map_err(|source| io_error(path, source))?;
        let found = root
            .join(path)
            .canonicalize()
            .map_err(|source| io_error(path, source))?;
        if found.starts_with(&root) {
            Ok(found)
        } else {
            Err(PathError::Outside(path.to_owned()))
        }
    }
}

fn io_error(path: &str, source: io::Error) -> PathError {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            PathError::Missing(path.to_owned())
        }
        _ => PathError::Unreadable {
            path: path.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A root `root/` with `a.txt` and `model/config.json`, and `secret.txt` beside it.
    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("model")).unwrap();
        fs::write(root.join("a.txt"), "a").unwrap();
        fs::write(root.join("model/config.json"), "{}").unwrap();
        fs::write(dir.path().join("secret.txt"), "s").unwrap();
        let root = Root::open(&root).unwrap();
        (dir, root)
    }

    #[test]
    fn files_and_directories_below_the_root_are_found() {
        let (dir, root) = tree();
        let base = dir.path().canonicalize().unwrap().join("root");
        assert_eq!(root.file("a.txt").unwrap(), base.join("a.txt"));
        assert_eq!(
            root.file("./model//config.json").unwrap(),
            base.join("model/config.json")
        );
        assert_eq!(root.file_or_directory("model").unwrap(), base.join("model"));
        assert_eq!(root.file_or_directory("a.txt").unwrap(), base.join("a.txt"));
    }

    #[test]
    fn paths_that_are_not_relative_are_refused_whether_or_not_they_exist() {
        let (dir, root) = tree();
        let absolute = dir.path().join("root/a.txt");
        for path in [
            "..",
            "../secret.txt",
            "model/../a.txt",
            "/etc/passwd",
            "../nowhere",
        ]
        .into_iter()
        .chain([absolute.to_str().unwrap()])
        {
            assert!(
                matches!(root.file(path), Err(PathError::NotRelative(_))),
                "{path}"
            );
        }
        for path in ["", "a\0b", &"a/".repeat(513)] {
            assert!(
                matches!(root.file(path), Err(PathError::Malformed)),
                "{path:?}"
            );
        }
    }

    #[test]
    fn links_may_lead_anywhere_below_the_root_and_nowhere_else() {
        let (dir, root) = tree();
        let base = dir.path().join("root");
        symlink("a.txt", base.join("inside")).unwrap();
        symlink("../secret.txt", base.join("outside")).unwrap();
        symlink("..", base.join("up")).unwrap();
        assert!(root.file("inside").unwrap().ends_with("a.txt"));
        assert!(matches!(root.file("outside"), Err(PathError::Outside(_))));
        assert!(matches!(
            root.file("up/secret.txt"),
            Err(PathError::Outside(_))
        ));
        assert!(matches!(
            root.file("up/root/../secret.txt"),
            Err(PathError::NotRelative(_))
        ));
        // A sibling whose name begins like the root's is not below it.
        fs::create_dir(dir.path().join("root-2")).unwrap();
        fs::write(dir.path().join("root-2/b.txt"), "b").unwrap();
        symlink("../root-2/b.txt", base.join("sibling")).unwrap();
        assert!(matches!(root.file("sibling"), Err(PathError::Outside(_))));
    }

    #[test]
    fn a_directory_with_a_link_out_of_the_root_is_refused() {
        let (dir, root) = tree();
        symlink("../a.txt", dir.path().join("root/model/inside")).unwrap();
        root.file_or_directory("model").unwrap();
        symlink(
            "../../secret.txt",
            dir.path().join("root/model/tokenizer.json"),
        )
        .unwrap();
        assert!(matches!(
            root.file_or_directory("model"),
            Err(PathError::Outside(_))
        ));
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_said() {
        let (_dir, root) = tree();
        assert!(matches!(root.file("b.txt"), Err(PathError::Missing(_))));
        assert!(matches!(root.file("a.txt/b"), Err(PathError::Missing(_))));
        assert!(matches!(
            root.file("model"),
            Err(PathError::WrongKind { .. })
        ));
    }

    #[test]
    fn the_root_may_be_a_link_and_must_be_a_directory() {
        let (dir, _root) = tree();
        let link = dir.path().join("link");
        symlink("root", &link).unwrap();
        Root::open(&link).unwrap().file("a.txt").unwrap();
        assert!(Root::open(&dir.path().join("secret.txt")).is_err());
        let error = Root::open(&dir.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
