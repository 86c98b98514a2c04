//! Whatever the bytes of a checkpoint's files, it opens or is refused: no panic, no end of the
//! process, and no more memory than a multiple of the files.
//!
//! Peak memory is at most `factor` bytes for each byte of the files that a target damages, 16 for
//! each byte of the others, and 2 MiB; the factors are in targets.rs.
//!
//! Without `ASSAY_FUZZ_SECONDS` each target has some cases, with it that many seconds; which cases
//! they are follows from `ASSAY_FUZZ_SEED`, a number, 0 if it is not set. What fails is made small
//! and kept in tests/fuzz-seeds, whose cases come first.

mod case;
mod child;
#[path = "../counting/mod.rs"]
mod counting;
mod files;
mod targets;
mod tree;

use std::cell::RefCell;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use self::case::{Case, cases};
use self::child::Opener;
use self::targets::Target;

/// Cases of a target where no time is set.
const CASES: u32 = 150;
/// Cases between two looks at the clock.
const ROUND: u32 = 50;

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz-seeds")
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// The most memory for what was allowed, in thousandths, and the longest time.
#[derive(Default)]
struct Worst {
    share: usize,
    time: Duration,
    cases: u32,
    opened: u32,
}

fn check(
    opener: &RefCell<Opener>,
    worst: &RefCell<Worst>,
    target: &Target,
    case: &Case,
) -> Result<(), TestCaseError> {
    let (outcome, time) = opener.borrow_mut().open(target, case);
    let mut worst = worst.borrow_mut();
    worst.cases += 1;
    worst.opened += u32::from(outcome.opened);
    if time > worst.time.max(Duration::from_secs(1)) {
        println!(
            "{}: {time:?} for {}",
            target.name,
            serde_json::to_string(case).unwrap()
        );
    }
    worst.time = worst.time.max(time);
    worst.share = worst
        .share
        .max(outcome.bytes * 1000 / outcome.allowed.max(1));
    outcome
        .failure
        .map_or(Ok(()), |why| Err(TestCaseError::fail(why)))
}

fn fuzz(name: &str) {
    let target = Target::named(name).unwrap();
    let (opener, worst) = (RefCell::new(Opener::start()), RefCell::default());
    let check = |case: &Case| check(&opener, &worst, target, case);
    let mut kept: Vec<_> = fs::read_dir(seeds())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let stem = path.file_stem().unwrap().to_string_lossy();
            stem.split_once('-')
                .is_some_and(|(target, _)| target == name)
        })
        .collect();
    kept.sort_unstable();
    let failures: Vec<String> = kept
        .iter()
        .filter_map(|path| {
            let case = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let error = check(&case).err()?;
            Some(format!("{}: {error}", path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    let seconds = number("ASSAY_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("ASSAY_FUZZ_SEED").unwrap_or(0);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: if seconds.is_some() { ROUND } else { CASES },
        failure_persistence: None,
        max_shrink_iters: 500,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config.clone(), rng);
    let start = Instant::now();
    let strategy = cases(target);
    loop {
        match runner.run(&strategy, |case| check(&case)) {
            Ok(()) => {}
            Err(TestError::Fail(why, case)) => {
                let path = seeds().join(format!("{name}-{seed}.json"));
                fs::write(&path, serde_json::to_vec_pretty(&case).unwrap()).unwrap();
                panic!("{name}, seed {seed}: {why}; kept as {}", path.display());
            }
            Err(TestError::Abort(why)) => panic!("{name}: {why}"),
        }
        if seconds.is_none_or(|seconds| start.elapsed() > seconds) {
            break;
        }
        // A runner that has had its cases has no more.
        let rng = runner.new_rng();
        runner = TestRunner::new_with_rng(config.clone(), rng);
    }
    let worst = worst.into_inner();
    println!(
        "{name}, seed {seed}: {} cases of which {} opened, at most {}/1000 of the memory and {:?}",
        worst.cases, worst.opened, worst.share, worst.time
    );
}

#[test]
fn config() {
    fuzz("config");
}

#[test]
fn safetensors() {
    fuzz("safetensors");
}

#[test]
fn gguf() {
    fuzz("gguf");
}

#[test]
fn tokenizer() {
    fuzz("tokenizer");
}

#[test]
fn sentencepiece() {
    fuzz("sentencepiece");
}

#[test]
fn gguf_tokenizer() {
    fuzz("gguf_tokenizer");
}

/// The process that the others start.
#[test]
fn opener() {
    child::serve();
}
