//! Where a VMA ends, by the kernel's own word.

#![expect(unsafe_code, reason = "system calls")]

use super::files::File;

/// `struct procmap_query` of `linux/fs.h`, as far as it is used here (Linux 6.11).
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    vma_start: u64,
    vma_end: u64,
    rest: [u64; 8],
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u32 = 0xC068_6611;
const _: () = assert!(size_of::<Query>() == 0x68);

/// Where the VMA that holds `addr` ends; `None` on kernels without the question.
pub(super) fn end(addr: usize) -> Option<usize> {
    let mut query = Query { size: size_of::<Query>() as u64, address: addr as u64, ..Query::default() };
    let file = File::open(c"/proc/self/maps")?;
    // SAFETY: `query` is the struct that this request reads and writes, and says its own size (O5).
    let ret =
        unsafe { libc::syscall(libc::SYS_ioctl, file.descriptor(), PROCMAP_QUERY as usize, &raw mut query) };
    (ret == 0).then_some(query.vma_end as usize)
}
