//! One attempt of a delivery: the message, the request, and what the answer means.

use std::time::Duration;

use assay_api::{Job, WebhookMessage};
use assay_store::{DeliveryClaim, DeliveryOutcome, Next, Store, StoreError};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, redirect};

use super::schedule::pause;
use super::sign::signature;
use super::{Receivers, WebhookSettings};

/// Sends deliveries.
pub(super) struct Sender {
    http: Client,
    receivers: Receivers,
    first_pause: Duration,
}

impl Sender {
    /// # Errors
    /// The system has no CA certificates, without which no TLS client can be made.
    pub(super) fn new(settings: &WebhookSettings, receivers: Receivers) -> reqwest::Result<Self> {
        let http = Client::builder()
            .user_agent(concat!("assay/", env!("CARGO_PKG_VERSION")))
            .timeout(settings.webhook_timeout)
            // Where a redirect leads to was not what the caller gave, nor checked.
            .redirect(redirect::Policy::none())
            // A proxy would look up names itself, and reach what this host does not.
            .no_proxy()
            .referer(false)
            // Nothing is read of an answer behind its head, so no connection is used again.
            .pool_max_idle_per_host(0)
            .http1_only()
            .dns_resolver(receivers.clone())
            .build()?;
        Ok(Self {
            http,
            receivers,
            first_pause: settings.webhook_retry,
        })
    }

    /// Sends a delivery and tells the ledger how that ended. No transaction is open meanwhile.
    ///
    /// # Errors
    /// The database does not answer.
    pub(super) async fn send(
        &self,
        store: &Store,
        claim: &DeliveryClaim,
    ) -> Result<(), StoreError> {
        // A job that was deleted took its deliveries along.
        let Some(job) = store.job(claim.job).await? else {
            return Ok(());
        };
        let outcome = self.attempt(claim, job).await;
        let (job, attempt) = (claim.job, claim.attempt);
        match (&outcome.error, outcome.next) {
            (None, _) => tracing::info!(%job, attempt, "told the webhook of the end"),
            (Some(error), Next::Failed) => {
                tracing::warn!(%job, attempt, error, "the webhook cannot be told; not trying again");
            }
            (Some(error), _) => tracing::info!(%job, attempt, error, "the webhook was not told"),
        }
        store.end_delivery_attempt(claim, &outcome, None).await?;
        Ok(())
    }

    async fn attempt(&self, claim: &DeliveryClaim, job: Job) -> DeliveryOutcome {
        let answer = self.post(claim, job).await;
        let status = answer.as_ref().ok().copied();
        let again = || {
            let pause = pause(self.first_pause, claim.tries, fastrand::f64());
            pause.map_or(Next::Failed, Next::Again)
        };
        let (error, next) = match answer {
            Ok(status) if status.is_success() => (None, Next::Delivered),
            // By the convention: the receiver wants to hear no more of it.
            Ok(StatusCode::GONE) => (
                Some("the receiver is gone for good".to_owned()),
                Next::Failed,
            ),
            Ok(status) if status.is_redirection() => {
                let error = "the receiver redirects, which is not followed; give the URL that it \
                             redirects to";
                (Some(error.to_owned()), again())
            }
            Ok(status) => (Some(format!("the receiver answered {status}")), again()),
            Err(error) => (Some(error), again()),
        };
        DeliveryOutcome {
            status: status.map(|status| status.as_u16()),
            error,
            next,
        }
    }

    /// The status of the answer; of the error its text, without the URL.
    async fn post(&self, claim: &DeliveryClaim, job: Job) -> Result<StatusCode, String> {
        // Names are checked when they are connected to. An address is not looked up, and it is
        // checked again, as what is allowed may have changed since the job was posted.
        let url = self.receivers.url(&claim.url)?;
        let id = claim.webhook_id();
        let body = serde_json::to_vec(&message(job)).map_err(|error| error.to_string())?;
        let timestamp = claim.at.timestamp();
        let signature = signature(&claim.key, &id, timestamp, &body);
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(body);
        let response = request.send().await.map_err(|error| cause(&error))?;
        Ok(response.status())
    }
}

/// What a receiver is told of a job that has ended.
fn message(job: Job) -> WebhookMessage<Job> {
    WebhookMessage {
        kind: format!("job.{}", job.state.as_str()),
        timestamp: job.finished_at.unwrap_or(job.created_at),
        data: job,
    }
}

/// reqwest's own text names the URL, which may have a secret in it; the cause is at the end.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() {
        return "the receiver did not answer in time".to_owned();
    }
    format!("the receiver cannot be reached: {cause}")
}
