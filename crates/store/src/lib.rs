//! Every SQL statement of Assay: typed functions over the ledger in PostgreSQL.
//!
//! Two rules keep the ledger right whatever is killed when:
//!
//! * Every write of a worker names its *fence*, the number of its attempt. Once the attempt has
//!   ended (lost, cancelled, committed) a write under its fence changes nothing.
//! * Every transaction that changes a job takes the locks in one order: the job's row, attempts,
//!   shards, datasets. Claims and renewals wait for no lock at all.
//!
//! A *row* is one dataset under one method; the table `datasets` holds rows, numbered
//! `dataset_index * methods + method_index`.
//!
//! A [`Store`] sees all projects, as workers have to; [`Store::within`] makes a [`ProjectStore`], which
//! sees one and notes what it writes in the audit log. Whoever answers requests has nothing else.
//!
//! Functions that depend on time take an optional `now`; without it the database's clock counts,
//! never a worker's.

mod audit;
mod audit_log;
mod baseline;
mod claim;
mod clock;
mod commit;
mod deadlines;
mod deliveries;
mod documents;
mod download;
mod end;
mod error;
mod events;
mod finish;
mod histogram;
mod jobs;
mod keys;
mod lease;
mod listen;
mod metrics;
mod partial;
mod performance;
mod plan;
mod precision;
mod project;
mod quota;
mod rates;
mod read;
mod result;
mod retention;
mod reuse;
mod row_facts;
mod rows;
mod service;
mod split;
mod tokens;
mod uploads;

pub use claim::{Claim, Claimant, DeviceRate, PlanClaim, RunContext, RunDataset, ShardClaim, Work};
pub use commit::{CommitOutcome, Compared, ShardOutcome};
pub use deliveries::{DeliveryClaim, DeliveryOutcome, NewWebhook, Next, SigningKey};
pub use end::{AttemptFailure, MAX_ERRORS, MAX_LOSSES};
pub use error::StoreError;
pub use events::{Happened, StoredEvent};
pub use histogram::Histogram;
pub use jobs::{Cancellation, Creation, JobFilter, NewJob};
pub use keys::{KeyToken, StoredKey};
pub use lease::{NewWorker, Reaped, Renewed};
pub use listen::WorkListener;
pub use metrics::{
    CLAIM_LATENCY_BOUNDS, ClaimLatency, DeviceTotals, LedgerMetrics, MetricsReader, RECENT,
};
pub use plan::{NewDatasetPlan, NewPlan, PlanFacts};
pub use project::{Actor, Project, ProjectChanges, ProjectId, ProjectStore, UploadFiles};
pub use quota::{Exceeded, Quota};
pub use row_facts::RowFacts;
pub use tokens::{SpanToken, TokenSpan};
pub use uploads::PutUpload;

use std::sync::Arc;
use std::time::Duration;

use assay_api::{JobId, JobState};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgPool, Postgres, Transaction};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Longest wait for a connection.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest pause between two statements of a transaction. Between them a program only converts
/// rows.
const IDLE_IN_TRANSACTION: &str = "20s";
/// Documents in one row of `document_chunks`.
const CHUNK: usize = 4096;

/// A transaction that holds a job's row.
type Locked = Transaction<'static, Postgres>;

/// The ledger. Clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
    /// Who acts, and so what is seen; none sees all projects, as workers do.
    actor: Option<Arc<Actor>>,
}

/// How many connections a [`Store`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// In use by a statement or a transaction.
    pub in_use: u32,
    /// Open, and waiting for use.
    pub idle: u32,
    /// That it may have at a time.
    pub most: u32,
}

impl Store {
    /// Connects to the database of `url` (`postgres://..`), with at most `connections` at a time.
    ///
    /// # Errors
    /// The URL is malformed or the database does not answer within 10 seconds.
    pub async fn connect(url: &str, connections: u32) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse()?;
        let options = options.application_name("assay").options([
            // A program that vanished without a word in the middle of a transaction would hold its
            // locks until TCP gives up, which takes hours.
            ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION),
        ]);
        // A pool would try again for its whole time and then say no more than that it timed out.
        let probe = tokio::time::timeout(ANSWER, options.connect()).await;
        let probe = probe.map_err(|_| StoreError::NoAnswer(ANSWER))??;
        probe.close().await?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ANSWER)
            .connect_lazy_with(options);
        Ok(Self { pool, actor: None })
    }

    /// The connections of this program to the database.
    pub fn connections(&self) -> Connections {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        Connections {
            // The two numbers are not of one moment.
            in_use: self.pool.size().saturating_sub(idle),
            idle,
            most: self.pool.options().get_max_connections(),
        }
    }

    /// Brings the schema up to this program's; concurrent callers wait for each other.
    ///
    /// # Errors
    /// The database does not answer, or its schema is newer than this program.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(MIGRATIONS.run(&self.pool).await?)
    }

    /// Whether the database answers and every migration of this program is applied.
    ///
    /// # Errors
    /// It does not answer, or [`StoreError::SchemaBehind`].
    pub async fn ready(&self) -> Result<(), StoreError> {
        let wanted = MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0);
        let applied: Result<Option<i64>, sqlx::Error> =
            sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
                .fetch_one(&self.pool)
                .await;
        let applied = match applied {
            // The table does not exist before the first migration.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => 0,
            answer => answer?.unwrap_or(0),
        };
        if applied < wanted {
            return Err(StoreError::SchemaBehind { applied, wanted });
        }
        Ok(())
    }

    /// Begins a transaction that holds the job's row, the first lock in the order, and answers its state.
    /// None if there is no such job.
    ///
    /// Whoever has nothing to write rolls it back before the answer. A transaction that is dropped
    /// keeps its locks a little longer, and a claim that comes at once would pass the job by.
    async fn lock_job(&self, job: JobId) -> Result<Option<(Locked, JobState)>, StoreError> {
        let mut tx = self.pool.begin().await?;
        let state: Option<String> = sqlx::query_scalar(
            "select state::text from jobs
                 where id = $1 and ($2::integer is null or project_id = $2) for no key update",
        )
        .bind(job)
        .bind(self.project())
        .fetch_optional(&mut *tx)
        .await?;
        state.map(|state| Ok((tx, rows::parse(state)?))).transpose()
    }

    /// As [`Store::lock_job`] of a running job, without waiting: none as well if the job does not
    /// run, or somebody else holds the row.
    async fn try_lock_running(&self, job: JobId) -> Result<Option<Locked>, StoreError> {
        let mut tx = self.pool.begin().await?;
        let held = sqlx::query(
            "select from jobs where id = $1 and state = 'running' for no key update skip locked",
        )
        .bind(job)
        .fetch_optional(&mut *tx)
        .await?;
        Ok(held.map(|_| tx))
    }
}
