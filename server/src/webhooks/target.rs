//! The webhook of a request, as it is stored.

use assay_api::{ErrorCode, Webhook, WebhookSecret};
use assay_store::{NewWebhook, SigningKey};
use reqwest::Url;

use super::receivers::receiver;
use super::sign::{key_of, new_secret};
use crate::error::ApiError;

/// A webhook that was checked, and what it is signed with.
pub(crate) struct Target {
    url: String,
    receiver: String,
    key: SigningKey,
    /// The secret, if it was made here.
    pub(crate) made: Option<WebhookSecret>,
}

impl Target {
    /// That of a request; `validate` has checked it.
    ///
    /// # Errors
    /// The system has no random numbers for a secret.
    pub(crate) fn of(webhook: &Webhook) -> Result<Self, ApiError> {
        let made = match &webhook.secret {
            Some(_) => None,
            None => Some(new_secret().map_err(|error| ApiError::Internal(error.to_string()))?),
        };
        let secret = webhook.secret.as_ref().or(made.as_ref());
        let parts = secret.and_then(key_of).zip(Url::parse(&webhook.url).ok());
        let (key, url) = parts.ok_or_else(|| {
            ApiError::of_field(
                ErrorCode::InvalidRequest,
                "webhook",
                "has a URL or a secret that is not valid",
            )
        })?;
        Ok(Self {
            receiver: receiver(&url),
            url: url.into(),
            key,
            made,
        })
    }

    /// As it is stored.
    pub(crate) fn stored(&self) -> NewWebhook<'_> {
        NewWebhook {
            url: &self.url,
            receiver: &self.receiver,
            key: &self.key,
        }
    }
}
