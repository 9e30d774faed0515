//! What the kernel says of this process.

/// A field of `/proc/self/status` that is in KiB, in bytes.
pub(crate) fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.unwrap_or_else(|| panic!("there is no {field} in /proc/self/status"));
    kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Resident memory in bytes.
pub(crate) fn resident() -> usize {
    status("VmRSS")
}

/// How many mappings this process has.
pub(crate) fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Huge pages of this process's anonymous memory, in bytes.
pub(crate) fn huge_pages() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
