//! The numbers as lines, in the order in which they are read: for the table, and for JSON.
//!
//! A line that begins with `=` is the sum of the lines above it that belong to it; `docs/STATS.md` says of each line which
//! sum that is, and a test adds them up.

use core::fmt;

use super::{Footprint, Stats};

/// What stands in a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Bytes(u64),
    /// In 0..=1, shown in percent.
    Share(f64),
    /// Shown with two digits.
    Factor(f64),
    Unknown,
}

/// A line of the table, or what stands above several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Row {
    Heading(&'static str),
    /// The key of the number in JSON, its name in the table, and it.
    Line(&'static str, &'static str, Value),
}

impl Stats {
    /// The lines of the table that say something, for a page on which there is little room.
    pub(crate) fn lines_in_use(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.rows(self.footprint()) {
            match row {
                Row::Heading(name) => lines.push(name.to_owned()),
                Row::Line(_, _, Value::Count(0) | Value::Bytes(0) | Value::Unknown) => {}
                Row::Line(_, name, value) => lines.push(format!("  {name:<34}{:>16}", value.to_string())),
            }
        }
        // A heading with nothing below it.
        let is_bare =
            |i: usize| !lines[i].starts_with(' ') && lines.get(i + 1).is_none_or(|l| !l.starts_with(' '));
        (0..lines.len()).filter(|&i| !is_bare(i)).map(|i| lines[i].clone()).collect()
    }

    /// All numbers. Those of `footprint` are unknown without it.
    pub(super) fn rows(&self, footprint: Option<Footprint>) -> Vec<Row> {
        let mut rows = Vec::with_capacity(64);
        self.requests(&mut rows);
        self.memory(footprint, &mut rows);
        self.work(&mut rows);
        self.fall_back_rows(&mut rows);
        rows
    }

    fn requests(&self, rows: &mut Vec<Row>) {
        use Value::{Count, Factor, Share};
        let s = &self.snapshot;
        rows.extend([
            Row::Heading("large requests"),
            Row::Line("stack_hits", "from this thread's stack", Count(s.stack_hits)),
            Row::Line("stolen", "from another shard's stack", Count(s.stolen)),
            Row::Line("run_hits", "from a free run", Count(s.runs)),
            Row::Line("gathered", "moved together", Count(s.gathered)),
            Row::Line("hits", "= hits", Count(self.hits())),
            Row::Line("misses", "misses (fresh pages)", Count(s.misses)),
            Row::Line("served", "= hits and misses", Count(self.hits() + s.misses)),
            Row::Line("thin", "misses in small pages", Count(s.thin)),
            Row::Line("hit_rate", "hit rate", Share(self.hit_rate())),
            Row::Line("allocations", "requests", Count(s.allocations)),
            Row::Line("frees", "blocks freed", Count(s.frees)),
            Row::Line("refused", "refused by the kernel", Count(s.refused)),
            Row::Line("shards", "shards", Count(self.shards() as u64)),
            Row::Line("shards_used", "shards in use", Count(self.shards_used() as u64)),
            Row::Line("busiest_shard", "busiest shard, even is 1", Factor(self.busiest_shard())),
        ]);
    }

    fn memory(&self, footprint: Option<Footprint>, rows: &mut Vec<Row>) {
        let s = &self.snapshot;
        let bytes = |bytes: usize| Value::Bytes(bytes as u64);
        let of =
            |which: fn(&Footprint) -> usize| footprint.as_ref().map_or(Value::Unknown, |f| bytes(which(f)));
        let count = |which: fn(&Footprint) -> usize| {
            footprint.as_ref().map_or(Value::Unknown, |f| Value::Count(which(f) as u64))
        };
        rows.extend([
            Row::Heading("memory now (MiB)"),
            Row::Line("live_bytes", "live, as requested", Value::Bytes(s.live)),
            Row::Line("peak_live_bytes", "live, at its highest seen", Value::Bytes(s.live_peak)),
            Row::Line("cached_in_stacks_bytes", "cached in stacks", bytes(s.stacked)),
            Row::Line("cached_in_runs_bytes", "cached in runs", bytes(s.books.dirty)),
            Row::Line("softened_bytes", "offered to the kernel", bytes(s.books.soft)),
            Row::Line("cached_bytes", "= cached", bytes(self.cached_bytes())),
            Row::Line("peak_cached_bytes", "cached in runs, at its highest", Value::Bytes(s.cached_peak)),
            Row::Line(
                "resident_bytes",
                "resident, the whole process",
                self.resident.map_or(Value::Unknown, bytes),
            ),
            Row::Line("our_resident_bytes", "resident, ours", of(|f| f.resident_bytes)),
            Row::Line("our_huge_page_bytes", "of which in huge pages", of(|f| f.huge_page_bytes)),
            Row::Line("our_lazy_free_bytes", "of which offered, not yet taken", of(|f| f.lazy_free_bytes)),
            Row::Line("our_swapped_bytes", "swapped out, ours", of(|f| f.swapped_bytes)),
            Row::Line("our_mappings", "mappings, ours", count(|f| f.mappings)),
            Row::Line("mappings", "mappings, the whole process", count(|f| f.mappings_of_process)),
        ]);
    }

    fn work(&self, rows: &mut Vec<Row>) {
        use Value::{Bytes, Count};
        let (s, b) = (&self.snapshot, &self.snapshot.books);
        let zeroed = s.zeroed_here + s.zeroed_by_kernel;
        rows.extend([
            Row::Heading("work so far (MiB; times)"),
            Row::Line("allocated_bytes", "requested", Bytes(s.allocated)),
            Row::Line("fresh_bytes", "faulted in by the kernel, at most", Bytes(self.fresh_bytes())),
            Row::Line("prefaulted_bytes", "faulted in ahead of need", Bytes(s.ahead)),
            Row::Line("faults_avoided", "page faults avoided, about", Count(self.faults_avoided())),
            Row::Line("zeroed_by_writing_bytes", "zeroed by writing", Bytes(s.zeroed_here)),
            Row::Line("zeroed_by_kernel_bytes", "zeroed by the kernel, at most", Bytes(s.zeroed_by_kernel)),
            Row::Line(
                "zeroed_by_all_threads_bytes",
                "of which by those who touch it",
                Bytes(s.left_to_threads),
            ),
            Row::Line("zeroed_bytes", "= zeroed requests", Bytes(zeroed)),
            Row::Line("zeroed_by_nobody_bytes", "zeroed by nobody, as far as seen", Bytes(s.zeroed_not)),
            Row::Line("gathered_bytes", "moved from free runs", Bytes(b.gathered)),
            Row::Line(
                "grown_by_moving_bytes",
                "moved with growing blocks",
                Bytes(b.moved - b.gathered.min(b.moved)),
            ),
            Row::Line("moved_bytes", "= moved", Bytes(b.moved)),
            Row::Line("grown_in_place_bytes", "grown in place", Bytes(s.grown_in_place_bytes)),
            Row::Line("copied_bytes", "copied by growing blocks", Bytes(s.copied)),
            Row::Line("purged_bytes", "purged", Bytes(b.purged)),
            Row::Line("softened_so_far_bytes", "softened", Bytes(b.softened)),
            Row::Line("grown_in_place", "blocks grown in place", Count(s.grown_in_place)),
            Row::Line("grown_by_moving", "blocks grown by moving", Count(s.grown_by_moving)),
            Row::Line("grown_by_copying", "blocks resized by copying", Count(s.grown_by_copying)),
        ]);
    }

    fn fall_back_rows(&self, rows: &mut Vec<Row>) {
        let b = &self.snapshot.books;
        rows.extend([
            Row::Heading("fall-backs (times)"),
            Row::Line("refused_moves", "moves refused", Value::Count(b.refused_moves)),
            Row::Line("refused_growth", "growth of our range refused", Value::Count(b.refused_growth)),
            Row::Line("over_budget", "not moved: too many mappings", Value::Count(b.over_budget)),
            Row::Line("fall_backs", "= fall-backs", Value::Count(self.fall_backs())),
        ]);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Bytes(bytes) => write!(f, "{:.1}", bytes as f64 / (1 << 20) as f64),
            Self::Share(share) => write!(f, "{:.2} %", share * 100.0),
            Self::Factor(factor) => write!(f, "{factor:.2}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, row) in self.rows(self.footprint()).into_iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            match row {
                Row::Heading(name) => write!(f, "{end}{name}")?,
                Row::Line(_, name, value) => write!(f, "{end}  {name:<34}{:>16}", value.to_string())?,
            }
        }
        Ok(())
    }
}
