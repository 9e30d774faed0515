//! What the allocator counts. (First form.)

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {}

impl Stats {
    /// Share of large requests served from memory already held, in 0..=1.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        0.0
    }
}

impl core::fmt::Display for Stats {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("nothing counted yet")
    }
}

/// Reads the counters.
pub fn stats() -> Stats {
    Stats {}
}
/// Bytes held free.
pub fn cached_bytes() -> usize {
    0
}
/// Softens.
pub fn soften_cache() -> usize {
    0
}
/// Releases.
pub fn release_cache() -> usize {
    0
}
