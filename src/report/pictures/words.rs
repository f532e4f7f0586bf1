use crate::ledger::Run;
use crate::report::format;

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

/// `3 runs each`, `2 to 5 runs each`, by the number of runs of each variant.
pub(super) fn runs_each(counts: &[usize]) -> String {
    match ends(counts.iter().map(|n| *n as f64)) {
        Some([low, high]) if low < high => format!("{low} to {high} runs each"),
        Some([n, _]) => format!("{} each", format::count(n as u64, "run")),
        None => "no run".to_owned(),
    }
}

/// Number of completed runs.
pub(super) fn completed(runs: &[&Run]) -> usize {
    runs.iter().filter(|run| run.completed()).count()
}
