//! Mutations: durability rules that tests can break on purpose, to verify that the crash explorer notices.
//!
//! They exist only in builds with debug assertions; in a release the query is a constant.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// An extent that the log binds is not pinned: it is reused once its node has moved.
    ExtentUnpinned = 1,
    /// Recovery does not pin bound extents.
    LoggedExtentUnpinned,
    /// A group counts although its bound values do not verify.
    BindingsUnverified,
    /// An extent that the last checkpoint uses is reused as soon as its node moves.
    ReusedEarly,
    /// Values that became obsolete are not bound to NULL.
    NullSkipped,
    /// An inline binding does not carry its value.
    InlineEmpty,
    /// The superblock is written before the blocks that it refers to are flushed.
    SuperblockBeforeFlush,
    /// Both slots of a superblock are written at once.
    SlotsAtOnce,
    /// A sync returns before the group is flushed.
    SyncUnflushed,
    /// The hash of a group is not compared.
    GroupHashIgnored,
    /// Any group at the place of the next one is replayed.
    FencedGroupReplayed,
    /// The log wraps around over groups that are still needed.
    LogOverrun,
    /// A page of the space map overwrites the current slot.
    MapInPlace,
    /// A superblock states the MSN of the one before it.
    MsnStale,
    /// A torn superblock slot is left as it is.
    TornSlotKept,
    /// The last record of a group is not replayed.
    RecordForgotten,
    /// A checkpoint during a recovery starts a new log.
    ReplayCutOff,
    /// An extent that a hold uses is freed when the live volume drops it.
    HeldFreed,
    /// An extent that only a hold uses gets no dead record.
    DeadForgotten,
    /// A drop frees extents that an older hold uses.
    DropTooMuch,
    /// Extents that only the volume used before a rollback are not freed.
    AbandonedKept,
    /// A shared node is changed in place.
    SharedEdited,
    /// Messages overtake others into a shared node.
    SharedEntered,
    /// A clone does not count its edges.
    EdgeUncounted,
    /// A clone stands behind other records of its group.
    CloneWithinGroup,
    /// An internal node without edges is not freed.
    DyingForgotten,
    /// Messages that were pending for what a clone replaces stay pending for the clone.
    OldRunsLive,
    /// The copy of a node behind a lens keeps its keys.
    LensForgotten,
}

/// A change that breaks something.
#[cfg(test)]
type Change<T> = fn(&mut T);

/// Asserts that a check passes on a sound value, and panics after each of some mutations of it.
#[cfg(test)]
pub(crate) fn assert_caught<T>(
    sound: impl Fn() -> T,
    check: impl Fn(&T),
    mutations: &[(&str, Change<T>)],
) {
    check(&sound());
    for (what, mutate) in mutations {
        let mut broken = sound();
        mutate(&mut broken);
        let checked = std::panic::AssertUnwindSafe(|| check(&broken));
        assert!(std::panic::catch_unwind(checked).is_err(), "nothing noticed: {what}");
    }
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Mutation; 28] = [
        Mutation::ExtentUnpinned,
        Mutation::LoggedExtentUnpinned,
        Mutation::BindingsUnverified,
        Mutation::ReusedEarly,
        Mutation::NullSkipped,
        Mutation::InlineEmpty,
        Mutation::SuperblockBeforeFlush,
        Mutation::SlotsAtOnce,
        Mutation::SyncUnflushed,
        Mutation::GroupHashIgnored,
        Mutation::FencedGroupReplayed,
        Mutation::LogOverrun,
        Mutation::MapInPlace,
        Mutation::MsnStale,
        Mutation::TornSlotKept,
        Mutation::RecordForgotten,
        Mutation::ReplayCutOff,
        Mutation::HeldFreed,
        Mutation::DeadForgotten,
        Mutation::DropTooMuch,
        Mutation::AbandonedKept,
        Mutation::SharedEdited,
        Mutation::SharedEntered,
        Mutation::EdgeUncounted,
        Mutation::CloneWithinGroup,
        Mutation::DyingForgotten,
        Mutation::OldRunsLive,
        Mutation::LensForgotten,
    ];

    /// Whether only a volume with cloned ranges can miss the rule.
    pub fn is_of_clones(self) -> bool {
        self as u8 >= Mutation::SharedEdited as u8
    }
}

#[cfg(debug_assertions)]
mod broken {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    static BROKEN: AtomicU8 = AtomicU8::new(0);

    /// Breaks a rule for the whole process; `None` restores all rules.
    pub fn break_rule(mutation: Option<Mutation>) {
        BROKEN.store(mutation.map_or(0, |mutation| mutation as u8), Ordering::SeqCst);
    }

    /// Whether the rule is broken.
    pub(crate) fn is_broken(mutation: Mutation) -> bool {
        BROKEN.load(Ordering::Relaxed) == mutation as u8
    }
}

#[cfg(debug_assertions)]
pub use broken::break_rule;
#[cfg(debug_assertions)]
pub(crate) use broken::is_broken;

/// Whether the rule is broken: never.
#[cfg(not(debug_assertions))]
pub(crate) const fn is_broken(_: Mutation) -> bool {
    false
}
