//! Fetching what references of a job to a hub stand for, into the cache of this host.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use assay_api::{DatasetRef, Download, ErrorCode, ModelRef};
use assay_data::Fetched;
use assay_hub::{Hub, HubError, Reference, SCHEME, Snapshot, weights_of_adapter, weights_of_model};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// How far a fetch is; nothing until it is known that there is something to fetch.
pub(crate) type Progress = Mutex<Option<Download>>;

/// What a reference is to stand for.
#[derive(Clone, Copy)]
enum Role {
    Model,
    Adapter,
    Dataset,
}

/// A reference, resolved, with all its small files.
struct Part {
    text: String,
    snapshot: Snapshot,
    /// The large files.
    files: BTreeSet<String>,
    place: PathBuf,
    role: Role,
}

impl Part {
    fn bytes(&self) -> u64 {
        let files = self.snapshot.files.iter();
        files
            .filter(|file| self.files.contains(&file.path))
            .fold(0, |sum, file| file.size.saturating_add(sum))
    }
}

/// Makes the files of a job's references be on this host: those of the model, of its adapter and
/// of the datasets. What is there already is not asked for; what was begun is continued. Dropping
/// the future stops it.
///
/// # Errors
/// There is no hub, or it refuses, lacks or damages something.
pub(crate) async fn fetch(
    hub: Option<&Hub>,
    model: &ModelRef,
    datasets: impl Iterator<Item = &DatasetRef>,
    progress: &Progress,
) -> Result<Fetched, Failure> {
    let datasets: BTreeSet<&str> = datasets.filter_map(|one| one.path.as_deref()).collect();
    let references = [(Role::Model, Some(&*model.path))]
        .into_iter()
        .chain([(Role::Adapter, model.adapter.as_deref())])
        .chain(datasets.into_iter().map(|path| (Role::Dataset, Some(path))))
        .filter_map(|(role, text)| text.map(|text| (role, text)))
        .filter(|(_, text)| text.starts_with(SCHEME));
    let mut parts = Vec::new();
    for (role, text) in references {
        let hub = hub.ok_or_else(|| no_hub(role, text))?;
        let part = part(hub, role, text).await;
        parts.push((hub, part.map_err(|error| failure(&error, role))?));
    }
    let total_bytes = parts
        .iter()
        .fold(0, |sum, (_, part)| part.bytes().saturating_add(sum));
    let mut before = 0;
    let mut fetched = Fetched::default();
    for (hub, part) in parts {
        let never = CancellationToken::new();
        let wanted = |path: &str| part.files.contains(path);
        let moved = |now: assay_hub::Progress<'_>| {
            let bytes = now.done.saturating_add(before);
            *progress.lock().expect("assigning does not panic") =
                Some(Download { bytes, total_bytes });
        };
        let place = hub.fetch(&part.snapshot, wanted, &moved, &never).await;
        place.map_err(|error| failure(&error, part.role))?;
        before += part.bytes();
        fetched.insert(&part.text, part.place);
    }
    Ok(fetched)
}

/// Resolves a reference and fetches its small files, which say what the large ones are.
async fn part(hub: &Hub, role: Role, text: &str) -> Result<Part, HubError> {
    // The server has parsed it before.
    let reference: Reference = text.parse().map_err(HubError::from)?;
    let snapshot = hub.resolve(&reference).await?;
    let never = CancellationToken::new();
    let (place, files) = match role {
        Role::Model => {
            let directory = hub.describe(&snapshot, &never).await?;
            let files = weights_of_model(&snapshot, &directory)?;
            (directory, files)
        }
        Role::Adapter => {
            let directory = hub.describe(&snapshot, &never).await?;
            (directory, weights_of_adapter(&snapshot)?)
        }
        Role::Dataset => {
            let path = reference.path().unwrap_or_default();
            (
                hub.directory(&snapshot).join(path),
                [path.to_owned()].into(),
            )
        }
    };
    Ok(Part {
        text: text.to_owned(),
        snapshot,
        files,
        place,
        role,
    })
}

/// Another worker may use one.
fn no_hub(role: Role, text: &str) -> Failure {
    let detail = format!(
        "{text} is a reference to a hub, and this worker uses none; start all workers with --hub \
         (ASSAY_HUB=true)"
    );
    of_field(Failure::error(ErrorCode::HubDisabled, detail), role)
}

fn failure(error: &HubError, role: Role) -> Failure {
    let unreadable = match role {
        Role::Model | Role::Adapter => ErrorCode::CheckpointUnreadable,
        Role::Dataset => ErrorCode::DatasetUnreadable,
    };
    of_field(
        Failure::error(error.code(unreadable), error.to_string()),
        role,
    )
}

/// Which dataset it is, the text says.
fn of_field(failure: Failure, role: Role) -> Failure {
    failure.of_field(match role {
        Role::Model => "model",
        Role::Adapter => "model.adapter",
        Role::Dataset => "datasets",
    })
}
