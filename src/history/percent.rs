//! A ratio of rates as a change in percent.

use expctl_stats::Ratio;
use expctl_text::format;

/// Multiple of its lower end up to which an interval is written as numbers.
const MAX_ENDS: f64 = 100.0;

/// `12 % slower [9.1–15 %]`, `3.0 % faster`; `0.4 % slower [−0.2 to 1.0 %]` where the interval holds no change.
pub fn change_words(ratio: &Ratio) -> String {
    let slower = ratio.value < 1.0;
    let percent = |value: f64| if slower { (1.0 - value) * 100.0 } else { (value - 1.0) * 100.0 };
    let word = if slower { "slower" } else { "faster" };
    let said = format!("{} % {word}", digits(percent(ratio.value)));
    let Some(interval) = ratio.interval else { return said };
    if interval.low <= 0.0 || interval.high > MAX_ENDS * interval.low {
        return format!("{said} [too wide to say]");
    }
    let (low, high) = match slower {
        true => (percent(interval.high), percent(interval.low)),
        false => (percent(interval.low), percent(interval.high)),
    };
    let to = if low < 0.0 { " to " } else { "–" };
    format!("{said} [{}{to}{} %]", digits(low), digits(high))
}

/// One decimal below 10, none above.
fn digits(percent: f64) -> String {
    let text = format::round(percent.abs(), usize::from(percent.abs() < 9.95));
    if percent < 0.0 && text.chars().any(|c| ('1'..='9').contains(&c)) { format!("−{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use expctl_stats::Interval;

    use super::*;

    #[test]
    fn a_ratio_is_a_change_in_percent() {
        let of = |value: f64, ends: Option<(f64, f64)>| {
            change_words(&Ratio { value, interval: ends.map(|(low, high)| Interval { low, high }), p: None })
        };
        assert_eq!(of(0.88, Some((0.85, 0.909))), "12 % slower [9.1–15 %]");
        assert_eq!(of(1.03, None), "3.0 % faster");
        assert_eq!(of(1.12, Some((1.1, 1.142))), "12 % faster [10–14 %]");
        assert_eq!(of(0.996, Some((0.99, 1.002))), "0.4 % slower [−0.2 to 1.0 %]");
        assert_eq!(of(0.5, Some((0.004, 62.0))), "50 % slower [too wide to say]");
    }
}
