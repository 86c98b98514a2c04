//! The cores this process may use.

use std::ops::RangeInclusive;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores this process may use, by their number in the machine.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn available() -> std::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Binds the calling thread, and threads it starts, to cores counted among the available ones.
///
/// # Errors
/// There are fewer cores, or the operating system refuses.
pub(crate) fn pin(cores: RangeInclusive<usize>) -> std::io::Result<()> {
    let available = available()?;
    let mut set = CpuSet::new();
    for core in cores {
        let core = available.get(core).ok_or_else(|| {
            std::io::Error::other(format!("there are only {} cores", available.len()))
        })?;
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::{available, pin};

    #[test]
    fn a_thread_is_pinned_to_cores_it_may_use() {
        let all = available().unwrap();
        // A thread of its own: the affinity ends with it.
        let pinned = std::thread::spawn(|| {
            pin(0..=0).unwrap();
            available().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), all[..1]);
        assert!(pin(all.len()..=all.len()).is_err());
    }
}
