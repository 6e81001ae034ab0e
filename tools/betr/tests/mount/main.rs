//! A mounted image, as programs and people use it.
//!
//! These tests need root and /dev/fuse, and say `SKIPPED` where one is absent. What a mount must do they
//! take from POSIX and from the kernel's own file systems, and that is how they are known to be right
//! themselves: with `BETR_TEST_MOUNT=ext4` each of them runs on an ext4 on a loop device in place of a
//! betr image, where it must pass as well. A test that fails on betr alone has found a fault of betr;
//! one that fails on both is wrong. The few that ask what no ext4 can answer are skipped there.
//!
//! More of the same by variables: `BETR_KILL_ROUNDS`, `BETR_FSX_OPERATIONS`, and `BETR_TEST_SEED`; with much more of it,
//! `BETR_STUCK_SECONDS`, after which a mount is taken for stuck.

mod behaviour;
mod fixture;
mod killed;
mod posix;
mod programs;
