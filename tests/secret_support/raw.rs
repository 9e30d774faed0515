//! Touching memory as a bug would: by address, past every bound.

#![expect(unsafe_code, reason = "misbehaves on purpose")]

/// Reads the byte at `address`, whatever is there.
pub(crate) fn read(address: usize) -> u8 {
    // SAFETY: none; the child that does this is meant to die, or reads its own slack.
    unsafe { core::ptr::with_exposed_provenance::<u8>(address).read_volatile() }
}

/// Writes a byte at `address`, whatever is there.
pub(crate) fn write(address: usize, byte: u8) {
    // SAFETY: none; as above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(byte) }
}
