//! Small model and data roots.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Path of a checkpoint among the test fixtures, such as `llama_gqa`.
///
/// # Panics
/// When there is none of that name.
pub fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name);
    assert!(path.exists(), "{} does not exist", path.display());
    path
}

/// A model root, a data root and a state directory, removed with this value.
#[derive(Debug)]
pub struct Roots {
    directory: TempDir,
}

impl Roots {
    /// Empty roots.
    ///
    /// # Panics
    /// When the temporary directory cannot be written.
    pub fn new() -> Self {
        // The state directory may hold a private PostgreSQL, which runs as another user when the
        // tests run as root.
        let directory = tempfile::Builder::new()
            .prefix("assay-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary directory");
        let roots = Self { directory };
        for path in [roots.models(), roots.data(), roots.state()] {
            fs::create_dir(path).expect("a new directory can be written");
        }
        roots
    }

    /// The model root.
    pub fn models(&self) -> PathBuf {
        self.directory.path().join("models")
    }

    /// The data root.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Copies the fixture checkpoint `name` into the model root. A copy, because a link would
    /// lead outside the root and a test may damage its files.
    ///
    /// # Panics
    /// When there is no such fixture.
    pub fn add_model(&self, name: &str) -> PathBuf {
        let target = self.models().join(name);
        copy(&fixture(name), &target);
        target
    }

    /// Writes a file of the data root.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn add_data(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let target = self.data().join(name);
        fs::write(&target, content).expect("the data root can be written");
        target
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self::new()
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("the model root can be written");
        for entry in fs::read_dir(from).expect("a fixture can be read") {
            let entry = entry.expect("a fixture can be read");
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).expect("a fixture can be copied");
    }
}
