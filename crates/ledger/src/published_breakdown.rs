//! Published breakdowns: the time of a step by component, as a source gives it; and the `[[breakdown]]` of a file of published results.
//!
//! Invariant: every figure keeps the class that its source gives it. An estimate may contradict a measured figure; both are shown, and the
//! contradiction is no mistake of the file.

use std::ops::Range;

use expctl_settings::Mode;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::published_file::{Mistakes, OneOrMore, job_name, variant_names};
use crate::{ComponentKind, PublishedRow, PublishedSource};

/// How the source obtained a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureClass {
    /// Timed.
    Measured,
    /// Computed from timed figures.
    Derived,
    /// Estimated.
    Estimated,
}

impl FigureClass {
    /// The word used in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Estimated => "estimated",
        }
    }
}

/// Unit of the times of a breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds of one iteration.
    SecondsPerIteration,
    /// Seconds of all iterations that the source covers.
    SecondsPerRun,
    /// Milliseconds of one sample.
    MillisecondsPerSample,
}

impl TimeUnit {
    /// The key of a file that has a time in this unit.
    pub const fn key(self) -> &'static str {
        match self {
            Self::SecondsPerIteration => "s_per_iteration",
            Self::SecondsPerRun => "s_per_run",
            Self::MillisecondsPerSample => "ms_per_sample",
        }
    }

    /// The unit as tables write it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SecondsPerIteration => "s/iteration",
            Self::SecondsPerRun => "s/run",
            Self::MillisecondsPerSample => "ms/sample",
        }
    }
}

/// A published figure: one number, or a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amount {
    /// Lower end, 0 or more.
    pub low: f64,
    /// Upper end; infinite if the source gives only a lower one.
    pub high: f64,
}

impl Amount {
    /// The number. `None`: it is a range.
    pub fn single(&self) -> Option<f64> {
        (self.low == self.high).then_some(self.low)
    }
}

/// One component of a published breakdown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedComponent {
    /// Its name in the source.
    pub name: String,
    /// Its kind. `None`: a detail of another component, which no stage times.
    pub kind: Option<ComponentKind>,
    /// The component that a detail without a kind belongs to; else `None`.
    pub within: Option<ComponentKind>,
    /// How the source obtained its figures.
    pub class: FigureClass,
    /// Its time, in the unit of the breakdown.
    pub time: Option<Amount>,
    /// Its share of the whole, percent.
    pub percent: Option<Amount>,
}

impl PublishedComponent {
    /// The next larger component of the same breakdown that contains it. `None` at the top.
    pub fn parent(&self, all: &[Self]) -> Option<ComponentKind> {
        if self.within.is_some() {
            return self.within;
        }
        let mut parent = self.kind?.parent();
        while let Some(kind) = parent {
            if all.iter().any(|other| other.kind == Some(kind)) {
                return parent;
            }
            parent = kind.parent();
        }
        None
    }

    /// Whether its share is one of those that make up a whole.
    pub fn is_addend(&self) -> bool {
        self.kind.is_none_or(|kind| kind != ComponentKind::Total && !kind.is_resource())
    }
}

/// The time of a step by component, as a source gives it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedBreakdown {
    /// Job numbers; several if the source gives one breakdown for them together.
    pub jobs: Vec<u64>,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Name of the row within its job; empty if the job has one row.
    pub variant: String,
    /// Its name in the source.
    pub method: String,
    /// Mode of its steps.
    pub mode: String,
    /// Whether a profiler was on.
    pub profiler: bool,
    /// Samples per rank and iteration. `None` if the source does not give it.
    pub batch_size: Option<u64>,
    /// Section or table of the source.
    pub from: String,
    /// Unit of its times. `None`: the source gives shares alone.
    pub unit: Option<TimeUnit>,
    /// Its components, in the order of the source.
    pub components: Vec<PublishedComponent>,
    /// Variants of this project that repeat the row, as `config.variant`.
    pub repeated_by: Vec<String>,
    /// Known defects and open questions.
    pub notes: Vec<String>,
    /// Its origin.
    pub source: PublishedSource,
}

impl PublishedBreakdown {
    /// The job as tables name it: `525`, `428/430`.
    pub fn job_name(&self) -> String {
        job_name(&self.jobs)
    }

    /// Its name in a sentence: `525 086b Lazy Hetero`.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.job_name(), self.config, self.method)
    }

    /// The unit of its times; that of a step if it has shares alone.
    pub fn time_unit(&self) -> TimeUnit {
        self.unit.unwrap_or(TimeUnit::SecondsPerIteration)
    }

    /// The time of the whole. `None` if the source does not give it.
    pub fn total(&self) -> Option<Amount> {
        self.components.iter().find(|one| one.kind == Some(ComponentKind::Total))?.time
    }

    /// Whether both are of the same row and from the same table of the source.
    pub(crate) fn is_same_table(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.jobs.clone(), one.config.clone(), one.variant.clone(), one.from.clone());
        of(self) == of(other)
    }
}

/// Amount by which a percentage may be too high because its source rounded it.
const ROUNDING: f64 = 0.5;

/// A `[[breakdown]]` of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBreakdown {
    job: Spanned<OneOrMore<u64>>,
    config: String,
    #[serde(default)]
    variant: String,
    method: Option<Spanned<String>>,
    mode: Option<Spanned<Mode>>,
    from: String,
    repeated_by: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    component: Vec<RawComponent>,
}

/// One of its components.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawComponent {
    name: Spanned<String>,
    kind: Option<ComponentKind>,
    within: Option<ComponentKind>,
    class: FigureClass,
    s_per_iteration: Option<Spanned<OneOrMore<f64>>>,
    s_per_run: Option<Spanned<OneOrMore<f64>>>,
    ms_per_sample: Option<Spanned<OneOrMore<f64>>>,
    percent: Option<Spanned<OneOrMore<f64>>>,
}

impl RawBreakdown {
    /// Position of mistakes that are about the whole breakdown.
    pub(crate) fn span(&self) -> Range<usize> {
        self.job.span()
    }

    /// Check it against the rows of its file.
    pub(crate) fn check(
        self,
        rows: &[PublishedRow],
        study: &str,
        source: &PublishedSource,
        mistakes: &mut Mistakes<'_>,
    ) -> PublishedBreakdown {
        let span = self.job.span();
        let jobs = self.job.into_inner().into_vec();
        let row = rows.iter().find(|row| row.jobs == jobs && row.config == self.config && row.variant == self.variant);
        if !rows.iter().any(|row| row.jobs == jobs) {
            mistakes.add(span.clone(), "no [[result]] of this file is of this job");
        } else if row.is_none() && (self.method.is_none() || self.mode.is_none()) {
            mistakes
                .add(span.clone(), "no [[result]] has this job, config and variant, so `method` and `mode` are needed");
        }
        if let (Some(_), Some(method)) = (row, &self.method) {
            mistakes.add(method.span(), "`method` is that of the [[result]] with this job, config and variant");
        }
        if let (Some(_), Some(mode)) = (row, &self.mode) {
            mistakes.add(mode.span(), "`mode` is that of the [[result]] with this job, config and variant");
        }
        if self.component.is_empty() {
            mistakes.add(span, "a breakdown needs a [[breakdown.component]]");
        }
        let named = variant_names(self.repeated_by, mistakes);
        let (unit, components) = check_components(self.component, mistakes);
        let method = self.method.map(Spanned::into_inner);
        let mode = self.mode.map(|mode| mode.into_inner().name().to_owned());
        PublishedBreakdown {
            study: study.to_owned(),
            method: row.map(|row| row.method.clone()).or(method).unwrap_or_default(),
            mode: row.map(|row| row.mode.clone()).or(mode).unwrap_or_default(),
            profiler: row.is_some_and(|row| row.profiler),
            batch_size: row.map(|row| row.batch_size),
            repeated_by: match row {
                Some(row) if named.is_empty() => row.repeated_by.clone(),
                _ => named,
            },
            jobs,
            config: self.config,
            variant: self.variant,
            from: self.from,
            unit,
            components,
            notes: self.notes,
            source: source.clone(),
        }
    }
}

/// The components of a breakdown, and the unit of their times.
fn check_components(
    raw: Vec<RawComponent>,
    mistakes: &mut Mistakes<'_>,
) -> (Option<TimeUnit>, Vec<PublishedComponent>) {
    let mut unit: Option<TimeUnit> = None;
    let mut all: Vec<PublishedComponent> = Vec::new();
    let mut spans: Vec<Range<usize>> = Vec::new();
    for one in raw {
        let span = one.name.span();
        let times = [
            (TimeUnit::SecondsPerIteration, one.s_per_iteration),
            (TimeUnit::SecondsPerRun, one.s_per_run),
            (TimeUnit::MillisecondsPerSample, one.ms_per_sample),
        ];
        if one.percent.is_none() && times.iter().all(|(_, given)| given.is_none()) {
            mistakes.add(span.clone(), "a component needs s_per_iteration, s_per_run, ms_per_sample or percent");
        }
        let mut time = None;
        for (of, given) in times {
            let Some(given) = given else { continue };
            if let Some(before) = unit.filter(|before| *before != of) {
                let reason =
                    format!("the times of a breakdown have one unit: {} here, {} above", of.key(), before.key());
                mistakes.add(given.span(), reason);
            }
            unit = unit.or(Some(of));
            time = amount(given, of.key(), f64::INFINITY, mistakes);
        }
        let percent = match one.percent {
            Some(given) => amount(given, "percent", 100.0, mistakes),
            None => None,
        };
        match (one.kind, one.within) {
            (Some(_), Some(_)) => mistakes.add(span.clone(), "`within` is for a component without a `kind`"),
            (None, None) => {
                mistakes.add(span.clone(), "a component needs a `kind`, or `within` and the kind that contains it")
            }
            _ => {}
        }
        if let Some(kind) = one.kind.filter(|kind| all.iter().any(|other| other.kind == Some(*kind))) {
            let name = kind.name();
            let reason = format!(
                "this breakdown has a component of kind {name} already; a detail of it says within = \"{name}\""
            );
            mistakes.add(span.clone(), reason);
        }
        all.push(PublishedComponent {
            name: one.name.into_inner(),
            kind: one.kind,
            within: one.within,
            class: one.class,
            time,
            percent,
        });
        spans.push(span);
    }
    for (one, span) in all.iter().zip(&spans) {
        let Some(kind) = one.within else { continue };
        if all.iter().all(|other| other.kind != Some(kind)) {
            mistakes.add(span.clone(), format!("no component of this breakdown is of kind {}", kind.name()));
        }
    }
    check_sums(&all, &spans, mistakes);
    (unit, all)
}

/// A number or a range, from 0 to `highest`. `None`: it is another one, which is a mistake.
fn amount(given: Spanned<OneOrMore<f64>>, key: &str, highest: f64, mistakes: &mut Mistakes<'_>) -> Option<Amount> {
    let span = given.span();
    let ends = given.into_inner().into_vec();
    let (low, high) = match ends[..] {
        [one] => (one, one),
        [low, high] => (low, high),
        _ => (f64::NAN, f64::NAN),
    };
    if !(low.is_finite() && low >= 0.0 && low <= high) {
        mistakes.add(span, format!("{key} is a number from 0 on, or [lowest, highest]"));
        return None;
    }
    if high > highest {
        mistakes.add(span, format!("{key} is at most {highest}"));
        return None;
    }
    Some(Amount { low, high })
}

/// Check that the shares inside one component, or of the whole, add up to no more than its own share, apart from rounding.
fn check_sums(all: &[PublishedComponent], spans: &[Range<usize>], mistakes: &mut Mistakes<'_>) {
    let mut wholes: Vec<(Option<ComponentKind>, f64)> = vec![(None, 100.0)];
    wholes.extend(all.iter().filter_map(|one| Some((Some(one.kind?), one.percent?.high))));
    for (whole, percent) in wholes {
        let inside = |one: &PublishedComponent| one.is_addend() && one.parent(all) == whole;
        let shares = all.iter().zip(spans).filter(|(one, _)| inside(one));
        let shares: Vec<(f64, &Range<usize>)> =
            shares.filter_map(|(one, span)| Some((one.percent?.low, span))).collect();
        let sum: f64 = shares.iter().map(|(share, _)| share).sum();
        let Some((_, last)) = shares.last().filter(|_| sum > percent + ROUNDING * shares.len() as f64) else {
            continue;
        };
        let of = whole.map_or("the whole", ComponentKind::name);
        mistakes.add(
            (*last).clone(),
            format!("with this share those of {of} add up to {sum:.1} percent, more than {percent}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{PublishedError, PublishedFile};

    /// The components follow from line 18 on.
    const HEAD: &str = "schema = 1\nstudy = \"s\"\nsource = { title = \"t\", from = \"f\", date = \"2025-01-01\" }\n\
        [[result]]\njob = 5\nconfig = \"c\"\nmethod = \"m\"\nmode = \"forward\"\nit_per_s = 1.0\nestimator = \"e\"\nranks = 1\nbatch_size = 28\n\
        [[breakdown]]\n";

    fn file(components: &[&str]) -> String {
        let lines: String = components.iter().map(|line| format!("    {{ {line} }},\n")).collect();
        format!("{HEAD}job = 5\nconfig = \"c\"\nfrom = \"table\"\ncomponent = [\n{lines}]\n")
    }

    fn parsed(text: &str) -> Result<PublishedFile, String> {
        PublishedFile::parse(text, Path::new("p.toml")).map_err(|error| {
            assert!(matches!(error, PublishedError::Form(_)), "{error:?}");
            error.to_string()
        })
    }

    fn mistake(components: &[&str]) -> String {
        parsed(&file(components)).unwrap_err()
    }

    const TOTAL: &str =
        "name = \"Total\", kind = \"total\", class = \"measured\", s_per_iteration = 1.138, percent = 100";
    const DATA: &str =
        "name = \"Data\", kind = \"data_pipeline\", class = \"measured\", s_per_iteration = 0.763, percent = 67";
    const FETCH: &str = "name = \"Fetch\", kind = \"fetch\", class = \"estimated\", s_per_iteration = [0.04, 0.06]";

    #[test]
    fn components_are_read_with_what_contains_them() {
        let lookup = "name = \"Lookup\", within = \"fetch\", class = \"estimated\", s_per_iteration = [60, inf]";
        let found = parsed(&file(&[TOTAL, DATA, FETCH, lookup])).unwrap();
        let breakdown = &found.breakdowns[0];
        assert_eq!((breakdown.name().as_str(), breakdown.mode.as_str()), ("5 c m", "forward"));
        assert_eq!((breakdown.unit, breakdown.batch_size), (Some(TimeUnit::SecondsPerIteration), Some(28)));
        assert_eq!(breakdown.total().and_then(|total| total.single()), Some(1.138));
        let parents: Vec<_> = breakdown.components.iter().map(|one| one.parent(&breakdown.components)).collect();
        assert_eq!(parents, [None, None, Some(ComponentKind::DataPipeline), Some(ComponentKind::Fetch)]);
        assert_eq!(breakdown.components[2].time, Some(Amount { low: 0.04, high: 0.06 }));
        assert_eq!(breakdown.components[3].time.map(|time| time.high), Some(f64::INFINITY));
    }

    #[test]
    fn a_breakdown_without_its_row_says_what_it_is() {
        let text = file(&[TOTAL]).replacen(
            "[[breakdown]]\njob = 5\nconfig = \"c\"",
            "[[breakdown]]\njob = 5\nconfig = \"d\"",
            1,
        );
        let said = parsed(&text).unwrap_err();
        assert!(
            said.contains("p.toml:14:7: no [[result]] has this job, config and variant, so `method` and"),
            "{said}"
        );
        let text = text.replacen("from = \"table\"", "from = \"table\"\nmethod = \"other\"\nmode = \"train\"", 1);
        let found = parsed(&text).unwrap();
        assert_eq!((found.breakdowns[0].name().as_str(), found.breakdowns[0].batch_size), ("5 d other", None));
        let twice =
            file(&[TOTAL]).replacen("from = \"table\"", "from = \"table\"\nmethod = \"other\"\nmode = \"train\"", 1);
        let said = parsed(&twice).unwrap_err();
        assert!(said.contains("p.toml:17:10: `method` is that of the [[result]]"), "{said}");
        let said = parsed(&file(&[TOTAL]).replacen("[[breakdown]]\njob = 5", "[[breakdown]]\njob = 6", 1)).unwrap_err();
        assert!(said.contains("p.toml:14:7: no [[result]] of this file is of this job"), "{said}");
        let whole = file(&[TOTAL]);
        let again = &whole[whole.find("[[breakdown]]").unwrap()..];
        let said = parsed(&format!("{whole}{again}")).unwrap_err();
        assert!(said.contains("from the same table stands in the file already"), "{said}");
        assert!(parsed(&file(&[])).unwrap_err().contains("p.toml:14:7: a breakdown needs a [[breakdown.component]]"));
    }

    #[test]
    fn an_unknown_class_or_kind_is_told_with_those_that_exist() {
        let said = mistake(&[TOTAL, &DATA.replace("\"measured\"", "\"guessed\"")]);
        assert!(said.starts_with("p.toml:19:") && said.contains("`guessed`") && said.contains("`estimated`"), "{said}");
        let said = mistake(&[&DATA.replace("data_pipeline", "data_loading")]);
        assert!(
            said.starts_with("p.toml:18:") && said.contains("`data_loading`") && said.contains("`fetch`"),
            "{said}"
        );
        let said = mistake(&[&DATA.replace("0.763", "\"0.763 s\"")]);
        assert!(said.starts_with("p.toml:18:") && said.contains("a number, or a list of numbers"), "{said}");
        assert!(mistake(&[&DATA.replace("s_per_iteration", "ms")]).contains("p.toml:18:"));
    }

    #[test]
    fn figures_that_cannot_be_are_refused_where_they_stand() {
        let below = mistake(&[TOTAL, &DATA.replace("0.763", "-0.763")]);
        assert!(below.starts_with("p.toml:19:") && below.contains("s_per_iteration is a number from 0 on"), "{below}");
        assert!(
            mistake(&[&FETCH.replace("[0.04, 0.06]", "[0.06, 0.04]")]).contains("s_per_iteration is a number from 0")
        );
        assert!(mistake(&[&FETCH.replace("[0.04, 0.06]", "inf")]).contains("s_per_iteration is a number from 0"));
        assert!(mistake(&[&DATA.replace("67", "167")]).contains("percent is at most 100"));
        assert_eq!(mistake(&[&DATA.replace("67", "167")]).matches("p.toml:").count(), 1);
        let nothing = mistake(&["name = \"Data\", kind = \"fetch\", class = \"measured\""]);
        assert!(nothing.starts_with("p.toml:18:14: a component needs s_per_iteration,"), "{nothing}");
    }

    #[test]
    fn shares_over_the_whole_are_refused() {
        let other = "name = \"Other\", kind = \"other\", class = \"measured\", percent = ";
        // Two rounded shares may add up to 101.
        assert!(parsed(&file(&[TOTAL, DATA, &format!("{other}34")])).is_ok());
        let said = mistake(&[TOTAL, DATA, &format!("{other}35")]);
        assert!(said.starts_with("p.toml:20:14: with this share those of the whole add up to 102.0 percent"), "{said}");
        let gpu = "name = \"GPU\", kind = \"gpu\", class = \"measured\", percent = 90";
        assert!(parsed(&file(&[TOTAL, DATA, gpu])).is_ok());
        let said = mistake(&[DATA, &FETCH.replace("s_per_iteration = [0.04, 0.06]", "percent = [68, 70]")]);
        assert!(said.contains("p.toml:19:14: with this share those of data_pipeline add up to 68.0 percent"), "{said}");
    }

    #[test]
    fn units_do_not_mix_and_kinds_stand_once() {
        let said = mistake(&[TOTAL, &FETCH.replace("s_per_iteration", "ms_per_sample")]);
        assert!(said.starts_with("p.toml:19:"), "{said}");
        assert!(said.contains("have one unit: ms_per_sample here, s_per_iteration above"), "{said}");
        let both = mistake(&[&format!("{TOTAL}, s_per_run = 30")]);
        assert!(both.contains("have one unit: s_per_run here, s_per_iteration above"), "{both}");
        let twice = mistake(&[DATA, TOTAL, &DATA.replace("67", "1")]);
        assert!(
            twice.contains("p.toml:20:14: this breakdown has a component of kind data_pipeline already"),
            "{twice}"
        );
        let said = mistake(&[TOTAL, "name = \"x\", within = \"mask\", class = \"estimated\", s_per_iteration = 1"]);
        assert!(said.contains("p.toml:19:14: no component of this breakdown is of kind mask"), "{said}");
        let said = mistake(&["name = \"x\", class = \"estimated\", s_per_iteration = 1"]);
        assert!(said.contains("p.toml:18:14: a component needs a `kind`, or `within`"), "{said}");
        let said = mistake(&["name = \"x\", kind = \"mask\", within = \"mask\", class = \"estimated\", percent = 1"]);
        assert!(said.contains("p.toml:18:14: `within` is for a component without a `kind`"), "{said}");
    }

    #[test]
    fn variants_here_are_named_with_their_config() {
        let text = file(&[TOTAL]).replacen("from = \"table\"", "from = \"table\"\nrepeated_by = [\"lazy\"]", 1);
        let said = parsed(&text).unwrap_err();
        assert!(said.contains("p.toml:17:15: repeated_by lists variants here, each as"), "{said}");
        let text = text.replace("[\"lazy\"]", "[\"086.lazy\"]");
        assert_eq!(parsed(&text).unwrap().breakdowns[0].repeated_by, ["086.lazy"]);
        let inherited = file(&[TOTAL]).replacen("batch_size = 28", "batch_size = 28\nrepeated_by = [\"a.b\"]", 1);
        assert_eq!(parsed(&inherited).unwrap().breakdowns[0].repeated_by, ["a.b"]);
    }
}
