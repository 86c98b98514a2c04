//! Telling the ends of jobs to their webhooks. The schema makes the deliveries; the loop here sends
//! what is due, `docs/webhooks.md` says what a receiver may rely on.

mod receivers;
mod schedule;
mod send;
mod settings;
mod sign;
mod target;

pub use receivers::Allowed;
pub(crate) use receivers::Receivers;
pub use settings::WebhookSettings;
pub(crate) use sign::{conceal, key_of};
pub(crate) use target::Target;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use assay_store::{DeliveryClaim, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use send::Sender;

/// Between two looks for what is due. What ends makes room, and is looked behind at once.
const PERIOD: Duration = Duration::from_secs(1);
/// Deliveries that a server sends at a time, each to another receiver.
const CONCURRENT: usize = 32;
/// Longest wait for claims: a connection whose other end vanished never gives an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How much longer than a request a claim holds: time to read the job before, and to write the
/// outcome after it.
const MARGIN: Duration = Duration::from_secs(20);

/// Sends what is due until `stop`, then waits for what is being sent. Any number of servers may do
/// so at once.
pub(crate) async fn deliver(
    store: &Store,
    settings: &WebhookSettings,
    receivers: Receivers,
    stop: &CancellationToken,
) {
    let sender = match Sender::new(settings, receivers) {
        Ok(sender) => Arc::new(sender),
        Err(error) => {
            tracing::error!(%error, "this server sends no webhooks, as no TLS client can be made; \
                install the system's package of CA certificates");
            return;
        }
    };
    let lease = settings.webhook_timeout + MARGIN;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sending = Sending::default();
    let mut failures = 0_u64;
    while !stop.is_cancelled() {
        match sending.claim(store, lease).await {
            Ok(claims) => {
                if failures > 0 {
                    tracing::info!(failures, "webhooks are being sent again");
                    failures = 0;
                }
                for claim in claims {
                    sending.begin(store, &sender, claim, lease);
                }
            }
            Err(error) => {
                // A database that is away fails every round: only the first is news.
                if failures == 0 {
                    tracing::warn!(%error, "cannot look for webhooks to send; trying again every \
                        second");
                }
                failures += 1;
            }
        }
        tokio::select! {
            _ = ticks.tick() => (),
            () = sending.one_ends(), if failures == 0 => (),
            () = stop.cancelled() => (),
        }
    }
    while !sending.tasks.is_empty() {
        sending.one_ends().await;
    }
}

/// What this server is sending.
#[derive(Default)]
struct Sending {
    tasks: JoinSet<String>,
    /// Receivers that something is on its way to.
    busy: HashSet<String>,
}

impl Sending {
    async fn claim(
        &self,
        store: &Store,
        lease: Duration,
    ) -> Result<Vec<DeliveryClaim>, StoreError> {
        let free = CONCURRENT - self.tasks.len();
        if free == 0 {
            return Ok(Vec::new());
        }
        let busy: Vec<String> = self.busy.iter().cloned().collect();
        let claims = store.claim_deliveries(free, &busy, lease, None);
        let claims = timeout(ANSWER, claims).await;
        claims.unwrap_or(Err(StoreError::NoAnswer(ANSWER)))
    }

    /// Sends a delivery, for as long as its claim holds at most.
    fn begin(
        &mut self,
        store: &Store,
        sender: &Arc<Sender>,
        claim: DeliveryClaim,
        lease: Duration,
    ) {
        self.busy.insert(claim.receiver.clone());
        let (store, sender) = (store.clone(), Arc::clone(sender));
        self.tasks.spawn(async move {
            let sent = timeout(lease, sender.send(&store, &claim)).await;
            if let Err(error) = sent.unwrap_or(Err(StoreError::NoAnswer(lease))) {
                // Without its outcome the delivery is due again once the lease has run out.
                tracing::warn!(%error, job = %claim.job, "cannot tell how a webhook was sent");
            }
            claim.receiver
        });
    }

    /// Returns when something has been sent; never if nothing is being sent.
    async fn one_ends(&mut self) {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Ok(receiver)) => {
                self.busy.remove(&receiver);
            }
            // A panic is logged where it happens. Nobody knows whose it was, so all are tried.
            Some(Err(_)) => self.busy.clear(),
        }
    }
}
