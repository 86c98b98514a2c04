//! Who was let in lately.
//!
//! While the ledger does not answer, nobody can be asked whether a key is still good. Whoever was let
//! in a short time ago stays let in: nearly all of what there is to see is in the ledger and so not to
//! be had, but the metrics that say what is wrong are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use assay_store::{KeyToken, StoredKey};

/// How long who was let in is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);

#[derive(Default)]
pub(super) struct Memory {
    keys: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    token: KeyToken,
    key: StoredKey,
    at: Instant,
}

impl Memory {
    /// Notes what the ledger said of a key: what it may do, or that it may nothing.
    pub(super) fn note(&self, token: &KeyToken, found: Option<&StoredKey>, now: Instant) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(key) => {
                let entry = Entry {
                    token: token.clone(),
                    key: key.clone(),
                    at: now,
                };
                keys.insert(token.id().to_owned(), entry);
            }
            // Not that of a guess at the secret of a good key.
            None if keys
                .get(token.id())
                .is_some_and(|entry| entry.token == *token) =>
            {
                keys.remove(token.id());
            }
            None => (),
        }
    }

    /// What the ledger last said of a key that was let in lately.
    pub(super) fn of(&self, token: &KeyToken, now: Instant) -> Option<StoredKey> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.get(token.id())?;
        let is_known = entry.token == *token && now.duration_since(entry.at) <= REMEMBERED;
        is_known.then(|| entry.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use assay_api::Scope;
    use assay_store::ProjectId;

    use super::*;

    #[test]
    fn only_who_was_let_in_lately_is_remembered() {
        let memory = Memory::default();
        let token = KeyToken::random().unwrap();
        let key = StoredKey {
            id: token.id().to_owned(),
            project: ProjectId::DEFAULT,
            scope: Scope::Read,
        };
        let start = Instant::now();
        assert_eq!(memory.of(&token, start), None);
        memory.note(&token, Some(&key), start);
        assert_eq!(memory.of(&token, start + REMEMBERED), Some(key.clone()));
        let later = start + REMEMBERED + Duration::from_secs(1);
        assert_eq!(memory.of(&token, later), None);

        let guess = format!("assay_{}_{}", token.id(), "0".repeat(64));
        let guess: KeyToken = guess.parse().unwrap();
        assert_eq!(memory.of(&guess, start), None);
        memory.note(&guess, None, start);
        assert_eq!(memory.of(&token, start), Some(key));
        memory.note(&token, None, start);
        assert_eq!(memory.of(&token, start), None);
    }
}
