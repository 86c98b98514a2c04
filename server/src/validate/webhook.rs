//! Whether the end of a job can be told as it asks for.

use assay_api::Webhook;

use crate::faults::Faults;
use crate::webhooks::{Receivers, key_of};

/// Checks the URL, as far as that goes without looking up its host, and the secret.
pub(super) fn check(webhook: &Webhook, receivers: &Receivers, faults: &mut Faults) {
    if let Err(detail) = receivers.url(&webhook.url) {
        faults.require(false, "webhook.url", detail);
    }
    let secret = webhook.secret.as_ref();
    faults.require(
        secret.is_none_or(|secret| key_of(secret).is_some()),
        "webhook.secret",
        "is not `whsec_` and 24 to 64 bytes in base64; `echo whsec_$(openssl rand -base64 32)` \
         makes one, and without one the service does",
    );
}
