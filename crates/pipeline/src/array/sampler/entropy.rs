/// Mean entropy, in bits, of the classes of `size` rows that are taken at random, without replacement, from rows of which
/// `counts` are of each class.
///
/// Exact: how often a class comes is hypergeometric, and the entropy is a sum over classes, so its mean is one of means.
pub fn expected_entropy(counts: &[u64], size: u64) -> f64 {
    let all: u64 = counts.iter().sum();
    let size = size.min(all);
    if size == 0 {
        return 0.0;
    }
    counts.iter().filter(|count| **count > 0).map(|&count| expected_term(all, count, size)).sum()
}

/// Mean of −(k/size) log2(k/size), k hypergeometric: of `size` rows taken from `all`, of which `count` are of the class.
fn expected_term(all: u64, count: u64, size: u64) -> f64 {
    let [n, c, b] = [all, count, size].map(|number| number as f64);
    let (lowest, highest) = ((size + count).saturating_sub(all), size.min(count));
    let term = |k: u64| {
        let share = k as f64 / b;
        if k == 0 { 0.0 } else { -share * share.log2() }
    };
    // From the mode to both sides, by the ratio of neighbours; normalised at the end. Nothing under- or overflows.
    let mode = (((b + 1.0) * (c + 1.0) / (n + 2.0)) as u64).clamp(lowest, highest);
    let (mut total, mut mean) = (1.0, term(mode));
    let mut chance = 1.0;
    for k in mode + 1..=highest {
        let k_f = k as f64;
        chance *= (c - k_f + 1.0) * (b - k_f + 1.0) / (k_f * (n - c - b + k_f));
        total += chance;
        mean += chance * term(k);
        if chance < 1e-20 {
            break;
        }
    }
    chance = 1.0;
    for k in (lowest..mode).rev() {
        let k_f = k as f64;
        chance *= (k_f + 1.0) * (n - c - b + k_f + 1.0) / ((c - k_f) * (b - k_f));
        total += chance;
        mean += chance * term(k);
        if chance < 1e-20 {
            break;
        }
    }
    mean / total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over all ways to take `size` of the rows.
    fn by_listing(counts: &[u64], size: u32) -> f64 {
        let classes: Vec<usize> = counts.iter().enumerate().flat_map(|(c, n)| vec![c; *n as usize]).collect();
        let taken = (0u32..1 << classes.len()).filter(|set| set.count_ones() == size);
        let entropies: Vec<f64> = taken
            .map(|set| {
                let mut met = vec![0.0; counts.len()];
                (0..classes.len()).filter(|row| set >> row & 1 == 1).for_each(|row| met[classes[row]] += 1.0);
                met.iter().map(|k| k / f64::from(size)).filter(|share| *share > 0.0).map(|s| -s * s.log2()).sum()
            })
            .collect();
        entropies.iter().sum::<f64>() / entropies.len() as f64
    }

    #[test]
    fn the_mean_over_all_batches() {
        for (counts, size) in
            [(&[4, 3, 5][..], 4), (&[1, 11], 3), (&[12], 5), (&[2, 2, 2, 2, 2, 2], 12), (&[0, 7, 2], 1)]
        {
            let (exact, listed) = (expected_entropy(counts, size.into()), by_listing(counts, size));
            assert!((exact - listed).abs() < 1e-12, "{counts:?} {size}: {exact} {listed}");
        }
    }

    #[test]
    fn large_numbers_and_none() {
        // Far from small samples it is the entropy of the shares.
        let entropy = expected_entropy(&[10_000_000, 10_000_000, 20_000_000], 1_000_000);
        assert!((entropy - 1.5).abs() < 1e-5, "{entropy}");
        assert_eq!(
            (expected_entropy(&[], 4), expected_entropy(&[3], 0), expected_entropy(&[0, 0], 3)),
            (0.0, 0.0, 0.0)
        );
    }
}
