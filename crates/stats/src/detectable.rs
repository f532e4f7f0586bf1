use super::student::{Student, critical};
use super::{ALPHA, noncentral_t};

/// Power that a ratio must reach to be called detectable.
pub const POWER: f64 = 0.8;

/// Halvings of the bracket of the noncentrality: more than a double resolves.
const HALVINGS: u32 = 60;

/// The smallest ratio above 1 that the runs in hand would show at level [`ALPHA`] with probability [`POWER`], were the spread
/// of both sides what it is here; none below two runs on a side, where no run differs from another, or if a rate is not positive.
///
/// Its inverse is the largest ratio below 1 that they would show. It is of Welch's t on the log rates, by the noncentral t with
/// Satterthwaite's degrees of freedom, for one comparison: in a table that is corrected for its length it takes somewhat more. The
/// spread is itself an estimate, so with three runs a side this is the right size rather than an exact figure.
pub fn minimum_detectable(side: &[f64], base: &[f64]) -> Option<f64> {
    if side.iter().chain(base).any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return None;
    }
    let logs = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).collect::<Vec<_>>();
    let welch = Student::of_difference(&logs(side), &logs(base))?.with_spread()?;
    Some((noncentrality(welch.freedom) * welch.error).exp())
}

/// The same of runs that were paired, (side, base) of each: Student's t of the differences of the log rates, with one degree of freedom
/// less than there are pairs.
pub fn minimum_detectable_paired(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.iter().flat_map(|(side, base)| [side, base]).any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(side, base)| (side / base).ln()).collect();
    let student = Student::of_mean(&logs)?.with_spread()?;
    Some((noncentrality(student.freedom) * student.error).exp())
}

/// How many standard errors a difference must be for |t| to exceed its critical value with probability [`POWER`].
fn noncentrality(freedom: f64) -> f64 {
    let t = critical(freedom, ALPHA);
    let power = |delta: f64| 1.0 - noncentral_t(t, freedom, delta) + noncentral_t(-t, freedom, delta);
    let (mut low, mut high) = (0.0, t + 1.0);
    while power(high) < POWER {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if power(middle) < POWER { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_runs_and_less_spread_show_less() {
        let three = minimum_detectable(&[10.0, 10.2, 10.4], &[10.0, 10.2, 10.4]).unwrap();
        let wide = minimum_detectable(&[10.0, 11.0, 12.0], &[10.0, 11.0, 12.0]).unwrap();
        let six = [10.0, 10.2, 10.4, 10.0, 10.2, 10.4];
        let six = minimum_detectable(&six, &six).unwrap();
        assert!(1.0 < six && six < three && three < wide, "{six} {three} {wide}");
        assert_eq!(minimum_detectable(&[10.0], &[10.0, 10.2]), None);
        assert_eq!(minimum_detectable(&[10.0, 10.0], &[10.0, 10.0]), None);
        assert_eq!(minimum_detectable_paired(&[(2.0, 1.0), (4.0, 2.0)]), None);
    }

    #[test]
    fn of_pairs_what_hits_both_alike_does_not_count() {
        let pairs = [(12.0, 10.0), (6.1, 5.0), (2.38, 2.0), (1.21, 1.0)];
        let (side, base): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (paired, apart) = (minimum_detectable_paired(&pairs).unwrap(), minimum_detectable(&side, &base).unwrap());
        assert!(1.0 < paired && paired < 1.05 && apart > 3.0, "{paired} {apart}");
        assert_eq!((minimum_detectable_paired(&pairs[..1]), minimum_detectable_paired(&[])), (None, None));
    }
}
