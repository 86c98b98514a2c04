//! Keys of requests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_api::{ErrorCode, Scope};
use assay_store::{Actor, KeyToken, ProjectId, Store, StoreError, StoredKey};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use governor::clock::Clock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::time::timeout;

use super::memory::Memory;
use super::{Caller, forbidden, host};
use crate::edge::RequestId;
use crate::error::ApiError;

/// Longest wait for what the ledger says of a key.
const PATIENCE: Duration = Duration::from_secs(3);

/// Seconds of requests that a key may send at once after a pause.
const BURST_SECONDS: u32 = 5;

/// Whom the service answers. Clones are one.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

struct Inner {
    store: Store,
    /// Whether only this machine can reach the service.
    is_local: bool,
    /// There is a key. Keys are never deleted, so it stays so.
    has_keys: AtomicBool,
    /// There was none when the ledger was last asked.
    was_open: AtomicBool,
    memory: Memory,
    rates: DefaultKeyedRateLimiter<String>,
}

impl Gate {
    /// Before a service that only this machine reaches, or others too, and that takes so many
    /// requests a second of each key.
    pub(crate) fn new(store: Store, is_local: bool, rate: NonZeroU32) -> Self {
        let burst = rate.saturating_mul(NonZeroU32::new(BURST_SECONDS).expect("not 0"));
        Self(Arc::new(Inner {
            store,
            is_local,
            has_keys: AtomicBool::new(false),
            was_open: AtomicBool::new(false),
            memory: Memory::default(),
            rates: RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst)),
        }))
    }

    /// Whether requests are taken without a key.
    async fn is_open(&self) -> Result<bool, StoreError> {
        let Inner {
            store,
            is_local,
            has_keys,
            was_open,
            ..
        } = &*self.0;
        if !is_local || has_keys.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // Asked of the ledger each time: another program may make the first key.
        match in_time(store.has_keys()).await {
            Ok(found) => {
                // Not stored: the answer to an earlier question may come later.
                has_keys.fetch_or(found, Ordering::Relaxed);
                was_open.store(!found, Ordering::Relaxed);
                Ok(!found)
            }
            Err(error) if error.is_transient() && was_open.load(Ordering::Relaxed) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What a key may do, if it is one.
    async fn key(&self, token: &KeyToken) -> Result<Option<StoredKey>, StoreError> {
        let Inner { store, memory, .. } = &*self.0;
        let now = Instant::now();
        match in_time(store.present_key(token, None)).await {
            Ok(found) => {
                memory.note(token, found.as_ref(), now);
                Ok(found)
            }
            Err(error) if error.is_transient() => memory.of(token, now).map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// The caller of an operation that takes this scope.
    ///
    /// # Errors
    /// They may not call it, or the ledger fails.
    pub(super) async fn admit(&self, request: &Parts, scope: Scope) -> Result<Caller, ApiError> {
        let store = &self.0.store;
        let mut actor = Actor {
            project: ProjectId::DEFAULT,
            key: None,
            request: request
                .extensions
                .get::<RequestId>()
                .map(|RequestId(id)| id.clone()),
        };
        if self.is_open().await? {
            host::require_loopback(request)?;
            return Ok(Caller {
                ledger: store.within(actor),
            });
        }
        let token = bearer(&request.headers)?;
        let Some(key) = self.key(&token).await? else {
            return Err(unauthenticated(
                "the key is not known, has expired or was revoked; ask an admin of the project for \
                 another",
            ));
        };
        tracing::Span::current().record("key", &key.id);
        if let Err(not_until) = self.0.rates.check_key(&key.id) {
            let wait = not_until.wait_time_from(self.0.rates.clock().now());
            return Err(ApiError::later(
                ErrorCode::TooManyRequests,
                "this key asks more often than the server's --rate-limit; wait as long as \
                 Retry-After says",
                wait,
            ));
        }
        if key.scope < scope {
            return Err(forbidden(format!(
                "this takes a key of the scope `{scope}`, and this one has `{}`",
                key.scope
            )));
        }
        actor.project = key.project;
        actor.key = Some(key.id);
        Ok(Caller {
            ledger: store.within(actor),
        })
    }
}

async fn in_time<T>(
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let answer = timeout(PATIENCE, question).await;
    answer.unwrap_or(Err(StoreError::NoAnswer(PATIENCE)))
}

/// The key in `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Result<KeyToken, ApiError> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(unauthenticated(
            "send a key in the header `Authorization: Bearer assay_..`; `assay` takes it from \
             ASSAY_API_KEY",
        ));
    };
    let text = header.to_str().unwrap_or_default();
    let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthenticated(
            "the header Authorization is not `Bearer` and a key",
        ));
    }
    key.trim()
        .parse()
        .map_err(|form| unauthenticated(format!("the header Authorization has no key: {form}")))
}

fn unauthenticated(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, detail)
}
