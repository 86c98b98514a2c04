//! What the shards of a job share on this host: the checkpoint, the tokens, the cluster layouts.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use assay_api::{DatasetFormat, DatasetRef, Dtype, ErrorCode, JobId, Method, ModelRef, Numerics};
use assay_checkpoint::{ChatTemplate, Checkpoint, DigestCache, TextTokenizer, Tokenizers};
use assay_data::{Fetched, Reading, Root, Source, TokenStore, Uploads, tokenize};
use assay_hub::{Hub, Settings};
use assay_scoring::ClusterLayout;
use assay_store::{RunContext, RunDataset, Store};
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::Failure;
use crate::fetch;
use crate::retry::retry;
use crate::row::Row;

/// Jobs whose resources are kept; an older one is opened anew from the caches on disk.
const KEPT_JOBS: usize = 4;

/// The directories of this host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    models: Root,
    data: Root,
    /// The hub that references are of, if one is used.
    hub: Option<Arc<Hub>>,
    uploads: Uploads,
    /// The token cache.
    tokens: PathBuf,
    digests: Arc<DigestCache>,
    tokenizers: Tokenizers,
}

impl Host {
    /// Opens the roots and makes the cache directories.
    ///
    /// # Errors
    /// A root is no directory, the settings of the hub are refused, or the state directory cannot
    /// be written.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        use anyhow::Context;
        let make = |name: &str| -> anyhow::Result<PathBuf> {
            let path = config.state_dir.join(name);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            models: Root::open(&config.model_root).context("--model-root")?,
            data: Root::open(&config.data_root).context("--data-root")?,
            hub: config
                .hub
                .then(|| Hub::new(&Settings::of_environment(&config.hub_cache())))
                .transpose()
                .context("--hub")?
                .map(Arc::new),
            uploads: Uploads::open(&config.state_dir.join("uploads")).context("--state-dir")?,
            tokens: make("tokens")?,
            digests: Arc::new(DigestCache::new(&make("digests")?)),
            tokenizers: Tokenizers::default(),
        })
    }

    /// Fetches what references of a job to the hub stand for.
    ///
    /// # Errors
    /// There is no hub, or it refuses, lacks or damages something.
    pub(crate) async fn fetch(
        &self,
        model: &ModelRef,
        datasets: impl Iterator<Item = &DatasetRef>,
        progress: &fetch::Progress,
    ) -> Result<Fetched, Failure> {
        fetch::fetch(self.hub.as_deref(), model, datasets, progress).await
    }

    /// Opens a checkpoint with its adapter, below the model root or `fetched`, headers only, and
    /// takes its digest.
    ///
    /// # Errors
    /// A path, the checkpoint or the adapter is refused.
    pub(crate) fn checkpoint(
        &self,
        model: &ModelRef,
        fetched: &Fetched,
    ) -> Result<(Checkpoint, String), Failure> {
        let find = |path: &str, field: &'static str| {
            fetched.or_below(&self.models, path).map_err(|error| {
                let code = error.code(ErrorCode::CheckpointUnreadable);
                Failure::of_file(code, &error).of_field(field)
            })
        };
        let path = find(&model.path, "model")?;
        let adapter = model.adapter.as_deref();
        let adapter = adapter
            .map(|path| find(path, "model.adapter"))
            .transpose()?;
        let checkpoint = Checkpoint::open_with(&path, adapter.as_deref())?;
        let digest = checkpoint.digest(&self.digests)?;
        Ok((checkpoint, digest))
    }

    /// What reads these datasets for a checkpoint.
    ///
    /// # Errors
    /// The tokenizer or the template cannot be used.
    pub(crate) fn reader<'a>(
        &self,
        checkpoint: &Checkpoint,
        mut datasets: impl Iterator<Item = &'a DatasetRef>,
    ) -> Result<Reader, Failure> {
        let is_chat = datasets.any(|dataset| dataset.format() == DatasetFormat::Chat);
        Ok(Reader {
            tokenizer: self.tokenizers.of(checkpoint)?,
            chat: if is_chat {
                checkpoint.chat_template()?
            } else {
                None
            },
        })
    }

    /// The tokens of a dataset under a method, from the cache or made now.
    ///
    /// # Errors
    /// The path or the dataset is refused.
    pub(crate) fn tokens(
        &self,
        (dataset, fetched): (&DatasetRef, &Fetched),
        method: &Method,
        reader: &Reader,
        offsets: bool,
    ) -> Result<TokenStore, Failure> {
        let source = Source::resolve(dataset, &self.data, fetched, &self.uploads)?;
        let reading = Reading {
            tokenizer: &reader.tokenizer,
            chat: reader.chat.as_ref(),
            join: method.join.as_deref(),
            offsets,
        };
        let tokens = tokenize(&source, &reading, &self.tokens, &self.digests)?;
        match &dataset.upload_digest {
            Some(digest) if digest != tokens.data_digest() => {
                let detail = format!(
                    "the bytes of the upload {} on this worker are {}, not {digest}: upload it \
                     again, and let all nodes see the same directory of uploads",
                    dataset.name(),
                    tokens.data_digest()
                );
                Err(Failure::error(ErrorCode::DataDiffers, detail))
            }
            _ => Ok(tokens),
        }
    }
}

/// What makes tokens of text: the parts of a checkpoint that datasets are read with.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The tokenizer.
    pub(crate) tokenizer: TextTokenizer,
    /// The chat template, if a dataset is a chat.
    pub(crate) chat: Option<ChatTemplate>,
}

/// A planned job, opened on this host and found to be the one that was planned.
#[derive(Debug)]
pub(crate) struct JobResources {
    /// The job.
    pub(crate) id: JobId,
    /// The checkpoint.
    pub(crate) checkpoint: Checkpoint,
    /// Its digest.
    pub(crate) digest: String,
    /// The dtype of the computation.
    pub(crate) dtype: Dtype,
    /// Whether a device may compute in another one.
    pub(crate) numerics: Numerics,
    /// Whether the NLL of every token is asked for.
    pub(crate) token_output: bool,
    /// Names what a device's rate depends on; empty in jobs of older versions.
    pub(crate) rate_key: String,
    /// By dataset and method, in the order of the request.
    pub(crate) rows: Vec<RunnableRow>,
}

/// A dataset under one method, opened on this host.
#[derive(Debug)]
pub(crate) struct RunnableRow {
    /// Name of the dataset, for errors.
    pub(crate) name: String,
    /// Its tokens.
    pub(crate) row: Row,
    /// Where a token's NLL is added.
    pub(crate) clusters: ClusterLayout,
}

impl JobResources {
    fn open(
        host: &Host,
        id: JobId,
        context: RunContext,
        fetched: &Fetched,
    ) -> Result<Self, Failure> {
        let plan = &context.plan;
        let model = plan.model.reference();
        let (checkpoint, digest) = host.checkpoint(&model, fetched)?;
        if digest != plan.model.digest {
            let detail = format!(
                "the checkpoint {model} on this worker is {digest}, the job was planned with {}: \
                 give all nodes the same files, and submit the job anew if they were changed",
                plan.model.digest
            );
            return Err(Failure::error(ErrorCode::CheckpointDiffers, detail).of_field("model"));
        }
        let sources = context.datasets.iter().map(|dataset| &dataset.source);
        let reader = host.reader(&checkpoint, sources)?;
        let rows = context
            .datasets
            .into_iter()
            .map(|dataset| open_row((host, fetched), dataset, &reader, context.token_output))
            .collect::<Result<_, Failure>>()?;
        Ok(Self {
            id,
            checkpoint,
            digest,
            dtype: context.dtype,
            numerics: context.numerics,
            token_output: context.token_output,
            rate_key: context.rate_key.unwrap_or_default(),
            rows,
        })
    }
}

fn open_row(
    (host, fetched): (&Host, &Fetched),
    dataset: RunDataset,
    reader: &Reader,
    offsets: bool,
) -> Result<RunnableRow, Failure> {
    let name = dataset.source.name().to_owned();
    let tokens = host
        .tokens((&dataset.source, fetched), &dataset.method, reader, offsets)
        .map_err(|failure| failure.of_missing_field(format!("dataset {name:?}")))?;
    if tokens.tokens_digest() != dataset.tokens_digest {
        let detail = format!(
            "the tokens of {name} on this worker are {}, the job was planned with {}: give all \
             nodes the same dataset and tokenizer, and submit the job anew if they were changed",
            tokens.tokens_digest(),
            dataset.tokens_digest
        );
        return Err(Failure::error(ErrorCode::DataDiffers, detail));
    }
    Ok(RunnableRow {
        name,
        row: Row::new(tokens, &dataset.method, dataset.prefix),
        clusters: dataset.clusters,
    })
}

type Entry = (JobId, Arc<OnceCell<Arc<JobResources>>>);

/// The resources of the latest jobs. Devices that need the same job wait for one opening.
#[derive(Debug)]
pub(crate) struct ResourceCache {
    host: Host,
    store: Store,
    entries: Mutex<VecDeque<Entry>>,
}

impl ResourceCache {
    /// An empty cache.
    pub(crate) fn new(host: Host, store: Store) -> Self {
        Self {
            host,
            store,
            entries: Mutex::new(VecDeque::new()),
        }
    }

    /// The directories of this host.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The resources of a planned job.
    ///
    /// # Errors
    /// The files are refused or differ from those planned, or the database does not answer.
    pub(crate) async fn get(
        &self,
        job: JobId,
        stopping: &CancellationToken,
    ) -> Result<Arc<JobResources>, Failure> {
        let cell = self.cell(job).await;
        // A failed opening leaves the cell empty, so the next attempt tries again.
        let resources = cell.get_or_try_init(|| self.open(job, stopping)).await?;
        Ok(Arc::clone(resources))
    }

    async fn cell(&self, job: JobId) -> Arc<OnceCell<Arc<JobResources>>> {
        let mut entries = self.entries.lock().await;
        if let Some((_, cell)) = entries.iter().find(|(id, _)| *id == job) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(OnceCell::new());
        entries.push_back((job, Arc::clone(&cell)));
        if entries.len() > KEPT_JOBS {
            entries.pop_front();
        }
        cell
    }

    async fn open(
        &self,
        job: JobId,
        stopping: &CancellationToken,
    ) -> Result<Arc<JobResources>, Failure> {
        let context = retry(stopping, || self.store.run_context(job))
            .await
            .map_err(|error| Failure::error(ErrorCode::Internal, error.to_string()))?
            .ok_or_else(|| Failure::error(ErrorCode::Internal, "the job has no plan"))?;
        let host = self.host.clone();
        let sources = context.datasets.iter().map(|dataset| &dataset.source);
        // The ledger shows how far the planning worker is, which fetches first.
        let untold = fetch::Progress::default();
        let model = context.plan.model.reference();
        let fetched = host.fetch(&model, sources, &untold).await?;
        let open = move || JobResources::open(&host, job, context, &fetched).map(Arc::new);
        tokio::task::spawn_blocking(open)
            .await
            .map_err(|error| Failure::error(ErrorCode::Internal, error.to_string()))?
    }
}
