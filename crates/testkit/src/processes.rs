//! Processes that a test did not start itself, such as the children of `assay up`.

use std::fs;

use assay_process::Signal;
use rustix::process::{Pid, Resource, Rlimit, kill_process, prlimit};

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
    kill_process(target(pid), signal)
        .unwrap_or_else(|error| panic!("cannot signal process {pid}: {error}"));
}

/// Leaves a process this many bytes of address space beyond what it has (`RLIMIT_AS`), so that a
/// larger allocation fails; `None` takes the limit away.
///
/// # Panics
/// When there is no such process.
pub fn leave_memory(pid: u32, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes.map(|bytes| memory(pid, "VmSize") + bytes),
        maximum: None,
    };
    prlimit(Some(target(pid)), Resource::As, limit)
        .unwrap_or_else(|error| panic!("cannot limit process {pid}: {error}"));
}

/// The most bytes of memory that a process ever held.
///
/// # Panics
/// When there is no such process.
pub fn peak_memory(pid: u32) -> u64 {
    memory(pid, "VmHWM")
}

/// A field of `/proc/{pid}/status` that is in kB, as bytes.
fn memory(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_else(|error| panic!("cannot read the status of process {pid}: {error}"));
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    1024 * number.unwrap_or_else(|| panic!("process {pid} has no {field}"))
}

fn target(pid: u32) -> Pid {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid is positive")
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

    #[test]
    fn a_limit_of_memory_can_be_set_and_taken_away() {
        let pid = std::process::id();
        assert!(peak_memory(pid) > 1 << 16);
        let limit = || rustix::process::getrlimit(Resource::As).current;
        let before = limit();
        leave_memory(pid, Some(1 << 40));
        assert!(limit().unwrap() > 1 << 40);
        leave_memory(pid, None);
        assert_eq!(limit(), before);
    }
}
