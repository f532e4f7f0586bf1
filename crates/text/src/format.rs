//! Numbers as text. Every number of a table or note is rounded here, last and once, half away from zero.

use expctl_stats::{Interval, RateOverRuns, Ratio, Scope};

/// Text of a value that is not there.
pub const MISSING: &str = "–";

/// [`MISSING`], as the text of a cell.
pub fn missing() -> String {
    MISSING.to_owned()
}

/// A rate per second: five significant digits, at most three decimals, no trailing zeros.
pub fn rate(value: f64) -> String {
    trimmed(value, 5, 3)
}

/// A loss or a correlation: four significant digits, without trailing zeros. `0.4186`, `0.00123`.
pub fn figure(value: f64) -> String {
    trimmed(value, 4, 4)
}

/// A ratio with its sign: four significant digits, at most two decimals. `0.57×`, `56.35×`, `128.8×`.
pub fn ratio(value: f64) -> String {
    format!("{}×", fixed(value, 4, 2))
}

/// A ratio with its interval, if it has one: `1.25× [1.20–1.31]`, `1.25× [too wide to say]`.
pub fn ratio_with_interval(value: &Ratio) -> String {
    match ratio_interval(value) {
        Some(ends) => format!("{} [{ends}]", ratio(value.value)),
        None => ratio(value.value),
    }
}

/// The interval of a ratio: `1.20–1.31`, `too wide to say`; `None` if it has none.
pub fn ratio_interval(value: &Ratio) -> Option<String> {
    let ends = |low, high| format!("{}–{}", fixed(low, 4, 2), fixed(high, 4, 2));
    value.interval.map(|Interval { low, high }| interval(low, high, ends))
}

/// The inverse of a ratio of speeds of at most a half: `56.35× slower`. `None` for ratios nearer to 1, where a percentage says more.
pub fn slower(value: f64) -> Option<String> {
    (value > 0.0 && value <= 0.5).then(|| format!("{} slower", ratio(1.0 / value)))
}

/// A ratio to the baseline with its interval, followed by its inverse if it is much slower: `1.25× [1.20–1.31]`,
/// `0.018× [0.017–0.019] (56.35× slower)`.
pub fn times_as_fast(value: &Ratio) -> String {
    let shown = ratio_with_interval(value);
    slower(value.value).map_or_else(|| shown.clone(), |slower| format!("{shown} ({slower})"))
}

/// A ratio of sizes, to about two digits, because sizes are given to that: `2.3×`, `225×`, `0.0053×`.
pub fn size_ratio(value: f64) -> String {
    let decimals = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 0.95 || value <= 0.0 => 1,
        _ => usize::try_from(1 - value.log10().floor() as i32).unwrap_or(1),
    };
    format!("{}×", round(value, decimals))
}

/// Maximum ratio of the ends of an interval that is written as numbers.
const MAX_INTERVAL_RATIO: f64 = 100.0;

/// The interval of a ratio or a rate as `shown` writes it, or in words if it is too wide for numbers.
fn interval(low: f64, high: f64, shown: impl Fn(f64, f64) -> String) -> String {
    if low > 0.0 && high <= MAX_INTERVAL_RATIO * low { shown(low, high) } else { "too wide to say".to_owned() }
}

/// The interval of a rate: `134–146`; `None` if it has none.
pub fn interval_ends(value: &RateOverRuns) -> Option<String> {
    value.interval.map(|Interval { low, high }| interval(low, high, range))
}

/// The interval of a rate, marked if it covers one run only: `134–146`, `139–141 (within the run only)`; `None` if it has none.
pub fn rate_interval(value: &RateOverRuns) -> Option<String> {
    let ends = interval_ends(value)?;
    Some(match value.scope {
        Scope::OverRuns => ends,
        Scope::WithinRun => format!("{ends} ({})", value.scope.words()),
    })
}

/// Lowest and highest rate, as one value if they are equal.
pub fn range(low: f64, high: f64) -> String {
    if low == high { rate(low) } else { format!("{}–{}", rate(low), rate(high)) }
}

/// A published figure or range with the digits of its source: `0.65`, `3.0–3.2`; `> 60` for a range without an upper end.
pub fn as_published(low: f64, high: f64) -> String {
    let decimals_of = |end: f64| end.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
    let decimals = decimals_of(low).max(decimals_of(high));
    match (round(low, decimals), round(high, decimals)) {
        (low, _) if high.is_infinite() => format!("> {low}"),
        (one, other) if one == other => one,
        (low, high) => format!("{low}–{high}"),
    }
}

/// A size in powers of 1000, three significant digits. `8.8 GB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = value;
    let mut unit = 0;
    // 999.5 would round to 1000 of the smaller unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", trimmed(value, 3, 2), UNITS[unit])
}

/// Bytes as MiB, five significant digits, at most two decimals, no trailing zeros.
pub fn mebibytes(bytes: f64) -> String {
    trimmed(bytes / f64::from(1 << 20), 5, 2)
}

/// A size, with its ratio to the baseline's if that is known and not 1. `8.8 GB (2.3×)`.
pub fn bytes_with_ratio(value: f64, ratio: Option<f64>) -> String {
    match ratio.filter(|r| (r - 1.0).abs() > 0.005) {
        Some(ratio) => format!("{} ({})", bytes(value), size_ratio(ratio)),
        None => bytes(value),
    }
}

/// Nanoseconds as milliseconds, four significant digits, at most three decimals.
pub fn milliseconds(ns: f64) -> String {
    trimmed(ns / 1e6, 4, 3)
}

/// Lowest and highest of some times in nanoseconds, as milliseconds; one value if they are equal.
pub fn milliseconds_range(low: f64, high: f64) -> String {
    if low == high { milliseconds(low) } else { format!("{}–{}", milliseconds(low), milliseconds(high)) }
}

/// Nanoseconds as milliseconds with three decimals: a column of them adds up to the microsecond.
pub fn milliseconds_in_column(ns: f64) -> String {
    round(ns / 1e6, 3)
}

/// A duration: `3.6 ms`, `450 ms`, `2.7 s`, `1200 s`.
pub fn seconds(seconds: f64) -> String {
    // 0.9995 s would be 1000 ms.
    if seconds < 0.9995 {
        format!("{} ms", trimmed(seconds * 1e3, 2, 1))
    } else {
        format!("{} s", trimmed(seconds, 2, 1))
    }
}

/// A count with commas between thousands.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|g| String::from_utf8_lossy(g)).collect::<Vec<_>>().join(",")
}

/// A share of 1 in percent with one decimal.
pub fn percent(share: f64) -> String {
    format!("{} %", round(share * 100.0, 1))
}

/// A part in percent of its whole, one decimal; [`MISSING`] if the whole is not above 0.
///
/// Each share is rounded by itself, so that the same share has the same digits everywhere. Shares may then add up to 100.0 within some
/// tenths only.
pub fn share(part: f64, whole: f64) -> String {
    if whole > 0.0 { percent(part / whole) } else { MISSING.to_owned() }
}

/// A time in seconds since the epoch, as date and time in UTC.
pub fn moment(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(t) => t.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => MISSING.to_owned(),
    }
}

/// A time in seconds since the epoch, as the day in titles of notes: `2025.11.04`.
pub fn day(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(t) => t.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y.%m.%d").to_string(),
        Err(_) => MISSING.to_owned(),
    }
}

/// Number of names up to which a sentence has all of them.
const MAX_LISTED: usize = 100;
/// Number of names that it has of more.
const LISTED: usize = 20;

/// `ids, lazy`; of more than a hundred names the first twenty and the number of the others: `ids, lazy, … (480 more)`.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let shown = if names.len() > MAX_LISTED { LISTED } else { names.len() };
    let mut said = names[..shown].iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if shown < names.len() {
        said.push_str(&format!(", … ({} more)", thousands((names.len() - shown) as u64)));
    }
    said
}

/// `1 run`, `3 runs`.
pub fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A name as inline code in markdown; backticks become apostrophes.
pub fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

/// A figure, marked if only some runs have it: `0.5 (1 of 3)`.
pub fn with_run_count(shown: String, with: usize, runs: usize) -> String {
    if with == runs { shown } else { format!("{shown} ({with} of {runs})") }
}

/// Decimals that give `significant` digits, at most `max`. Values below 0.1 keep three digits.
fn decimals(value: f64, significant: i32, max: i32) -> usize {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (significant - 1 - magnitude).max(0);
    let decimals = if magnitude < -1 { 2 - magnitude } else { decimals.min(max) };
    usize::try_from(decimals).unwrap_or(0)
}

fn fixed(value: f64, significant: i32, max: i32) -> String {
    round(value, decimals(value, significant, max))
}

fn trimmed(value: f64, significant: i32, max: i32) -> String {
    let text = fixed(value, significant, max);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Rounded half away from zero in decimal; `{:.n}` rounds 2.5 to even.
pub fn round(value: f64, decimals: usize) -> String {
    let scale = 10f64.powi(decimals as i32);
    let scaled = value * scale;
    let rounded = if scaled.abs() < 1e15 { scaled.round() / scale } else { value };
    // No "-0.0".
    let rounded = if rounded == 0.0 { 0.0 } else { rounded };
    format!("{rounded:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_names_twenty_are_listed() {
        assert_eq!(listed(&["ids", "lazy"]), "ids, lazy");
        assert_eq!(listed::<String>(&[]), "");
        let names: Vec<String> = (0..2100).map(|n| n.to_string()).collect();
        assert_eq!(listed(&names[..100]), names[..100].join(", "));
        assert_eq!(listed(&names), format!("{}, … (2,080 more)", names[..20].join(", ")));
    }

    #[test]
    fn the_published_ratios_are_rounded_last() {
        assert_eq!(ratio(0.24 / 0.42), "0.57×");
        assert_eq!(ratio(0.22 / 0.42), "0.52×");
        assert_eq!(ratio(73.816 / 1.310), "56.35×");
        assert_eq!(ratio(16.980 / 0.879), "19.32×");
        assert_eq!(ratio(73.816 * 64.0 / (1.310 * 28.0)), "128.8×");
        assert_eq!(ratio(19.904 / 1.592), "12.50×");
        let sizes = [8.8 / 3.8, 855.0 / 3.8, 0.00532, 0.125, 0.96, 0.0].map(size_ratio);
        assert_eq!(sizes, ["2.3×", "225×", "0.0053×", "0.13×", "1.0×", "0.0×"]);
    }

    #[test]
    fn much_slower_is_said_the_other_way_up() {
        let of = |value: f64| times_as_fast(&Ratio { value, interval: None, p: None });
        // Lazy beside DANGO as published, and the other way round.
        assert_eq!(of(1.310 / 73.816), "0.0177× (56.35× slower)");
        assert_eq!(of(73.816 / 1.310), "56.35×");
        assert_eq!((of(0.5), of(0.51)), ("0.50× (2.00× slower)".to_owned(), "0.51×".to_owned()));
        let interval = Some(Interval { low: 0.2, high: 0.3 });
        assert_eq!(times_as_fast(&Ratio { value: 0.25, interval, p: None }), "0.25× [0.20–0.30] (4.00× slower)");
        assert_eq!(slower(0.0), None);
    }

    #[test]
    fn rates_keep_what_was_published() {
        let shown: Vec<_> = [0.42, 1.592, 19.904, 73.816, 0.42 * 112.0, 4724.224, 0.0012345, 0.0].map(rate).into();
        assert_eq!(shown, ["0.42", "1.592", "19.904", "73.816", "47.04", "4724.2", "0.00123", "0"]);
    }

    #[test]
    fn published_figures_keep_their_digits() {
        let shown = [(0.65, 0.65), (3.0, 3.2), (34.0, 36.0), (0.014, 0.014), (57.0, 57.0), (60.0, f64::INFINITY)];
        let shown = shown.map(|(low, high)| as_published(low, high));
        assert_eq!(shown, ["0.65", "3.0–3.2", "34–36", "0.014", "57", "> 60"]);
    }

    #[test]
    fn a_share_is_rounded_by_itself() {
        assert_eq!([1.0, 2.0, -0.1].map(|part| share(part, 3.0)), ["33.3 %", "66.7 %", "-3.3 %"]);
        assert_eq!((share(1.0, 0.0), share(0.0005, 1.0)), ("–".to_owned(), "0.1 %".to_owned()));
    }

    #[test]
    fn intervals_of_two_runs_may_be_too_wide_to_say() {
        let shown = |low: f64, high: f64| {
            let interval = Some(Interval { low, high });
            let rate = RateOverRuns { value: 1.5, interval, scope: Scope::OverRuns, spread: None, within: None };
            (ratio_with_interval(&Ratio { value: 1.5, interval, p: None }), rate_interval(&rate).unwrap())
        };
        assert_eq!(shown(0.5, 4.5), ("1.50× [0.50–4.50]".to_owned(), "0.5–4.5".to_owned()));
        assert_eq!(shown(0.15, 15.0).1, "0.15–15");
        for (low, high) in [(0.000_011_4, 14464.0), (0.15, 15.001), (0.0, 1.0), (0.5, f64::INFINITY)] {
            assert_eq!(shown(low, high), ("1.50× [too wide to say]".to_owned(), "too wide to say".to_owned()));
        }
    }

    #[test]
    fn sizes_times_and_days() {
        assert_eq!((bytes(8.8e9), bytes(855e9), bytes(12.0)), ("8.8 GB".into(), "855 GB".into(), "12 B".into()));
        assert_eq!(bytes(999_999.0), "1 MB");
        // The published 1,155.4 and 87.8 MiB, and 28 samples of three ids.
        let sizes = [1_211_525_000.0, 92_065_000.0, 672.0, 1_048_576.0].map(mebibytes);
        assert_eq!(sizes, ["1155.4", "87.8", "0.000641", "1"]);
        let ratios = [Some(8.8 / 3.8), Some(1.001), None].map(|r| bytes_with_ratio(8.8e9, r));
        assert_eq!(ratios, ["8.8 GB (2.3×)", "8.8 GB", "8.8 GB"]);
        assert_eq!((milliseconds_in_column(1_234_567.0), milliseconds(763_000_000.0)), ("1.235".into(), "763".into()));
        let ranges = [(93.98e6, 137.4e6), (2e6, 2e6)].map(|(low, high)| milliseconds_range(low, high));
        assert_eq!(ranges, ["93.98–137.4", "2"]);
        assert_eq!([0.0036, 0.45, 0.9996, 2.74, 1200.0].map(seconds), ["3.6 ms", "450 ms", "1 s", "2.7 s", "1200 s"]);
        assert_eq!([0, 999, 1000, 2_495_908].map(thousands), ["0", "999", "1,000", "2,495,908"]);
        assert_eq!((day(1_762_214_400), moment(1_762_214_400)), ("2025.11.04".into(), "2025-11-04 00:00 UTC".into()));
        assert_eq!(round(2.5, 0), "3");
        assert_eq!(code("a`b"), "`a'b`");
    }
}
