//! More names of phases than there are lines for, in a process of their own.

use zk_nalloc::{NAlloc, Phase, Trim, cached_bytes};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// One of many names had the cache released at the end of each of the others.
#[test]
fn what_one_of_the_names_without_a_line_wants_is_not_done_to_the_others() {
    let names = (0..70).map(|i| &*format!("name {i}").leak());
    let phases: Vec<Phase> = names.map(Phase::named).collect();
    assert_eq!([phases[68].name(), phases[69].name()], ["(other)"; 2]);
    let _ = phases[68].trim(Trim::Release);
    phases[69].run(|| drop(std::hint::black_box(vec![1_u8; 64 << 20])));
    assert!(cached_bytes() >= 64 << 20);
    assert_eq!(phases[69].prefault(), 0);
}
