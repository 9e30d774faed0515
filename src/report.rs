//! A page about what memory cost a process, and what to do about it, at its end.
//!
//! Who asks is the environment ([`variable`]); what is asked for is written when the process exits, or is asked to end by a
//! signal. What was measured is gathered in [`seen`], what it means is said by [`advice`], and [`page`] puts it on paper.
//!
//! Invariants: [`arm`] runs in somebody's first large request, so it allocates nothing and formats nothing; all else runs
//! at the end of the process or when somebody asks. A forked child reports nothing: it is not the process that was asked
//! about; one of a process that had made no large request is. A report that cannot be written is one line on standard error, never a failure of the process.

mod advice;
mod page;
mod seen;
mod variable;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::os::{self, Linux, Os, fork};
use crate::sync::process::{AtomicU64, Ordering};
use variable::{Find, Head, REPORT, SIGNALS, Wish};

/// The process that reports, as [`fork::mark`] has it; 0 where none does.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Returns a page about this process: its times and page faults, the allocator's table, the largest sizes, the phases, and
/// advice in plain words. For people; what it says may change. Takes about ten milliseconds, and one more for each GiB in small
/// pages.
///
/// `ZK_NALLOC_REPORT=1` prints the same on standard error when the process ends, `ZK_NALLOC_REPORT=report-%p.txt` into a
/// file, which is replaced if it is there (a name with a slash or a dot in it; `%p` is the number of the process, `%%` a percent sign).
///
/// ```
/// let page = zk_nalloc::report();
/// assert!(page.contains("advice"));
/// ```
#[must_use]
pub fn report() -> String {
    page::page(&seen::now(), "so far")
}

/// Has the process report at its end if the environment asks for it. Once in a process, in its first large request.
pub(crate) fn arm() {
    let (mut said, mut signals) = (Head::new(), Head::new());
    let mut push = (|byte| said.push(byte), |byte| signals.push(byte));
    let mut finds = [Find::new(REPORT, &mut push.0), Find::new(SIGNALS, &mut push.1)];
    Linux.environment(&mut |piece| finds.iter_mut().for_each(|find| find.feed(piece)));
    let at_signals = variable::switch(signals.bytes());
    if at_signals.is_none() {
        let shown = signals.shown();
        Linux.say(&["zk-nalloc: ", SIGNALS, "=\"", shown, "\" is none of 0, 1; taken instead: 0"]);
    }
    match said.wish() {
        Wish::Nowhere => return,
        Wish::Unclear => {
            let shown = said.shown();
            return Linux.say(&[
                "zk-nalloc: ",
                REPORT,
                "=\"",
                shown,
                "\" is none of 0, 1 and no path (one has a slash or a dot in it); taken instead: 0",
            ]);
        }
        Wish::StandardError | Wish::File => {}
    }
    // Relaxed: the exit hook runs in this thread, or after it was told of by `exit`; the other reader is behind a thread's
    // start.
    PROCESS.store(fork::mark(), Ordering::Relaxed);
    if os::at_exit(at_exit).is_err() {
        Linux.say(&["zk-nalloc: ", REPORT, ": there will be no report: libc keeps no more exit handlers"]);
    }
    if at_signals == Some(true) && os::at_signals(at_signal).is_err() {
        Linux.say(&[
            "zk-nalloc: ",
            SIGNALS,
            ": there will be no report at signals: no thread could be started",
        ]);
    }
}

/// Gives the bytes of a variable's value, as the process was started with it.
fn read(name: &'static str, value: &mut dyn FnMut(u8)) {
    let mut find = Find::new(name, value);
    Linux.environment(&mut |piece| find.feed(piece));
}

extern "C" fn at_exit() {
    write("at its end");
}

fn at_signal(signal: i32) {
    write(if signal == os::INTERRUPT { "at SIGINT" } else { "at SIGTERM" });
}

/// Writes the report to where the environment wants it.
fn write(when: &str) {
    // Relaxed: see `arm`.
    if PROCESS.load(Ordering::Relaxed) != fork::mark() {
        return;
    }
    // What goes wrong in here is no reason for the process to end otherwise than it would have.
    let _ = std::panic::catch_unwind(|| {
        let page = page::page(&seen::now(), when);
        let mut value = Vec::new();
        read(REPORT, &mut |byte| value.push(byte));
        if variable::wish(&value) == Wish::File {
            let path = variable::path(&value, std::process::id());
            let shown = variable::shown(&path);
            let path = PathBuf::from(OsString::from_vec(path));
            match os::unsignalled(|| std::fs::write(&path, &page)) {
                Ok(()) => return,
                Err(why) => Linux.say(&[
                    "zk-nalloc: ",
                    REPORT,
                    "=\"",
                    &shown,
                    "\" cannot be written: ",
                    &why.to_string(),
                    "; the report follows here",
                ]),
            }
        }
        // Whoever has closed it wants none.
        let _ = os::write_error(page.as_bytes());
    });
}
