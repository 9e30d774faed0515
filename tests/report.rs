//! `ZK_NALLOC_REPORT`: a page at the end of a process, however it ends.

#![expect(unsafe_code, reason = "signals, and a child that is forked")]

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::child;
use zk_nalloc::{NAlloc, phase_named, prefault, report};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const ON: &[(&str, &str)] = &[("ZK_NALLOC_REPORT", "1")];

/// Some rounds of buffers.
fn work() {
    for round in 0..10_u8 {
        phase_named("round", || {
            let buffers: Vec<Vec<u8>> = (1..6).map(|i| vec![round; i << 23]).collect();
            assert!(buffers.iter().all(|b| b[77] == round));
        });
    }
}

/// Asserts that a page is whole.
fn assert_page(page: &str, when: &str) {
    for part in [
        when,
        "the process",
        "page faults",
        "large requests",
        "= hits",
        "largest sizes",
        "peak by stage",
        "round",
        "advice",
        "1. ",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 110), "{page}");
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("zk-nalloc-report-{}-{name}", std::process::id()))
}

#[test]
fn a_process_that_exits_reports() {
    const TEST: &str = "a_process_that_exits_reports";
    // `child` ends the process by `exit`.
    if let Some(ended) = child(TEST, "on", ON, work) {
        ended.assert_well();
        assert_page(&ended.said(), "at its end");
    }
    for off in [&[][..], &[("ZK_NALLOC_REPORT", "0")], &[("ZK_NALLOC_REPORT", "")]] {
        if let Some(ended) = child(TEST, "off", off, work) {
            ended.assert_well();
            assert!(!ended.said().contains("zk-nalloc"), "{}", ended.said());
        }
    }
}

#[test]
fn a_process_that_returns_from_main_reports() {
    const RETURNS: &str = "ZK_NALLOC_TEST_RETURNS";
    if std::env::var_os(RETURNS).is_some() {
        // The harness returns from its `main` when this has.
        return work();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_returns_from_main_reports", "--nocapture", "--test-threads=1"])
        .env(RETURNS, "1")
        .env("ZK_NALLOC_REPORT", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_page(&String::from_utf8_lossy(&output.stderr), "at its end");
}

#[test]
fn into_a_file_with_the_number_of_the_process() {
    const TEST: &str = "into_a_file_with_the_number_of_the_process";
    let folder = scratch("files");
    fs::create_dir_all(&folder).unwrap();
    let path =
        folder.join("a long name, longer than what other variables keep of theirs, with blanks %% %p.txt");
    let ended = child(TEST, "child", &[("ZK_NALLOC_REPORT", path.to_str().unwrap())], work);
    if let Some(ended) = ended {
        ended.assert_well();
        assert!(!ended.said().contains("zk-nalloc"), "{}", ended.said());
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let name = files[0].file_name().unwrap().to_str().unwrap().to_owned();
        assert!(files.len() == 1 && name.contains("with blanks % ") && !name.contains("%p"), "{files:?}");
        assert_page(&fs::read_to_string(&files[0]).unwrap(), "at its end");
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// The page took the faults of prefault for somebody else's, and for such as had not happened.
#[test]
fn what_is_faulted_in_ahead_is_the_large_sides() {
    let environment = [ON[0], ("ZK_NALLOC_THP", "never")];
    let ended = child("what_is_faulted_in_ahead_is_the_large_sides", "child", &environment, || {
        assert!(prefault(512 << 20) >= 512 << 20);
        let block = vec![1_u8; 480 << 20];
        // Of less time nothing is said.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(400) {
            std::hint::black_box(&block[..1 << 20]).iter().for_each(|&b| assert_eq!(b, 1));
        }
    });
    if let Some(ended) = ended {
        ended.assert_well();
        let said = ended.said();
        assert!(said.contains("advice") && !said.contains("Too little has happened"), "{said}");
        assert!(!said.contains("are not the large side's") && !said.contains("page faults more"), "{said}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_one_line() {
    const TEST: &str = "what_cannot_be_read_or_written_is_one_line";
    for (label, environment, line, page) in [
        (
            "unclear",
            &[("ZK_NALLOC_REPORT", "yes\u{1b}[31m")][..],
            "zk-nalloc: ZK_NALLOC_REPORT=\"yes?[31m\" is none of 0, 1 and no path (one has a slash or a dot in it); taken \
             instead: 0",
            false,
        ),
        (
            "no such folder",
            &[("ZK_NALLOC_REPORT", "/no/such/folder/report")],
            "zk-nalloc: ZK_NALLOC_REPORT=\"/no/such/folder/report\" cannot be written: No such file or directory (os error \
             2); the report follows here",
            true,
        ),
        (
            "no such folder, of a name that could harm a terminal",
            &[("ZK_NALLOC_REPORT", "/no/such\u{1b}[31m/folder\nzk-nalloc: \u{20ac}")],
            "zk-nalloc: ZK_NALLOC_REPORT=\"/no/such?[31m/folder?zk-nalloc: ???\" cannot be written: No such file or directory \
             (os error 2); the report follows here",
            true,
        ),
        (
            "unclear signals",
            &[("ZK_NALLOC_REPORT", "1"), ("ZK_NALLOC_REPORT_SIGNALS", "TERM")],
            "zk-nalloc: ZK_NALLOC_REPORT_SIGNALS=\"TERM\" is none of 0, 1; taken instead: 0",
            true,
        ),
        (
            "unclear signals, and no report",
            &[("ZK_NALLOC_REPORT_SIGNALS", "on")],
            "zk-nalloc: ZK_NALLOC_REPORT_SIGNALS=\"on\" is none of 0, 1; taken instead: 0",
            false,
        ),
    ] {
        let Some(ended) = child(TEST, label, environment, work) else { continue };
        ended.assert_well();
        let said = ended.said();
        assert_eq!(said.lines().filter(|l| *l == line).count(), 1, "{said}");
        assert_eq!(said.lines().filter(|l| l.starts_with("zk-nalloc: ZK")).count(), 1, "{said}");
        assert_eq!(said.contains("at its end"), page, "{said}");
    }
}

#[test]
fn a_forked_child_reports_nothing() {
    let ended = child("a_forked_child_reports_nothing", "child", ON, || {
        work();
        // SAFETY: the child allocates a little and exits, hooks and all; no other thread runs that could hold a lock.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                work();
                libc::exit(0);
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
    });
    let Some(ended) = ended else { return };
    ended.assert_well();
    assert_eq!(ended.said().matches("at its end").count(), 1, "{}", ended.said());
}

/// Waits until a signal is heard, which takes a thread a moment.
fn wait_until_heard(number: i32) {
    loop {
        // SAFETY: all-zero is a valid `sigaction`, and is all that the call writes.
        let (handler, flags) = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(number, std::ptr::null(), &raw mut now), 0);
            (now.sa_sigaction, now.sa_flags)
        };
        if handler != libc::SIG_DFL {
            // Go runs threads on stacks of a few KiB, and demands it.
            assert_ne!(flags & libc::SA_ONSTACK, 0);
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has a signal do what it does by default if it is ignored, as SIGINT is in what a shell runs in the background: children
/// inherit that, and an ignored signal is not reported.
fn not_ignored(number: i32) {
    // SAFETY: all-zero is a valid `sigaction`, and is all that the first call writes; the other sets the default.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(number, std::ptr::null(), &raw mut now), 0);
        if now.sa_sigaction == libc::SIG_IGN {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// Sends this process a signal, and waits for what becomes of it.
fn signal(number: i32) {
    // SAFETY: a signal to ourselves.
    unsafe { libc::raise(number) };
    std::thread::sleep(Duration::from_secs(20));
    panic!("the signal was not sent again");
}

const SIGNALS: &[(&str, &str)] = &[("ZK_NALLOC_REPORT", "1"), ("ZK_NALLOC_REPORT_SIGNALS", "1")];

#[test]
fn a_signal_is_reported_and_then_does_what_it_does() {
    const TEST: &str = "a_signal_is_reported_and_then_does_what_it_does";
    for (name, number) in [("SIGINT", libc::SIGINT), ("SIGTERM", libc::SIGTERM)] {
        not_ignored(number);
        let ended = child(TEST, name, SIGNALS, || {
            work();
            wait_until_heard(number);
            signal(number);
        });
        let Some(ended) = ended else { continue };
        assert_eq!(ended.output.status.signal(), Some(number), "{}", ended.said());
        assert_page(&ended.said(), &format!("at {name}"));
    }
    // Not asked for, it is as it was.
    let ended = child(TEST, "off", ON, || {
        work();
        signal(libc::SIGTERM);
    });
    let Some(ended) = ended else { return };
    assert_eq!(ended.output.status.signal(), Some(libc::SIGTERM));
    assert!(!ended.said().contains("advice"), "{}", ended.said());
}

/// Where a pipe is to be that the report goes into; in the child, where its parent chose.
fn pipe(name: &str) -> PathBuf {
    let own = || std::env::temp_dir().join(format!("zk-nalloc-pipe-{name}-{}", std::process::id()));
    std::env::var_os("ZK_NALLOC_REPORT").map_or_else(own, PathBuf::from)
}

/// A child has the handler, and not the thread that it wakes: it could not be ended but by SIGKILL.
#[test]
fn a_forked_child_ends_by_a_signal_as_ever() {
    not_ignored(libc::SIGTERM);
    let ended = child("a_forked_child_ends_by_a_signal_as_ever", "child", SIGNALS, || {
        work();
        wait_until_heard(libc::SIGTERM);
        // SAFETY: the child makes nothing but system calls; the parent waits for it.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::sleep(20);
                libc::_exit(0);
            }
            assert!(pid > 0 && libc::kill(pid, libc::SIGTERM) == 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status
        };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM, "{status:#x}");
    });
    let Some(ended) = ended else { return };
    ended.assert_well();
    assert!(!ended.said().contains("at SIGTERM"), "{}", ended.said());
}

/// A handler that passes a signal on to the one that it found got it back from there, without end.
#[test]
fn whoever_takes_a_signal_over_may_pass_it_on() {
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(signal: i32) {
        CALLED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the handler that was in force, which takes the number of a signal.
        unsafe {
            let found: extern "C" fn(i32) = std::mem::transmute(FOUND.load(Ordering::Relaxed));
            found(signal);
        }
    }
    not_ignored(libc::SIGTERM);
    let ended = child("whoever_takes_a_signal_over_may_pass_it_on", "child", SIGNALS, || {
        work();
        wait_until_heard(libc::SIGTERM);
        // SAFETY: the handler adds to a number, and passes the signal on. The child makes nothing but system calls.
        unsafe {
            FOUND.store(libc::signal(libc::SIGTERM, handler as *const () as usize), Ordering::Relaxed);
            harmless_signal();
            assert_eq!(CALLED.load(Ordering::Relaxed), 1);
            let pid = libc::fork();
            if pid == 0 {
                libc::alarm(20);
                libc::raise(libc::SIGTERM);
                libc::_exit(CALLED.load(Ordering::Relaxed) as i32);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 2, "{status:#x}");
        }
    });
    let Some(ended) = ended else { return };
    ended.assert_well();
    assert!(!ended.said().contains("at SIGTERM"), "{}", ended.said());
}

/// Only the first signal was sent again; what it does need not be the end.
#[test]
fn a_signal_that_comes_while_another_is_reported_is_not_lost() {
    const TEST: &str = "a_signal_that_comes_while_another_is_reported_is_not_lost";
    extern "C" fn handler(_: i32) {}
    not_ignored(libc::SIGTERM);
    let pipe = pipe("too");
    let environment = [("ZK_NALLOC_REPORT", pipe.to_str().unwrap()), SIGNALS[1]];
    let ended = child(TEST, "child", &environment, || {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGINT, handler as *const () as usize) };
        work();
        wait_until_heard(libc::SIGTERM);
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: makes a pipe with a name, and sends signals to ourselves.
        unsafe {
            assert_eq!(libc::mkfifo(name.as_ptr(), 0o600), 0);
            libc::raise(libc::SIGINT);
            libc::raise(libc::SIGTERM);
        }
        // Now somebody reads the report.
        drop(fs::read(&pipe));
        std::thread::sleep(Duration::from_secs(20));
        panic!("the second signal was not sent again");
    });
    let Some(ended) = ended else { return };
    let _ = fs::remove_file(&pipe);
    assert_eq!(ended.output.status.signal(), Some(libc::SIGTERM), "{}", ended.said());
}

#[test]
fn a_report_that_nobody_reads_holds_up_the_first_signal_alone() {
    const TEST: &str = "a_report_that_nobody_reads_holds_up_the_first_signal_alone";
    not_ignored(libc::SIGTERM);
    let pipe = pipe("slow");
    let environment = [("ZK_NALLOC_REPORT", pipe.to_str().unwrap()), SIGNALS[1]];
    let ended = child(TEST, "child", &environment, || {
        work();
        wait_until_heard(libc::SIGTERM);
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: makes a pipe with a name.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        harmless_signal();
        std::thread::sleep(Duration::from_millis(1_200));
        signal(libc::SIGTERM);
    });
    let Some(ended) = ended else { return };
    let _ = fs::remove_file(&pipe);
    assert_eq!(ended.output.status.signal(), Some(libc::SIGTERM), "{}", ended.said());
}

/// A signal to ourselves that does not end the process, with time for what comes of it.
fn harmless_signal() {
    std::thread::sleep(Duration::from_millis(200));
    // SAFETY: it is ignored, or handled by what stores a flag.
    unsafe { libc::raise(libc::SIGTERM) };
    std::thread::sleep(Duration::from_millis(200));
}

/// It waited for that thread, for ever.
#[test]
fn a_thread_that_never_lets_go_of_standard_error_does_not_keep_the_process() {
    let test = "a_thread_that_never_lets_go_of_standard_error_does_not_keep_the_process";
    let ended = child(test, "child", ON, || {
        work();
        let (says, locked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _lock = std::io::stderr().lock();
            says.send(()).unwrap();
            std::thread::sleep(Duration::from_secs(3600));
        });
        locked.recv().unwrap();
    });
    let Some(ended) = ended else { return };
    ended.assert_well();
    assert_page(&ended.said(), "at its end");
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    const IGNORES: &str = "ZK_NALLOC_TEST_IGNORES";
    if std::env::var_os(IGNORES).is_some() {
        work();
        return harmless_signal();
    }
    // A shell, because what this process ignores its other tests' children would too.
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' TERM; exec \"$@\"", "sh", program.to_str().unwrap()])
        .args(["--exact", "a_signal_that_was_ignored_stays_ignored", "--nocapture", "--test-threads=1"])
        .env(IGNORES, "1")
        .envs(SIGNALS.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("at SIGTERM") && said.contains("at its end"), "{said}");
}

#[test]
fn whoever_takes_a_signal_over_later_keeps_it() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn handler(_: i32) {
        CALLED.store(true, Ordering::Relaxed);
    }
    let ended = child("whoever_takes_a_signal_over_later_keeps_it", "child", SIGNALS, || {
        work();
        wait_until_heard(libc::SIGTERM);
        // SAFETY: the handler does nothing but store a flag.
        unsafe { libc::signal(libc::SIGTERM, handler as *const () as usize) };
        harmless_signal();
        assert!(CALLED.load(Ordering::Relaxed));
    });
    let Some(ended) = ended else { return };
    ended.assert_well();
    assert!(!ended.said().contains("at SIGTERM"), "{}", ended.said());
}

#[test]
fn whoever_asks_gets_a_page_at_any_time() {
    work();
    assert_page(&report(), "so far");
}
