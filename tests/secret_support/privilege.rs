//! Becoming an ordinary process, which meets the limit of locked memory.

#![expect(unsafe_code, reason = "gives up a capability")]

/// Gives up the right to lock memory beyond the limit (`CAP_IPC_LOCK`), if this process has it.
pub(crate) fn give_up_privilege() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    let mut header = Header { version: VERSION_3, pid: 0 };
    // Effective, permitted and inheritable, for the lower and the upper 32 capabilities.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the structures are laid out as the kernel wants them, and ours.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()), 0);
        for set in &mut sets[0] {
            *set &= !(1 << IPC_LOCK);
        }
        assert_eq!(libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()), 0);
    }
}
