//! Files that are whole or not there.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// A file beside `path` to write first, whose `persist` puts it there at once. Dropped before, it
/// is removed.
///
/// # Errors
/// The folder does not exist, or nothing can be written into it.
pub(crate) fn aside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
}
