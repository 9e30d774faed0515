//! How much memory is left: in every cgroup from ours to the root, and on the host.
//!
//! Page cache of files counts as left, since the kernel takes it back before it kills; what is left never
//! counts swap. Of several limits the one with the smallest share left is given, because that one hurts first.
//! Never here: what to do about it.

use core::ffi::CStr;
use core::ops::ControlFlow;

use super::cgroup::{self, Place, Version};
use super::files;
use super::host::memory;
use super::limits::Limit;
use super::text::{file_number, named};
use crate::os::{InUse, Room};

/// The scarcest room of all, and the least that any limit on what is resident has left.
pub(super) fn rooms(reserved: usize) -> (Option<Room>, Option<usize>) {
    let mut memory = Scarce::default();
    // Without a file the host's page cache would count as used, and all hosts as short after a while.
    each_of_memory(of_files, &mut |room| memory.see(room));
    (scarcer(of_mappings(reserved), memory.scarcest), memory.least)
}

/// Of several rooms the scarcest by its share, and the least that any has left, in bytes.
#[derive(Default)]
struct Scarce {
    scarcest: Option<Room>,
    least: Option<usize>,
}

impl Scarce {
    fn see(&mut self, room: Room) {
        self.scarcest = scarcer(self.scarcest, Some(room));
        self.least = Some(self.least.map_or(room.left, |least| least.min(room.left)));
    }
}

/// The scarcer one of the limits on what the process maps.
pub(super) fn of_mappings(reserved: usize) -> Option<Room> {
    let [space, data] = of_each_mapping_limit(reserved);
    scarcer(space, data)
}

fn of_each_mapping_limit(reserved: usize) -> [Option<Room>; 2] {
    [(Limit::AddressSpace, InUse::AddressSpace, reserved), (Limit::Data, InUse::Data, 0)]
        .map(|(limit, used, aside)| of_process(limit, used, aside))
}

/// How many bytes may be used before any limit has less left than one part in `share`.
pub(super) fn spare(reserved: usize, share: usize) -> Option<usize> {
    let mut spare: Option<usize> = None;
    let mut found = |room: Room| {
        let here = room.left.saturating_sub(room.limit / share);
        spare = Some(spare.map_or(here, |least| least.min(here)));
    };
    each_of_memory(host, &mut found);
    of_each_mapping_limit(reserved).into_iter().flatten().for_each(&mut found);
    spare
}

/// Calls `found` with the room under every limit on what is resident.
fn each_of_memory(host: fn() -> Option<Room>, found: &mut dyn FnMut(Room)) {
    for version in [Version::V2, Version::V1] {
        if let Some(mut place) = cgroup::find(version) {
            each_above(version, &mut place, found);
        }
    }
    host().into_iter().for_each(found);
}

/// What a limit of the process leaves it, of which `aside` bytes are set aside and count as left.
fn of_process(limit: Limit, used: InUse, aside: usize) -> Option<Room> {
    let limit = limit.allowed()?;
    Some(room(limit, used.bytes()?, aside))
}

/// The room with the smaller share left; one with no limit is none.
fn scarcer(a: Option<Room>, b: Option<Room>) -> Option<Room> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let share = |one: Room, other: Room| one.left as u128 * other.limit as u128;
            // At equal shares the smaller limit is the nearer one.
            let b_is = share(b, a) < share(a, b) || (share(b, a) == share(a, b) && b.limit < a.limit);
            Some(if b_is { b } else { a })
        }
        (a, b) => a.or(b),
    }
}

fn room(limit: usize, used: usize, reclaimable: usize) -> Room {
    Room { limit, left: limit.saturating_sub(used.saturating_sub(reclaimable)) }
}

/// The rooms of a cgroup and its parents.
fn each_above(version: Version, place: &mut Place, found: &mut dyn FnMut(Room)) {
    loop {
        let here = match version {
            Version::V1 => version_1(place),
            Version::V2 => version_2(place),
        };
        here.into_iter().for_each(&mut *found);
        if !place.up() {
            return;
        }
    }
}

/// A file of one number in the cgroup; `None` if it says `max`, is not there or cannot be read.
fn value(place: &mut Place, name: &[u8]) -> Option<usize> {
    place.directory.with(name, |path| {
        let mut buffer = [0; 32];
        file_number(files::head(path, &mut buffer)?)
    })
}

fn version_2(place: &mut Place) -> Option<Room> {
    let max = value(place, b"/memory.max");
    // Over `high` the kernel does not kill, but it slows down until nothing moves.
    let high = value(place, b"/memory.high");
    let limit = max.into_iter().chain(high).min()?;
    let used = value(place, b"/memory.current")?;
    let [inactive, active] = place
        .directory
        .with(b"/memory.stat", |path| numbers(path, [b"inactive_file", b"active_file"]))
        .unwrap_or_default();
    Some(room(limit, used, reclaimable(inactive, active)))
}

fn version_1(place: &mut Place) -> Option<Room> {
    /// Without a limit v1 says the largest number of pages that fits in an `i64`, in bytes.
    const UNLIMITED: usize = 1 << 62;
    let own = value(place, b"/memory.limit_in_bytes")?;
    // What a container cannot see of its parents is told here.
    let [inherited, inactive, active] = place
        .directory
        .with(b"/memory.stat", |path| {
            numbers(path, [b"hierarchical_memory_limit", b"total_inactive_file", b"total_active_file"])
        })
        .unwrap_or_default();
    let limit = inherited.map_or(own, |inherited| own.min(inherited));
    if limit >= UNLIMITED {
        return None;
    }
    let used = value(place, b"/memory.usage_in_bytes")?;
    Some(room(limit, used, reclaimable(inactive, active)))
}

fn reclaimable(inactive: Option<usize>, active: Option<usize>) -> usize {
    inactive.unwrap_or(0).saturating_add(active.unwrap_or(0))
}

/// The host's memory.
fn host() -> Option<Room> {
    of_files().or_else(of_kernel)
}

/// As the kernel tells where there is no `/proc`, or no file may be opened: without the page cache, which it would take back.
fn of_kernel() -> Option<Room> {
    let (limit, left) = memory()?;
    Some(Room { limit, left: left.min(limit) })
}

/// As `/proc/meminfo` says. `MemAvailable` is the kernel's own estimate; before Linux 3.14 there was none.
pub(super) fn of_files() -> Option<Room> {
    const KIB: usize = 1 << 10;
    let [total, available, free, buffers, cached] =
        numbers(c"/proc/meminfo", [b"MemTotal:", b"MemAvailable:", b"MemFree:", b"Buffers:", b"Cached:"])?;
    let guess = || Some(free?.saturating_add(buffers?).saturating_add(cached?));
    let limit = total?.checked_mul(KIB)?;
    let left = available.or_else(guess)?.checked_mul(KIB)?;
    Some(Room { limit, left: left.min(limit) })
}

/// The numbers of lines `name number`, each as it first appears; `None` if the file cannot be read.
fn numbers<const N: usize>(path: &CStr, names: [&[u8]; N]) -> Option<[Option<usize>; N]> {
    let mut found = [None; N];
    files::lines(path, &mut |line| {
        for (place, name) in found.iter_mut().zip(names) {
            if place.is_none() {
                *place = named(line, name).and_then(|n| usize::try_from(n).ok());
            }
        }
        if found.iter().all(Option::is_some) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Some(found)
}

#[cfg(test)]
mod tests;
