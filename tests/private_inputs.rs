//! The example that reads private inputs: what is no plain file is read to its end, and nothing is cut off.

#[expect(dead_code, reason = "only the part that reads is looked at")]
#[path = "../examples/private_inputs.rs"]
mod private_inputs;

use std::process::Command;
use std::thread;

use private_inputs::read_private_inputs;
use zk_nalloc::secret::Protection;

/// It was taken for an empty file.
#[test]
fn a_pipe_is_read_to_its_end() {
    let pipe = std::env::temp_dir().join(format!("zk-nalloc-inputs-{}", std::process::id()));
    let _ = std::fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, [7; 100_000])
    });
    let inputs = read_private_inputs(pipe.to_str(), Protection::standard()).unwrap();
    // Whoever writes is told so if nobody has read all of it.
    writer.join().unwrap().unwrap();
    assert!(inputs == [7; 100_000][..]);
    std::fs::remove_file(pipe).unwrap();
}

#[test]
fn a_plain_file_is_read_in_one_step() {
    let file = std::env::temp_dir().join(format!("zk-nalloc-inputs-plain-{}", std::process::id()));
    std::fs::write(&file, [7; 100_000]).unwrap();
    assert!(read_private_inputs(file.to_str(), Protection::standard()).unwrap() == [7; 100_000][..]);
    std::fs::remove_file(file).unwrap();
}

/// As one does that has grown since its length was asked: what came after that was left out.
#[test]
fn a_file_that_holds_more_than_it_says_is_an_error() {
    let refused = read_private_inputs(Some("/proc/self/status"), Protection::standard()).unwrap_err();
    assert!(refused.to_string().contains("more in it than the 0 bytes"), "{refused}");
}
