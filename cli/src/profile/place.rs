//! Files of this machine as a service with roots names them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Files below a root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The narrowest directory that holds them and all that their links lead to.
    pub(super) root: PathBuf,
    /// The first, relative to it.
    pub(super) path: String,
    /// The second, if there is one.
    pub(super) second: Option<String>,
}

impl Places {
    /// Of one or two paths.
    ///
    /// # Errors
    /// There is nothing at a path, it cannot be read, or it is no UTF-8, which requests have to be.
    pub(super) fn of([first, second]: [Option<&PathBuf>; 2]) -> Result<Self, Failure> {
        let mut root = None;
        let mut placed = Vec::new();
        for path in [first, second].into_iter().flatten() {
            let place = place(path, &mut root).map_err(|error| {
                Failure::Failed(format!("cannot read {}: {error}", path.display()))
            })?;
            placed.push(place);
        }
        let root = root.unwrap_or_default();
        let mut relative = placed.iter().map(|place| {
            let below = place.strip_prefix(&root).unwrap_or(place);
            let text = below.to_str().map(str::to_owned);
            text.ok_or_else(|| Failure::Usage(format!("{} is not UTF-8", place.display())))
        });
        let path = relative.next().transpose()?.unwrap_or_default();
        let second = relative.next().transpose()?;
        Ok(Self { root, path, second })
    }
}

/// Where a path is, with the links on the way to it resolved, but not itself: the name of a file
/// says what it is. `root` becomes as wide as it has to be.
fn place(path: &Path, root: &mut Option<PathBuf>) -> io::Result<PathBuf> {
    let target = path.canonicalize()?;
    let place = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Path::new(".").join(parent).canonicalize()?.join(name),
        _ => target.clone(),
    };
    widen(root, &place);
    widen(root, &target);
    if target.is_dir() {
        for entry in fs::read_dir(&target)? {
            // What a link without a target is for is for others to say.
            if let Ok(target) = entry?.path().canonicalize() {
                widen(root, &target);
            }
        }
    }
    Ok(place)
}

/// Makes `root` hold what is at `path`.
fn widen(root: &mut Option<PathBuf>, path: &Path) {
    let holds = |root: &Path| path.starts_with(root);
    let folder = path.parent().unwrap_or(path);
    let start = root.as_deref().unwrap_or(folder);
    let widened = start.ancestors().find(|ancestor| holds(ancestor));
    *root = widened.map(Path::to_owned);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_root_holds_what_links_lead_to_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let at = |path: &str| folder.join(path);
        for made in ["hub/blobs", "hub/snapshots/1", "elsewhere/adapter"] {
            fs::create_dir_all(at(made)).unwrap();
        }
        fs::write(at("hub/blobs/f00"), "weights").unwrap();
        symlink("../../blobs/f00", at("hub/snapshots/1/model.safetensors")).unwrap();
        symlink("../blobs/f00", at("hub/snapshots/model.gguf")).unwrap();
        symlink(at("hub/snapshots"), at("elsewhere/link")).unwrap();
        for (first, second, root, path) in [
            ("hub/blobs/f00", None, "hub/blobs", "f00"),
            ("hub/snapshots/1", None, "hub", "snapshots/1"),
            ("elsewhere/link/1", None, "hub", "snapshots/1"),
            // The suffix says what it is.
            (
                "elsewhere/link/model.gguf",
                None,
                "hub",
                "snapshots/model.gguf",
            ),
            (
                "hub/snapshots/1",
                Some("elsewhere/adapter"),
                "",
                "hub/snapshots/1",
            ),
        ] {
            let places = Places::of([Some(&at(first)), second.map(at).as_ref()]).unwrap();
            let expected = Places {
                root: if root.is_empty() {
                    folder.clone()
                } else {
                    at(root)
                },
                path: path.to_owned(),
                second: second.map(str::to_owned),
            };
            assert_eq!(places, expected);
        }
        let error = Places::of([Some(&at("nothing")), None])
            .unwrap_err()
            .to_string();
        assert!(error.contains("nothing"), "{error}");
    }
}
