//! The settings of webhooks.

use std::time::Duration;

use clap::Args;

use super::Allowed;

/// The settings of `assay-server serve` about webhooks. The doc comment of a field is its manual.
#[derive(Clone, Debug, Args)]
pub struct WebhookSettings {
    /// Networks (10.1.0.0/16), addresses and names of hosts that webhooks may be on although they
    /// are not public; separated by commas, may be given again. A name that is given here may stand
    /// for any address. Without this, loopback, private and link-local addresses are refused.
    #[arg(
        long = "webhook-allow",
        env = "ASSAY_WEBHOOK_ALLOW",
        value_name = "CIDR|HOST",
        value_delimiter = ','
    )]
    pub webhook_allow: Vec<Allowed>,

    /// Seconds that the receiver of a webhook has to answer, from the first packet on.
    #[arg(
        long,
        env = "ASSAY_WEBHOOK_TIMEOUT_SECONDS",
        value_name = "SECONDS",
        default_value = "15",
        value_parser = seconds
    )]
    pub webhook_timeout: Duration,

    /// Seconds until a webhook that was not taken is tried again, at most; each further pause is
    /// four times as long, up to six hours, and after ten tries the delivery has failed.
    #[arg(
        long,
        env = "ASSAY_WEBHOOK_RETRY_SECONDS",
        value_name = "SECONDS",
        default_value = "5",
        value_parser = seconds
    )]
    pub webhook_retry: Duration,
}

/// Longer ones are a mistake.
const LONGEST: f64 = 3600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("takes seconds, more than 0 and at most {LONGEST}"))
}
