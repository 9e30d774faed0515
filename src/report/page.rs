//! The page: what is known, as text of no more than a hundred columns.

use std::fmt::Write;

use super::advice::{Huge, advise, size};
use super::seen::Report;
use crate::os::HugeMode;
use crate::stats::size_name;

/// Columns of a line.
const WIDTH: usize = 96;

/// Sizes shown, those that asked for most first.
const SIZES: usize = 5;

/// Writes the page.
pub(super) fn page(report: &Report, when: &str) -> String {
    let mut out = String::with_capacity(8 << 10);
    let title = format!("zk-nalloc: {} (process {}), {when}", report.program, report.process);
    line(&mut out, &title);
    line(&mut out, &"=".repeat(title.chars().count().min(WIDTH)));
    process(&mut out, report);
    heading(&mut out, "the allocator");
    report.stats.lines_in_use().iter().for_each(|text| line(&mut out, text));
    sizes(&mut out, report);
    if report.phases.clone().any(|phase| phase.count() > 0) {
        heading(&mut out, "peak by stage");
        report.phases.to_string().lines().for_each(|text| line(&mut out, text));
    }
    heading(&mut out, "advice");
    for (number, sentence) in advise(&report.seen).iter().enumerate() {
        paragraph(&mut out, &format!("{}. ", number + 1), sentence);
    }
    out
}

fn process(out: &mut String, report: &Report) {
    let (usage, seen) = (&report.usage, &report.seen);
    heading(out, "the process");
    let mut row = |name: &str, value: &str| line(out, &format!("  {name:<24}{value}"));
    if let Some(wall) = report.wall {
        row("time", &format!("{wall:.2} s"));
    }
    let busy = seen.user + seen.kernel;
    let share = |seconds: f64| if busy > 0.0 { seconds / busy * 100.0 } else { 0.0 };
    row(
        "in all threads",
        &format!(
            "{:.2} s user, {:.2} s kernel: {:.1} % in the kernel",
            seen.user,
            seen.kernel,
            share(seen.kernel)
        ),
    );
    row("page faults", &format!("{} (of these {} waited for a device)", seen.faults, usage.major));
    let [small, huge] = report.costs;
    row(
        "of the time in faults",
        &format!(
            "about {:.1} %, at most {:.1} %: one takes {:.2} µs here, in huge pages {:.0}",
            share(seen.faulting),
            share(seen.kernel),
            small as f64 / 1e3,
            huge as f64 / 1e3
        ),
    );
    row("memory, at its highest", &size(usage.resident_max));
    if let Some(limit) = seen.limit {
        row("of a limit of", &size(limit));
    }
    row("huge pages", &huge_pages(report));
}

fn huge_pages(report: &Report) -> String {
    let mode = match report.facts.huge_mode {
        HugeMode::Always => "always",
        HugeMode::Madvise => "madvise",
        HugeMode::Never => "never",
    };
    match (report.seen.huge, report.footprint) {
        (Huge::OffByUs, _) => format!("turned off for the allocator; on this host: {mode}"),
        (Huge::Share(Some(share)), Some(f)) => {
            format!(
                "{:.0} % of the allocator's {} now; on this host: {mode}",
                share * 100.0,
                size(f.resident_bytes as u64)
            )
        }
        _ => format!("on this host: {mode}"),
    }
}

fn sizes(out: &mut String, report: &Report) {
    let largest = report.sizes.largest();
    if largest.is_empty() {
        return;
    }
    let all: u64 = largest.iter().map(|line| line.bytes).sum();
    heading(out, "largest sizes, by what they asked for in all");
    for of in largest.iter().take(SIZES) {
        let share = if all > 0 { of.bytes as f64 / all as f64 * 100.0 } else { 0.0 };
        line(
            out,
            &format!(
                "  {:<26}{:>10} requests{:>12}{:>6.0} %{:>8} misses",
                size_name(of),
                of.requests,
                size(of.bytes),
                share,
                of.misses
            ),
        );
    }
}

fn heading(out: &mut String, name: &str) {
    line(out, "");
    line(out, name);
    line(out, &"-".repeat(name.chars().count()));
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}", text.trim_end());
}

/// Breaks a sentence at blanks.
fn paragraph(out: &mut String, mark: &str, text: &str) {
    let mut now = mark.to_owned();
    for word in text.split(' ') {
        if now.chars().count() + word.chars().count() > WIDTH {
            line(out, &now);
            now = " ".repeat(mark.len());
        }
        now.push_str(word);
        now.push(' ');
    }
    line(out, &now);
}

#[cfg(test)]
mod tests {
    use super::super::seen;
    use super::*;

    #[test]
    fn a_page_of_a_process_that_has_not_installed_us() {
        let page = page(&seen::now(), "so far");
        for part in
            ["the process", "page faults", "memory, at its highest", "advice", "1. Too little has happened"]
        {
            assert!(page.contains(part), "{page}");
        }
        assert!(page.lines().all(|l| l.chars().count() <= 100 && l == l.trim_end()), "{page}");
        assert!(page.lines().count() < 70, "{page}");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let mut out = String::new();
        paragraph(&mut out, "1. ", &"word ".repeat(50));
        assert_eq!(out.split_whitespace().count(), 51);
        assert!(
            out.lines().all(|l| l.len() <= WIDTH)
                && out.lines().nth(1).is_some_and(|l| l.starts_with("   word"))
        );
    }
}
