/// p values corrected by Holm for being looked at together, in their order; each is at least what it was and at most 1.
///
/// Whoever calls those below α shown errs in one of them with probability α at most, however the tests depend on each other.
///
/// Source: S. Holm, *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics 6 (1979) 65–70.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        // None may come out below one that was smaller.
        largest = largest.max(((p.len() - rank) as f64 * p[index]).min(1.0));
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrected_values_keep_their_places_and_order() {
        assert_eq!(holm(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.04]);
        assert_eq!(holm(&[0.5, 0.6]), [1.0, 1.0]);
        assert_eq!(holm(&[0.03]), [0.03]);
        assert!(holm(&[]).is_empty());
    }
}
