//! Medians and percentiles.

/// The median; of an even number the mean of the two in the middle. `None` if there are none.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// How far the largest and the smallest are apart, in percent of the median.
pub fn spread(numbers: &[f64]) -> Option<f64> {
    let middle = median(numbers)?;
    let largest = numbers.iter().copied().fold(f64::MIN, f64::max);
    let smallest = numbers.iter().copied().fold(f64::MAX, f64::min);
    (middle > 0.0).then(|| (largest - smallest) / middle * 100.0)
}

/// The smallest of the sorted numbers that `percent` of them do not exceed.
pub fn percentile(sorted: &[u64], percent: u64) -> Option<u64> {
    let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
    sorted.get(rank as usize - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn the_spread_is_of_the_median() {
        assert_eq!(spread(&[2.0]), Some(0.0));
        assert_eq!(spread(&[1.0, 2.0, 3.0]), Some(100.0));
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile(&sorted, 50), Some(100));
        assert_eq!(percentile(&sorted, 99), Some(198));
        assert_eq!(percentile(&sorted, 100), Some(200));
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[], 50), None);
    }
}
