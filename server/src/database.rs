//! Connecting to the database, which may start later than the server.

use std::time::Duration;

use anyhow::anyhow;
use assay_store::{Store, StoreError};
use tokio::time::{Instant, sleep};

use crate::DatabaseUrl;

/// Connections of one server. Handlers hold one for a statement or a short transaction.
const CONNECTIONS: u32 = 10;

/// How long a database that does not answer is waited for at the start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Connects, waiting for a database that is still starting.
///
/// # Errors
/// The database did not answer in time or refuses the connection; the text names its host.
pub(crate) async fn connect(url: &DatabaseUrl) -> anyhow::Result<Store> {
    let started = Instant::now();
    loop {
        let error = match Store::connect(url.expose(), CONNECTIONS).await {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        if !error.is_transient() || started.elapsed() >= PATIENCE {
            return Err(unreachable_database(url, &error));
        }
        tracing::warn!(database = url.host(), %error, "the database does not answer; trying again");
        sleep(PAUSE).await;
    }
}

fn unreachable_database(url: &DatabaseUrl, error: &StoreError) -> anyhow::Error {
    anyhow!(
        "cannot use the database at {}: {error}; check DATABASE_URL and that PostgreSQL runs there",
        url.host()
    )
}
