//! Holes of files: an image may be much longer than anybody wants to read.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Where the next byte is, from `at` on, that a file of `len` bytes has on the host; nothing if there is none.
pub fn next_data(file: &File, at: u64, len: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start).filter(|start| *start < len)),
        Err(Errno::NXIO) => Ok(None),
        // It does not know of holes.
        Err(Errno::INVAL) => Ok(Some(at).filter(|at| *at < len)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_written_is_found() {
        let file = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(100 << 20).unwrap();
        assert_eq!(next_data(&file, 0, 100 << 20).unwrap(), None);
        file.write_all_at(b"x", 50 << 20).unwrap();
        assert!(next_data(&file, 0, 100 << 20).unwrap().is_some_and(|at| at <= 50 << 20));
        assert_eq!(next_data(&file, 0, 1 << 20).unwrap(), None);
    }
}
