//! The heartbeat: one thread that renews the leases and waits for nothing else, so that neither a
//! busy device nor a slow disk loses them.

use std::collections::BTreeSet;
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
        let mut not_held = BTreeSet::new();
        let mut renewed_at = Instant::now();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // An answer that takes longer than the lease is no answer.
            let renewal = self.renew(&mut store, leases, &mut not_held);
            match tokio::time::timeout(self.lease, renewal).await {
                Ok(Ok(())) => renewed_at = Instant::now(),
                Ok(Err(error)) => self.unreachable(leases, renewed_at, &error.to_string()),
                Err(_) => self.unreachable(leases, renewed_at, "no answer within the lease"),
            }
        }
    }

    /// Renews what is held, stops what has ended, and gives back what was in no hands at this
    /// beat and the one before.
    async fn renew(
        &self,
        store: &mut Option<Store>,
        leases: &Leases,
        not_held: &mut BTreeSet<i64>,
    ) -> Result<(), StoreError> {
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
        let before = std::mem::replace(not_held, leases.not_held(&live));
        for fence in not_held.intersection(&before) {
            tracing::warn!(fence, "giving back a claim whose answer was lost");
            store.release_attempt(self.worker, *fence).await?;
        }
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

#[cfg(test)]
mod tests {
    use assay_api::{DatasetRef, Dtype, JobRequest, Method, OneOrMany};
    use assay_store::{Claimant, NewJob};
    use assay_testkit::{LIMIT, TestDatabase, eventually};
    use uuid::Uuid;

    use super::*;

    const LEASE: Duration = Duration::from_mins(1);

    async fn post_job(store: &Store) {
        let body = serde_json::json!({"model": "m", "datasets": ["d"]});
        let request: JobRequest = serde_json::from_value(body.clone()).unwrap();
        let new = NewJob {
            id: Uuid::now_v7(),
            request: &request,
            body: &body,
            idempotency_key: None,
            methods: &OneOrMany::One(Method::rolling(8)),
            datasets: &[DatasetRef::at("d")],
            dtype: Dtype::Float32,
        };
        store.create_job(&new).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_claim_whose_answer_was_lost_is_given_back() {
        let database = TestDatabase::fresh().await;
        let store = Store::connect(database.url(), 2).await.unwrap();
        store.migrate().await.unwrap();
        let heartbeat = Heartbeat {
            database_url: database.url().to_owned(),
            worker: Uuid::now_v7(),
            name: "w".to_owned(),
            devices: vec![],
            interval: Duration::from_millis(50),
            lease: LEASE,
        };
        let worker = heartbeat.worker;
        let (leases, stop) = (Leases::default(), CancellationToken::new());
        store
            .register_worker(&heartbeat.registration(), LEASE, None)
            .await
            .unwrap();
        post_job(&store).await;
        post_job(&store).await;
        let claimant = Claimant {
            worker,
            device: "cpu:0",
            device_kind: "test",
            lease: LEASE,
        };
        let held = store.claim(&claimant, None).await.unwrap().unwrap();
        let lease = leases.hold(held.fence);
        let lost = store.claim(&claimant, None).await.unwrap().unwrap();

        let beating = heartbeat.start(leases, stop.clone()).unwrap();
        let again = eventually("the lost claim to be given back", LIMIT, async || {
            store.claim(&claimant, None).await.unwrap()
        })
        .await;
        assert_eq!(again.job, lost.job);
        assert!(!lease.is_stopped(), "what is held goes on");
        stop.cancel();
        beating.join().unwrap();
    }
}
