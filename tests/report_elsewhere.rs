//! A page at the end of a process that another one has started with much in memory, or that cannot write it.

#![expect(unsafe_code, reason = "signals, and descriptors")]

#[path = "support/limit.rs"]
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod limit;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::fs;

use limit::set_limit;
use support::child;
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const ON: &[(&str, &str)] = &[("ZK_NALLOC_REPORT", "1")];

/// Some rounds of buffers.
fn work() {
    for round in 0..10_u8 {
        let buffers: Vec<Vec<u8>> = (1..6).map(|i| vec![round; i << 23]).collect();
        assert!(buffers.iter().all(|b| b[77] == round));
    }
}

/// `getrusage` goes on from what the process had that started this one.
#[test]
fn what_the_launcher_had_in_memory_is_not_this_process_s() {
    let is_launcher = std::env::var_os(support::LABEL).is_none();
    let launcher = vec![1_u8; if is_launcher { 600 << 20 } else { 8 }];
    let ended = child("what_the_launcher_had_in_memory_is_not_this_process_s", "child", ON, work);
    assert_eq!(launcher[7], 1);
    let Some(ended) = ended else { return };
    ended.assert_well();
    let page = ended.said();
    let row = page.lines().find(|line| line.contains("memory, at its highest")).expect("there is such a row");
    let mib = row.split_whitespace().find_map(|word| word.parse::<f64>().ok()).expect("a number");
    assert!(row.contains("MiB") && (50.0..450.0).contains(&mib), "{row}");
}

/// The signal that a write at a limit, or to nobody, brings ended the process.
#[test]
fn a_report_that_cannot_be_written_ends_no_process() {
    const TEST: &str = "a_report_that_cannot_be_written_ends_no_process";
    let path = std::env::temp_dir().join(format!("zk-nalloc-report-{}.txt", std::process::id()));
    let ended = child(TEST, "limit", &[("ZK_NALLOC_REPORT", path.to_str().unwrap())], || {
        work();
        set_limit(libc::RLIMIT_FSIZE, 1 << 10);
    });
    if let Some(ended) = ended {
        ended.assert_well();
        assert!(ended.said().contains("cannot be written: File too large"), "{}", ended.said());
        fs::remove_file(&path).unwrap();
    }
    let ended = child(TEST, "nobody reads", ON, || {
        work();
        let mut ends = [0; 2];
        // SAFETY: as C programs do; the descriptors are this child's own.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::dup2(ends[1], libc::STDERR_FILENO), libc::STDERR_FILENO);
            assert_eq!((libc::close(ends[0]), libc::close(ends[1])), (0, 0));
        }
    });
    if let Some(ended) = ended {
        assert!(ended.output.status.success(), "{:?}", ended.output);
    }
}
