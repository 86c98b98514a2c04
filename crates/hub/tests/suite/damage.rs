//! Bytes that are not the right ones, and too many of them.

use std::fs;
use std::os::unix::fs::symlink;

use assay_hub::{Hub, HubError, Settings};
use bytes::Bytes;

use crate::{Fixture, fetch_all, names, reference, resolve_and_fetch};
use assay_testkit::hub::{File, Listed, large, sha256, small};

const SIZE: usize = 1 << 20;

fn damaged(file: File) -> File {
    let mut served = file.bytes.to_vec();
    *served.last_mut().unwrap() ^= 1;
    File {
        served: Bytes::from(served),
        ..file
    }
}

#[tokio::test]
async fn a_file_with_another_digest_is_removed_and_refused() {
    for (name, right) in [
        ("config.json", small("{}")),
        ("model.safetensors", large(SIZE)),
    ] {
        let fixture = Fixture::new().await;
        let commit = fixture
            .server
            .commit("o/n", "main", [(name, damaged(right))]);
        let hub = fixture.hub();
        let error = resolve_and_fetch(&hub, "hf://o/n").await.unwrap_err();
        let HubError::Damaged {
            file,
            expected,
            found,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(file, name);
        assert_ne!(expected, found);
        assert!(names(&fixture.path("models--o--n/blobs")).is_empty());
        assert!(
            !fixture
                .path(&format!("models--o--n/snapshots/{commit}"))
                .exists()
        );

        // A mirror that was mended: nothing of the damage is left.
        fixture.server.mend();
        resolve_and_fetch(&hub, "hf://o/n").await.unwrap();
    }
}

#[tokio::test]
async fn a_beginning_of_other_bytes_is_found_out() {
    let fixture = Fixture::new().await;
    let right = large(SIZE);
    let digest = sha256(&right.bytes);
    fixture
        .server
        .commit("o/n", "main", [("model.safetensors", right)]);
    let blobs = fixture.path("models--o--n/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let incomplete = blobs.join(format!("{digest}.incomplete"));
    let hub = fixture.hub();
    for (size, refused) in [(SIZE / 2, true), (SIZE, true), (SIZE + 1, false)] {
        fs::write(&incomplete, vec![7; size]).unwrap();
        let result = resolve_and_fetch(&hub, "hf://o/n").await;
        assert_eq!(result.is_err(), refused, "{size}: {result:?}");
        if let Err(error) = result {
            assert!(matches!(error, HubError::Damaged { .. }), "{error}");
        }
        assert!(!incomplete.exists());
    }
}

#[tokio::test]
async fn a_blob_of_another_size_is_received_again() {
    let fixture = Fixture::new().await;
    let right = large(SIZE);
    let blob = format!("models--o--n/blobs/{}", sha256(&right.bytes));
    fixture
        .server
        .commit("o/n", "main", [("model.safetensors", right.clone())]);
    let hub = fixture.hub();
    resolve_and_fetch(&hub, "hf://o/n").await.unwrap();
    fs::write(fixture.path(&blob), "short").unwrap();
    let error = resolve_and_fetch(&fixture.offline(), "hf://o/n")
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::Missing { .. }), "{error}");
    let directory = resolve_and_fetch(&hub, "hf://o/n").await.unwrap();
    assert_eq!(
        fs::read(directory.join("model.safetensors")).unwrap(),
        right.bytes
    );
}

#[tokio::test]
async fn more_bytes_than_are_listed_are_not_taken() {
    let fixture = Fixture::new().await;
    let mut file = large(SIZE);
    file.listed = Listed::WithSize(SIZE as u64 / 2);
    fixture
        .server
        .commit("o/n", "main", [("model.safetensors", file)]);
    let error = resolve_and_fetch(&fixture.hub(), "hf://o/n")
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::Answer { .. }), "{error}");
    let blobs = fixture.path("models--o--n/blobs");
    let blob = &names(&blobs)[0];
    assert!(fs::metadata(blobs.join(blob)).unwrap().len() <= SIZE as u64 / 2);
}

#[tokio::test]
async fn limits_hold_before_anything_is_received() {
    let fixture = Fixture::new().await;
    let mut huge = large(SIZE);
    huge.listed = Listed::WithSize(u64::MAX - 1);
    let files = [("a", huge.clone()), ("b", huge), ("c", large(10))];
    fixture.server.commit("o/n", "main", files);
    let snapshot = fixture.hub().resolve(&reference("hf://o/n")).await.unwrap();
    fixture.server.seen();
    let limited = Hub::new(&Settings {
        limit: 1000,
        ..fixture.settings()
    })
    .unwrap();
    let error = fetch_all(&limited, &snapshot).await.unwrap_err();
    assert!(
        matches!(
            error,
            HubError::TooLarge {
                needed: u64::MAX,
                limit: 1000,
                ..
            }
        ),
        "{error}"
    );
    let error = fetch_all(&fixture.hub(), &snapshot).await.unwrap_err();
    assert!(
        matches!(
            error,
            HubError::Full {
                needed: u64::MAX,
                ..
            }
        ),
        "{error}"
    );
    assert!(fixture.server.seen().is_empty());
}

#[tokio::test]
async fn a_disk_that_becomes_full_is_said_to_be() {
    let fixture = Fixture::new().await;
    let right = large(SIZE);
    let blobs = fixture.path("models--o--n/blobs");
    fs::create_dir_all(&blobs).unwrap();
    // The kernel's own full device takes the place of the disk.
    let incomplete = blobs.join(format!("{}.incomplete", sha256(&right.bytes)));
    symlink("/dev/full", incomplete).unwrap();
    fixture
        .server
        .commit("o/n", "main", [("model.safetensors", right)]);
    let error = resolve_and_fetch(&fixture.hub(), "hf://o/n")
        .await
        .unwrap_err();
    assert!(
        matches!(error, HubError::Full { needed, .. } if needed > 0),
        "{error}"
    );
    assert!(error.to_string().contains("no space"), "{error}");
}
