//! A shared library that has the allocator, in a program that has not: it is loaded, used, unloaded while threads live that
//! have used it, and loaded again.

#![expect(unsafe_code, reason = "loads and unloads a library")]

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

/// Builds the example, optimised if this test is, and says where it lies.
fn built() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--package", "zk-nalloc", "--example", "prover_library", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let made =
        messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
            let is_it =
                message["target"]["name"] == "prover_library" && message["reason"] == "compiler-artifact";
            is_it.then(|| message["filenames"][0].as_str().map(PathBuf::from)).flatten()
        });
    made.expect("cargo says what it made")
}

/// Whether a part of that file is mapped.
fn is_mapped(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap())
}

/// The library, as long as it is loaded.
struct Library(*mut c_void);

impl Library {
    fn load(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string. Loading runs the library's constructors, which are std's and the allocator's: these
        // register handlers around forks, which glibc takes off the list when it unloads the library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{}", path.display());
        assert!(is_mapped(path), "a library of another name is loaded");
        Self(handle)
    }

    /// Unloads it, and sees that it is.
    fn unload(self, path: &Path) {
        // SAFETY: the handle is one of `dlopen`, and given back once; no function of the library is called any more.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
        assert!(!is_mapped(path), "it is still there");
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is one of `dlopen`.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    fn prove(&self) -> extern "C" fn(usize) -> u64 {
        // SAFETY: that is what `prove` is.
        unsafe { core::mem::transmute(self.find(c"prove")) }
    }

    fn release(&self) -> extern "C" fn() -> usize {
        // SAFETY: that is what `release` is.
        unsafe { core::mem::transmute(self.find(c"release")) }
    }
}

const ROWS: usize = 1 << 18;
const SUM: u64 = (ROWS * (ROWS - 1)) as u64;

/// A thread that has used it ends after it is gone, and a fork asks nobody that is gone either.
#[test]
fn a_library_is_unloaded_while_threads_live_that_used_it() {
    let path = built();
    support::in_both_modes("a_library_is_unloaded_while_threads_live_that_used_it", || {
        for _ in 0..3 {
            let library = Library::load(&path);
            let prove = library.prove();
            let (used, is_used) = mpsc::channel();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let user = thread::spawn(move || {
                let sums = [prove(ROWS), prove(ROWS)];
                used.send(sums).unwrap();
                may_go_on.recv().unwrap();
            });
            assert_eq!(is_used.recv().unwrap(), [SUM; 2]);
            assert_eq!(prove(ROWS), SUM);
            assert!(library.release()() > 0);
            library.unload(&path);
            go_on.send(()).unwrap();
            user.join().unwrap();
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: it ends.
                unsafe { libc::_exit(0) };
            }
            let mut status = 1;
            // SAFETY: the child is ours, and the status is a place for one.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    });
}
