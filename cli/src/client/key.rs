//! The key of the service.

use std::fmt;

use reqwest::header::HeaderValue;

use super::ClientError;

/// A key. `Debug` does not show it, nor does any message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    /// The header that it is sent in; none of an empty one.
    ///
    /// # Errors
    /// It has characters that no key has.
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, ClientError> {
        let key = self.0.trim();
        if key.is_empty() {
            return Ok(None);
        }
        let header = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut header = header.map_err(|_| ClientError::NotAKey)?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

impl From<String> for ApiKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_in_no_message() {
        let key = ApiKey::from(" assay_abc_secret\n".to_owned());
        let header = key.header().unwrap().unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer assay_abc_secret");
        assert!(!format!("{key:?} {header:?}").contains("secret"));
        let broken = ApiKey::from("assay_secret\nx".to_owned());
        let error = broken.header().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        assert_eq!(ApiKey::from(String::new()).header().unwrap(), None);
    }
}
