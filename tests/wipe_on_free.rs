//! Where freed blocks are wiped, nothing that was ever written into a vector is in this process once it is dropped.
//!
//! All memory that the process can write to is searched through `/proc/self/mem`. That the search would find it is
//! shown by the same child with wiping turned off by the environment.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::process::Command;

use zk_nalloc::{Config, NAlloc};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().wipe_on_free(true));

/// The n-th word of a witness. Consecutive words are recognised, so that one left in a register or a spill is not.
fn word(n: u64) -> u64 {
    (n + 0x1234_5678).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn witness(words: u64) -> Vec<u64> {
    (0..words).map(word).collect()
}

/// Everything that a vector goes through: growth by pushing, shrinking in place and across the border, copies.
fn use_witness() {
    for words in [3, 100, 5_000, 9_000, 100_000, 700_000, 5_000_000] {
        let mut v = witness(words);
        let copy = v.clone();
        v.reserve_exact(words as usize / 2);
        v.truncate(words as usize * 2 / 3);
        v.shrink_to_fit();
        let (boxed, small) = (v.clone().into_boxed_slice(), v[..v.len().min(60)].to_vec());
        v.truncate(40);
        v.shrink_to_fit();
        black_box((&v, &copy, &boxed, &small));
        drop(copy);
        let mut pushed = Vec::new();
        boxed.iter().for_each(|&w| pushed.push(w));
        black_box(&pushed);
    }
}

/// How many runs of three words of the witness are in memory, and where the first is.
fn found() -> (usize, Option<usize>) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    // On its own, so that what is read does not lie in memory that is still to be searched.
    let mut page = vec![0_u8; 1 << 16];
    let own = page.as_ptr_range();
    let (mut count, mut first) = (0, None);
    let start = word(0);
    for line in
        maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|p| p.starts_with("rw")))
    {
        let (from, to) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap());
        for at in (from..to).step_by(page.len()) {
            let len = page.len().min(to - at);
            let read = memory.read_at(&mut page[..len], at as u64).unwrap_or(0);
            let words: Vec<u64> =
                page[..read].chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
            for (n, three) in words.windows(3).enumerate() {
                let consecutive = three[1] == three[0].wrapping_add(0x9E37_79B9_7F4A_7C15)
                    && three[2] == three[1].wrapping_add(0x9E37_79B9_7F4A_7C15);
                let here = at + n * 8;
                if consecutive && three[0] != start && !own.contains(&std::ptr::without_provenance(here)) {
                    count += 1;
                    first = first.or(Some(here));
                }
            }
            // The copies are of this very search.
            page.fill(0);
            drop(words);
        }
    }
    (count, first)
}

#[test]
fn nothing_of_a_witness_is_left_in_memory() {
    const CHILD: &str = "ZK_NALLOC_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        use_witness();
        let (count, first) = found();
        println!("\nfound {count} first {first:x?}");
        return;
    }
    let child = |wipe: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "nothing_of_a_witness_is_left_in_memory",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(CHILD, "1").env_remove("ZK_NALLOC_WIPE_ON_FREE");
        if let Some(wipe) = wipe {
            command.env("ZK_NALLOC_WIPE_ON_FREE", wipe);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = said.lines().find_map(|line| line.strip_prefix("found ")).unwrap().to_owned();
        (count.split_whitespace().next().unwrap().parse::<usize>().unwrap(), count)
    };
    assert!(child(Some("0")).0 > 1000, "the search does not find what is there");
    for wipe in [None, Some("1")] {
        let (count, said) = child(wipe);
        assert_eq!(count, 0, "{said}");
    }
}
