//! From a process that records, through the file, to a page that is whole.
//!
//! The process is this test again, with the allocator of the project and a variable of the environment.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use zk_nalloc::{NAlloc, phase_named};
use zk_nalloc_trace::summary::Summary;
use zk_nalloc_trace::{Deed, Outcome, Story, Trace, pack, picture};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const CHILD: &str = "ZK_NALLOC_TEST_CHILD";

/// What the child does: 40 MiB in blocks of two threads, one of which grows, one that is barely touched.
fn work() {
    let kept = phase_named("begun before the trace, with <a name>", || {
        phase_named("inside", || std::hint::black_box(vec![1_u8; 10 << 20]))
    });
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 1..=8_u8 {
                    drop(std::hint::black_box(vec![round; 3 << 20]));
                }
            });
        }
    });
    let mut grows = Vec::with_capacity(1 << 20);
    for _ in 0..5 {
        grows.resize(grows.capacity(), 7_u8);
        grows.reserve_exact(grows.capacity());
    }
    let mut sparse = std::hint::black_box(vec![0_u8; 64 << 20]);
    sparse[40 << 20] = 1;
    drop((kept, grows, sparse));
}

/// Runs the child; gives its trace and where it lies.
fn recorded(name: &str) -> (PathBuf, Trace) {
    let path = std::env::temp_dir().join(format!("zk-nalloc-recorded-{name}-{}", std::process::id()));
    let test = thread::current().name().expect("tests are named").to_owned();
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &test, "--test-threads=1"])
        .env(CHILD, "1")
        .env("ZK_NALLOC_TRACE", &path)
        .status()
        .expect("the child starts");
    assert!(status.success());
    let trace = Trace::read(&path).expect("a trace");
    (path, trace)
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn what_was_done_is_told() {
    if is_child() {
        return work();
    }
    let (path, trace) = recorded("told");
    let story = Story::of(&trace);
    assert!(trace.header.finished && trace.header.lost == 0 && trace.holes == 0 && story.strays == 0);
    assert_eq!(trace.header.events, trace.events.len() as u64);
    // 10 MiB, 32 grown to, 64.
    assert!((106 << 20..112 << 20).contains(&story.peak_live), "{}", story.peak_live);
    let phases: Vec<_> = story.phases.iter().map(|phase| (phase.name.as_str(), phase.depth)).collect();
    assert_eq!(phases, [("begun before the trace, with <a name>", 0), ("inside", 1)]);
    let of = |size: u64| story.blocks.iter().filter(move |block| block.size_first == size);
    assert_eq!((of(3 << 20).count(), of(10 << 20).count()), (16, 1));
    let grown = of(1 << 20).max_by_key(|block| block.resized).expect("it was taken");
    assert!(grown.resized >= 5 && grown.size >= 32 << 20 && grown.freed.is_some());
    let resized = |step: &&zk_nalloc_trace::Step| {
        matches!(
            step.deed,
            Deed::Resized { outcome: Outcome::InPlace | Outcome::Moved | Outcome::Copied, .. }
        )
    };
    assert!(story.steps.iter().filter(resized).count() >= 5);
    let sparse = of(64 << 20).next().expect("it was taken");
    assert!(sparse.zeroed);
    if let Some(touched) = sparse.touched.filter(|_| trace.header.huge_page <= 2 << 20) {
        assert!(touched.resident <= 8 << 20, "{touched:?}");
    }
    assert!(story.samples.iter().any(|sample| sample.anonymous > 0 && sample.resident > 0));
    let summary = Summary::of(&trace, &story);
    assert!(summary.faults > 0 && summary.classes.iter().any(|class| class.from == 64 << 20));
    assert!(summary.caveats(&story).is_empty() && summary.table(&story).contains("peak live"));
    std::fs::remove_file(path).expect("was written");
}

#[test]
fn the_page_is_whole_and_shows_it() {
    if is_child() {
        return work();
    }
    let (path, trace) = recorded("page");
    let story = Story::of(&trace);
    let page = picture::page("a <b> & \"c\"", &trace, &story);
    // What XML takes, every browser takes: no tag is left open, and nothing of the title is one.
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).expect("well-formed");
    let count = |name: &str| document.descendants().filter(|node| node.tag_name().name() == name).count();
    assert_eq!((count("svg"), count("script"), count("html"), count("h1")), (2, 2, 1, 1));
    assert_eq!(count("g"), 2, "a band for each phase");
    assert!(count("rect") >= 6 && count("table") == 2 && count("tr") > 3, "{}", count("rect"));
    let heading = document.descendants().find(|node| node.tag_name().name() == "h1").expect("a heading");
    assert_eq!(heading.text(), Some("a <b> & \"c\""));
    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids, ["chart", "cursor", "tip", "columns"]);
    let data =
        document.descendants().find(|node| node.attribute("id") == Some("columns")).and_then(|n| n.text());
    let columns: serde_json::Value = serde_json::from_str(data.expect("data")).expect("JSON");
    let live = columns["live"].as_array().expect("a list");
    assert_eq!(live.len(), 1000);
    assert_eq!(live.iter().filter_map(serde_json::Value::as_u64).max(), Some(story.peak_live >> 10));
    // Nothing comes from elsewhere.
    for from in ["src=", "href=", "url(", "@import", "http:"] {
        let found: Vec<_> =
            page.match_indices(from).map(|(at, _)| &page[at..(at + 40).min(page.len())]).collect();
        assert!(found.iter().all(|text| text.starts_with("http://www.w3.org")), "{found:?}");
    }
    let packed = path.with_extension("gz");
    pack(&path, &packed).expect("packed");
    assert_eq!(Trace::read(&packed).expect("a trace"), trace);
    std::fs::remove_file(path).expect("was written");
    std::fs::remove_file(packed).expect("was written");
}

#[test]
fn a_process_that_is_killed_leaves_what_was_written() {
    if is_child() {
        // More than one piece.
        for _ in 0..6 {
            for _ in 0..500 {
                drop(std::hint::black_box(vec![1_u8; 70_000]));
            }
        }
        // As a panic in an allocator would, or a full disk: without what is registered for the exit.
        std::process::abort();
    }
    let path = std::env::temp_dir().join(format!("zk-nalloc-recorded-killed-{}", std::process::id()));
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_process_that_is_killed_leaves_what_was_written"])
        .env(CHILD, "1")
        .env("ZK_NALLOC_TRACE", &path)
        .output()
        .expect("the child starts")
        .status;
    assert!(!status.success());
    let trace = Trace::read(&path).expect("a trace");
    let story = Story::of(&trace);
    assert!(!trace.header.finished && trace.events.len() >= 2048 && story.strays == 0);
    let summary = Summary::of(&trace, &story);
    assert!(summary.caveats(&story)[0].contains("did not end by exit"));
    std::fs::remove_file(path).expect("was written");
}

fn tool(arguments: &[&std::path::Path]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_zk-nalloc-trace")).args(arguments).output().unwrap()
}

/// It became the page, or the packed one.
#[test]
fn a_trace_is_not_written_over_by_what_is_made_of_it() {
    use std::path::Path;

    let folder = std::env::temp_dir().join(format!("zk-nalloc-trace-over-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces/plonky3-keccak.trace.gz");
    let (trace, other) = (folder.join("run.101.gz"), folder.join("also.gz"));
    std::fs::copy(&packed, &trace).unwrap();
    std::os::unix::fs::symlink(&trace, &other).unwrap();
    for (command, output) in [("picture", &trace), ("picture", &other), ("pack", &trace)] {
        let out = tool(&[Path::new(command), &trace, Path::new("--output"), output]);
        assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("the trace itself"));
        assert_eq!(std::fs::read(&trace).unwrap(), std::fs::read(&packed).unwrap());
    }
    // Named as it is, not as `run.102` would be too.
    assert!(tool(&[Path::new("picture"), &trace]).status.success() && folder.join("run.101.html").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_trace_that_is_cut_short_says_so() {
    let packed =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces/plonky3-keccak.trace.gz");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::GzDecoder::new(std::fs::File::open(packed).unwrap()),
        &mut bytes,
    )
    .unwrap();
    for (cut, says) in [(0, false), (7, true), (32 * 100, true)] {
        let trace = Trace::of(&bytes[..bytes.len() - cut]).unwrap();
        let story = Story::of(&trace);
        let caveats = Summary::of(&trace, &story).caveats(&story);
        assert_eq!(caveats.iter().any(|line| line.contains("cut short")), says, "{cut}: {caveats:?}");
    }
}
