//! Tests of a mounted image.
//!
//! They need root and /dev/fuse, and print `SKIPPED` if one is missing. The expected behaviour is that of POSIX and
//! of the kernel's own file systems, and the tests are validated against it: with `BETR_TEST_MOUNT=ext4` each of them
//! runs on ext4 on a loop device instead of a betr image, and must pass there, too. A test that fails on betr alone
//! has found a bug in betr; a test that fails on both is wrong. The few tests of properties that ext4 lacks are
//! skipped there.
//!
//! `BETR_KILL_ROUNDS`, `BETR_FSX_OPERATIONS` and `BETR_TEST_SEED` lengthen or vary the tests. Long runs also need a
//! larger `BETR_STUCK_SECONDS`, the time after which a mount counts as stuck.

mod behaviour;
mod fixture;
mod killed;
mod posix;
mod programs;
