//! An analysis of batch times as markdown.

use expctl_text::Table;
use expctl_text::format::{
    MISSING, count, figure, interval_ends, milliseconds, percent, range, rate, ratio, thousands,
};

use super::analysis::{Analysis, MethodTimings, SeriesTimings};
use super::beats::BeatSummary;
use super::distribution::{CurvePoint, Distribution};
use super::ledger_steps::{SlowBatches, SlowStages};
use super::period::FoundPeriod;
use super::source::{ALL_ROWS, TimingsClass};

/// Maximum number of epochs of a method in a table; all are in the JSON.
const MAX_EPOCHS: usize = 20;

/// Maximum number of stages of the slow batches that a sentence names.
const MAX_NAMED: usize = 3;
/// Minimum share of the difference of a stage that a sentence names.
const MIN_NAMED_SHARE: f64 = 0.1;

/// An analysis as markdown, in sections: name of the section for its markers, and its text, which may be empty.
pub fn markdown(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let sections = [
        ("head", head(analysis)),
        ("index", index(analysis)),
        ("times", times(analysis)),
        ("epochs", epochs(analysis)),
        ("slow", slow(analysis)),
        ("period", period(analysis)),
        ("stages", stages(analysis)),
    ];
    sections.into_iter().collect()
}

fn head(analysis: &Analysis) -> String {
    let source = &analysis.source;
    let rows: u64 = analysis.methods.iter().map(|m| m.all.batches).sum();
    let class = match source.class {
        TimingsClass::Measured => "measured",
        TimingsClass::Imported => "imported: as the file has them",
        TimingsClass::Generated => "**generated** from random numbers: nobody measured them",
    };
    format!(
        "## Batch timings: {}\n\n{} batches of {}. Times: {class}. Everything else is derived from them.\n\n{}Read: {}.",
        source.name,
        thousands(rows),
        count(analysis.methods.len() as u64, "method"),
        answers(analysis),
        source.columns,
    )
}

/// Maximum number of methods that the answer names.
const MAX_ANSWERS: usize = 8;

/// A line for each method: mean and slow batches, and whether they come with a period.
fn answers(analysis: &Analysis) -> String {
    let line = |method: &MethodTimings| {
        let times = &method.all;
        let slow = times
            .slowest_1_percent
            .map(|share| format!("; the slowest 1 % of batches take {} of the time", percent(share)));
        let period = method.found.map(|found| format!("; every {} batch is slow", ordinal(found.period)));
        format!(
            "- **{}**: a batch takes {} s (mean){}{}\n",
            name(&method.method),
            figure(times.mean_s),
            slow.unwrap_or_default(),
            period.unwrap_or_default()
        )
    };
    let mut text: String = analysis.methods.iter().take(MAX_ANSWERS).map(line).collect();
    let left = analysis.methods.len().saturating_sub(MAX_ANSWERS);
    if left > 0 {
        text.push_str(&format!("- and {} more, below\n", count(left as u64, "method")));
    }
    format!("{text}\n")
}

fn index(analysis: &Analysis) -> String {
    let mut table = Table::new(["Method", "Epoch", "Batches", "Batch index"]).right([2]);
    each_epoch(analysis, |method, epoch| {
        table.row([name(method), epoch.epoch.clone(), thousands(epoch.times.batches), checked(epoch)]);
    });
    let checks = || analysis.methods.iter().flat_map(|m| &m.epochs).map(|epoch| epoch.check.as_ref());
    let wrong = checks().flatten().filter(|check| !check.passed()).count();
    let verdict = match wrong {
        0 if checks().any(|check| check.is_none()) => {
            "No batch column: batches are numbered in the order of rows, and nothing could be checked.".to_owned()
        }
        0 => "Batches are numbered from 0 without gap or repetition in each method and epoch.".to_owned(),
        n => format!("**{} not numbered from 0 without gap and repetition**: see the table.", count_are(n)),
    };
    format!("### Batch index\n\n{verdict}\n\n{}{}", table.markdown(), more(analysis))
}

fn count_are(n: usize) -> String {
    if n == 1 { "1 series is".into() } else { format!("{n} series are") }
}

fn checked(epoch: &SeriesTimings) -> String {
    let Some(check) = &epoch.check else { return "order of rows, not checked".into() };
    let mut parts = Vec::new();
    if check.passed() {
        parts.push(format!("0–{}", epoch.times.batches - 1));
    }
    if let Some(first) = check.first_missing {
        parts.push(format!("{} missing, first {first}", thousands(check.missing)));
    }
    if let Some(first) = check.first_doubled {
        parts.push(format!("{} doubled, first {first}", thousands(check.doubled)));
    }
    if check.unchecked > 0 {
        parts.push(format!("{} rows not checked: numbers too far apart", thousands(check.unchecked)));
    }
    if !check.in_order {
        parts.push("rows out of order".into());
    }
    parts.join("; ")
}

fn times(analysis: &Analysis) -> String {
    let header = ["Method", "Epoch", "Total (s)", "Mean", "Min", "p1", "p5", "p25", "p50", "p75", "p95", "p99", "Max"];
    let mut table = Table::new(header).right(2..13);
    let cells = |times: &Distribution| {
        let quantiles = times.quantiles_s.iter().map(|q| figure(*q));
        let (front, max) = ([rate(times.total_s), figure(times.mean_s), figure(times.min_s)], figure(times.max_s));
        front.into_iter().chain(quantiles).chain([max]).collect::<Vec<_>>()
    };
    each_epoch(analysis, |method, epoch| {
        table.row([name(method), epoch.epoch.clone()].into_iter().chain(cells(&epoch.times)));
    });
    for method in analysis.methods.iter().filter(|m| m.epochs.len() > 1) {
        table.bold_row([name(&method.method), "all".into()].into_iter().chain(cells(&method.all)));
    }
    let exact = analysis.methods.iter().all(|m| m.all.exact && m.epochs.iter().all(|e| e.times.exact));
    let bound = if exact {
        "Exact; quantiles are linear between order statistics."
    } else {
        "Of more than 16,777,216 rows together, quantiles come from bins and are off by less than 0.1 %; sums, minima and \
         maxima are exact."
    };
    format!("### Batch times\n\nSeconds. {bound}\n\n{}{}", table.markdown(), more(analysis))
}

/// Time per epoch, and the first epoch beside the later ones.
fn epochs(analysis: &Analysis) -> String {
    let known = |method: &MethodTimings| method.epoch_time.is_some() || method.first_epoch.is_some();
    if !analysis.methods.iter().any(known) {
        return String::new();
    }
    let header = [
        "Method",
        "Whole epochs",
        "Time per epoch (s)",
        "95 % (s)",
        "First epoch: batch (s)",
        "Later epochs: batch (s)",
        "First epoch × faster",
    ];
    let mut table = Table::new(header).right(1..7);
    let missing = || MISSING.to_owned();
    let spread = |times: &Distribution| {
        let [_, low, _, _, _, high, _] = times.quantiles_s.map(figure);
        format!("{} [{low}–{high}]", figure(times.mean_s))
    };
    for method in &analysis.methods {
        let (time, both) = (method.epoch_time, method.first_and_later());
        table.row([
            name(&method.method),
            time.map_or_else(missing, |time| match time.measured() {
                true => time.epochs.to_string(),
                false => "from the rate".to_owned(),
            }),
            time.map_or_else(missing, |time| rate(time.time_s.value)),
            time.and_then(|time| interval_ends(&time.time_s)).unwrap_or_else(missing),
            both.map_or_else(missing, |(first, _)| spread(first)),
            both.map_or_else(missing, |(_, later)| spread(later)),
            method.first_epoch.as_ref().and_then(|first| first.ratio).map_or_else(missing, ratio),
        ]);
    }
    format!(
        "### Epochs\n\nTime per epoch: the times of all its batches together, mean over the whole epochs with its 95 % interval over these \
         (Student's t of the logarithms), which says nothing of other runs. From the rate: no epoch was timed from its first batch to its \
         last, so it is the batches of an epoch at the mean time of one. Batch: mean [5th to 95th percentile]; × faster: mean of the later \
         epochs over that of the first, so below 1 the first epoch is slower.\n\n{}",
        table.markdown()
    )
}

fn slow(analysis: &Analysis) -> String {
    let header =
        ["Method", "Epoch", "Slowest 1 %", "Slowest 10 %", "Slower / faster half", "Lowest ratio", "Highest ratio"];
    let mut table = Table::new(header).right(2..7);
    let at = |point: Option<CurvePoint>| {
        point.and_then(|p| Some(format!("{} at {}", ratio(p.ratio?), percent(p.batch_share)))).unwrap_or(MISSING.into())
    };
    let cells = |times: &Distribution| {
        [
            times.slowest_1_percent.map_or(MISSING.into(), percent),
            times.slowest_10_percent.map_or(MISSING.into(), percent),
            times.halves_ratio.map_or(MISSING.into(), ratio),
            at(times.lowest_ratio),
            at(times.highest_ratio),
        ]
    };
    each_epoch(analysis, |method, epoch| {
        table.row([name(method), epoch.epoch.clone()].into_iter().chain(cells(&epoch.times)));
    });
    for method in analysis.methods.iter().filter(|m| m.epochs.len() > 1) {
        table.bold_row([name(&method.method), "all".into()].into_iter().chain(cells(&method.all)));
    }
    format!(
        "### Slow batches\n\nShare of the time that the slowest batches have; and, cutting the batches sorted by time at a share, \
         the mean of the slower over the mean of the faster ones: at one half, and where it is lowest and highest (1 % to 99 %).\n\n{}{}",
        table.markdown(),
        more(analysis)
    )
}

fn period(analysis: &Analysis) -> String {
    let header = [
        "Method",
        "Epoch",
        "Period alone",
        "Followed",
        "Beats",
        "of batches",
        "of time",
        "Median (s)",
        "Slower (median)",
        "Slower (mean)",
        "On the beat",
        "Slips / 100",
        "Drift / 100",
    ];
    let mut table = Table::new(header).right(2..13);
    each_epoch(analysis, |method, epoch| {
        let found = epoch.found.map_or("none".into(), |f| f.period.to_string());
        for rhythm in [&epoch.rhythm, &epoch.second] {
            let Some(rhythm) = rhythm else { continue };
            table.row([name(method), epoch.epoch.clone(), found.clone()].into_iter().chain(beats(rhythm)));
        }
        if epoch.rhythm.is_none() {
            table.row([name(method), epoch.epoch.clone(), found].into_iter().chain(vec![MISSING.to_owned(); 10]));
        }
    });
    let lines: Vec<String> = analysis.methods.iter().map(|method| format!("- {}", sentence(method))).collect();
    format!(
        "### Period\n\n{}\n\nPeriod alone: found in that epoch by itself. Followed: the period of all epochs together; a second line is of \
         what is left without the first, and so are its shares. Slower: on the beat against off it. On the beat: beats that are slower than \
         three quarters of the others. Slips: beats that do not come after exactly one period; drift: by how many batches they \
         come late, less early. Where the beat is weak, following it picks slow batches: read shares against the test.\n\n{}{}",
        lines.join("\n"),
        table.markdown(),
        more(analysis)
    )
}

fn beats(rhythm: &BeatSummary) -> Vec<String> {
    let per_100 = |n: f64| figure(n);
    let batches = if rhythm.batch_share > 0.0 { rhythm.beats as f64 / rhythm.batch_share } else { 1.0 };
    vec![
        rhythm.period.to_string(),
        thousands(rhythm.beats),
        percent(rhythm.batch_share),
        percent(rhythm.time_share),
        figure(rhythm.median_s),
        rhythm.slower.map_or(MISSING.into(), ratio),
        rhythm.slower_mean.map_or(MISSING.into(), ratio),
        percent(rhythm.hit_share),
        per_100(rhythm.slips as f64 * 100.0 / batches),
        per_100(rhythm.drift_per_100),
    ]
}

/// The table of periods of a method in a sentence.
fn sentence(timings: &MethodTimings) -> String {
    let who = format!("**{}**", name(&timings.method));
    let first = match (timings.found, timings.period) {
        (Some(found), Some(period)) if found.period == period => {
            format!("every {} batch is slow ({}{})", ordinal(period), chance(found.p), agreeing(timings, found))
        }
        (found, Some(period)) => {
            let other = found.map_or("none was found".into(), |f| format!("{} was found, {}", f.period, chance(f.p)));
            format!("followed with the period asked for, {period} ({other})")
        }
        (_, None) if timings.longest_tried < 2 => {
            return format!("{who}: no period looked for: too few batches (no epoch has 16 with different times).");
        }
        (_, None) => {
            let longest = timings.longest_tried;
            return format!("{who}: no period shown (p ≥ 0.001 for each of 2 to {longest} batches).");
        }
    };
    let rhythms: Vec<&BeatSummary> = timings.epochs.iter().filter_map(|epoch| epoch.rhythm.as_ref()).collect();
    let second = match timings.second {
        Some(found) => {
            let lines: Vec<&BeatSummary> = timings.epochs.iter().filter_map(|epoch| epoch.second.as_ref()).collect();
            format!(
                " What is left has a second line: every {} batch ({}), {}.",
                ordinal(found.period),
                chance(found.p),
                summary(&lines, " of what is left")
            )
        }
        None => String::new(),
    };
    format!("{who}: {first}; {}.{second}", summary(&rhythms, ""))
}

fn agreeing(timings: &MethodTimings, found: FoundPeriod) -> String {
    match timings.epochs.len() {
        1 => String::new(),
        n => {
            let same = timings.epochs.iter().filter(|e| e.found.is_some_and(|f| f.period == found.period)).count();
            format!("; alone in {same} of {n} epochs")
        }
    }
}

/// The beats of all epochs in words, each figure as a range over the epochs.
fn summary(rhythms: &[&BeatSummary], left: &str) -> String {
    let ends = |of: &dyn Fn(&BeatSummary) -> Option<f64>| {
        let values: Vec<f64> = rhythms.iter().filter_map(|r| of(r)).collect();
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        (!values.is_empty()).then_some((low, high))
    };
    let shown = |ends: Option<(f64, f64)>, round: fn(f64) -> f64, unit: &str| match ends {
        Some((low, high)) => format!("{}{unit}", range(round(low), round(high))),
        None => MISSING.to_owned(),
    };
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let level = |value: f64| match value.log10().floor() {
        power if power.is_finite() => {
            let scale = 10f64.powi(2 - power as i32);
            (value * scale).round() / scale
        }
        _ => value,
    };
    let times = |value: f64| if value < 10.0 { (value * 10.0).round() / 10.0 } else { value.round() };
    let drift = match ends(&|r| Some(r.drift_per_100)) {
        Some((low, high)) if low.abs().max(high.abs()) < 0.1 => "their phase stays".to_owned(),
        Some((low, high)) if high < 0.0 => {
            format!("they come {} batches early in 100", shown(Some((-high, -low)), tenth, ""))
        }
        Some((low, high)) if low > 0.0 => {
            format!("they come {} batches late in 100", shown(Some((low, high)), tenth, ""))
        }
        _ => "their phase wanders".to_owned(),
    };
    format!(
        "these are {} of the batches and {} of the time{left}, {} slower by the median ({}) and {} by the mean; {drift}",
        shown(ends(&|r| Some(r.batch_share * 100.0)), tenth, " %"),
        shown(ends(&|r| Some(r.time_share * 100.0)), tenth, " %"),
        shown(ends(&|r| r.slower), times, "×"),
        shown(ends(&|r| Some(r.median_s)), level, " s"),
        shown(ends(&|r| r.slower_mean), times, "×"),
    )
}

/// In which stages the slow batches take longer than the others.
fn stages(analysis: &Analysis) -> String {
    let all =
        || analysis.methods.iter().filter_map(|method| Some((name(&method.method), method.slow_stages.as_ref()?)));
    if all().next().is_none() {
        return String::new();
    }
    let header = [
        "Method",
        "Stage",
        "Exposed, slow (ms)",
        "Exposed, others (ms)",
        "Difference (ms)",
        "of the difference",
        "Busy, slow (ms)",
        "Busy, others (ms)",
    ];
    let mut table = Table::new(header).right(2..8);
    let ms = |seconds: f64| milliseconds(seconds * 1e9);
    for (method, found) in all() {
        for of in &found.stages {
            table.row([
                method.clone(),
                of.stage.to_owned(),
                ms(of.exposed_slow_s),
                ms(of.exposed_others_s),
                ms(of.exposed_slow_s - of.exposed_others_s),
                percent(of.share),
                of.busy_slow_s.map_or(MISSING.into(), ms),
                of.busy_others_s.map_or(MISSING.into(), ms),
            ]);
        }
        let step = [ms(found.slow_s), ms(found.others_s), ms(found.slow_s - found.others_s)];
        let ends = [percent(1.0), MISSING.into(), MISSING.into()];
        table.bold_row([method, "step".to_owned()].into_iter().chain(step).chain(ends));
    }
    let lines: Vec<String> = all().map(|(method, found)| format!("- **{method}**: {}", reason(found))).collect();
    format!(
        "### Stages of the slow batches\n\n{}\n\nMeans per step (measured) of the slow batches and of all others; differences and their shares \
         (derived). Exposed: what the step waited for a stage; these and unattributed time make up the step. Busy: what was worked on \
         the batch, summed over threads, beside the step or in it.\n\n{}",
        lines.join("\n"),
        table.markdown()
    )
}

/// The stages that make the slow batches of a method slow, in a sentence.
fn reason(found: &SlowStages) -> String {
    let all = thousands(found.batches + found.others);
    let which = match found.slow {
        SlowBatches::OnBeat { period } => format!("every {} batch", ordinal(period)),
        SlowBatches::SlowestTenth => "the slowest tenth; no period was found".to_owned(),
    };
    let ms = |seconds: f64| format!("{} ms", milliseconds(seconds * 1e9));
    let named: Vec<String> = found
        .by_share()
        .into_iter()
        .take(MAX_NAMED)
        .filter(|of| of.share >= MIN_NAMED_SHARE)
        .map(|of| format!("{} has {} of that", of.stage, percent(of.share)))
        .collect();
    let waits =
        if named.is_empty() { format!("no stage has {} of that", percent(MIN_NAMED_SHARE)) } else { named.join(", ") };
    let works = found.max_busy_growth().map_or(String::new(), |(stage, slow, others)| {
        format!(" Of the work, {stage} grows most: {} busy against {}.", ms(slow), ms(others))
    });
    format!(
        "the slow batches ({which}; {} of {all}) take {} more than the others, {} against {}. By what the step waited for (exposed), {waits}.{works}",
        thousands(found.batches),
        ms(found.slow_s - found.others_s),
        ms(found.slow_s),
        ms(found.others_s),
    )
}

fn name(method: &str) -> String {
    if method == ALL_ROWS { "all rows".to_owned() } else { method.to_owned() }
}

/// Call `row` for each epoch that tables show.
fn each_epoch(analysis: &Analysis, mut row: impl FnMut(&str, &SeriesTimings)) {
    for method in &analysis.methods {
        method.epochs.iter().take(MAX_EPOCHS).for_each(|epoch| row(&method.method, epoch));
    }
}

/// The number of epochs that tables leave out, in words.
fn more(analysis: &Analysis) -> String {
    let hidden: usize = analysis.methods.iter().map(|m| m.epochs.len().saturating_sub(MAX_EPOCHS)).sum();
    if hidden == 0 { String::new() } else { format!("\n\n{} more: `--json` has them.", count(hidden as u64, "epoch")) }
}

/// A number with its ordinal ending: `1st`, `10th`, `22nd`.
pub fn ordinal(n: usize) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A p value: `p = 0.0004`, or `p < 0.0001`.
pub fn chance(p: f64) -> String {
    if p < 1e-4 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings() {
        let shown = [1, 2, 3, 7, 10, 11, 12, 13, 21, 22, 101, 112].map(ordinal).join(" ");
        assert_eq!(shown, "1st 2nd 3rd 7th 10th 11th 12th 13th 21st 22nd 101st 112th");
    }
}
