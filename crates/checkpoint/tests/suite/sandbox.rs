//! Copies of fixtures that a test may damage.

use std::fs;
use std::path::{Path, PathBuf};

use assay_checkpoint::{Checkpoint, Slot, WeightDtype};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The fixtures with one weight file, and the one with two.
pub(crate) const CASES: [&str; 5] = [
    "bf16_llama",
    "llama31_rope",
    "llama_gqa",
    "llama_tied",
    "sharded_llama",
];

/// Where a fixture lies.
pub(crate) fn fixture(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(case)
}

/// Everything a weight is.
pub(crate) fn contents(checkpoint: &Checkpoint, slot: Slot) -> (WeightDtype, Vec<usize>, Vec<u8>) {
    let weight = checkpoint.weight(slot).unwrap();
    let bytes = weight.bytes().into_owned();
    (weight.dtype(), weight.shape().to_vec(), bytes)
}

/// The reference values of a fixture.
pub(crate) fn expected(case: &str) -> Value {
    read_json(&fixture(case).join("expected.json"))
}

/// A copy of a fixture, removed when dropped.
pub(crate) struct Sandbox {
    _dir: TempDir,
    path: PathBuf,
}

impl Sandbox {
    pub(crate) fn of(case: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("model");
        fs::create_dir(&path).unwrap();
        for entry in fs::read_dir(fixture(case)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        Self { _dir: dir, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.file(from), self.file(to)).unwrap();
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).unwrap();
    }

    /// Changes the bytes of a file.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        self.write(name, bytes);
    }

    /// Changes the object in a JSON file.
    pub(crate) fn edit_json(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut value = read_json(&self.file(name));
        change(value.as_object_mut().unwrap());
        self.write(name, value.to_string());
    }

    /// Sets one field of config.json; null removes it.
    pub(crate) fn configure(&self, field: &str, value: Value) {
        self.edit_json("config.json", |config| match value {
            Value::Null => drop(config.remove(field)),
            value => drop(config.insert(field.to_owned(), value)),
        });
    }

    /// Changes the header of a safetensors file; the tensors' bytes stay.
    pub(crate) fn edit_header(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
        self.edit(name, |bytes| {
            let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
            let data = 8 + length.unwrap();
            let mut header: Value = serde_json::from_slice(&bytes[8..data]).unwrap();
            change(header.as_object_mut().unwrap());
            let header = header.to_string();
            let mut changed = (header.len() as u64).to_le_bytes().to_vec();
            changed.extend_from_slice(header.as_bytes());
            changed.extend_from_slice(&bytes[data..]);
            *bytes = changed;
        });
    }

    /// Adds a tensor of zeros behind the last one.
    pub(crate) fn add_tensor(&self, file: &str, name: &str, dtype: &str, shape: &[usize]) {
        let width = if dtype == "F32" { 4 } else { 1 };
        let size = shape.iter().product::<usize>() * width;
        self.edit_header(file, |header| {
            let end = header
                .values()
                .filter_map(|tensor| tensor["data_offsets"][1].as_u64())
                .max()
                .unwrap();
            let offsets = [end, end + size as u64];
            let tensor = json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
            header.insert(name.to_owned(), tensor);
        });
        self.edit(file, |bytes| bytes.resize(bytes.len() + size, 0));
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
