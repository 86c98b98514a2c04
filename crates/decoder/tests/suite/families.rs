//! Every family against transformers: each checkpoint below `tests/fixtures`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Window, Windows, agrees, load, load_with, path, windows_in};
use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Products, Sequence};
use tch::Device;

/// Directories below `folder` that hold a checkpoint with reference values.
fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("config.json").exists() && path.join("expected.json").exists())
        .filter(|path| !path.ends_with("chat")) // it is for texts
        .collect();
    cases.sort();
    cases
}

/// What is wrong with a model's values on windows.
fn faults(decoder: &Decoder, windows: &Windows) -> Vec<String> {
    let score = |sequences: &[Sequence]| decoder.score(sequences).unwrap();
    let single = score(&[windows.single.sequence()]);
    let mut faults: Vec<String> = agrees(&single[0], &windows.single.nll_f32)
        .err()
        .into_iter()
        .collect();
    let sequences: Vec<_> = windows.batch.iter().map(Window::sequence).collect();
    let together = score(&sequences);
    for (index, window) in windows.batch.iter().enumerate() {
        let alone = score(&sequences[index..=index]).remove(0);
        for (how, got) in [("together", &together[index]), ("alone", &alone)] {
            if let Err(fault) = agrees(got, &window.nll_f32) {
                faults.push(format!("window {index} {how}: {fault}"));
            }
        }
    }
    faults
}

#[test]
fn safetensors_agree_with_transformers() {
    let all = [path("."), path("families"), path("gguf")];
    let all: Vec<PathBuf> = all.iter().flat_map(|folder| cases(folder)).collect();
    assert!(all.len() > 50, "{}", all.len());
    let mut wrong = Vec::new();
    for case in all {
        println!("{}", case.display());
        for products in Products::available(Dtype::Float32) {
            let decoder = load_with(&case, Dtype::Float32, products);
            let faults = faults(&decoder, &windows_in(&case));
            let case = case.display();
            wrong.extend(
                faults
                    .iter()
                    .map(|fault| format!("{case}, {products}: {fault}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn gguf_files_agree_with_their_originals() {
    let folder = path("gguf");
    let text = fs::read_to_string(folder.join("expected.json")).unwrap();
    let originals: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    for (case, original) in &originals {
        let file = folder.join(format!("{case}.gguf"));
        let faults = faults(&load(&file, Dtype::Float32), &windows_in(&path(original)));
        wrong.extend(faults.iter().map(|fault| format!("{case}: {fault}")));
    }
    assert!(originals.len() > 8, "{}", originals.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn adapters_agree_with_what_peft_merges() {
    let mut wrong = Vec::new();
    let mut scored = 0;
    let mut folders: Vec<_> = fs::read_dir(path("adapters")).unwrap().collect();
    folders.sort_by_key(|entry| entry.as_ref().unwrap().path());
    for folder in folders {
        let folder = folder.unwrap().path();
        let text = fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let base = path(expected["base"].as_str().unwrap());
        let opened = Checkpoint::open_with(&base, Some(&folder));
        if let Some(cause) = expected.get("refused_by") {
            let cause = cause.as_str().unwrap();
            let error = opened.err().map(|error| error.to_string());
            if !error.as_ref().is_some_and(|error| error.contains(cause)) {
                wrong.push(format!("{}: {cause}: {error:?}", folder.display()));
            }
            continue;
        }
        // Where the head is the embedding, merging changes both, and what was trained is another
        // model: that one counts.
        let trained = expected.get("windows_unmerged").is_some();
        let checkpoint = opened.unwrap();
        assert_eq!(
            !checkpoint.warnings().is_empty(),
            trained || folder.ends_with("tied_saved")
        );
        let key = if trained {
            "windows_unmerged"
        } else {
            "windows"
        };
        let windows = serde_json::from_value(expected[key].clone()).unwrap();
        let decoder = Decoder::load(&checkpoint, Dtype::Float32, Device::Cpu).unwrap();
        let faults = faults(&decoder, &windows);
        wrong.extend(
            faults
                .iter()
                .map(|fault| format!("{}: {fault}", folder.display())),
        );
        scored += 1;
    }
    assert!(scored > 14, "{scored}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
