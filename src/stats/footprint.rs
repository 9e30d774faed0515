//! What the kernel says of our memory, mapping by mapping.

use crate::global::ENGINE;
use crate::os::mappings;

/// What the kernel says of the allocator's memory now: blocks, stacks and free runs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Footprint {
    /// Resident.
    pub resident_bytes: usize,
    /// Of that, in transparent huge pages.
    pub huge_page_bytes: usize,
    /// Of what is resident, offered to the kernel and not yet taken: it shows as resident until the kernel wants it.
    pub lazy_free_bytes: usize,
    /// Swapped out.
    pub swapped_bytes: usize,
    /// Mappings (VMAs).
    pub mappings: usize,
    /// Mappings of the whole process; the kernel allows 65,530 by default.
    pub mappings_of_process: usize,
}

/// Reads it. `None` where the kernel does not tell.
pub(super) fn read() -> Option<Footprint> {
    let mut all = Footprint::default();
    mappings(&mut |m| {
        all.mappings_of_process += 1;
        if ENGINE.holds(m.start) || ENGINE.holds(m.end - 1) {
            all.mappings += 1;
            all.resident_bytes += m.resident;
            all.huge_page_bytes += m.huge;
            all.lazy_free_bytes += m.lazy_free;
            all.swapped_bytes += m.swapped;
        }
    })?;
    Some(all)
}
