//! Rules of durability that can be broken on purpose, to see that the crash explorer notices.
//!
//! Only a build with debug assertions makes this possible; in a release every rule holds, and asking costs nothing.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// An extent that the log binds is not pinned: it is reused once its node has moved on.
    ExtentUnpinned = 1,
    /// Recovery does not pin what the log binds.
    LoggedExtentUnpinned,
    /// A group counts although what it binds does not verify.
    BindingsUnverified,
    /// What the last checkpoint uses is reused as soon as its node moves on.
    ReusedEarly,
    /// Values that became obsolete are not bound to NULL.
    NullSkipped,
    /// An inline binding does not carry its value.
    InlineEmpty,
    /// The superblock is written before what it refers to is flushed.
    SuperblockBeforeFlush,
    /// Both slots of a superblock are written at once.
    SlotsAtOnce,
    /// A sync returns before the group is flushed.
    SyncUnflushed,
    /// The hash of a group is not compared.
    GroupHashIgnored,
    /// Whatever group stands where the next one belongs is replayed.
    FencedGroupReplayed,
    /// The log goes round over groups that are still needed.
    LogOverrun,
    /// A page of the space map is written where the current one stands.
    MapInPlace,
    /// A superblock says the MSN of the one before it.
    MsnStale,
    /// A torn superblock slot is left as it is.
    TornSlotKept,
    /// The last record of a group is not replayed.
    RecordForgotten,
    /// A checkpoint amid a recovery begins a log of its own.
    ReplayCutOff,
    /// What a hold uses is given up when the live volume does not use it any more.
    HeldFreed,
    /// What a hold uses alone is not noted as dead.
    DeadForgotten,
    /// A drop gives up what an older hold uses.
    DropTooMuch,
    /// What the volume alone used before a rollback is not given up.
    AbandonedKept,
}

/// A change that breaks something.
#[cfg(test)]
type Change<T> = fn(&mut T);

/// Asserts that a check passes what is sound, and panics after each of some changes to it.
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
    /// All of them.
    pub const ALL: [Mutation; 21] = [
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
    ];
}

#[cfg(debug_assertions)]
mod broken {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    static BROKEN: AtomicU8 = AtomicU8::new(0);

    /// Breaks a rule, for the whole process, or mends it again.
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
