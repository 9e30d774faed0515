//! What the kernel says of a mapping.

/// The `VmFlags` of the mapping that holds `address` (`/proc/self/smaps`), and its permissions first.
pub(crate) fn flags(address: usize) -> Vec<String> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let hex = |text| usize::from_str_radix(text, 16).ok();
            if let (Some(from), Some(to)) = (hex(from), hex(to)) {
                found = (from..to).contains(&address).then(|| words.next().unwrap_or_default().to_owned());
            }
        }
        if let Some(permissions) = found.as_ref().filter(|_| first == "VmFlags:") {
            return std::iter::once(permissions.clone()).chain(words.map(str::to_owned)).collect();
        }
    }
    panic!("nothing is mapped at {address:#x}");
}
