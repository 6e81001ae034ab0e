//! The operations of log records.

/// The operation of a record, for display; replay needs only the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Write,
    Truncate,
    SetAttributes,
    SetXattr,
    RemoveXattr,
    Format,
    Raw,
    Exchange,
    Allocate,
    RemoveTree,
    Reap,
    SplitZone,
    MergeZone,
    Clone,
}

impl Op {
    /// Every operation, in the order of their codes, which start at 1.
    pub const ALL: [Op; 22] = [
        Op::Create,
        Op::Mkdir,
        Op::Symlink,
        Op::Mknod,
        Op::Link,
        Op::Unlink,
        Op::Rmdir,
        Op::Rename,
        Op::Write,
        Op::Truncate,
        Op::SetAttributes,
        Op::SetXattr,
        Op::RemoveXattr,
        Op::Format,
        Op::Raw,
        Op::Exchange,
        Op::Allocate,
        Op::RemoveTree,
        Op::Reap,
        Op::SplitZone,
        Op::MergeZone,
        Op::Clone,
    ];

    pub(super) fn code(self) -> u16 {
        self as u16 + 1
    }

    /// Whether the operation changes nothing that users see.
    pub fn is_hidden(self) -> bool {
        matches!(self, Op::Reap | Op::SplitZone | Op::MergeZone)
    }

    /// The operation's name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Mkdir => "mkdir",
            Op::Symlink => "symlink",
            Op::Mknod => "mknod",
            Op::Link => "link",
            Op::Unlink => "unlink",
            Op::Rmdir => "rmdir",
            Op::Rename => "rename",
            Op::Write => "write",
            Op::Truncate => "truncate",
            Op::SetAttributes => "setattr",
            Op::SetXattr => "setxattr",
            Op::RemoveXattr => "removexattr",
            Op::Format => "format",
            Op::Raw => "raw",
            Op::Exchange => "exchange",
            Op::Allocate => "allocate",
            Op::RemoveTree => "remove tree",
            Op::Reap => "reap",
            Op::SplitZone => "split zone",
            Op::MergeZone => "merge zone",
            Op::Clone => "clone",
        }
    }
}
