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
