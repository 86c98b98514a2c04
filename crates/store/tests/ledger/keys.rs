//! Keys: which of them act, and what is noted of their use.

use assay_api::{NewKey, Scope};
use assay_store::{Actor, KeyToken, ProjectId, ProjectStore, Store};
use chrono::{DateTime, TimeDelta, Utc};

use crate::support::Ledger;

pub(crate) fn within(store: &Store, project: ProjectId) -> ProjectStore {
    store.within(Actor {
        project,
        key: None,
        request: None,
    })
}

fn key(expires_at: Option<DateTime<Utc>>) -> NewKey {
    NewKey {
        name: "k".to_owned(),
        scope: Scope::Submit,
        expires_at,
    }
}

#[tokio::test]
async fn a_key_acts_until_it_expires_or_is_revoked() {
    let ledger = Ledger::fresh().await;
    let store = &ledger.store;
    assert!(!store.has_keys().await.unwrap());
    let own = within(store, ProjectId::DEFAULT);
    let end = Utc::now() + TimeDelta::days(1);
    let created = own.create_key(&key(Some(end))).await.unwrap();
    assert!(!format!("{created:?}").contains(&created.secret));
    let token: KeyToken = created.secret.parse().unwrap();
    let found = store.present_key(&token, None).await.unwrap().unwrap();
    assert_eq!(
        (found.id, found.project, found.scope),
        (created.key.id.clone(), ProjectId::DEFAULT, Scope::Submit)
    );
    let late = store.present_key(&token, Some(end)).await.unwrap();
    assert_eq!(late, None);
    assert!(store.has_usable_keys().await.unwrap());

    let unknown = KeyToken::random().unwrap();
    assert_eq!(store.present_key(&unknown, None).await.unwrap(), None);
    let revoked = own.revoke_key(&created.key.id).await.unwrap().unwrap();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(store.present_key(&token, None).await.unwrap(), None);
    assert!(store.has_keys().await.unwrap());
    assert!(!store.has_usable_keys().await.unwrap());
    assert_eq!(own.revoke_key("0000").await.unwrap(), None);
}

#[tokio::test]
async fn the_use_of_a_key_is_noted_once_a_minute() {
    let ledger = Ledger::fresh().await;
    let store = &ledger.store;
    let own = within(store, ProjectId::DEFAULT);
    let created = own.create_key(&key(None)).await.unwrap();
    let token: KeyToken = created.secret.parse().unwrap();
    let start: DateTime<Utc> = "2030-01-01T00:00:00Z".parse().unwrap();
    let mut noted = Vec::new();
    for seconds in [0, 59, 60, 61, 121] {
        let now = start + TimeDelta::seconds(seconds);
        store.present_key(&token, Some(now)).await.unwrap().unwrap();
        let keys = own.keys(None, 1).await.unwrap();
        noted.push((keys[0].last_used_at.unwrap() - start).num_seconds());
    }
    assert_eq!(noted, [0, 0, 60, 60, 121]);
}

#[tokio::test]
async fn a_chosen_key_is_stored_once_and_only_its_digest() {
    let ledger = Ledger::fresh().await;
    let own = within(&ledger.store, ProjectId::DEFAULT);
    let text = "assay_0123456789abcdefghijABCDEFGHIJ0123";
    let token: KeyToken = text.parse().unwrap();
    assert!(own.store_key(&key(None), &token).await.unwrap().is_some());
    assert!(own.store_key(&key(None), &token).await.unwrap().is_none());
    assert!(
        ledger
            .store
            .present_key(&token, None)
            .await
            .unwrap()
            .is_some()
    );
    let rows: Vec<String> = sqlx::query_scalar("select k::text from keys k")
        .fetch_all(&mut ledger.database.connect().await)
        .await
        .unwrap();
    assert!(!rows[0].contains(&text[6..]), "{rows:?}");
}
