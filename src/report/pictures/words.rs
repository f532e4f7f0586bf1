use crate::plot::{Axis, Bar};
use crate::report::figures::completed_steps;
use crate::report::format;
use expctl_record::Run;

/// Times as far apart as this go on a logarithmic axis: on an even one the shortest would not be seen.
const FAR_APART: f64 = 30.0;

/// The least and the most of some values; none of no finite value.
pub(super) fn ends(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let ends = values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
    (ends[0] <= ends[1]).then_some(ends)
}

/// True if some positive values are too far apart for an even axis.
pub(super) fn far_apart(values: impl IntoIterator<Item = f64>) -> bool {
    ends(values.into_iter().filter(|v| *v > 0.0)).is_some_and(|[low, high]| high / low > FAR_APART)
}

/// Intervals beyond so many times the highest value are cut off.
const MOST: f64 = 2.0;

/// An even axis from 0 for bars of which `highest` is the highest value, and whether it cuts intervals off: that of two runs can be so wide
/// that nothing else would be seen.
pub(super) fn cut_intervals(y: Axis, bars: &[Bar], highest: f64) -> (Axis, bool) {
    let top = bars.iter().filter_map(|bar| bar.interval).fold(0.0, |top: f64, [_, high]| top.max(high));
    if top > MOST * highest { (y.between(0.0, MOST * highest), true) } else { (y, false) }
}

/// `3 runs and 120 steps of all ranks each`, `2 to 5 runs and 80 to 200 steps of all ranks each`, by the number of completed runs of each
/// variant and of their measured steps, those of all ranks counted.
pub(super) fn basis(counts: &[(usize, usize)]) -> String {
    let shown = |of: fn(&(usize, usize)) -> usize, what: &str| match ends(counts.iter().map(|n| of(n) as f64)) {
        Some([low, high]) if low < high => {
            format!("{} to {} {what}s", format::thousands(low as u64), format::thousands(high as u64))
        }
        Some([n, _]) => format::count(n as u64, what),
        None => format!("no {what}"),
    };
    format!("{} and {} of all ranks each", shown(|(runs, _)| *runs, "run"), shown(|(_, steps)| *steps, "step"))
}

/// Runs and steps of a variant, as a caption counts them.
pub(super) fn counted(runs: &[&Run]) -> (usize, usize) {
    (completed(runs), completed_steps(runs).count())
}

/// Number of completed runs.
pub(super) fn completed(runs: &[&Run]) -> usize {
    runs.iter().filter(|run| run.completed()).count()
}
