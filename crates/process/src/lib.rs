//! Processes: children that do not outlive their parent, and the memory this one can get.
//!
//! The kernel can send a child a signal when its parent dies (`PR_SET_PDEATHSIG`), but by
//! "parent" it means the *thread* that forked. So every [`Child`] has a thread of its own that
//! forks it and then waits for it: the thread ends when the child does or with the process.
//! Signals go through a pidfd, which cannot hit an unrelated process that was given the pid of
//! an ended child.

mod death;
pub mod memory;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdout, Command, ExitStatus};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;

pub use rustix::process::Signal;

/// What a child does when a terminal sends its signals (Ctrl-C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// It gets them together with its parent.
    Shared,
    /// Only the parent gets them: the child leads a process group of its own.
    Detached,
}

/// A running or ended child process. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    handle: OwnedFd,
    stdout: Option<ChildStdout>,
    ended: watch::Receiver<Option<ExitStatus>>,
    keeper: Option<JoinHandle<()>>,
}

struct Started {
    pid: u32,
    handle: OwnedFd,
    stdout: Option<ChildStdout>,
}

impl Child {
    /// Starts `command`; the child gets `on_parent_death` when this process ends in whatever way.
    ///
    /// # Errors
    /// As [`Command::spawn`], or when the kernel has no pidfd (Linux before 5.3).
    pub fn spawn(
        mut command: Command,
        terminal: Terminal,
        on_parent_death: Signal,
    ) -> io::Result<Self> {
        if terminal == Terminal::Detached {
            command.process_group(0);
        }
        death::signal_with_parent(&mut command, on_parent_death);

        let (started_tx, started_rx) = mpsc::sync_channel(1);
        let (ended_tx, ended_rx) = watch::channel(None);
        let keeper = thread::Builder::new()
            .name("child".to_owned())
            .spawn(move || {
                let (started, mut child) = match start(&mut command) {
                    Ok(pair) => pair,
                    Err(error) => {
                        // The receiver waits for exactly this message.
                        let _ = started_tx.send(Err(error));
                        return;
                    }
                };
                let _ = started_tx.send(Ok(started));
                // Waiting fails only where SIGCHLD is ignored: the child has ended, its status is
                // lost, and an unknown status must not read as success.
                let status = child
                    .wait()
                    .unwrap_or_else(|_| ExitStatus::from_raw(255 << 8));
                ended_tx.send_replace(Some(status));
            })?;
        let started = started_rx
            .recv()
            .map_err(|_| io::Error::other("the thread ended"))??;
        Ok(Self {
            pid: started.pid,
            handle: started.handle,
            stdout: started.stdout,
            ended: ended_rx,
            keeper: Some(keeper),
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The read end of a piped stdout; `None` the second time or if it is not piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Sends a signal; does nothing once the child has ended.
    pub fn signal(&self, signal: Signal) {
        // Besides ESRCH (ended) the call can only fail for a child that changed its user to one
        // this process may not signal, and those are started by root alone.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// How the child ended; `None` while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Waits for the end of the child. Cancel-safe; may be called again after the end.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = ended
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|status| *status);
        status.unwrap_or_else(|| ExitStatus::from_raw(255 << 8))
    }

    /// Blocks until the child has ended, `limit` at most; whether it has ended.
    pub fn block_until_ended(&self, limit: Duration) -> bool {
        let timeout = Timespec::try_from(limit).ok();
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut fds, timeout.as_ref()), Ok(1..))
    }
}

/// Forks, and opens the pidfd while the child cannot have been reaped.
fn start(command: &mut Command) -> io::Result<(Started, std::process::Child)> {
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => {
            let started = Started {
                pid: child.id(),
                handle,
                stdout: child.stdout.take(),
            };
            Ok((started, child))
        }
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error.into())
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(keeper) = self.keeper.take() {
            // The keeper does not panic; joining it is what reaps the child.
            let _ = keeper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[tokio::test]
    async fn the_status_is_reported_again_and_again() {
        let child = Child::spawn(shell("exit 3"), Terminal::Detached, Signal::KILL).unwrap();
        assert_eq!(child.ended().await.code(), Some(3));
        assert_eq!(child.ended().await.code(), Some(3));
        assert!(child.block_until_ended(Duration::ZERO));
        child.signal(Signal::TERM);
    }

    #[tokio::test]
    async fn a_signal_reaches_the_child() {
        let child = Child::spawn(shell("read x"), Terminal::Shared, Signal::KILL).unwrap();
        drop(child);
        let child = Child::spawn(shell("kill -STOP $$"), Terminal::Detached, Signal::KILL).unwrap();
        assert!(!child.block_until_ended(Duration::from_millis(20)));
        child.signal(Signal::KILL);
        assert_eq!(child.ended().await.signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let child = thread::spawn(|| {
            Child::spawn(shell("kill -STOP $$"), Terminal::Detached, Signal::KILL).unwrap()
        })
        .join()
        .unwrap();
        assert!(!child.block_until_ended(Duration::from_millis(100)));
        assert_eq!(child.status(), None);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = Child::spawn(Command::new("/nonexistent"), Terminal::Shared, Signal::KILL);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
