//! Hugging Face directories: config.json and safetensors files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use assay_api::Dtype;
use sha2::Digest as _;

use crate::checkpoint::{Checkpoint, Source};
use crate::config::{self, Configuration};
use crate::digest::sha256;
use crate::map::{MappedFile, open_regular};
use crate::names::{bare, tensor_of};
use crate::tensor::{Tensors, WeightDtype, WeightFile};
use crate::{Architecture, CheckpointError, Place, Slot, adapter, safetensors};

pub(crate) const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PICKLES: [&str; 3] = ["bin", "pt", "pth"];

/// A directory, and what it is called in errors.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
}

impl Directory {
    /// What a file of the directory is called in errors.
    pub(crate) fn label(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }

    /// The bytes of a file, or nothing if there is none of this name.
    pub(crate) fn read(&self, file: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
        let mut bytes = Vec::new();
        let read =
            open_regular(&self.path.join(file)).and_then(|mut file| file.read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CheckpointError::io(&self.label(file), error)),
        }
    }

    fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    fn file_with_extension(&self, wanted: &[&str]) -> Result<Option<String>, CheckpointError> {
        let entries =
            fs::read_dir(&self.path).map_err(|error| CheckpointError::io(&self.name, error))?;
        let names: BTreeSet<String> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        Ok(names
            .into_iter()
            .find(|name| has_extension(Path::new(name), wanted)))
    }
}

fn has_extension(path: &Path, wanted: &[&str]) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| {
            wanted
                .iter()
                .any(|name| extension.eq_ignore_ascii_case(name))
        })
}

pub(crate) fn is_pickle(path: &Path) -> bool {
    has_extension(path, &PICKLES)
}

/// Opens a Hugging Face directory.
pub(crate) fn open(directory: Directory) -> Result<Checkpoint, CheckpointError> {
    let label = directory.label(CONFIG);
    let (configuration, digest) = configuration(&directory)?;
    let Configuration {
        mut architecture,
        dtype,
    } = configuration;
    let files = weight_files(&directory)?;
    let spec = architecture.family.spec();
    let mut tensors = read_weights(&directory, &files, &|name| {
        spec.buffers.iter().any(|end| name.ends_with(end))
    })?;
    let others = drop_other_parts(&label, spec.other_parts, &mut tensors);
    let head = settle_head(&label, &mut architecture, &mut tensors);
    let weights = tensors.bind(&directory.name, &architecture, spec.safetensors)?;

    let stored = weights
        .get(&Slot::model(Place::Embedding))
        .and_then(|weight| weight.format().plain());
    let differs = dtype
        .zip(stored)
        .filter(|(dtype, stored)| dtype != stored)
        .map(|(dtype, stored)| {
            let (dtype, stored) = (dtype.name(), stored.name());
            format!(
                "{label} says dtype {dtype}, the embedding is stored as {stored}; \
                 `auto` follows {CONFIG}"
            )
        });
    let default_dtype = dtype
        .or(stored)
        .map_or(Dtype::Float32, WeightDtype::computed_in);
    Ok(Checkpoint {
        name: directory.name.clone(),
        source: Source::Directory(directory, digest),
        architecture,
        default_dtype,
        warnings: others.into_iter().chain(head).chain(differs).collect(),
        files: tensors,
        weights,
        adapter: None,
    })
}

/// What config.json says, and the digest of what was read.
pub(crate) fn configuration(
    directory: &Directory,
) -> Result<(Configuration, String), CheckpointError> {
    let bytes = directory
        .read(CONFIG)?
        .ok_or_else(|| CheckpointError::NotACheckpoint {
            path: directory.name.clone(),
            detail: if directory.has(adapter::CONFIG) {
                "it is an adapter; give its base as the model, and this directory as `adapter`"
                    .to_owned()
            } else {
                format!("it has no {CONFIG}; give the directory that save_pretrained wrote")
            },
        })?;
    let configuration = config::parse(&directory.label(CONFIG), &bytes)?;
    Ok((configuration, sha256(|hasher| hasher.update(&bytes))))
}

/// Decides between the tied flag and a stored head: one that differs from the embedding is used,
/// as transformers does, with a warning; one that is the same is dropped.
fn settle_head(
    config: &str,
    architecture: &mut Architecture,
    tensors: &mut Tensors,
) -> Option<String> {
    if !architecture.tied_head {
        return None;
    }
    let names = architecture.family.spec().safetensors;
    let name = |place: Place| {
        let patterns = names.of(place);
        patterns.map(move |(pattern, _)| tensor_of(&pattern, Slot::model(place)))
    };
    let stored = |place: Place| {
        let found = name(place).find_map(|name| tensors.find(&name));
        found.map(|(name, _)| name.clone())
    };
    let head = stored(Place::Head)?;
    let Some(embedding) = stored(Place::Embedding) else {
        // One of two names of the same tensor is kept, and it may be this one.
        let tensor = tensors.by_name.remove(&head)?;
        let embedding = name(Place::Embedding).next()?;
        tensors.by_name.insert(embedding, tensor);
        return None;
    };
    if same_bytes(tensors, &head, &embedding) {
        tensors.by_name.remove(&head);
        return None;
    }
    architecture.tied_head = false;
    Some(format!(
        "{config} says `tie_word_embeddings`, but the stored `{head}` differs from \
         `{embedding}`; the stored head is used"
    ))
}

/// Leaves out the tensors of parts that text does not pass through.
fn drop_other_parts(config: &str, parts: &[&str], tensors: &mut Tensors) -> Option<String> {
    let before = tensors.by_name.len();
    tensors.by_name.retain(|name, _| {
        let name = bare(name);
        !parts.iter().any(|part| name.starts_with(part))
    });
    let dropped = before - tensors.by_name.len();
    (dropped > 0).then(|| {
        format!(
            "{config} describes a model of text and images, of which the text is scored; \
             {dropped} tensors of the rest are not read"
        )
    })
}

fn same_bytes(tensors: &Tensors, left: &str, right: &str) -> bool {
    match (tensors.by_name.get(left), tensors.by_name.get(right)) {
        (Some(left), Some(right)) => {
            left.format == right.format
                && left.shape == right.shape
                && tensors.bytes(left) == tensors.bytes(right)
        }
        _ => false,
    }
}

/// Names of the weight files, and what the index says is in each; nothing without an index.
type WeightFiles = BTreeMap<String, Option<BTreeSet<String>>>;

fn weight_files(directory: &Directory) -> Result<WeightFiles, CheckpointError> {
    if directory.has(SINGLE) {
        return Ok(BTreeMap::from([(SINGLE.to_owned(), None)]));
    }
    if let Some(index) = directory.read(INDEX)? {
        return parse_index(&directory.label(INDEX), &index);
    }
    if let Some(file) = directory.file_with_extension(&PICKLES)?
        && directory.file_with_extension(&["safetensors"])?.is_none()
    {
        return Err(CheckpointError::Pickle {
            file: directory.label(&file),
        });
    }
    let detail = match directory.file_with_extension(&["gguf"])? {
        Some(file) => format!("it is a directory with the GGUF file {file}; give that file's path"),
        None => format!("it has neither {SINGLE} nor {INDEX}; save the model as safetensors"),
    };
    Err(CheckpointError::NotACheckpoint {
        path: directory.name.clone(),
        detail,
    })
}

fn parse_index(label: &str, bytes: &[u8]) -> Result<WeightFiles, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(bytes).map_err(|error| {
        CheckpointError::damaged(label, format!("it is not an index of tensors ({error})"))
    })?;
    let mut files = WeightFiles::new();
    for (tensor, file) in index.weight_map {
        // A name with a separator could lead out of the directory.
        if file.contains(['/', '\\', '\0']) || file == ".." || file.is_empty() {
            let detail = format!("tensor `{tensor}` is said to be in `{file}`, not a file name");
            return Err(CheckpointError::damaged(label, detail));
        }
        if is_pickle(Path::new(&file)) {
            return Err(CheckpointError::Pickle { file });
        }
        files
            .entry(file)
            .or_default()
            .get_or_insert_default()
            .insert(tensor);
    }
    if files.is_empty() {
        return Err(CheckpointError::damaged(label, "it names no tensor"));
    }
    Ok(files)
}

fn read_weights(
    directory: &Directory,
    files: &WeightFiles,
    ignored: &impl Fn(&str) -> bool,
) -> Result<Tensors, CheckpointError> {
    let mut tensors = Tensors::default();
    for (index, (name, listed)) in files.iter().enumerate() {
        let label = directory.label(name);
        let path = directory.path.join(name);
        let map = MappedFile::open(&path).map_err(|error| CheckpointError::io(&label, error))?;
        let found = safetensors::read(index, &label, &map, ignored)?;
        if let Some(listed) = listed {
            check_index(&directory.label(INDEX), name, listed, &found, ignored)?;
        }
        for (tensor, stored) in found {
            if tensors.by_name.insert(tensor.clone(), stored).is_some() {
                let detail = format!("tensor `{tensor}` is in another file too");
                return Err(CheckpointError::damaged(&label, detail));
            }
        }
        tensors.files.push(WeightFile { label, path, map });
    }
    Ok(tensors)
}

/// The index and the header of a file must name the same tensors.
fn check_index<T>(
    index: &str,
    file: &str,
    listed: &BTreeSet<String>,
    found: &[(String, T)],
    ignored: impl Fn(&str) -> bool,
) -> Result<(), CheckpointError> {
    let found: BTreeSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let listed: BTreeSet<&str> = listed
        .iter()
        .map(String::as_str)
        .filter(|name| !ignored(name))
        .collect();
    if let Some(tensor) = listed.difference(&found).next() {
        let detail = format!("it says that tensor `{tensor}` is in {file}, where it is not");
        return Err(CheckpointError::damaged(index, detail));
    }
    if let Some(tensor) = found.difference(&listed).next() {
        let detail = format!("it does not say that tensor `{tensor}` is in {file}");
        return Err(CheckpointError::damaged(index, detail));
    }
    Ok(())
}
