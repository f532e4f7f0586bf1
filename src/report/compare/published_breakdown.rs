//! Published breakdowns of a step beside the same components of a measured row.

use expctl_ledger::{Amount, ComponentKind, FigureClass, PublishedBreakdown, PublishedComponent, Stage, TimeUnit};
use expctl_settings::Mode;
use expctl_text::Table;
use expctl_text::format::{self, missing};
use serde::Serialize;

use super::comparison::data_set_of;
use crate::report::variant_row::VariantRow;

/// The modes, from the shortest step to the longest.
const MODE_ORDER: [Mode; 5] = [Mode::Data, Mode::ZeroLoss, Mode::Forward, Mode::ForwardBackward, Mode::Train];

/// Percentage points by which the sum of shares may differ from 100: each of them is rounded.
const SHARE_TOLERANCE: f64 = 1.0;

/// A published breakdown with the same components of a measured row.
#[derive(Clone, Debug, Serialize)]
pub struct BreakdownBeside {
    /// The breakdown.
    #[serde(flatten)]
    pub published: PublishedBreakdown,
    /// The measured row. `None` if no row repeats it.
    pub measured: Option<MeasuredComponents>,
}

/// The components of a published breakdown in the steps of a measured row.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredComponents {
    /// Job of the row.
    pub job: String,
    /// Variant of the row.
    pub variant: String,
    /// Name of the row.
    pub row: String,
    /// Its label in its job: the variant, in a sweep with its point.
    #[serde(skip)]
    pub label: String,
    /// Its mode.
    pub mode: String,
    /// Completed runs behind it.
    pub n: usize,
    /// Samples per rank and step.
    pub batch_size: u64,
    /// For each published component, in order.
    pub components: Vec<MeasuredComponent>,
}

/// Times of a component, in the unit of its breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredComponent {
    /// Exposed time of its stages. `None` if they did not happen, or if no stage times the component.
    pub exposed: Option<f64>,
    /// The same as a share of the step, in [0, 1].
    pub share: Option<f64>,
    /// Busy time of its stages, summed over the threads of the rank.
    pub busy: Option<f64>,
}

/// Each breakdown beside the measured rows that repeat it, one of each job; once and alone if no row does.
///
/// For a job with several modes this is the row with the shortest mode that has all components of the breakdown.
pub(super) fn beside(breakdowns: &[PublishedBreakdown], rows: &[&VariantRow]) -> Vec<BreakdownBeside> {
    let mut all = Vec::new();
    for published in breakdowns {
        let repeats = |row: &VariantRow| {
            row.repeats(&published.repeated_by, &published.variant)
                && data_set_of(row) == published.study
                && (published.profiler || !row.profiler)
        };
        let measured = rows.iter().copied().filter(|row| repeats(row));
        let measured: Vec<(&VariantRow, MeasuredComponents)> =
            measured.filter_map(|row| Some((row, MeasuredComponents::from_row(row, published)?))).collect();
        let mut jobs: Vec<&str> = Vec::new();
        for (row, _) in &measured {
            if !jobs.contains(&row.job.as_str()) {
                jobs.push(&row.job);
            }
        }
        let wanted = longest_mode(published);
        for job in &jobs {
            let of_job = measured.iter().filter(|(row, _)| row.job == *job);
            let nearest = of_job.min_by_key(|(row, _)| {
                let mode = mode_rank(&row.mode);
                // The shorter one of two that are equally near.
                (mode.abs_diff(wanted), mode)
            });
            let found = nearest.map(|(_, found)| found.clone());
            all.push(BreakdownBeside { published: published.clone(), measured: found });
        }
        if jobs.is_empty() {
            all.push(BreakdownBeside { published: published.clone(), measured: None });
        }
    }
    all
}

/// Index of a mode in [`MODE_ORDER`].
fn mode_rank(mode: &str) -> usize {
    MODE_ORDER.iter().position(|known| known.name() == mode).unwrap_or(0)
}

/// The mode of the published steps, or the longer one that a component of the breakdown needs.
fn longest_mode(published: &PublishedBreakdown) -> usize {
    let needed = published.components.iter().filter_map(|one| one.kind);
    needed.map(|kind| mode_rank(kind.shortest_mode().name())).fold(mode_rank(&published.mode), usize::max)
}

impl MeasuredComponents {
    /// The components of a published breakdown in the mean step of a row. `None` without completed runs.
    fn from_row(row: &VariantRow, published: &PublishedBreakdown) -> Option<Self> {
        let breakdown = row.breakdown.as_ref().filter(|_| row.n > 0)?;
        let factor = match published.time_unit() {
            TimeUnit::SecondsPerIteration => 1e-9,
            TimeUnit::MillisecondsPerSample => breakdown.per_sample(1e-6)?,
            // A run takes as long as one rank of it.
            TimeUnit::SecondsPerRun => 1e-9 * row.totals.as_ref()?.measured.steps,
        };
        let component = |one: &PublishedComponent| {
            let (exposed, busy) = match one.kind {
                None | Some(ComponentKind::Cpu | ComponentKind::Gpu) => (None, None),
                Some(ComponentKind::Total) => (Some(breakdown.wall), None),
                Some(ComponentKind::Other) => (Some(breakdown.rest()), breakdown.busy_in(&[Stage::Other])),
                Some(kind) => (breakdown.exposed_in(kind.stages()), breakdown.busy_in(kind.stages())),
            };
            let share = exposed.filter(|_| breakdown.wall > 0.0).map(|ns| ns / breakdown.wall);
            MeasuredComponent { exposed: exposed.map(|ns| ns * factor), share, busy: busy.map(|ns| ns * factor) }
        };
        Some(Self {
            job: row.job.clone(),
            variant: row.variant.clone(),
            row: row.name(),
            label: row.label.clone(),
            mode: row.mode.clone(),
            n: row.n,
            batch_size: row.batch_size,
            components: published.components.iter().map(component).collect(),
        })
    }

    /// Heading of its column: `23 lazy, n = 3`.
    fn column(&self) -> String {
        format!("{} {}, n = {}", self.job, self.variant, self.n)
    }
}

/// All breakdowns below one another, a table for each unit of their times, each under its title.
pub(super) fn tables(all: &[BreakdownBeside]) -> Vec<(String, Table)> {
    let titled = |(unit, of_unit): (TimeUnit, Vec<&BreakdownBeside>)| {
        (format!("Published breakdown ({}):", unit.words()), table(unit, &of_unit))
    };
    by_unit(all).into_iter().map(titled).collect()
}

/// The same for a note, which names the rows once: a breakdown in its first row, and the measured row in [`note_remarks`].
pub(super) fn note_tables(all: &[BreakdownBeside]) -> Vec<Table> {
    by_unit(all).into_iter().map(|(unit, of_unit)| note_table(unit, &of_unit)).collect()
}

/// The breakdowns of each unit, in their order.
fn by_unit(all: &[BreakdownBeside]) -> Vec<(TimeUnit, Vec<&BreakdownBeside>)> {
    let mut units: Vec<TimeUnit> = Vec::new();
    for one in all {
        if !units.contains(&one.published.time_unit()) {
            units.push(one.published.time_unit());
        }
    }
    let of_unit = |unit: TimeUnit| {
        let of_unit: Vec<&BreakdownBeside> = all.iter().filter(|one| one.published.time_unit() == unit).collect();
        (unit, of_unit)
    };
    units.into_iter().map(of_unit).collect()
}

fn table(unit: TimeUnit, all: &[&BreakdownBeside]) -> Table {
    let with_measured = all.iter().any(|one| one.measured.is_some());
    let in_unit = |what: &str| format!("{what} ({})", unit.words());
    let mut header: Vec<String> = ["Job ID", "Config", "Method", "Component"].map(str::to_owned).to_vec();
    header.extend([in_unit("Published"), "% of total".to_owned(), "Figures".to_owned(), "Stages".to_owned()]);
    if with_measured {
        let measured = ["Measured row".to_owned(), in_unit("Exposed"), "Exposed (%)".to_owned(), in_unit("Busy")];
        header.extend(measured.into_iter().chain(["Class".to_owned()]));
    }
    let mut table = Table::new(header);
    for one in all {
        let published = &one.published;
        for (at, component) in published.components.iter().enumerate() {
            let mut cells = vec![published.job_name(), published.config.clone(), published.method.clone()];
            cells.extend(published_cells(published, at));
            if with_measured {
                match &one.measured {
                    Some(measured) => {
                        let took = measured.components[at];
                        cells.push(format!("{} {} ({})", measured.job, measured.variant, measured.mode));
                        cells.extend(took.cells());
                        cells.push(took.exposed.map_or_else(missing, |_| class_of(component).to_owned()));
                    }
                    None => cells.extend(std::iter::repeat_with(missing).take(5)),
                }
            }
            if component.kind == Some(ComponentKind::Total) { table.bold_row(cells) } else { table.row(cells) }
        }
    }
    table
}

/// A table without the names of the rows but for the first of each breakdown.
fn note_table(unit: TimeUnit, all: &[&BreakdownBeside]) -> Table {
    let in_unit = |what: &str| format!("{what} ({})", unit.words());
    let mut header = vec!["Published".to_owned(), "Component".to_owned(), in_unit("Time")];
    header.extend(["% of total", "Figures", "Stages"].map(str::to_owned));
    header.extend([in_unit("Exposed"), "Exposed (%)".to_owned(), in_unit("Busy")]);
    let mut table = Table::new(header);
    for one in all {
        let published = &one.published;
        for (at, component) in published.components.iter().enumerate() {
            let mut cells = vec![if at == 0 { published.name() } else { String::new() }];
            cells.extend(published_cells(published, at));
            cells.extend(one.measured.as_ref().map_or_else(
                || [missing(), missing(), missing()],
                |measured| {
                    let took = measured.components[at];
                    let mut cells = took.cells();
                    if took.exposed.is_some() && component.kind == Some(ComponentKind::Other) {
                        cells[0].push_str(" (derived)");
                    }
                    cells
                },
            ));
            if component.kind == Some(ComponentKind::Total) { table.bold_row(cells) } else { table.row(cells) }
        }
    }
    table
}

/// A published component: name, time, share of the whole, class, and the stages that are measured in its place.
fn published_cells(published: &PublishedBreakdown, at: usize) -> [String; 5] {
    let component = &published.components[at];
    [
        format!("{}{}", branch(&published.components, at), component.name),
        component.time.map_or_else(missing, |time| time_words(component, time)),
        share(published, component).unwrap_or_else(missing),
        format!("imported ({})", component.class.name()),
        component.kind.map_or_else(missing, ComponentKind::measured_as),
    ]
}

impl MeasuredComponent {
    /// Exposed time, its share of the step, and busy time.
    fn cells(&self) -> [String; 3] {
        [
            self.exposed.map_or_else(missing, format::figure),
            self.share.map_or_else(missing, format::percent),
            self.busy.map_or_else(missing, format::figure),
        ]
    }
}

/// Class of a measured component: timed, or the rest of the step.
fn class_of(component: &PublishedComponent) -> &'static str {
    if component.kind == Some(ComponentKind::Other) { "derived" } else { "measured" }
}

/// `├─ `, `│  └─ `: the place of a component below those that contain it; nothing at the top.
fn branch(all: &[PublishedComponent], at: usize) -> String {
    let Some(parent) = all[at].parent(all) else { return String::new() };
    let last = all[at + 1..].iter().all(|later| later.parent(all) != Some(parent));
    let above = all.iter().position(|other| other.kind == Some(parent)).map_or_else(String::new, |i| branch(all, i));
    let above = above.replace("├─ ", "│  ").replace("└─ ", "   ");
    format!("{above}{}", if last { "└─ " } else { "├─ " })
}

/// A time as its source gave it, with `~` where it is an estimate.
fn time_words(component: &PublishedComponent, time: Amount) -> String {
    let about = if component.class == FigureClass::Estimated { "~" } else { "" };
    format!("{about}{}", format::as_published(time.low, time.high))
}

/// The share of a component as published, or, where the source gives none, its time over that of the whole.
fn share(published: &PublishedBreakdown, component: &PublishedComponent) -> Option<String> {
    if let Some(percent) = component.percent {
        return Some(format!("{} %", format::as_published(percent.low, percent.high)));
    }
    if component.kind == Some(ComponentKind::Total) {
        return None;
    }
    let (time, total) = (component.time?, published.total().filter(|total| total.low > 0.0)?);
    let (low, high) = (time.low / total.high, time.high / total.low);
    let shown = match () {
        () if low == high => format::percent(low),
        () if high.is_infinite() => format!("at least {}", format::percent(low)),
        () if total.high.is_infinite() => format!("at most {}", format::percent(high)),
        () => format!("{}–{}", format::percent(low), format::percent(high)),
    };
    Some(format!("{shown} (derived)"))
}

/// Two variants of a published job side by side, in the form of the published summary: the first one of the job against each other one.
/// What is measured of both stands beside them.
pub(super) fn summaries(all: &[BreakdownBeside]) -> Vec<(String, Table)> {
    pairs(all).into_iter().map(|(first, second)| summary(first, second)).collect()
}

/// The first variant of a job with each other one that has two components or more in common with it.
fn pairs(all: &[BreakdownBeside]) -> Vec<(&BreakdownBeside, &BreakdownBeside)> {
    let table_of = |one: &BreakdownBeside| {
        (one.published.jobs.clone(), one.published.config.clone(), one.published.study.clone(), one.published.unit)
    };
    let mut found = Vec::new();
    for (at, first) in all.iter().enumerate() {
        let variant = &first.published.variant;
        let base = all.iter().find(|other| table_of(other) == table_of(first));
        if base.is_none_or(|base| base.published.variant != *variant) {
            continue;
        }
        for second in &all[at + 1..] {
            let one_job = match (&first.measured, &second.measured) {
                (Some(first), Some(second)) => first.job == second.job,
                _ => true,
            };
            let times = first.published.components.iter().filter(|one| {
                let other = same(one, &second.published.components).and_then(|(_, other)| other.time);
                one.time.is_some() && other.is_some()
            });
            if one_job
                && second.published.variant != *variant
                && table_of(first) == table_of(second)
                && times.count() >= 2
            {
                found.push((first, second));
            }
        }
    }
    found
}

/// The same component of another breakdown, and where it stands there.
fn same<'a>(one: &PublishedComponent, others: &'a [PublishedComponent]) -> Option<(usize, &'a PublishedComponent)> {
    let is_same = |other: &PublishedComponent| match one.kind {
        Some(kind) => other.kind == Some(kind),
        None => other.kind.is_none() && other.name == one.name,
    };
    others.iter().enumerate().find(|(_, other)| is_same(other))
}

fn summary(first: &BreakdownBeside, second: &BreakdownBeside) -> (String, Table) {
    let (one, other) = (&first.published, &second.published);
    let measured = first.measured.as_ref().zip(second.measured.as_ref());
    let unit = one.time_unit().words();
    let mut header = vec![
        "Component".to_owned(),
        format!("{} ({unit})", one.method),
        format!("{} ({unit})", other.method),
        format!("{} × faster", other.method),
        format!("% of {}", one.method),
        "Figures".to_owned(),
    ];
    if let Some((first, second)) = measured {
        header.extend([
            format!("{} ({unit})", first.column()),
            format!("{} ({unit})", second.column()),
            format!("{} {} × faster", second.job, second.variant),
            format!("% of {} {}", first.job, first.variant),
            "Class".to_owned(),
        ]);
    }
    let mut table = Table::new(header);
    let of_batches = one.time_unit() != TimeUnit::MillisecondsPerSample;
    let ratio = |times: (Option<f64>, Option<f64>), batches: (Option<u64>, Option<u64>)| {
        let (one, other) = times.0.zip(times.1).filter(|(_, other)| *other > 0.0)?;
        let mixed = of_batches && batches.0.zip(batches.1).is_some_and(|(one, other)| one != other);
        Some(format!("{}{}", format::ratio(one / other), if mixed { " ‡" } else { "" }))
    };
    for (at, component) in one.components.iter().enumerate() {
        let counterpart = same(component, &other.components);
        let class = match counterpart {
            Some((_, other)) if other.class != component.class => {
                format!("imported ({} / {})", component.class.name(), other.class.name())
            }
            _ => format!("imported ({})", component.class.name()),
        };
        let single = |component: &PublishedComponent| component.time.and_then(|time| time.single());
        let times = (single(component), counterpart.and_then(|(_, other)| single(other)));
        let of_other = counterpart.and_then(|(_, other)| Some(time_words(other, other.time?)));
        let mut cells = vec![
            format!("{}{}", branch(&one.components, at), component.name),
            component.time.map_or_else(missing, |time| time_words(component, time)),
            of_other.unwrap_or_else(missing),
            ratio(times, (one.batch_size, other.batch_size)).unwrap_or_else(missing),
            share(one, component).unwrap_or_else(missing),
            class,
        ];
        if let Some((first, second)) = measured {
            let took = first.components[at];
            let others = counterpart.and_then(|(at, _)| second.components[at].exposed);
            let batches = (Some(first.batch_size), Some(second.batch_size));
            cells.extend([
                took.exposed.map_or_else(missing, format::figure),
                others.map_or_else(missing, format::figure),
                ratio((took.exposed, others), batches).unwrap_or_else(missing),
                took.share.map_or_else(missing, format::percent),
                took.exposed.map_or_else(missing, |_| class_of(component).to_owned()),
            ]);
        }
        if component.kind == Some(ComponentKind::Total) { table.bold_row(cells) } else { table.row(cells) }
    }
    (format!("Summary of {} {}, {} and {}:", one.job_name(), one.config, one.method, other.method), table)
}

/// Remarks, one sentence each.
pub(super) fn remarks(all: &[BreakdownBeside]) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut said = vec![
        "published breakdown (imported): in brackets the class that its source gives each figure, ~ before an estimate; where the source gives no \
         share, the time over that of the whole (derived)"
            .to_owned(),
    ];
    let mut seen: Vec<&PublishedBreakdown> = Vec::new();
    for published in all.iter().map(|one| &one.published) {
        if !seen.contains(&published) {
            seen.push(published);
            said.push(format!("{}: breakdown from {}", published.name(), published.from));
            said.extend(doubts(published).into_iter().map(|doubt| format!("{}: {doubt}", published.name())));
        }
    }
    for (published, measured) in all.iter().filter_map(|one| Some((&one.published, one.measured.as_ref()?))) {
        said.push(format!(
            "{} (steps: {}) stands beside {} (steps: {}, n = {})",
            published.name(),
            published.mode,
            measured.row,
            measured.mode,
            measured.n
        ));
    }
    if all.iter().any(|one| one.measured.is_some()) {
        said.push(
            "exposed (measured): what the mean step of the measured row waited for these stages; busy (measured): what was worked on them, summed \
             over the threads of a rank; other, unattributed (derived): what no other stage takes of the step"
                .to_owned(),
        );
    }
    said.extend(summary_remarks(&pairs(all)));
    said
}

/// What a note says of them: where each is from, what it stands beside, and its doubts, in one line.
pub(super) fn note_remarks(all: &[BreakdownBeside]) -> Vec<String> {
    let mut said = Vec::new();
    for one in all {
        let published = &one.published;
        let origin = format!("{} (steps: {}; from {})", published.name(), published.mode, published.from);
        let beside = one.measured.as_ref().map(|measured| {
            let MeasuredComponents { label, mode, n, .. } = measured;
            format!("{origin} beside {label} (steps: {mode}, n = {n})")
        });
        let facts: Vec<String> = std::iter::once(beside.unwrap_or(origin)).chain(doubts(published)).collect();
        said.push(facts.join("; "));
    }
    said.extend(summary_remarks(&pairs(all)));
    said
}

/// What speaks against a breakdown, by itself or by its source; without its name.
fn doubts(published: &PublishedBreakdown) -> Vec<String> {
    let notes = published.notes.iter().cloned();
    missing_share(published).into_iter().chain(contradiction(published)).chain(notes).collect()
}

/// The share of the whole in no component, if the shares do not add up.
fn missing_share(published: &PublishedBreakdown) -> Option<String> {
    let top = |one: &&PublishedComponent| one.is_addend() && one.parent(&published.components).is_none();
    let shares: Vec<Amount> = published.components.iter().filter(top).filter_map(|one| one.percent).collect();
    let sum = |end: fn(&Amount) -> f64| shares.iter().map(end).sum::<f64>();
    let (low, high) = (sum(|share| share.low), sum(|share| share.high));
    if shares.len() < 2 || high >= 100.0 - SHARE_TOLERANCE {
        return None;
    }
    let [low, high] = [low, high].map(|sum| format::round(sum, 1));
    let sum = if low == high { low } else { format!("{low}–{high}") };
    Some(format!("its shares add up to {sum} % of the whole; the rest is in no component"))
}

/// Components that are estimated at more than the measured whole.
fn contradiction(published: &PublishedBreakdown) -> Option<String> {
    let total = published.total().filter(|total| total.high > 0.0)?;
    let estimated = published.components.iter().filter(|one| one.class == FigureClass::Estimated);
    let above: Vec<(&PublishedComponent, Amount)> =
        estimated.filter_map(|one| Some((one, one.time.filter(|time| time.low > total.high)?))).collect();
    let all = |words: fn(&PublishedComponent, Amount, Amount) -> String| {
        above.iter().map(|(one, time)| words(one, *time, total)).collect::<Vec<_>>().join(" and ")
    };
    (!above.is_empty()).then(|| {
        format!(
            "{} {} estimated at {} {}, {} the {} of the whole: that contradicts it",
            all(|one, _, _| one.name.clone()),
            if above.len() == 1 { "is" } else { "are" },
            all(|one, time, _| time_words(one, time)),
            published.time_unit().words(),
            all(|_, time, total| format::ratio(time.low / total.high)),
            format::as_published(total.low, total.high)
        )
    })
}

/// Remarks on the ratios of summaries.
fn summary_remarks(pairs: &[(&BreakdownBeside, &BreakdownBeside)]) -> Vec<String> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut said = vec![
        "summary: × faster (derived): time of the first variant over that of the other, so above 1 the other is faster; published times are \
         rounded, and so are their ratios; those of measured times have no interval here, the note of the job has them with one"
            .to_owned(),
    ];
    for (first, second) in pairs {
        let (one, other) = (&first.published, &second.published);
        let batches = one.batch_size.zip(other.batch_size).filter(|(one, other)| one != other);
        let Some((batch, of_other)) = batches.filter(|_| one.time_unit() != TimeUnit::MillisecondsPerSample) else {
            continue;
        };
        let text = format!(
            "‡ {} and {}: times of batches of {batch} and {of_other} samples; per sample the ratio is {} times as large",
            one.name(),
            other.method,
            format::figure(of_other as f64 / batch as f64)
        );
        if !said.contains(&text) {
            said.push(text);
        }
    }
    said
}
