//! The text of a key.

use std::fmt;
use std::str::FromStr;

use chrono::Utc;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const START: &str = "assay_";
/// Random bytes of a key that is made here.
const RANDOM: usize = 32;
/// Fewest characters of the secret of a key that somebody chose: letters and digits at random,
/// 190 bits.
const SHORTEST: usize = 32;
const LONGEST: usize = 200;

/// A key: `assay_ID_SECRET`, or `assay_SECRET` of one that was chosen elsewhere and has no id in it.
/// `Debug` shows the id alone.
#[derive(Clone)]
pub struct KeyToken {
    id: String,
    text: String,
}

impl PartialEq for KeyToken {
    /// Takes the same time wherever the two differ.
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.sha256())
    }
}

impl Eq for KeyToken {}

impl KeyToken {
    /// A new key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0_u8; RANDOM + 4];
        getrandom::fill(&mut bytes)?;
        let (secret, rest) = bytes.split_at(RANDOM);
        // By their ids, keys sort by age.
        let id = format!("{:012x}{}", Utc::now().timestamp_millis(), hex(rest));
        let text = format!("{START}{id}_{}", hex(secret));
        Ok(Self { id, text })
    }

    /// The part that is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole key.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What the ledger keeps of it.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// Whether this is the key of which the ledger keeps this digest. Takes the same time whatever
    /// the two are.
    pub(crate) fn is(&self, sha256: &[u8]) -> bool {
        self.sha256()[..].ct_eq(sha256).into()
    }
}

impl FromStr for KeyToken {
    type Err = &'static str;

    /// What is wrong says nothing of the text, which may be most of a key.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a key is `assay_` and at least 32 ASCII letters or digits behind it, \
                            with an id and `_` between the two in those that Assay has made";
        let rest = text.strip_prefix(START).ok_or(FORM)?;
        let alphanumeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let (id, secret) = match rest.split_once('_') {
            Some((id, secret)) => (id.to_owned(), secret),
            None => (derived_id(rest), rest),
        };
        let sound = (4..=64).contains(&id.len())
            && alphanumeric(&id)
            && (SHORTEST..=LONGEST).contains(&secret.len())
            && alphanumeric(secret);
        sound
            .then(|| Self {
                id,
                text: text.to_owned(),
            })
            .ok_or(FORM)
    }
}

impl fmt::Debug for KeyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyToken({}, redacted)", self.id)
    }
}

/// The id of a key that has none in it: part of a digest, but not of that which the ledger keeps.
fn derived_id(secret: &str) -> String {
    let digest = Sha256::new()
        .chain_update("assay key id ")
        .chain_update(secret)
        .finalize();
    hex(&digest[..8])
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .map(|half| char::from(DIGITS[usize::from(half)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_sort_by_age_and_parse_back() {
        let keys: Vec<_> = (0..100).map(|_| KeyToken::random().unwrap()).collect();
        for key in &keys {
            let (start, secret) = key.expose().rsplit_once('_').unwrap();
            assert_eq!(start, format!("assay_{}", key.id()));
            assert_eq!(secret.len(), 2 * RANDOM);
            assert_eq!(&key.expose().parse::<KeyToken>().unwrap(), key);
            assert!(!format!("{key:?}").contains(secret));
        }
        let mut secrets: Vec<_> = keys.iter().map(KeyToken::expose).collect();
        secrets.sort_unstable();
        secrets.dedup();
        assert_eq!(secrets.len(), keys.len());
        let times: Vec<_> = keys.iter().map(|key| &key.id()[..12]).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn a_key_that_was_chosen_elsewhere_has_an_id_that_follows_from_it() {
        let chosen: KeyToken = format!("assay_{}", "aB3".repeat(14)).parse().unwrap();
        assert_eq!(chosen.id().len(), 16);
        assert_eq!(chosen.expose().parse::<KeyToken>().unwrap(), chosen);
        assert!(!hex(&chosen.sha256()).contains(chosen.id()));
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_repeated() {
        let secret = "a".repeat(32);
        for text in [
            "",
            "assay_",
            &secret,
            &format!("assay_{}", &secret[1..]),
            &format!("assay_abc_{secret}"),
            &format!("assay_ab-cd_{secret}"),
            &format!("assay_abcd_{secret}_{secret}"),
            &format!("assay_abcd_{secret}é"),
            &format!("assay_abcd_{}", secret.repeat(7)),
        ] {
            let error = text.parse::<KeyToken>().unwrap_err();
            assert!(text.len() < 9 || !error.contains(text), "{text}");
        }
    }

    #[test]
    fn only_the_same_key_has_the_digest() {
        let [one, other] = [KeyToken::random().unwrap(), KeyToken::random().unwrap()];
        assert!(one.is(&one.sha256()));
        assert!(!one.is(&other.sha256()));
        assert!(!one.is(&one.sha256()[..31]));
    }
}
