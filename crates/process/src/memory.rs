//! Memory that this process can still get.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Bytes that this process can still get without swapping: the least of what the kernel estimates
/// for the host, what the control groups leave (version 2; their page cache counts as free) and
/// what `RLIMIT_AS` leaves. None if none of them can be read.
///
/// Others may take it first, so running out of memory is still an error to be handled.
pub fn available() -> Option<u64> {
    [host(), control_groups(), address_space()]
        .into_iter()
        .flatten()
        .min()
}

fn host() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn address_space() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(kibibytes(&status, "VmSize:")?))
}

/// The least that any group above this process leaves.
fn control_groups() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    // Version 2 has one line, `0::/path`.
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = Path::new("/sys/fs/cgroup");
    let mut group: PathBuf = mount.join(path);
    let mut least = None;
    while group.starts_with(mount) {
        least = [least, left_in(&group)].into_iter().flatten().min();
        if !group.pop() {
            break;
        }
    }
    least
}

fn left_in(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    // `max` where there is no limit, which does not parse.
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let statistics = read("memory.stat").unwrap_or_default();
    let cache: u64 = statistics
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| matches!(*name, "inactive_file" | "active_file"))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_get_some_memory() {
        assert!(available().unwrap() > 1 << 20);
        assert!(host().unwrap() > 1 << 20);
    }

    #[test]
    fn fields_are_read_in_kibibytes() {
        let text = "MemTotal:       16 kB\nMemAvailable:    3 kB\n";
        assert_eq!(kibibytes(text, "MemAvailable:"), Some(3072));
        assert_eq!(kibibytes(text, "MemFree:"), None);
        assert_eq!(kibibytes("MemAvailable: many kB", "MemAvailable:"), None);
    }

    #[test]
    fn a_group_without_a_limit_leaves_all() {
        let directory = std::env::temp_dir().join(format!("assay-group-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(left_in(&directory), None);
        write("memory.max", "1000\n");
        write(
            "memory.stat",
            "anon 600\ninactive_file 80\nactive_file 20\n",
        );
        assert_eq!(left_in(&directory), Some(400));
        fs::remove_dir_all(&directory).unwrap();
    }
}
