//! Processes that a test did not start itself, such as the children of `assay up`.

use std::fs;

use assay_process::Signal;
use rustix::process::{Pid, kill_process};

/// A process, by what `/proc` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name: the file name of the program, 15 bytes at most.
    pub name: String,
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let (name, state, its_parent) = stat(pid)?;
        (its_parent == parent && state != 'Z').then_some(Process { pid, name })
    })
    .collect()
}

/// Whether a process exists and has not ended. Its parent may not have reaped it yet.
pub fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(_, state, _)| state != 'Z')
}

/// Sends a signal to a process by its id.
///
/// # Panics
/// When there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    let target = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid is positive");
    kill_process(target, signal)
        .unwrap_or_else(|error| panic!("cannot signal process {pid}: {error}"));
}

/// Name, state and parent of a process.
fn stat(pid: u32) -> Option<(String, char, u32)> {
    // pid (name) state parent ..; the name may hold spaces and parentheses itself.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((name.to_owned(), state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::parent_id;

    use super::*;

    #[test]
    fn this_process_is_among_the_children_of_its_parent() {
        let pid = std::process::id();
        assert!(
            children(parent_id())
                .iter()
                .any(|process| process.pid == pid)
        );
        assert!(is_running(pid));
        assert!(!is_running(u32::MAX));
    }
}
