//! Poison: the state of a volume after a failure half way.
//!
//! The volume, its store and all sharers have the same state. The first failure sets it, and nothing is changed after
//! that.

use std::sync::{Arc, OnceLock};

use crate::error::{Blame, Error, Result};

/// Whether a failure has left a change half done.
#[derive(Clone, Default)]
pub(crate) struct Poison(Arc<OnceLock<Failure>>);

struct Failure {
    why: String,
    blame: Blame,
    /// Whether the state in memory is consistent, and may be read.
    readable: bool,
}

/// Poisons the volume if the thread panics before this is dropped.
#[must_use]
pub(crate) struct Changing<'p>(&'p Poison);

impl Poison {
    /// Memory or device lack a part of the change, but memory is consistent: no more changes.
    pub(crate) fn end_changes(&self, error: &Error) {
        self.end(error, true);
    }

    /// Memory is half changed: no more changes or reads.
    pub(crate) fn end_all(&self, error: &Error) {
        self.end(error, false);
    }

    fn end(&self, error: &Error, readable: bool) {
        let _ = self.0.set(Failure { why: error.to_string(), blame: error.blame(), readable });
    }

    /// Ends changes if `result` is an error, unless the device is out of space: then the change waits.
    pub(crate) fn poison_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if !error.is_host_full() {
                self.end_changes(error);
            }
        })
    }

    /// Starts a change.
    pub(crate) fn changing(&self) -> Changing<'_> {
        Changing(self)
    }

    /// Whether there was a failure.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fails if changes are not allowed.
    pub(crate) fn check_changes(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// Fails if reads are not allowed.
    pub(crate) fn check_reads(&self) -> Result<()> {
        self.0.get().filter(|failure| !failure.readable).map_or(Ok(()), |f| Err(f.error()))
    }
}

impl Failure {
    fn error(&self) -> Error {
        Error::Poisoned { why: self.why.clone(), blame: self.blame }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end_all(&Error::Bug("a panic".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_first_failure_decides_what_may_be_done() {
        let poison = Poison::default();
        assert!(!poison.is_set() && poison.check_changes().is_ok());
        let shared = poison.clone();
        shared.end_changes(&Error::NotAnImage("no bytes".into()));
        shared.end_all(&Error::Bug("something else".into()));
        assert!(poison.is_set() && poison.check_reads().is_ok());
        let error = poison.check_changes().unwrap_err();
        assert!(error.to_string().contains("no bytes"), "{error}");
        assert_eq!(error.blame(), Blame::Image);
    }

    #[test]
    fn a_panic_within_a_change_ends_reads_too() {
        let poison = Poison::default();
        drop(poison.changing());
        assert!(!poison.is_set());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _changing = poison.changing();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert!(poison.check_changes().is_err());
        assert_eq!(poison.check_reads().unwrap_err().blame(), Blame::Program);
    }
}
