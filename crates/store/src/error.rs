//! What can go wrong with the ledger.

/// An error of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or did not answer.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// A migration could not be applied.
    #[error("migrations: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The schema is older than this program.
    #[error(
        "the schema is at migration {applied}, this program needs {wanted}: run `assay-server migrate`"
    )]
    SchemaBehind {
        /// The newest migration in the database.
        applied: i64,
        /// The newest migration of this program.
        wanted: i64,
    },
    /// A row does not hold what this program writes there.
    #[error("the ledger holds an unexpected value: {0}")]
    Unexpected(String),
    /// A call was given up on.
    #[error("the database gave no answer within {} s", .0.as_secs())]
    NoAnswer(std::time::Duration),
    /// The system gave no random numbers for a key.
    #[error("the system has no random numbers: {0}")]
    NoRandomness(String),
    /// The worker is not (any longer) in the ledger.
    #[error("worker {0} is not registered")]
    UnknownWorker(assay_api::WorkerId),
}

impl StoreError {
    /// Whether the same call may succeed later: the connection broke, the server is starting or
    /// stopping, or PostgreSQL ended the transaction in favour of another.
    pub fn is_transient(&self) -> bool {
        let error = match self {
            StoreError::Database(error) => error,
            StoreError::NoAnswer(_) => return true,
            _ => return false,
        };
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            // 08 connection, 25P03 a session ended for it said nothing in a transaction, 40 rollback
            // (deadlock, serialization), 53 resources, 57P shutdown
            sqlx::Error::Database(e) => e.code().is_some_and(|code| {
                ["08", "25P03", "40", "53", "57P"]
                    .iter()
                    .any(|class| code.starts_with(class))
            }),
            _ => false,
        }
    }

    /// Whether the ledger's constraints refused a count that is not the planned one.
    pub fn is_miscount(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else {
            return false;
        };
        matches!(
            error.constraint(),
            Some("datasets_finished_is_complete" | "datasets_never_overcounted")
        )
    }
}
