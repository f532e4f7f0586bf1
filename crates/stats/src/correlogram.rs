//! How the values of a series depend on those before them.

/// Lags that must be insignificant in a row before the dependence is taken to have ended (Politis & White: max(5, √log₁₀ n)).
const QUIET_LAGS: usize = 5;
/// Longest lag that is looked at for the dependence.
const LONGEST_LAG: usize = 1000;

/// Differences from the mean.
pub(super) fn centred(series: &[f64]) -> Vec<f64> {
    let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
    series.iter().map(|value| value - mean).collect()
}

/// Autocovariance of centred values at a lag.
fn covariance(centred: &[f64], lag: usize) -> f64 {
    let later = centred.get(lag..).unwrap_or_default();
    centred.iter().zip(later).map(|(a, b)| a * b).sum::<f64>() / centred.len().max(1) as f64
}

/// Length of the blocks in which a series is taken, so that what lies in different blocks is nearly independent: twice the one by
/// Politis & White for the circular block bootstrap, between 1 and a third of the series.
///
/// Twice, because theirs makes the mean squared error of the variance smallest, and intervals cover better with longer blocks
/// (Sun, Phillips & Jin 2008): by simulation, twice is what covers.
///
/// Sources: D. N. Politis, H. White, *Automatic block-length selection for the dependent bootstrap*, Econometric Reviews 23 (2004)
/// 53–70; A. Patton, D. N. Politis, H. White, *Correction*, Econometric Reviews 28 (2009) 372–375; Y. Sun, P. C. B. Phillips, S. Jin,
/// *Optimal bandwidth selection in heteroskedasticity–autocorrelation robust testing*, Econometrica 76 (2008) 175–194.
pub(super) fn block_length(centred: &[f64]) -> usize {
    let n = centred.len() as f64;
    let longest = (centred.len() / 3).max(1);
    let variance = covariance(centred, 0);
    if centred.len() < 2 || variance <= 0.0 {
        return 1;
    }
    let significant = 2.0 * (n.log10() / n).sqrt() * variance;
    let limit = ((n.sqrt().ceil() as usize + QUIET_LAGS).min(centred.len() - 1)).min(LONGEST_LAG);
    // The last significant lag in front of a quiet stretch, or of all, found without computing more lags than it takes.
    let mut all = vec![variance];
    let mut last = 0;
    while all.len() <= limit && all.len() - 1 - last < QUIET_LAGS {
        let lag = all.len();
        all.push(covariance(centred, lag));
        if all[lag].abs() >= significant {
            last = lag;
        }
    }
    let width = (2 * last.max(1)).min(limit.max(1));
    while all.len() <= width {
        all.push(covariance(centred, all.len()));
    }
    // Sums over both signs of the lag, under the flat-top window.
    let (mut slope, mut spectrum) = (0.0, variance);
    for (lag, covariance) in all.iter().enumerate().take(width + 1).skip(1) {
        let window = (2.0 * (1.0 - lag as f64 / width as f64)).min(1.0);
        slope += 2.0 * window * lag as f64 * covariance;
        spectrum += 2.0 * window * covariance;
    }
    let best = (1.5 * slope * slope / (spectrum * spectrum) * n).cbrt();
    // Not a number where the spectrum is 0: as long as may be.
    if best.is_finite() { ((2.0 * best).round() as usize).clamp(1, longest) } else { longest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_long_where_values_hang_together() {
        let noise: Vec<f64> = (0..1000u64).map(|i| (i * i * 7919 % 1009) as f64).collect();
        let smooth: Vec<f64> = noise.windows(20).map(|w| w.iter().sum()).collect();
        let (short, long) = (block_length(&centred(&noise)), block_length(&centred(&smooth)));
        assert!(short <= 8 && long >= 20, "{short} {long}");
        assert_eq!((block_length(&[]), block_length(&[0.0; 9])), (1, 1));
    }
}
