//! Digests of checkpoints, and the cache of digests.

use std::fs;
use std::process::Command;

use assay_checkpoint::{Checkpoint, CheckpointError, DigestCache};
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

/// Numbers must not come from other bytes than those that the digest names.
#[test]
fn a_file_that_changes_under_an_opened_checkpoint_is_noticed() {
    let dir = TempDir::new().unwrap();
    let cache = DigestCache::new(dir.path());
    for case in ["llama_gqa", "sharded_llama"] {
        let sandbox = Sandbox::of(case);
        let weights = fs::read_dir(sandbox.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "safetensors"))
            .max()
            .unwrap();
        let bytes = fs::read(&weights).unwrap();
        let opened = Checkpoint::open(sandbox.path()).unwrap();
        opened.digest(&cache).unwrap();
        opened.check_unwritten().unwrap();
        fs::hard_link(&weights, sandbox.file("link")).unwrap();
        opened.digest(&cache).unwrap();
        opened.check_unwritten().unwrap();

        let aside = sandbox.file("aside");
        fs::write(&aside, &bytes).unwrap();
        fs::rename(&aside, &weights).unwrap();
        opened.check_unwritten().unwrap();
        let error = opened.digest(&cache).unwrap_err();
        assert!(matches!(error, CheckpointError::Changed { .. }), "{error}");

        let opened = Checkpoint::open(sandbox.path()).unwrap();
        fs::write(&weights, &bytes).unwrap();
        let error = opened.check_unwritten().unwrap_err();
        assert!(matches!(error, CheckpointError::Changed { .. }), "{error}");
        assert!(opened.digest(&cache).is_err());
    }
}
