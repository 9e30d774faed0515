//! What each library does, tried: every question in a process of its own, and a Markdown table of answers.

#![expect(unsafe_code, reason = "forks, and misbehaves on purpose")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bench_secrets::{Keeper, Kept, keepers};

/// What a child that answers a question ends with.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Answer {
    Yes = 40,
    No = 41,
    NotHere = 42,
}

/// Asks in a forked child. A signal is an answer too: the negative number of it.
fn ask(question: impl FnOnce() -> Answer) -> i32 {
    // SAFETY: the child answers and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // What a library says while it dies is not part of the table.
        // SAFETY: closes a descriptor that nothing of the child needs.
        unsafe { libc::close(2) };
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(question));
        // SAFETY: ends the child.
        unsafe { libc::_exit(answer.unwrap_or(Answer::NotHere) as i32) };
    }
    let mut status = 0;
    // SAFETY: the child is ours to wait for, and `status` ours to write.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

fn yes(answer: bool) -> Answer {
    if answer { Answer::Yes } else { Answer::No }
}

fn say(code: i32) -> String {
    match code {
        c if c == Answer::Yes as i32 => "yes".to_owned(),
        c if c == Answer::No as i32 => "no".to_owned(),
        c if c < 0 => format!("no (signal {})", -c),
        _ => "?".to_owned(),
    }
}

/// A pattern unlike anything else in the process, made in place.
fn stamp(bytes: &mut [u8]) {
    let mut state = 77_u64;
    for byte in bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
}

fn stamped(keeper: &Keeper, len: usize) -> (Box<dyn Kept>, usize) {
    let mut kept = (keeper.make)(len).unwrap();
    let mut at = 0;
    kept.with(&mut |bytes| {
        stamp(bytes);
        at = bytes.as_ptr().expose_provenance();
    });
    (kept, at)
}

fn flag(at: usize, flag: &str) -> bool {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let hex = |text| usize::from_str_radix(text, 16).ok();
            inside = hex(from).zip(hex(to)).is_some_and(|(from, to)| (from..to).contains(&at));
        } else if inside && first == "VmFlags:" {
            return line.split_whitespace().any(|word| word == flag);
        }
    }
    false
}

/// Looks as a debugger does, whatever the pages let through.
fn peek(at: usize, into: &mut [u8]) -> bool {
    fs::File::open("/proc/self/mem").is_ok_and(|memory| memory.read_exact_at(into, at as u64).is_ok())
}

fn touch(at: usize, write: bool) {
    let p = core::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: none; it is what is asked.
    unsafe {
        if write {
            p.write_volatile(p.read_volatile() ^ 1)
        } else {
            let _ = p.read_volatile();
        }
    }
}

fn faults(keeper: &Keeper, offset: isize, len: usize, write: bool) -> String {
    let code = ask(|| {
        let (mut kept, at) = stamped(keeper, len);
        kept.with(&mut |_| touch(at.wrapping_add_signed(offset), write));
        Answer::No
    });
    if code == -libc::SIGSEGV { "yes".to_owned() } else { say(code) }
}

fn bytes_in_front(keeper: &Keeper) -> String {
    let faults_at = |page: &isize| faults(keeper, -page * 4096 - 1, 4096, false) == "yes";
    (0..4).find(faults_at).map_or("more".to_owned(), |page| format!("{} B", page * 4096))
}

/// A byte written beside the secret, and then dropped: does anybody say so?
fn is_seen(keeper: &Keeper, offset: isize, len: usize) -> String {
    let code = ask(|| {
        let (mut kept, at) = stamped(keeper, len);
        kept.with(&mut |_| touch(at.wrapping_add_signed(offset), true));
        drop(kept);
        Answer::No
    });
    match code {
        c if c == -libc::SIGSEGV => "faults".to_owned(),
        c if c < 0 => format!("signal {} on drop", -c),
        _ => "no".to_owned(),
    }
}

fn is_wiped_on_drop(keeper: &Keeper) -> String {
    say(ask(|| {
        let mut expected = vec![0; 64];
        stamp(&mut expected);
        // Made before, or it would be where the secret was.
        let mut seen = vec![0; 4096];
        let (kept, at) = stamped(keeper, 4096);
        refuse_unmapping();
        drop(kept);
        if !peek(at, &mut seen) {
            let there = core::ptr::with_exposed_provenance::<u8>(at);
            for (n, byte) in seen.iter_mut().enumerate() {
                // SAFETY: unmapping is refused, so the pages are there, as far as they are open.
                *byte = unsafe { there.add(n).read_volatile() };
            }
        }
        yes(!seen.windows(16).any(|w| expected.windows(16).any(|e| e == w)))
    }))
}

/// From now on `munmap` is refused, so that what was dropped can be looked at.
fn refuse_unmapping() {
    let op = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_munmap as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the calls.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

fn is_zero_in_a_child(keeper: &Keeper) -> String {
    say(ask(|| {
        let (kept, _) = stamped(keeper, 4096);
        let inner = ask(|| {
            let mut zero = false;
            kept.read(&mut |bytes| zero = bytes.iter().all(|&b| b == 0));
            yes(zero)
        });
        yes(inner == Answer::Yes as i32)
    }))
}

fn may_a_child_drop(keeper: &Keeper) -> String {
    say(ask(|| {
        let mut kept = Some(stamped(keeper, 40).0);
        let inner = ask(|| {
            drop(kept.take());
            Answer::Yes
        });
        let mut intact = false;
        let mut expected = vec![0; 40];
        stamp(&mut expected);
        kept.take().unwrap().read(&mut |bytes| intact = bytes == expected);
        yes(intact && inner == Answer::Yes as i32)
    }))
}

fn is_left_out_of_dumps(keeper: &Keeper, folder: &Path) -> String {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let code = ask(|| {
        std::env::set_current_dir(folder).unwrap();
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        let (_kept, _) = stamped(keeper, 4096);
        // SAFETY: the structure is ours. After the library, which may have set it to 0 for the process.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
        std::process::abort();
    });
    let dump: Option<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.to_string_lossy().contains("core"));
    let answer = match dump {
        Some(path) if code == -libc::SIGABRT => {
            let mut expected = vec![0; 32];
            stamp(&mut expected);
            let dump = fs::read(path).unwrap();
            if dump.windows(32).any(|window| window == expected) { "no" } else { "yes" }
        }
        _ => "no dump at all",
    };
    let _ = fs::remove_dir_all(folder);
    answer.to_owned()
}

/// As an ordinary process that may lock `limit` bytes.
fn give_up_privilege(limit: u64) {
    #[repr(C)]
    struct Header(u32, i32);
    let mut header = Header(0x2008_0522, 0);
    let mut sets = [[0_u32; 3]; 2];
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the structures are laid out as the kernel wants them, and ours.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr());
        sets[0].iter_mut().for_each(|set| *set &= !(1 << 14));
        assert_eq!(libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
    }
}

fn says_that_it_is_not_locked(keeper: &Keeper) -> String {
    let code = ask(|| {
        give_up_privilege(0);
        match (keeper.make)(4096) {
            Err(_) => Answer::NotHere,
            Ok(kept) => yes(kept.complaint().is_some()),
        }
    });
    match code {
        c if c == Answer::NotHere as i32 => "an error".to_owned(),
        c if c == Answer::Yes as i32 => "in its status".to_owned(),
        _ => "no".to_owned(),
    }
}

/// How many secrets of 32 bytes are really locked under a limit of 8 MiB, of 10,000.
fn locked_under_8_mib(keeper: &Keeper) -> String {
    let folder = std::env::temp_dir().join(format!("secret-effects-{}", std::process::id()));
    ask(|| {
        give_up_privilege(8 << 20);
        let mut kept: Vec<_> = (0..10_000).map_while(|_| (keeper.make)(32).ok()).collect();
        let mut at = Vec::new();
        kept.iter_mut().for_each(|kept| kept.with(&mut |bytes| at.push(bytes.as_ptr().addr())));
        fs::write(&folder, locked(&at).to_string()).unwrap();
        Answer::Yes
    });
    let count = fs::read_to_string(&folder).unwrap_or_else(|_| "?".to_owned());
    let _ = fs::remove_file(folder);
    count
}

/// How many of the addresses lie in locked mappings.
fn locked(at: &[usize]) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ranges = Vec::new();
    let mut range = 0..0;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let hex = |text| usize::from_str_radix(text, 16).unwrap_or_default();
            range = hex(from)..hex(to);
        } else if first == "VmFlags:" && line.split_whitespace().any(|word| word == "lo") {
            ranges.push(range.clone());
        }
    }
    // In order of addresses, as the kernel lists them.
    let holds = |at: &usize| {
        let n = ranges.partition_point(|range| range.end <= *at);
        ranges.get(n).is_some_and(|range| range.contains(at))
    };
    at.iter().filter(|at| holds(at)).count()
}

fn is_closed_between_uses(keeper: &Keeper) -> String {
    let code = ask(|| {
        let (_kept, at) = stamped(keeper, 4096);
        touch(at, false);
        Answer::No
    });
    if code == -libc::SIGSEGV { "yes".to_owned() } else { say(code) }
}

fn main() {
    let keepers = keepers();
    let dumps = std::env::temp_dir().join(format!("secret-dumps-{}", std::process::id()));
    let has = |name: &'static str| {
        move |keeper: &Keeper| {
            say(ask(|| {
                let (kept, at) = stamped(keeper, 4096);
                let answer = yes(flag(at, name));
                drop(kept);
                answer
            }))
        }
    };
    type Question<'a> = (&'a str, Box<dyn Fn(&Keeper) -> String + 'a>);
    let questions: Vec<Question<'_>> = vec![
        ("a byte read behind the end faults", Box::new(|k| faults(k, 100, 100, false))),
        ("reading backwards from a page of secret faults after", Box::new(bytes_in_front)),
        ("a byte written before the start is seen", Box::new(|k| is_seen(k, -1, 100))),
        ("a byte written 32 before the start is seen", Box::new(|k| is_seen(k, -32, 100))),
        ("locked (`lo`)", Box::new(has("lo"))),
        ("a refused lock is told", Box::new(says_that_it_is_not_locked)),
        ("of 10,000 keys, locked under 8 MiB", Box::new(locked_under_8_mib)),
        ("left out of a core dump", Box::new(|k| is_left_out_of_dumps(k, &dumps))),
        ("zero in a forked child", Box::new(is_zero_in_a_child)),
        ("a child may drop it, the parent keeps it", Box::new(may_a_child_drop)),
        ("no huge pages (`nh`)", Box::new(has("nh"))),
        ("wiped after drop", Box::new(is_wiped_on_drop)),
        ("closed between uses", Box::new(is_closed_between_uses)),
        (
            "hidden from `/proc/self/mem`",
            Box::new(|k| say(ask(|| yes(!peek(stamped(k, 64).1, &mut [0; 64]))))),
        ),
    ];
    println!("| | {} |", keepers.iter().map(|keeper| keeper.name).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(keepers.len()));
    for (what, question) in questions {
        let answers: Vec<_> = keepers.iter().map(question).collect();
        println!("| {what} | {} |", answers.join(" | "));
    }
}
