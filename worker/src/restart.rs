//! A worker whose device is hung starts itself anew: nothing else ends a thread that does not
//! return.

use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio_util::sync::CancellationToken;

/// The way to a new start, from the heartbeat, which decides on it, to the main thread, which does
/// it: the signal that a parent's death sends is bound to that thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restart {
    /// It will be.
    pub(crate) decided: CancellationToken,
    /// What could be brought in order before is.
    pub(crate) prepared: CancellationToken,
}

/// Replaces this process by a new run of the same program with the same arguments, under the same
/// id. Returns only if that fails.
pub(crate) fn restart() -> std::io::Error {
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).exec()
}
