//! The rival that a feature puts into this build.
//!
//! Why one at a time: two versions of one C library define the same symbols. Two features are an error: `RIVAL` is
//! then defined twice.

#[cfg(feature = "jemalloc")]
pub(crate) type Rival = tikv_jemallocator::Jemalloc;
#[cfg(feature = "jemalloc")]
pub(crate) const RIVAL: Rival = tikv_jemallocator::Jemalloc;

#[cfg(any(feature = "mimalloc", feature = "mimalloc2"))]
pub(crate) type Rival = mimalloc::MiMalloc;
#[cfg(any(feature = "mimalloc", feature = "mimalloc2"))]
pub(crate) const RIVAL: Rival = mimalloc::MiMalloc;

#[cfg(feature = "snmalloc")]
pub(crate) type Rival = snmalloc_rs::SnMalloc;
#[cfg(feature = "snmalloc")]
pub(crate) const RIVAL: Rival = snmalloc_rs::SnMalloc;

#[cfg(feature = "zk-alloc")]
pub(crate) type Rival = zk_alloc::ZkAllocator;
#[cfg(feature = "zk-alloc")]
pub(crate) const RIVAL: Rival = zk_alloc::ZkAllocator;

/// Makes a proof the way the rival wants it: zk-alloc inside its `phase`, whose memory stays as it is until the next
/// one begins.
pub(crate) fn around_proof<R>(prove: impl FnOnce() -> R) -> R {
    #[cfg(feature = "zk-alloc")]
    return zk_alloc::phase(prove);
    #[cfg(not(feature = "zk-alloc"))]
    prove()
}
