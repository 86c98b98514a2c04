//! Digests of checkpoints, and the cache of digests.

use std::fs;
use std::process::Command;

use assay_checkpoint::{Checkpoint, DigestCache};
use tempfile::TempDir;

use crate::sandbox::{Sandbox, fixture};

/// Held against coreutils.
#[test]
fn a_directory_is_the_digest_of_its_listing() {
    let dir = TempDir::new().unwrap();
    let cache = DigestCache::new(dir.path());
    let path = fixture("sharded_llama");
    let listing = "sha256sum config.json model-*.safetensors | sha256sum";
    let output = Command::new("sh")
        .args(["-c", listing])
        .current_dir(&path)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = format!("sha256:{}", printed.split(' ').next().unwrap());
    assert_eq!(
        Checkpoint::open(&path).unwrap().digest(&cache).unwrap(),
        expected
    );
}

#[test]
fn a_change_of_weights_or_configuration_changes_the_digest() {
    let dir = TempDir::new().unwrap();
    let cache = DigestCache::new(dir.path());
    let sandbox = Sandbox::of("llama_gqa");
    let digest = || {
        Checkpoint::open(sandbox.path())
            .unwrap()
            .digest(&cache)
            .unwrap()
    };
    let first = digest();
    assert_eq!(digest(), first);
    sandbox.edit("model.safetensors", |bytes| *bytes.last_mut().unwrap() ^= 1);
    let second = digest();
    assert_ne!(second, first);
    sandbox.edit("config.json", |bytes| bytes.push(b'\n'));
    assert_ne!(digest(), second);
}

#[test]
fn an_entry_is_believed_until_it_is_damaged() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "abc").unwrap();
    let cache = DigestCache::new(&dir.path().join("cache"));
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(cache.file(&path).unwrap(), abc);
    let entries: Vec<_> = fs::read_dir(dir.path().join("cache")).unwrap().collect();
    assert_eq!(entries.len(), 1);
    let entry = entries[0].as_ref().unwrap().path();
    fs::write(&entry, "0".repeat(64)).unwrap();
    assert_eq!(cache.file(&path).unwrap(), "0".repeat(64));
    fs::write(&entry, "ba7816").unwrap();
    assert_eq!(cache.file(&path).unwrap(), abc);
    assert_eq!(fs::read_to_string(&entry).unwrap(), abc);
    assert!(cache.file(&dir.path().join("absent")).is_err());
}

#[test]
fn a_cache_that_cannot_be_written_costs_nothing_but_time() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "abc").unwrap();
    // Below a file there can be no directory, not even for root.
    let cache = DigestCache::new(&path.join("cache"));
    assert!(cache.file(&path).unwrap().starts_with("ba7816bf"));
}
