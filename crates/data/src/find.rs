//! The files that a path of a request stands for: one, those of a directory, those of a glob.

use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::container::is_known;
use crate::root::{PathError, Root};
use crate::source::{SourceError, SourceFile};

/// Files of one dataset.
const MAX_FILES: usize = 10_000;
/// Entries of directories that are looked at for one dataset.
const MAX_ENTRIES: usize = 1_000_000;

/// The files at `path` below `root`, ordered by the bytes of their names: the file there is, the
/// files below the directory there is, or else those that it matches as a glob.
pub(crate) fn files(root: &Root, path: &str) -> Result<Vec<SourceFile>, SourceError> {
    let mut files = match root.resolve(path) {
        Ok(found) if found.is_dir() => {
            let name = joined(Path::new(path).components());
            let mut walk = Walk::new(root, path, Pattern::Known);
            walk.enter(&found, &name, 0)?;
            walk.files
        }
        Ok(_) => {
            let name = joined(Path::new(path).components());
            return Ok(vec![SourceFile::new(name, root.file(path)?)]);
        }
        Err(PathError::Missing(_)) if has_wildcard(path) => matches(root, path)?,
        Err(error) => return Err(error.into()),
    };
    if files.is_empty() {
        let path = path.to_owned();
        return Err(if has_wildcard(&path) {
            SourceError::NoMatch { pattern: path }
        } else {
            SourceError::NoFiles { path }
        });
    }
    files.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(files)
}

fn has_wildcard(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// The names of a path with single slashes between them and without dots.
fn joined<'a>(components: impl Iterator<Item = Component<'a>>) -> String {
    let names: Vec<_> = components
        .filter(|component| matches!(component, Component::Normal(_)))
        .map(|component| component.as_os_str().to_string_lossy())
        .collect();
    names.join("/")
}

fn matches(root: &Root, pattern: &str) -> Result<Vec<SourceFile>, SourceError> {
    let components: Vec<Component> = Path::new(pattern).components().collect();
    let fixed = components
        .iter()
        .take_while(|component| !has_wildcard(&component.as_os_str().to_string_lossy()))
        .count();
    let base = joined(components[..fixed].iter().copied());
    let found = match root.resolve(if base.is_empty() { "." } else { &base }) {
        Ok(found) if found.is_dir() => found,
        Ok(_) | Err(PathError::Missing(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let whole = joined(components.iter().copied());
    let levels = components[fixed..]
        .iter()
        .map(|component| component.as_os_str().to_string_lossy())
        .map(|level| {
            let any = level.contains("**");
            (!any).then(|| glob(&level, pattern)).transpose()
        })
        .collect::<Result<_, _>>()?;
    let pattern_of = Pattern::Glob {
        whole: glob(&whole, pattern)?,
        levels,
    };
    let mut walk = Walk::new(root, pattern, pattern_of);
    walk.enter(&found, &base, 0)?;
    Ok(walk.files)
}

fn glob(glob: &str, pattern: &str) -> Result<GlobMatcher, SourceError> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| SourceError::BadPattern {
            pattern: pattern.to_owned(),
            detail: error.kind().to_string(),
        })
}

/// Which files are taken.
enum Pattern {
    /// Those of a directory whose names end in a known way.
    Known,
    /// Those whose whole name matches.
    Glob {
        whole: GlobMatcher,
        /// A pattern for each name below the directory where the search starts; none where any
        /// number of names may stand.
        levels: Vec<Option<GlobMatcher>>,
    },
}

impl Pattern {
    fn takes(&self, name: &str) -> bool {
        match self {
            Self::Known => is_known(name),
            Self::Glob { whole, .. } => whole.is_match(name),
        }
    }

    /// Whether a directory with this last name may hold files that are taken, when its names
    /// before do.
    fn enters(&self, last: &str, depth: usize) -> bool {
        let Self::Glob { levels, .. } = self else {
            return true;
        };
        let any = levels.iter().position(Option::is_none);
        match levels.get(depth) {
            _ if any.is_some_and(|any| any <= depth) => true,
            Some(Some(level)) => depth + 1 < levels.len() && level.is_match(last),
            Some(None) | None => false,
        }
    }
}

struct Walk<'a> {
    root: &'a Root,
    /// What was asked for.
    path: &'a str,
    pattern: Pattern,
    files: Vec<SourceFile>,
    entries: usize,
    /// Directories that are open, without links.
    open: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Root, path: &'a str, pattern: Pattern) -> Self {
        Self {
            root,
            path,
            pattern,
            files: Vec::new(),
            entries: 0,
            open: Vec::new(),
        }
    }

    /// Takes what is in the directory `found`, whose name below the root is `name`.
    fn enter(&mut self, found: &Path, name: &str, depth: usize) -> Result<(), SourceError> {
        if self.open.iter().any(|open| open == found) {
            return Err(SourceError::Loop {
                path: name.to_owned(),
            });
        }
        self.open.push(found.to_owned());
        let unreadable = |source| {
            SourceError::Path(PathError::Unreadable {
                path: name.to_owned(),
                source,
            })
        };
        for entry in fs::read_dir(found).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(self.too_many());
            }
            let last = entry.file_name();
            let last = last.to_string_lossy();
            if last.starts_with('.') {
                continue;
            }
            let full = if name.is_empty() {
                last.clone().into_owned()
            } else {
                format!("{name}/{last}")
            };
            let kind = entry.file_type().map_err(unreadable)?;
            self.meet(&full, &last, kind, depth)?;
        }
        self.open.pop();
        Ok(())
    }

    fn meet(
        &mut self,
        name: &str,
        last: &str,
        kind: fs::FileType,
        depth: usize,
    ) -> Result<(), SourceError> {
        let takes = self.pattern.takes(name);
        let enters = self.pattern.enters(last, depth);
        if !(takes || enters && (kind.is_dir() || kind.is_symlink())) {
            return Ok(());
        }
        if last.contains('\u{fffd}') {
            return Err(SourceError::Path(PathError::WrongKind {
                path: name.to_owned(),
                expected: "named in UTF-8",
            }));
        }
        let found = match self.root.resolve(name) {
            // A link to nothing that would not be taken anyway.
            Err(PathError::Missing(_)) if !takes => return Ok(()),
            found => found?,
        };
        if found.is_dir() {
            return if enters {
                self.enter(&found, name, depth + 1)
            } else {
                Ok(())
            };
        }
        if !takes {
            return Ok(());
        }
        if self.files.len() == MAX_FILES {
            return Err(self.too_many());
        }
        let path = self.root.file(name)?;
        self.files.push(SourceFile::new(name.to_owned(), path));
        Ok(())
    }

    fn too_many(&self) -> SourceError {
        SourceError::TooManyFiles {
            path: self.path.to_owned(),
            files: MAX_FILES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(names: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("root");
        for name in names {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let root = Root::open(&base).unwrap();
        (dir, root)
    }

    fn names(root: &Root, path: &str) -> Vec<String> {
        let files = files(root, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        for file in &files {
            assert!(file.path.is_file(), "{}", file.name);
        }
        files.into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn a_directory_is_its_known_files_by_the_bytes_of_their_names() {
        let (_dir, root) = tree(&[
            "web/b.jsonl",
            "web/a/2.jsonl.gz",
            "web/a/10.parquet",
            "web/a-b.txt.zst",
            "web/README.md",
            "web/.hidden.jsonl",
            "web/.git/x.jsonl",
            "web/B.NDJSON",
            "other.jsonl",
        ]);
        let expected = [
            "web/B.NDJSON",
            "web/a-b.txt.zst",
            "web/a/10.parquet",
            "web/a/2.jsonl.gz",
            "web/b.jsonl",
        ];
        for path in ["web", "./web/", "web//."] {
            assert_eq!(names(&root, path), expected, "{path}");
        }
        assert_eq!(names(&root, ".").len(), 6);
        assert_eq!(names(&root, ".")[0], "other.jsonl");
    }

    #[test]
    fn a_glob_takes_what_it_matches_and_stars_stay_in_a_name() {
        let (_dir, root) = tree(&[
            "web/a.jsonl",
            "web/b.jsonl",
            "web/c.md",
            "web/deep/d.jsonl",
            "web/deep/er/e.jsonl",
            "web/.f.jsonl",
            "books/g.jsonl",
            "odd[1].jsonl",
            "odd1.jsonl",
        ]);
        for (pattern, expected) in [
            ("web/*.jsonl", &["web/a.jsonl", "web/b.jsonl"][..]),
            ("web/[b-z]*", &["web/b.jsonl", "web/c.md"]),
            ("web/?.md", &["web/c.md"]),
            (
                "*/*.jsonl",
                &["books/g.jsonl", "web/a.jsonl", "web/b.jsonl"],
            ),
            ("web/*/*.jsonl", &["web/deep/d.jsonl"]),
            (
                "./web/deep/**/*.jsonl",
                &["web/deep/d.jsonl", "web/deep/er/e.jsonl"],
            ),
            ("w*/**/e.jsonl", &["web/deep/er/e.jsonl"]),
            // A file of that very name is meant before what the name matches.
            ("odd[1].jsonl", &["odd[1].jsonl"]),
            ("odd[1]*", &["odd1.jsonl"]),
        ] {
            assert_eq!(names(&root, pattern), expected, "{pattern}");
        }
        for pattern in ["web/*.txt", "none/*", "web/a.jsonl/*", "*"] {
            let error = files(&root, pattern);
            let expected = pattern == "*";
            assert_eq!(error.is_ok(), expected, "{pattern}");
            if let Err(error) = error {
                assert!(matches!(error, SourceError::NoMatch { .. }), "{error:?}");
                assert!(error.to_string().contains(pattern), "{error}");
            }
        }
    }

    #[test]
    fn patterns_that_lead_out_or_are_none_are_refused() {
        let (_dir, root) = tree(&["a.jsonl"]);
        for pattern in ["../*.jsonl", "/*", "x/../*.jsonl", "*/../*"] {
            let error = files(&root, pattern).unwrap_err();
            assert!(
                matches!(error, SourceError::Path(PathError::NotRelative(_))),
                "{pattern}: {error:?}"
            );
        }
        let error = files(&root, "[a.jsonl").unwrap_err();
        assert!(matches!(error, SourceError::BadPattern { .. }), "{error:?}");
        let error = files(&root, "missing").unwrap_err();
        assert!(matches!(error, SourceError::Path(PathError::Missing(_))));
    }

    #[test]
    fn links_are_followed_below_the_root_and_refused_beyond_it() {
        let (dir, root) = tree(&["web/a.jsonl", "more/b.jsonl"]);
        let base = dir.path().join("root");
        symlink("../more", base.join("web/linked")).unwrap();
        symlink("../more/b.jsonl", base.join("web/c.jsonl")).unwrap();
        symlink("nowhere", base.join("web/dangling")).unwrap();
        let expected = ["web/a.jsonl", "web/c.jsonl", "web/linked/b.jsonl"];
        assert_eq!(names(&root, "web"), expected);

        fs::write(dir.path().join("secret.jsonl"), "s").unwrap();
        symlink("../../secret.jsonl", base.join("web/d.jsonl")).unwrap();
        for path in ["web", "web/*.jsonl", "**/d.*"] {
            let error = files(&root, path).unwrap_err();
            assert!(
                matches!(&error, SourceError::Path(PathError::Outside(name)) if name == "web/d.jsonl"),
                "{error:?}"
            );
        }
        assert_eq!(names(&root, "web/a*"), ["web/a.jsonl"]);
    }

    #[test]
    fn what_cannot_be_read_is_named_and_never_left_out() {
        let (dir, root) = tree(&["web/a.jsonl"]);
        let base = dir.path().join("root");
        symlink("nowhere", base.join("web/b.jsonl")).unwrap();
        let error = files(&root, "web").unwrap_err();
        assert!(matches!(&error, SourceError::Path(PathError::Missing(n)) if n == "web/b.jsonl"));
        fs::remove_file(base.join("web/b.jsonl")).unwrap();
        symlink("c.jsonl", base.join("web/c.jsonl")).unwrap();
        let error = files(&root, "web").unwrap_err();
        assert!(
            matches!(error, SourceError::Path(PathError::Unreadable { .. })),
            "{error:?}"
        );
        fs::remove_file(base.join("web/c.jsonl")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(base.join("web/d.jsonl")).unwrap();
        let error = files(&root, "web").unwrap_err();
        assert!(
            matches!(error, SourceError::Path(PathError::WrongKind { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn a_link_to_a_directory_above_is_a_loop() {
        let (dir, root) = tree(&["web/deep/a.jsonl"]);
        symlink("..", dir.path().join("root/web/deep/up")).unwrap();
        for path in ["web", "web/**/*.jsonl"] {
            let error = files(&root, path).unwrap_err();
            assert!(
                matches!(&error, SourceError::Loop { path } if path == "web/deep/up"),
                "{error:?}"
            );
        }
        assert_eq!(names(&root, "web/*/*.jsonl"), ["web/deep/a.jsonl"]);
    }

    #[test]
    fn a_directory_without_a_known_file_says_so() {
        let (dir, root) = tree(&["web/README.md"]);
        fs::create_dir(dir.path().join("root/empty")).unwrap();
        for path in ["web", "empty"] {
            let error = files(&root, path).unwrap_err();
            assert!(matches!(error, SourceError::NoFiles { .. }), "{error:?}");
            assert!(error.to_string().contains(".jsonl"), "{error}");
        }
    }
}
