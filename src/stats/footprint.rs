//! What the kernel says of our memory, mapping by mapping.

use crate::global::ENGINE;
use crate::os::mappings;

/// What the kernel says of the allocator's memory now, in bytes: blocks, stacks and free runs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Footprint {
    /// Resident.
    pub resident: usize,
    /// Of that, in transparent huge pages.
    pub huge: usize,
    /// Of what is resident, offered to the kernel and not yet taken: it shows as resident until the kernel wants it.
    pub lazy_free: usize,
    /// Swapped out.
    pub swapped: usize,
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
            all.resident += m.resident;
            all.huge += m.huge;
            all.lazy_free += m.lazy_free;
            all.swapped += m.swapped;
        }
    })?;
    Some(all)
}
