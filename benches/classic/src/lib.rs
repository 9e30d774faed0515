//! The global allocator of the classic benchmarks: the one that a feature names, the C library's without any.
//!
//! Why it is here: the benchmark and the example must run under the same choice, made in one place.

#[cfg(any(
    all(feature = "bench-global", feature = "bench-jemalloc"),
    all(feature = "bench-global", feature = "bench-mimalloc"),
    all(feature = "bench-jemalloc", feature = "bench-mimalloc"),
))]
compile_error!(
    "a program has one global allocator: choose one of bench-global, bench-jemalloc and bench-mimalloc"
);

/// One choice, and only where there is one: two would bury the message above under others.
macro_rules! choice {
    ($feature:literal, $name:literal, $type:ty = $value:expr, unless $($other:literal),+) => {
        #[cfg(all(feature = $feature, not(any($(feature = $other),+))))]
        #[global_allocator]
        static GLOBAL: $type = $value;

        /// The name of the allocator.
        #[cfg(all(feature = $feature, not(any($(feature = $other),+))))]
        pub const NAME: &str = $name;
    };
}

choice!(
    "bench-global", "NAlloc", zk_nalloc::NAlloc = zk_nalloc::NAlloc::new(),
    unless "bench-jemalloc", "bench-mimalloc"
);
choice!(
    "bench-jemalloc", "jemalloc", tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc,
    unless "bench-global", "bench-mimalloc"
);
choice!(
    "bench-mimalloc", "mimalloc", mimalloc::MiMalloc = mimalloc::MiMalloc,
    unless "bench-global", "bench-jemalloc"
);

/// The name of the allocator.
#[cfg(not(any(feature = "bench-global", feature = "bench-jemalloc", feature = "bench-mimalloc")))]
pub const NAME: &str = "System";

// With two choices there is a name too, so that the message above is the only one.
#[cfg(any(
    all(feature = "bench-global", feature = "bench-jemalloc"),
    all(feature = "bench-global", feature = "bench-mimalloc"),
    all(feature = "bench-jemalloc", feature = "bench-mimalloc"),
))]
#[doc(hidden)]
pub const NAME: &str = "none";
