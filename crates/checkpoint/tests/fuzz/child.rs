//! The process that opens damaged checkpoints, so that one that ends it can be told.

use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use assay_checkpoint::{Checkpoint, inspect};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::case::Case;
use super::counting::most;
use super::targets::{CONSTANT, SOUND_FACTOR, Target};

/// Set in the process that opens.
const CHILD: &str = "ASSAY_FUZZ_CHILD";
/// Before each answer; the test harness writes to the same stream.
const ANSWER: &str = "fuzz answer: ";
/// The longest that a case may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// KiB of address space that the process may have, as the allocations of C libraries are not
/// counted.
const ADDRESS_SPACE: &str = "ulimit -v 4194304; exec \"$0\" \"$@\"";
/// That of a thread of the services.
const STACK: usize = 2 << 20;

const TEXTS: [&str; 5] = [
    "",
    "The ferry leaves at 7:45 <s></s>",
    "\u{0}\r\n\t   \u{a0}\u{2581}\u{2581} \u{1F469}\u{200D}\u{1F680}e\u{301}\u{FFFD}",
    "<|endoftext|><unk><0x0A>[INST]'s 1234567890",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// What opening a checkpoint took.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// Bytes of memory, at most.
    pub(crate) bytes: usize,
    /// Bytes of memory that were allowed.
    pub(crate) allowed: usize,
    /// Whether the checkpoint was opened.
    pub(crate) opened: bool,
}

/// Opens the checkpoint and touches everything that reads from it. Returns whether it opened.
fn exercise(path: &Path, tokenizer: bool) -> bool {
    let Ok(checkpoint) = Checkpoint::open(path) else {
        return false;
    };
    if !tokenizer {
        for (slot, shape) in checkpoint.architecture().slots() {
            let weight = checkpoint.weight(slot).unwrap();
            assert_eq!(weight.shape(), shape);
            let _ = weight.bytes();
        }
        for rope in checkpoint.architecture().ropes() {
            let _ = rope.frequencies(1);
        }
        assert!(checkpoint.architecture().linear_flops_per_token() > 0.0);
        return true;
    }
    if let Ok(template) = checkpoint.chat_template() {
        let messages = json!([{ "role": "user", "content": "a" },
            { "role": "assistant", "content": "b" }]);
        let _ = template.map(|template| template.render(&messages, true));
    }
    let _ = inspect(&checkpoint, "model");
    let Ok(tokenizer) = checkpoint.tokenizer() else {
        return false;
    };
    for text in TEXTS {
        let _ = tokenizer.encode(text);
        let _ = tokenizer.encode_with_offsets(text);
    }
    true
}

/// What the last panic said.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn outcome(target: &Target, case: &Case) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let (open, other) = case.write(target, dir.path());
    let file = dir.path().join("model.gguf");
    let path = if file.exists() { &file } else { dir.path() };
    let (mut opened, mut panicked) = (false, false);
    let bytes = most(|| {
        let result = catch_unwind(AssertUnwindSafe(|| exercise(path, target.tokenizer)));
        panicked = result.is_err();
        opened = result.unwrap_or(false);
    });
    let allowed = target.factor * open + SOUND_FACTOR * other + CONSTANT;
    let failure = if panicked {
        Some(PANIC.lock().unwrap().clone())
    } else {
        (bytes > allowed).then(|| format!("it took {bytes} bytes of memory, more than {allowed}"))
    };
    Outcome {
        failure,
        bytes,
        allowed,
        opened,
    }
}

/// Answers cases until there are no more; does nothing in any other process.
pub(crate) fn serve() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    std::panic::set_hook(Box::new(|info| *PANIC.lock().unwrap() = info.to_string()));
    println!();
    for line in std::io::stdin().lines() {
        let (target, case): (String, Case) = serde_json::from_str(&line.unwrap()).unwrap();
        // A thread for each, for the stack and so that the count starts at nothing.
        let thread = thread::Builder::new().stack_size(STACK);
        let outcome = thread.spawn(move || outcome(Target::named(&target).unwrap(), &case));
        let outcome = outcome.unwrap().join().unwrap();
        println!("{ANSWER}{}", serde_json::to_string(&outcome).unwrap());
    }
}

/// The process, seen from the one that starts it.
pub(crate) struct Opener {
    process: Child,
    cases: ChildStdin,
    answers: Receiver<String>,
}

impl Opener {
    pub(crate) fn start() -> Self {
        let mut process = Command::new("sh")
            .args(["-c", ADDRESS_SPACE])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "opener", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (cases, output) = (process.stdin.take(), process.stdout.take());
        let (sender, answers) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output.unwrap())
                .lines()
                .map_while(Result::ok);
            lines
                .filter_map(|line| line.strip_prefix(ANSWER).map(str::to_owned))
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process,
            cases: cases.unwrap(),
            answers,
        }
    }

    /// Opens a damaged checkpoint; a process that ends or hangs is replaced.
    pub(crate) fn open(&mut self, target: &Target, case: &Case) -> (Outcome, Duration) {
        let start = Instant::now();
        let line = serde_json::to_string(&(target.name, case)).unwrap();
        let sent = writeln!(self.cases, "{line}");
        let answer = sent
            .ok()
            .and_then(|()| self.answers.recv_timeout(PATIENCE).ok());
        let outcome = if let Some(line) = answer {
            serde_json::from_str(&line).unwrap()
        } else {
            let failure = if start.elapsed() < PATIENCE {
                "it ended the process"
            } else {
                "it takes more than a minute"
            };
            *self = Self::start();
            Outcome {
                failure: Some(failure.to_owned()),
                bytes: 0,
                allowed: 0,
                opened: false,
            }
        };
        (outcome, start.elapsed())
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
