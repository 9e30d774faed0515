//! What is counted and what is made to fail.

use crate::error::Errno;

/// A call of [`Os`](crate::os::Os) that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Reserve,
    Map,
    Open,
    Close,
    Unmap,
    Purge,
    Soften,
    Heal,
    Move,
    Plug,
    Advise,
    Resident,
    Create,
    Write,
    /// From here on: never made to fail, since they have no way to say so.
    VmaEnd,
    Room,
    Anonymous,
    TrimLibrary,
    KeepLibraryHeaps,
    Wait,
    Wake,
}

const KINDS: usize = Call::Wake as usize + 1;

impl Call {
    /// Every call about memory that can be made to fail.
    pub(crate) const FAILING: [Self; 12] = [
        Self::Reserve,
        Self::Map,
        Self::Open,
        Self::Close,
        Self::Unmap,
        Self::Purge,
        Self::Soften,
        Self::Heal,
        Self::Move,
        Self::Plug,
        Self::Advise,
        Self::Resident,
    ];

    fn can_fail(self) -> bool {
        (self as usize) < Self::VmaEnd as usize
    }
}

/// Which calls fail, counted from the moment the plan is made, the first being 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The n-th alone.
    Nth(usize),
    /// The k-th and each k-th after it.
    Every(usize),
    /// The n-th and all after it.
    From(usize),
}

/// What a failing `move_pages` leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MoveFailure {
    /// Everything as it was, the target among it.
    Clean,
    /// The target unmapped.
    #[default]
    UnmapsTarget,
    /// Where the source spans several VMAs, the first of them moved and the rest of the target unmapped;
    /// otherwise the target unmapped.
    MovesFirstPart,
    /// The target unmapped, and a foreign mapping in the middle of it before anybody can plug it.
    LetsForeignIn,
}

/// What a failing `heal` or `close` leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RemapFailure {
    /// Everything as it was.
    #[default]
    Clean,
    /// The range unmapped: old kernels unmap before they allocate what they need to map again.
    Unmaps,
}

/// What a failing `purge` leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PurgeFailure {
    /// The content, whole.
    #[default]
    Keeps,
    /// The second half of the content; the first half is zero.
    Halfway,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    call: Option<Call>,
    when: When,
    errno: i32,
    seen: usize,
}

/// The counters and the plans.
#[derive(Debug, Default)]
pub(super) struct Plans {
    plans: Vec<Plan>,
    counts: [usize; KINDS],
    failed: usize,
    pub(super) moves: MoveFailure,
    pub(super) remaps: RemapFailure,
    pub(super) purges: PurgeFailure,
}

impl Plans {
    pub(super) fn add(&mut self, call: Option<Call>, when: When, errno: i32) {
        assert!(call.is_none_or(Call::can_fail), "{call:?} cannot fail");
        self.plans.push(Plan { call, when, errno, seen: 0 });
    }

    pub(super) fn clear(&mut self) {
        self.plans.clear();
    }

    pub(super) fn count(&self, call: Call) -> usize {
        self.counts[call as usize]
    }

    pub(super) fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn reset_counts(&mut self) {
        self.counts = [0; KINDS];
        self.failed = 0;
    }

    /// Counts a call, and says with what it is to fail, if it is.
    pub(super) fn begin(&mut self, call: Call) -> Option<Errno> {
        self.counts[call as usize] += 1;
        let mut failure = None;
        for plan in self.plans.iter_mut().filter(|p| call.can_fail() && p.call.is_none_or(|c| c == call)) {
            plan.seen += 1;
            let hit = match plan.when {
                When::Nth(n) => plan.seen == n,
                When::Every(k) => plan.seen % k == 0,
                When::From(n) => plan.seen >= n,
            };
            if hit {
                failure = failure.or(Some(Errno(plan.errno)));
            }
        }
        self.failed += usize::from(failure.is_some());
        failure
    }
}
