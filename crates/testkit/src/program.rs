//! Real programs as child processes of a test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use assay_process::{Child, Signal, Terminal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::LIMIT;

/// Path of a program of this workspace, in the build that the running test belongs to.
///
/// # Panics
/// When it is not built.
pub fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/<profile>/deps/<test> stands beside target/<profile>/<program>.
    let profile = test
        .ancestors()
        .nth(2)
        .expect("a test lies in target/<profile>/deps");
    let path = profile.join(name);
    assert!(
        path.is_file(),
        "{} does not exist; build the programs first: `cargo build --release`",
        path.display()
    );
    path
}

/// A running program. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Program {
    /// Starts a program of this workspace; `configure` adds arguments and environment.
    ///
    /// # Panics
    /// When it is not built or does not start.
    pub fn spawn(name: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(executable(name));
        configure(&mut command);
        Self::start(command)
    }

    /// Starts any program. Its stdout is read by this value; its stderr is the test's own unless
    /// `command` says otherwise.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(mut command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Child::spawn(command, Terminal::Detached, Signal::KILL)
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = child.take_stdout().expect("stdout is piped");
        let (sender, lines) = mpsc::unbounded_channel();
        // Ends with the pipe, at the latest when the program is killed.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody may be interested any more; the pipe is emptied all the same.
                let _ = sender.send(line);
            }
        });
        Self { name, child, lines }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// The rest of the next line on stdout that starts with `prefix`, such as `listening on `.
    ///
    /// # Panics
    /// When the program ends without one or takes longer than [`LIMIT`].
    pub async fn line_after(&mut self, prefix: &str) -> String {
        let name = &self.name;
        let search = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return rest.to_owned();
                }
            }
            panic!("{name} ended without a line {prefix:?}");
        };
        timeout(LIMIT, search)
            .await
            .unwrap_or_else(|_| panic!("{name} printed no line {prefix:?} within {LIMIT:?}"))
    }

    /// What is left of stdout, once the program has closed it.
    pub async fn rest_of_output(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.lines.recv().await {
            lines.push(line);
        }
        lines
    }

    /// Kills the program with SIGKILL and reaps it.
    pub async fn kill(&self) {
        self.child.signal(Signal::KILL);
        self.child.ended().await;
    }

    /// Waits for the program to end by itself.
    ///
    /// # Panics
    /// When it takes longer than `limit`.
    pub async fn ended_within(&self, limit: Duration) -> ExitStatus {
        timeout(limit, self.child.ended())
            .await
            .unwrap_or_else(|_| panic!("{} did not end within {limit:?}", self.name))
    }
}
