//! Refusals on demand: a filter that makes the kernel refuse one call of this process, for good.

#![expect(unsafe_code, reason = "installs a seccomp filter")]

/// From now on `call` answers `errno` where its arguments, each given by number, have these values.
/// Returns whether this host lets us.
pub(crate) fn refuse(call: i64, args: &[(u32, u32)], errno: i32) -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unless_equal = |k: u32, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf,
        k,
    };
    let load = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let leave = |answer: u32| statement(libc::BPF_RET | libc::BPF_K, answer);
    // struct seccomp_data: the number at 0, the arguments, eight bytes each, from 16. Whatever does not match
    // jumps over all that follows and the refusal.
    let over = |left: usize| u8::try_from(2 * left + 1).unwrap();
    let mut filter = vec![load(0), unless_equal(u32::try_from(call).unwrap(), over(args.len()))];
    for (n, &(arg, value)) in args.iter().enumerate() {
        filter.extend([load(16 + 8 * arg), unless_equal(value, over(args.len() - n - 1))]);
    }
    filter.push(leave(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()));
    filter.push(leave(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its length are those of the vector, which outlives the calls.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}
