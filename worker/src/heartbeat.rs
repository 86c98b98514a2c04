//! The heartbeat: one thread that renews the leases and waits for nothing else, so that neither a
//! busy device nor a slow disk loses them.

use std::collections::BTreeSet;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use assay_api::{ErrorCode, WorkerId};
use assay_store::{NewWorker, Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::lease::Leases;
use crate::restart::Restart;

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
    /// Set when the worker stops, also by the heartbeat.
    pub(crate) stopping: CancellationToken,
    /// Asked for when a device is hung.
    pub(crate) restart: Restart,
}

/// What one beat leaves to the next.
#[derive(Default)]
struct Memory {
    store: Option<Store>,
    /// Attempts that were in no hands.
    not_held: BTreeSet<i64>,
    /// For how long the database was out of reach, once that was longer than the lease and until
    /// it is told.
    silence: Option<Duration>,
    /// Whether the end of the service is known.
    out_of_service: bool,
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
            .spawn(move || {
                // Without renewals nothing that is computed counts: a panic stops the worker.
                let _stopping = self.stopping.clone().drop_guard();
                runtime.block_on(self.beat(&leases, &stop));
            })
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
        let mut memory = Memory::default();
        let mut renewed_at = Instant::now();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_beat = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // Whatever the database does, a beat takes less than this, unless the process was
            // stopped (SIGSTOP, a laptop that slept): then its devices stood still with it.
            let gap = std::mem::replace(&mut last_beat, Instant::now()).elapsed();
            if gap > self.lease + 2 * self.interval {
                leases.put_off(gap);
            }
            // An answer that takes longer than the lease is no answer.
            let renewal = self.renew(&mut memory, leases);
            let failed = match tokio::time::timeout(self.lease, renewal).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer within the lease".to_owned()),
            };
            match failed {
                None => renewed_at = Instant::now(),
                Some(error) => {
                    let silent = renewed_at.elapsed();
                    self.unreachable(&mut memory, leases, silent, &error);
                }
            }
            if let Some(fence) = leases.lapsed(self.lease) {
                self.prepare_restart(&mut memory, leases, fence).await;
                return;
            }
        }
    }

    /// A device is hung, and its attempt has lapsed. The others end what they run, what they have
    /// computed is counted and the rest given back, within the time of a lease.
    async fn prepare_restart(&self, memory: &mut Memory, leases: &Leases, fence: i64) {
        let what = format!(
            "a device has not advanced for long (attempt {fence}); the process starts itself anew"
        );
        tracing::error!(fence, "{what}");
        self.restart.decided.cancel();
        self.stopping.cancel();
        leases.abandon_hung();
        // The committer may wait for the database for longer.
        let waiting = self.renew_until_only_hung(memory, leases);
        let _ = tokio::time::timeout(self.lease, waiting).await;
        if let Some(store) = memory.store.clone() {
            let told = self.tell_restart(&store, leases, &what);
            match tokio::time::timeout(self.lease, told).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the ledger does not know of the restart"),
                Err(_) => tracing::warn!("the ledger does not answer"),
            }
        }
        self.restart.prepared.cancel();
    }

    /// Keeps what the other devices still run, so that it can be counted or given back.
    async fn renew_until_only_hung(&self, memory: &mut Memory, leases: &Leases) {
        let mut only_hung = std::pin::pin!(leases.only_hung());
        let mut ticks = tokio::time::interval(self.interval);
        loop {
            tokio::select! {
                () = &mut only_hung => return,
                _ = ticks.tick() => {}
            }
            // One that fails is tried again, as long as there is time.
            let _ = tokio::time::timeout(self.interval, self.renew(memory, leases)).await;
        }
    }

    async fn tell_restart(
        &self,
        store: &Store,
        leases: &Leases,
        what: &str,
    ) -> Result<(), StoreError> {
        for (fence, _) in leases.to_renew() {
            store.release_attempt(self.worker, fence, 0).await?;
        }
        let code = ErrorCode::ComputeFailed;
        store.report_trouble(self.worker, code, what).await?;
        store.stop_worker(self.worker).await
    }

    /// Renews what is held, stops what has ended, and gives back what was in no hands at this
    /// beat and the one before.
    async fn renew(&self, memory: &mut Memory, leases: &Leases) -> Result<(), StoreError> {
        let store = match &memory.store {
            Some(store) => store.clone(),
            None => Store::connect(&self.database_url, 1).await?,
        };
        memory.store = Some(store.clone());
        let asked = leases.to_renew();
        let renewed = match store.renew(self.worker, &asked, self.lease, None).await {
            Err(StoreError::UnknownWorker(_)) => {
                store
                    .register_worker(&self.registration(), self.lease, None)
                    .await?;
                store.renew(self.worker, &asked, self.lease, None).await?
            }
            answer => answer?,
        };
        leases.stop_ended(&asked, &renewed.live);
        if let Some(reason) = renewed.out_of_service
            && !std::mem::replace(&mut memory.out_of_service, true)
        {
            tracing::error!(
                reason,
                "out of service: no work any more until started anew"
            );
        }
        if let Some(silence) = memory.silence {
            let what = format!(
                "the database was out of reach for {:.1} s, longer than the lease of {:.1} s; \
                 all shards were stopped",
                silence.as_secs_f64(),
                self.lease.as_secs_f64()
            );
            let code = ErrorCode::DatabaseUnreachable;
            store.report_trouble(self.worker, code, &what).await?;
            tracing::info!(%code, "{what}; it is back");
            memory.silence = None;
        }
        let not_held = leases.not_held(&renewed.live);
        let before = std::mem::replace(&mut memory.not_held, not_held);
        for fence in memory.not_held.intersection(&before) {
            tracing::warn!(fence, "giving back a claim whose answer was lost");
            store.release_attempt(self.worker, *fence, 0).await?;
        }
        Ok(())
    }

    /// After a lease without a renewal others may hold our shards: what we compute is wasted.
    fn unreachable(&self, memory: &mut Memory, leases: &Leases, silent: Duration, error: &str) {
        // Whatever became of it, a connection that failed is not asked again.
        memory.store = None;
        tracing::warn!(
            silent_seconds = silent.as_secs_f64(),
            error,
            "renewal failed"
        );
        if silent <= self.lease {
            return;
        }
        if memory.silence.replace(silent).is_none() {
            tracing::error!(
                code = %ErrorCode::DatabaseUnreachable,
                "the database has been out of reach for longer than the lease; stopping all shards"
            );
        }
        leases.stop_all();
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
            gate: None,
            webhook: None,
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
            stopping: CancellationToken::new(),
            restart: Restart::default(),
        };
        let worker = heartbeat.worker;
        let (leases, stop) = (Leases::new(LEASE), CancellationToken::new());
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
            rate: None,
        };
        let claim = async || store.claim(&claimant, None).await.unwrap().pop();
        let held = claim().await.unwrap();
        let lease = leases.hold(held.fence);
        let lost = claim().await.unwrap();

        let beating = heartbeat.start(leases, stop.clone()).unwrap();
        let again = eventually("the lost claim to be given back", LIMIT, async || {
            claim().await
        })
        .await;
        assert_eq!(again.job, lost.job);
        assert!(!lease.is_stopped(), "what is held goes on");
        stop.cancel();
        beating.join().unwrap();
    }
}
