//! References of a request to the hub: resolved to commits, and what describes them fetched.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use assay_api::{DatasetRef, ErrorCode, FileSize, ModelRef};
use assay_data::Fetched;
use assay_hub::{
    Hub, HubError, Kind, Reference, SCHEME, Snapshot, weights_of_adapter, weights_of_model,
};
use tokio_util::sync::CancellationToken;

use crate::faults::Faults;
use crate::validate::MAX_DATASETS;

/// How long the references of a request may take to resolve, and the files that describe them to
/// come: less than an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same where files of datasets are read: less than such an answer may take.
const LONG_PATIENCE: Duration = Duration::from_mins(9);

/// What a reference is to stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Model,
    Adapter,
    Dataset,
}

impl Role {
    /// The code of what the hub does not have or does not give.
    fn unreadable(self) -> ErrorCode {
        match self {
            Self::Model | Self::Adapter => ErrorCode::CheckpointUnreadable,
            Self::Dataset => ErrorCode::DatasetUnreadable,
        }
    }
}

/// What the references of a request were found to be.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    /// Where they are, by the pinned reference. A dataset's file may not be there yet.
    pub(crate) fetched: Fetched,
    /// The weights of models and adapters, by the pinned reference.
    pub(crate) weights: HashMap<String, Vec<FileSize>>,
    /// Why others cannot be used, by what the request says.
    refused: HashMap<(Role, String), Refusal>,
}

type Refusal = (ErrorCode, String);

impl Remote {
    /// Notes what is wrong with a text of the request, if it is a reference that cannot be used.
    pub(crate) fn refuses(&self, role: Role, text: &str, field: &str, faults: &mut Faults) -> bool {
        let refusal = self.refused.get(&(role, text.to_owned()));
        if let Some((code, detail)) = refusal {
            faults.add(*code, field, detail);
        }
        refusal.is_some()
    }
}

/// What a request names that may be references. Those that can be used are pinned in place.
#[derive(Default)]
pub(crate) struct Named<'a> {
    pub(crate) model: Option<&'a mut ModelRef>,
    pub(crate) datasets: &'a mut [DatasetRef],
    /// Whether the files of datasets are read.
    pub(crate) reads_datasets: bool,
}

/// Something of the hub.
struct Found {
    pinned: String,
    place: PathBuf,
    weights: Vec<FileSize>,
}

/// Resolves the references among what is `named`; without a hub they are refused.
pub(crate) async fn resolve(hub: Option<&Arc<Hub>>, named: Named<'_>) -> Remote {
    let mut remote = Remote::default();
    let patience = if named.reads_datasets {
        LONG_PATIENCE
    } else {
        PATIENCE
    };
    let end = tokio::time::Instant::now() + patience;
    let mut texts: Vec<(Role, &mut String)> = Vec::new();
    if let Some(model) = named.model {
        texts.push((Role::Model, &mut model.path));
        texts.extend(model.adapter.iter_mut().map(|text| (Role::Adapter, text)));
    }
    // With more of them the request is refused, whatever they are.
    for dataset in named.datasets.iter_mut().take(MAX_DATASETS) {
        if let Some(path) = &mut dataset.path {
            if path.starts_with(SCHEME) {
                dataset.name.get_or_insert_with(|| path.clone());
            }
            texts.push((Role::Dataset, path));
        }
    }
    for (role, text) in texts {
        if !text.starts_with(SCHEME) {
            continue;
        }
        let finding = find(hub, role, text, named.reads_datasets);
        let found = tokio::time::timeout_at(end, finding).await;
        let late = |_| {
            let detail = "the hub does not answer in time; try again later";
            Err((ErrorCode::Unavailable, detail.to_owned()))
        };
        match found.unwrap_or_else(late) {
            Ok(found) => {
                remote.fetched.insert(&found.pinned, found.place);
                remote.weights.insert(found.pinned.clone(), found.weights);
                *text = found.pinned;
            }
            Err(refusal) => {
                remote.refused.insert((role, text.clone()), refusal);
            }
        }
    }
    remote
}

async fn find(
    hub: Option<&Arc<Hub>>,
    role: Role,
    text: &str,
    reads_datasets: bool,
) -> Result<Found, Refusal> {
    let hub = hub.ok_or_else(|| {
        let detail = "is a reference to a hub, and this service uses none; start the server and \
                      the workers with --hub (ASSAY_HUB=true), or give a path below the root";
        (ErrorCode::HubDisabled, detail.to_owned())
    })?;
    let invalid = |detail: String| (ErrorCode::InvalidRequest, detail);
    let reference: Reference = text
        .parse()
        .map_err(|error| refusal(&HubError::Reference(error), role))?;
    match (role, reference.repository().kind()) {
        (Role::Dataset, Kind::Model) => {
            return Err(invalid(format!(
                "{text:?} is a model; a dataset is hf://datasets/org/name@revision/file.jsonl"
            )));
        }
        (Role::Model | Role::Adapter, Kind::Dataset) => {
            return Err(invalid(format!(
                "{text:?} is of a dataset; a model is hf://org/name@revision"
            )));
        }
        _ => {}
    }
    let snapshot = hub.resolve(&reference).await;
    let found = match snapshot {
        Ok(snapshot) => fetch(hub, role, &reference, &snapshot, reads_datasets).await,
        Err(error) => Err(error),
    };
    found.map_err(|error| refusal(&error, role))
}

/// Fetches what the server reads of a snapshot.
async fn fetch(
    hub: &Hub,
    role: Role,
    reference: &Reference,
    snapshot: &Snapshot,
    reads_datasets: bool,
) -> Result<Found, HubError> {
    let cancel = CancellationToken::new();
    let (place, weights) = match role {
        Role::Dataset => {
            let path = reference.path().unwrap_or_default();
            if reads_datasets {
                let wanted = |file: &str| file == path;
                hub.fetch(snapshot, wanted, &|_| {}, &cancel).await?;
            }
            (hub.directory(snapshot).join(path), None)
        }
        Role::Model => {
            let directory = hub.describe(snapshot, &cancel).await?;
            let weights = weights_of_model(snapshot, &directory)?;
            (directory, Some(weights))
        }
        Role::Adapter => {
            let directory = hub.describe(snapshot, &cancel).await?;
            (directory, Some(weights_of_adapter(snapshot)?))
        }
    };
    let names = weights.into_iter().flatten();
    Ok(Found {
        pinned: reference.pinned(snapshot).to_string(),
        place,
        weights: names
            .map(|name| FileSize {
                bytes: snapshot.file(&name).map_or(0, |file| file.size),
                name,
            })
            .collect(),
    })
}

fn refusal(error: &HubError, role: Role) -> Refusal {
    let code = error.code(role.unreadable());
    if code == ErrorCode::Internal {
        tracing::error!(%error, "the cache of the hub cannot be used");
        let detail = "the server cannot use its cache of the hub; its log says why";
        return (code, detail.to_owned());
    }
    if let HubError::Full { .. } = error {
        let detail = "there is no room in the server's cache of the hub; make some, or move it \
                      with --hub-cache";
        return (code, detail.to_owned());
    }
    (code, error.to_string())
}
