//! Secrets of webhooks, and what is signed with them, by the conventions of Standard Webhooks.

use assay_api::WebhookSecret;
use assay_store::SigningKey;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;
/// Bytes of a secret that is made here.
const MADE: usize = 32;

/// The key of a secret that a caller gave. None if it is not such a secret.
pub(crate) fn key_of(secret: &WebhookSecret) -> Option<SigningKey> {
    let text = secret.expose().strip_prefix(PREFIX)?;
    let key = STANDARD.decode(text).ok()?;
    LENGTHS.contains(&key.len()).then(|| key.into())
}

/// A new secret.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn new_secret() -> Result<WebhookSecret, getrandom::Error> {
    let mut key = [0; MADE];
    getrandom::fill(&mut key)?;
    Ok((PREFIX.to_owned() + &STANDARD.encode(key)).into())
}

/// Replaces the secret in the body of a request by its digest, which is all that a repeated request
/// is compared by.
pub(crate) fn conceal(body: &mut Value) {
    if let Some(Value::String(secret)) = body.pointer_mut("/webhook/secret") {
        *secret = format!("sha256:{}", STANDARD.encode(Sha256::digest(&*secret)));
    }
}

/// The header `webhook-signature` of a message.
pub(super) fn signature(key: &SigningKey, id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.expose()).expect("a key of any length is taken");
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_long_enough_and_base64() {
        let made = new_secret().unwrap();
        assert!(key_of(&made).is_some());
        assert_ne!(made, new_secret().unwrap());
        let of = |text: String| key_of(&text.into());
        assert!(of(format!("{PREFIX}{}", STANDARD.encode([7; 24]))).is_some());
        for refused in [
            STANDARD.encode([7; 24]),
            format!("{PREFIX}{}", STANDARD.encode([7; 23])),
            format!("{PREFIX}{}", STANDARD.encode([7; 65])),
            format!("{PREFIX}not base64 at all, but long enough to be"),
            String::new(),
        ] {
            assert!(of(refused.clone()).is_none(), "{refused}");
        }
    }

    /// By `printf 'id.1700000000.{"a":1}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707..`,
    /// of 24 bytes.
    #[test]
    fn a_signature_is_that_of_openssl() {
        let signed = signature(&vec![7; 24].into(), "id", 1_700_000_000, b"{\"a\":1}");
        assert_eq!(signed, "v1,XBIUmPm/Th8Mh3/ioDfDDf9D8tJ1s0AXIHcB+aRmShc=");
    }

    #[test]
    fn a_secret_is_not_in_what_is_stored_of_the_body() {
        let mut body = json!({"webhook": {"url": "https://a.example", "secret": "whsec_a"}});
        let mut other = json!({"webhook": {"url": "https://a.example", "secret": "whsec_b"}});
        conceal(&mut body);
        conceal(&mut other);
        assert!(!body.to_string().contains("whsec_"));
        assert_ne!(body, other, "another secret is another request");
        let mut without = json!({"webhook": {"url": "https://a.example"}});
        conceal(&mut without);
        assert_eq!(without, json!({"webhook": {"url": "https://a.example"}}));
    }
}
