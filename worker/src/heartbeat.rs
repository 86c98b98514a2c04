//! The heartbeat: one thread that renews the leases and waits for nothing else, so that neither a
//! busy device nor a slow disk loses them.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use assay_api::WorkerId;
use assay_store::{NewWorker, Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::lease::Leases;

/// What the heartbeat needs to know of its worker.
pub(crate) struct Heartbeat {
    /// Connects with the thread's own connection.
    pub(crate) database_url: String,
    /// The worker.
    pub(crate) worker: WorkerId,
    /// Its name.
    pub(crate) name: String,
    /// Its devices.
    pub(crate) devices: Vec<assay_api::DeviceStatus>,
    /// Seconds between renewals.
    pub(crate) interval: Duration,
    /// How long a renewal holds.
    pub(crate) lease: Duration,
}

impl Heartbeat {
    /// Starts the thread; it ends with `stop`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        self,
        leases: Leases,
        stop: CancellationToken,
    ) -> std::io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || runtime.block_on(self.beat(&leases, &stop)))
    }

    /// The worker as the ledger registers it.
    pub(crate) fn registration(&self) -> NewWorker<'_> {
        NewWorker {
            id: self.worker,
            name: &self.name,
            version: env!("CARGO_PKG_VERSION"),
            devices: &self.devices,
        }
    }

    async fn beat(&self, leases: &Leases, stop: &CancellationToken) {
        let mut store = None;
        let mut renewed_at = Instant::now();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // An answer that takes longer than the lease is no answer.
            let renewal = tokio::time::timeout(self.lease, self.renew(&mut store, leases)).await;
            match renewal {
                Ok(Ok(())) => renewed_at = Instant::now(),
                Ok(Err(error)) => self.unreachable(leases, renewed_at, &error.to_string()),
                Err(_) => self.unreachable(leases, renewed_at, "no answer within the lease"),
            }
        }
    }

    async fn renew(&self, store: &mut Option<Store>, leases: &Leases) -> Result<(), StoreError> {
        let store = match store {
            Some(store) => store,
            None => store.insert(Store::connect(&self.database_url, 1).await?),
        };
        let asked = leases.to_renew();
        let live = match store.renew(self.worker, &asked, self.lease, None).await {
            Err(StoreError::UnknownWorker(_)) => {
                store
                    .register_worker(&self.registration(), self.lease, None)
                    .await?;
                store.renew(self.worker, &asked, self.lease, None).await?
            }
            answer => answer?,
        };
        leases.stop_ended(&asked, &live);
        Ok(())
    }

    /// After a lease without a renewal others may hold our shards: what we compute is wasted.
    fn unreachable(&self, leases: &Leases, renewed_at: Instant, error: &str) {
        let silent = renewed_at.elapsed();
        tracing::warn!(
            silent_seconds = silent.as_secs_f64(),
            error,
            "renewal failed"
        );
        if silent > self.lease {
            tracing::error!(
                code = %assay_api::ErrorCode::DatabaseUnreachable,
                "the database has been out of reach for longer than the lease; stopping all shards"
            );
            leases.stop_all();
        }
    }
}
