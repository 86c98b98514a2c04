//! Checkpoints by their small files alone, held against the same ones with their weights.

use std::fs;

use assay_checkpoint::{Checkpoint, CheckpointError, Preview};

use crate::sandbox::{CASES, Sandbox, fixture};

#[test]
fn a_preview_says_what_the_headers_of_the_weights_say() {
    let families = fs::read_dir(fixture("families")).unwrap();
    let families = families
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.safetensors").exists());
    let paths: Vec<_> = CASES
        .iter()
        .map(|case| fixture(case))
        .chain(families)
        .collect();
    assert!(paths.len() > 20, "{}", paths.len());
    for path in paths {
        let whole = Checkpoint::open(&path).unwrap();
        let preview = Preview::open(&path, "hf://org/name").unwrap();
        let name = path.display();
        assert_eq!(preview.parameters(), whole.parameters(), "{name}");
        assert_eq!(
            format!("{:?}", preview.architecture()),
            format!("{:?}", whole.architecture()),
            "{name}"
        );
        if let Some(dtype) = preview.default_dtype() {
            assert_eq!(dtype, whole.default_dtype(), "{name}");
        }
    }
}

#[test]
fn errors_of_a_preview_have_its_name() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.remove("model.safetensors");
    let preview = Preview::open(sandbox.path(), "hf://org/name").unwrap();
    preview.tokenizer().unwrap();
    let error = Preview::check_adapter(sandbox.path(), "hf://org/name").unwrap_err();
    assert!(
        matches!(error, CheckpointError::NotACheckpoint { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("hf://org/name"), "{error}");
    sandbox.remove("config.json");
    let error = Preview::open(sandbox.path(), "hf://org/name").unwrap_err();
    assert!(error.to_string().contains("hf://org/name"), "{error}");
    Preview::check_adapter(&fixture("adapters/llama"), "hf://org/name").unwrap();
}
