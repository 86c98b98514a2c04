//! Telling the end of a job to whoever posted it.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the end of a job is told. Deliveries follow the conventions of Standard Webhooks;
/// `docs/webhooks.md` says how to verify one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// What is posted to: `http` or `https`, on an address that is public or that the service
    /// allows. Whoever may read the job reads it too.
    #[schema(example = "https://ci.example/assay")]
    pub url: String,
    /// What deliveries are signed with: `whsec_` and 24 to 64 bytes in base64. If it is left out the
    /// service makes one, which the answer that made the job shows; no other answer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<WebhookSecret>,
}

/// The secret of a webhook, which no message shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookSecret(String);

impl WebhookSecret {
    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for WebhookSecret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

/// The states of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// To be sent, for the first time or again.
    Pending,
    /// The receiver answered with success.
    Delivered,
    /// It did not, however often it was tried.
    Failed,
}

impl DeliveryState {
    /// All states.
    pub const ALL: &[Self] = &[Self::Pending, Self::Delivered, Self::Failed];

    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// One message to the webhook of a job: that it has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Counts the deliveries of the job, from 1.
    pub number: u32,
    /// The header `webhook-id` of every attempt, by which a receiver knows what it has seen.
    pub webhook_id: String,
    /// What it tells, such as `job.succeeded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it goes.
    pub url: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// When the job ended.
    pub created_at: DateTime<Utc>,
    /// When it is tried next; null once it has ended, and while it is being sent.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// What was tried, oldest first.
    pub attempts: Vec<DeliveryAttempt>,
}

/// One try of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryAttempt {
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it ended; null while it is being sent.
    pub finished_at: Option<DateTime<Utc>>,
    /// The HTTP status that the receiver answered, if it did.
    pub status: Option<u16>,
    /// Why it is not delivered, if it is not.
    pub error: Option<String>,
}

/// The body of a delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookMessage<T> {
    /// What has happened: `job.succeeded`, `job.failed`, `job.cancelled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    pub timestamp: DateTime<Utc>,
    /// The job, as `GET /jobs/{id}` has it.
    pub data: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_sent_and_never_shown() {
        let webhook = Webhook {
            url: "https://a.example".to_owned(),
            secret: Some("whsec_AAAA".to_owned().into()),
        };
        assert!(!format!("{webhook:?}").contains("AAAA"));
        let sent = serde_json::to_value(&webhook).unwrap();
        assert_eq!(sent["secret"], "whsec_AAAA");
    }
}
