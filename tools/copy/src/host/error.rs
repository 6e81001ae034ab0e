//! Errors of operations on the host.
//!
//! Every error names the path (escaped, see [`betr_core::text`]), the operation, and a remedy where one exists. A
//! [`HostError`] means that the operation was not done, a [`Warning`] that it was done except for the named detail;
//! the caller decides whether to continue.

use std::fmt;
use std::io;

use rustix::io::Errno;

use betr_core::text::Brief;

/// The result of an operation on the host.
pub type Result<T> = std::result::Result<T, HostError>;

/// Why an operation on the host was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The host refused a system call.
    #[error("cannot {op} '{}': {source}{}", Brief(path), hint(source))]
    Io {
        /// The operation, as a verb and its object.
        op: &'static str,
        /// The path.
        path: Vec<u8>,
        /// The error of the system call.
        source: io::Error,
    },
    /// Another process changed an object while it was read.
    #[error(
        "'{}' changed while it was read: {what}; stop what writes to it, or read a snapshot",
        Brief(path)
    )]
    Changed {
        /// The path that changed.
        path: Vec<u8>,
        /// What is different.
        what: &'static str,
    },
    /// A path has a component that cannot be a name on the host.
    #[error("'{}' is refused: the name '{}' {why}", Brief(path), Brief(name))]
    BadName {
        /// The whole path.
        path: Vec<u8>,
        /// The component.
        name: Vec<u8>,
        /// The reason, as the rest of a sentence that begins with the name.
        why: &'static str,
    },
    /// The object to create exists already.
    #[error(
        "'{}' exists already; nothing was overwritten: choose another destination",
        Brief(path)
    )]
    Exists {
        /// The path that exists.
        path: Vec<u8>,
    },
    /// The host, or this crate, does not support the operation.
    #[error("'{}': {what}", Brief(path))]
    NotSupported {
        /// The path.
        path: Vec<u8>,
        /// What is not supported.
        what: &'static str,
    },
}

impl HostError {
    /// An [`HostError::Io`] from the error number of a system call.
    pub(crate) fn io(op: &'static str, path: Vec<u8>, errno: Errno) -> Self {
        Self::Io { op, path, source: errno.into() }
    }

    /// The path the error is about, unescaped.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Io { path, .. }
            | Self::Changed { path, .. }
            | Self::BadName { path, .. }
            | Self::Exists { path }
            | Self::NotSupported { path, .. } => path,
        }
    }
}

/// The remedy for an error number, or an empty text.
fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::ACCESS | Errno::PERM) => "; run it as root or as a user who has the permission",
        Some(Errno::NOSPC | Errno::DQUOT) => {
            "; free some space there, or choose another destination"
        }
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit of open files (ulimit -n)",
        Some(Errno::ROFS) => "; choose a destination that can be written to",
        Some(Errno::NOENT) => "; check that the path and every directory on the way exist",
        Some(Errno::LOOP | Errno::NOTDIR) => {
            "; something on the way is a symbolic link or not a directory, and is not followed"
        }
        Some(Errno::OPNOTSUPP) => "; the file system there has no such thing: choose another one",
        Some(Errno::IO) => "; the device below may be failing: see the kernel log",
        _ => "",
    }
}

/// A detail that was not restored; everything else about the path was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The path, with the destination as its prefix.
    pub path: Vec<u8>,
    /// What was not restored.
    pub what: String,
    /// The host's error number.
    pub errno: i32,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = io::Error::from_raw_os_error(self.errno);
        write!(f, "'{}': {}: {source}", Brief(&self.path), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_path_the_operation_and_the_remedy() {
        let error = HostError::io("open", b"a\x1bb".to_vec(), Errno::ACCESS);
        let text = error.to_string();
        assert!(text.starts_with("cannot open 'a\\x1bb': Permission denied"), "{text}");
        assert!(text.contains("run it as root"), "{text}");
        assert_eq!(error.path(), b"a\x1bb");
    }
}
