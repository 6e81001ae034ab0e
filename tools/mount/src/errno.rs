//! Translates errors of the core to error numbers.

use betr_core::Error;
use betr_core::error::Refusal;
pub(crate) use fuser::Errno;

/// The result of an operation.
pub(crate) type Answer<T> = Result<T, Errno>;

/// The error number of a refusal.
pub(crate) fn of_refusal(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NotFound => Errno::ENOENT,
        Refusal::Exists => Errno::EEXIST,
        Refusal::NotADirectory => Errno::ENOTDIR,
        Refusal::IsADirectory => Errno::EISDIR,
        Refusal::NotEmpty => Errno::ENOTEMPTY,
        Refusal::Invalid => Errno::EINVAL,
        Refusal::NameTooLong => Errno::ENAMETOOLONG,
        Refusal::TooBig => Errno::EFBIG,
        Refusal::TooManyLinks => Errno::EMLINK,
        Refusal::NoAttribute => Errno::ENODATA,
        Refusal::NotPermitted => Errno::EPERM,
        Refusal::Busy => Errno::EBUSY,
        Refusal::NotSupported => Errno::EOPNOTSUPP,
        Refusal::NoData => Errno::ENXIO,
        Refusal::TooManyAttributes => Errno::ENOSPC,
        Refusal::TooManyLevels => Errno::ELOOP,
    }
}

/// The error number of an error.
pub(crate) fn of_error(error: &Error) -> Errno {
    match error {
        Error::Refused(refusal) => of_refusal(*refusal),
        Error::NoSpace { .. } | Error::HostFull { .. } => Errno::ENOSPC,
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}
