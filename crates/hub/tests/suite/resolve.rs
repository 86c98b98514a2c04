//! What a reference stands for, and what the hub refuses.

use assay_hub::{Digest, Hub, HubError, Kind, RemoteFile, Settings};

use crate::{Fixture, model, reference, resolve_and_fetch};
use assay_testkit::hub::{Access, Listed, TOKEN, small};

#[tokio::test]
async fn a_branch_is_a_commit_with_files() {
    let fixture = Fixture::new().await;
    let commit = model(&fixture.server, 1000);
    let snapshot = fixture.hub().resolve(&reference("hf://o/n")).await.unwrap();
    assert_eq!(snapshot.commit, commit);
    assert_eq!(snapshot.repository.kind(), Kind::Model);
    // `printf '{}' | git hash-object --stdin`
    let config = RemoteFile {
        path: "config.json".to_owned(),
        size: 2,
        digest: Some(Digest::Git(
            "9e26dfeeb6e641a33dae4961196235bdb965b21b".to_owned(),
        )),
    };
    assert_eq!(snapshot.file("config.json"), Some(&config));
    let weights = snapshot.file("model.safetensors").unwrap();
    assert_eq!(weights.size, 1000);
    assert!(matches!(weights.digest, Some(Digest::Sha256(_))));
}

#[tokio::test]
async fn a_branch_moves_and_a_pinned_reference_does_not() {
    let fixture = Fixture::new().await;
    let hub = fixture.hub();
    let branch = reference("hf://o/n");
    let first = model(&fixture.server, 1000);
    let snapshot = hub.resolve(&branch).await.unwrap();
    let pinned = branch.pinned(&snapshot);
    assert_eq!(pinned.to_string(), format!("hf://o/n@{first}"));

    let second = fixture
        .server
        .commit("o/n", "main", [("config.json", small("{ }"))]);
    fixture.server.seen();
    assert_eq!(hub.resolve(&pinned).await.unwrap(), snapshot);
    assert!(fixture.server.seen().is_empty(), "a commit is known");
    assert_eq!(hub.resolve(&branch).await.unwrap().commit, second);

    // What was pinned before the branch moved is what is received after it has.
    let directory = crate::fetch_all(&hub, &snapshot).await.unwrap();
    let config = std::fs::read_to_string(directory.join("config.json")).unwrap();
    assert_eq!(config, "{}");
}

#[tokio::test]
async fn revisions_with_slashes_and_files_of_datasets() {
    let fixture = Fixture::new().await;
    let server = &fixture.server;
    let hub = fixture.hub();
    server.commit("gpt2", "v1", [("config.json", small("{}"))]);
    let commit = server.commit("o/n", "refs/pr/1", [("config.json", small("{}"))]);
    let data = [("d/a b.jsonl", small("{}\n")), ("x", small(""))];
    server.commit("datasets/o/n", "f/x", data);

    hub.resolve(&reference("hf://gpt2@v1")).await.unwrap();
    let proposed = hub.resolve(&reference("hf://o/n@refs/pr/1")).await.unwrap();
    assert_eq!(proposed.commit, commit);

    let file = reference("hf://datasets/o/n@f%2Fx/d/a b.jsonl");
    let snapshot = hub.resolve(&file).await.unwrap();
    let directory = crate::fetch_all(&hub, &snapshot).await.unwrap();
    let text = std::fs::read_to_string(directory.join(file.path().unwrap())).unwrap();
    assert_eq!(text, "{}\n");
    assert!(directory.join("x").is_file(), "a file may be empty");

    let absent = reference("hf://datasets/o/n@f%2Fx/d/b.jsonl");
    let error = hub.resolve(&absent).await.unwrap_err();
    assert!(matches!(&error, HubError::NoFile { file, .. } if file == "d/b.jsonl"));
}

type Is = fn(&HubError) -> bool;

#[tokio::test]
async fn refusals_are_told_apart_and_say_what_to_do() {
    let fixture = Fixture::new().await;
    let server = &fixture.server;
    model(server, 10);
    for (name, access) in [("o/private", Access::Private), ("o/gated", Access::Gated)] {
        server.commit(name, "main", [("config.json", small("{}"))]);
        server.restrict(name, access);
    }
    let (without, with) = (fixture.hub(), fixture.with_token());
    let wrong = Hub::new(&Settings {
        token: Some("hf_wrong".to_owned()),
        ..fixture.settings()
    })
    .unwrap();

    let not_shown: Is = |error| matches!(error, HubError::NotShown { .. });
    let gated: Is = |error| matches!(error, HubError::Gated { .. });
    let refused: Is = |error| matches!(error, HubError::Refused { status: 401, .. });
    let no_revision: Is = |error| matches!(error, HubError::NoRevision { .. });
    let table: [(&Hub, &str, Is, &str); 8] = [
        (
            &without,
            "hf://o/absent",
            not_shown,
            "set HF_TOKEN to a token that may read it; none is set",
        ),
        (&with, "hf://o/absent", not_shown, "check the name"),
        (&without, "hf://o/private", not_shown, "HF_TOKEN"),
        (
            &without,
            "hf://o/gated",
            gated,
            "ask for access on its page",
        ),
        (&with, "hf://o/gated", gated, "ask for access on its page"),
        (&wrong, "hf://o/n", refused, "HF_TOKEN"),
        (&without, "hf://o/n@v2", no_revision, "`v2`"),
        (
            &without,
            "hf://o/n@0000000000000000000000000000000000000000",
            no_revision,
            "000",
        ),
    ];
    for (hub, text, is, remedy) in table {
        let error = resolve_and_fetch(hub, text).await.unwrap_err();
        assert!(is(&error), "{text}: {error:?}");
        assert!(error.to_string().contains(remedy), "{text}: {error}");
        assert!(!error.to_string().contains("hf_"), "{text}: {error}");
    }
    resolve_and_fetch(&with, "hf://o/private").await.unwrap();
    assert!(!format!("{:?}", fixture.settings()).contains(TOKEN));
}

#[tokio::test]
async fn names_that_lead_out_of_the_cache_are_refused() {
    for name in ["../out", "/etc/out", "a/../../out", "a//b", "a\\b", "a\0b"] {
        let fixture = Fixture::new().await;
        let files = [("config.json", small("{}")), (name, small("out"))];
        fixture.server.commit("o/n", "main", files);
        let error = resolve_and_fetch(&fixture.hub(), "hf://o/n")
            .await
            .unwrap_err();
        assert!(
            matches!(&error, HubError::UnsafeName { file, .. } if file == name),
            "{error}"
        );
        assert!(crate::names(fixture.cache.path()).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_snapshot_from_elsewhere_is_checked_as_well() {
    let fixture = Fixture::new().await;
    model(&fixture.server, 10);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    let text = serde_json::to_string(&snapshot).unwrap();
    for (from, to) in [
        (r#""o/n""#, r#""../n""#),
        (r#""config.json""#, r#""../config.json""#),
        ("9e26dfeeb6e641a33dae4961196235bdb965b21b", "../x"),
        (&snapshot.commit, ".."),
    ] {
        assert!(text.contains(from));
        let snapshot = serde_json::from_str(&text.replace(from, to)).unwrap();
        let error = crate::fetch_all(&hub, &snapshot).await.unwrap_err();
        assert!(
            matches!(error, HubError::UnsafeName { .. }),
            "{to}: {error}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_checked_is_not_fetched() {
    let fixture = Fixture::new().await;
    let mut file = small("{}");
    file.listed = Listed::WithoutDigest;
    fixture
        .server
        .commit("o/n", "main", [("config.json", file)]);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    assert_eq!(snapshot.files[0].digest, None);
    let error = crate::fetch_all(&hub, &snapshot).await.unwrap_err();
    assert!(matches!(error, HubError::NoDigest { .. }), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_named() {
    let fixture = Fixture::new().await;
    for endpoint in ["", "hub.example", "file:///etc", "http://"] {
        let error = Hub::new(&Settings {
            endpoint: endpoint.to_owned(),
            ..fixture.settings()
        })
        .err()
        .unwrap();
        assert!(error.to_string().contains("HF_ENDPOINT"), "{error}");
    }
    let error = Hub::new(&Settings {
        token: Some("hf_a\nb".to_owned()),
        ..fixture.settings()
    })
    .err()
    .unwrap();
    assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    assert!(!error.to_string().contains("hf_a"), "{error}");
}
