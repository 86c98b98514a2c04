//! The signal that a child gets when its parent dies.
//!
//! `unsafe` because the request has to be made in the forked child, between `fork` and `exec`,
//! where Rust offers nothing but [`CommandExt::pre_exec`].
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the kernel send `signal` to the child when the thread that forks it ends.
///
/// The standard library runs the closure after it has changed the child's user, which would
/// otherwise clear the request.
pub(crate) fn signal_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let request = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the request took effect.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    };
    // SAFETY: the closure makes two system calls, allocates nothing and takes no lock, which is
    // what is allowed between `fork` and `exec`.
    unsafe { command.pre_exec(request) };
}
