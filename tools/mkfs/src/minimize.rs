//! Searches the smallest size of an image for given contents, by creating it.

use betr_cli::Failure;
use betr_core::ids::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;
/// The search ends when a size smaller by 1 % does not suffice.
const CLOSE: u64 = 100;
/// The log and the delete reserve take 1/64 of an image each, so they shrink with it.
const SHARES: u64 = 32;

/// The smallest size in bytes, to within 1 %. `try_size` creates an image of the given size, and returns the blocks
/// that are available in it afterwards; `None` if the contents do not fit. `enough` is an estimate that should
/// suffice.
pub(crate) fn least(
    enough: u64,
    mut try_size: impl FnMut(u64) -> Result<Option<u64>, Failure>,
) -> Result<u64, Failure> {
    let (mut low, mut high) = (0, enough.next_multiple_of(BLOCK));
    let mut left = loop {
        match try_size(high)? {
            Some(left) => break left,
            None if high > u64::MAX / 4 => return Ok(high),
            None => (low, high) = (high, 2 * high),
        }
    };
    // A step of 3/4 of the tolerance: after one more size that does not suffice, the search ends.
    let close = |high: u64| (high / CLOSE).max(BLOCK);
    let nearest = |high: u64| (close(high) * 3 / 4).max(BLOCK);
    // A size that suffices shows how much smaller it may be; one that does not only shows that more is needed. If
    // these predictions fail, steps become longer, up to half of the remaining interval.
    let (mut down, mut up) = (nearest(high), 0);
    while high - low > close(high) {
        let half = (high - low) / 2;
        let next = match up {
            0 => {
                let spare = left * BLOCK;
                let spare = (spare + spare / (SHARES - 1)).saturating_sub(close(high) / 8);
                high - spare.max(down).min(if low == 0 { high } else { half.max(nearest(high)) })
            }
            up => low + up.min(half),
        };
        let next = next.next_multiple_of(BLOCK).clamp(low + BLOCK, high - BLOCK);
        match try_size(next)? {
            Some(now) => (high, left, down, up) = (next, now, 2 * down, 0),
            None => (low, down, up) = (next, nearest(high), (2 * up).max(nearest(high))),
        }
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes from `least_bytes` suffice, and leave the excess available, except for a share.
    fn search(enough: u64, least_bytes: u64, off: i64) -> (u64, usize) {
        let mut tries = 0;
        let found = least(enough, |bytes| {
            tries += 1;
            let spare = bytes.checked_sub(least_bytes);
            Ok(spare
                .map(|spare| (spare - spare / SHARES) / BLOCK)
                .map(|left| left.saturating_add_signed(off)))
        });
        (found.ok().unwrap(), tries)
    }

    #[test]
    fn the_least_is_found_in_few_steps() {
        for (enough, least_bytes) in [(16 << 20, 1 << 20), (1 << 30, 900 << 20), (1 << 20, 5 << 30)]
        {
            for off in [0, 3, -3, 500, -500, 100_000] {
                let (found, tries) = search(enough, least_bytes, off);
                assert!(
                    found >= least_bytes && found <= least_bytes + least_bytes / 50 + 2 * BLOCK,
                    "{least_bytes}: {found}"
                );
                assert!(tries <= 24, "{tries}");
            }
        }
    }
}
