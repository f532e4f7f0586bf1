//! A `[[breakdown]]` of a file of published results: its form, and what may be wrong with it.

use std::ops::Range;

use expctl_record::Mode;
use serde::Deserialize;
use toml::Spanned;

use super::published::{OneOrMore, Place, variant_names};
use super::{
    Amount, ComponentKind, FigureClass, PublishedBreakdown, PublishedComponent, PublishedRow, Source, TimeUnit,
};

/// By how much a percentage may be too high because its source rounded it.
const ROUNDING: f64 = 0.5;

/// A `[[breakdown]]` as a file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBreakdown {
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
    /// Where a mistake is that is about the whole of it.
    pub(super) fn span(&self) -> Range<usize> {
        self.job.span()
    }

    /// Check it against the rows of its file; what is wrong goes to `mistakes`, with file, line and column.
    pub(super) fn check(
        self,
        place: &Place<'_>,
        rows: &[PublishedRow],
        study: &str,
        source: &Source,
        mistakes: &mut Vec<String>,
    ) -> PublishedBreakdown {
        let mut wrong = |span: Range<usize>, reason: &str| mistakes.push(format!("{}: {reason}", place.at(span)));
        let span = self.job.span();
        let jobs = self.job.into_inner().into_vec();
        let row = rows.iter().find(|row| row.jobs == jobs && row.config == self.config && row.variant == self.variant);
        if !rows.iter().any(|row| row.jobs == jobs) {
            wrong(span.clone(), "no [[result]] of this file is of this job");
        } else if row.is_none() && (self.method.is_none() || self.mode.is_none()) {
            wrong(span.clone(), "no [[result]] has this job, config and variant, so `method` and `mode` are needed");
        }
        if let (Some(_), Some(method)) = (row, &self.method) {
            wrong(method.span(), "`method` is that of the [[result]] with this job, config and variant");
        }
        if let (Some(_), Some(mode)) = (row, &self.mode) {
            wrong(mode.span(), "`mode` is that of the [[result]] with this job, config and variant");
        }
        if self.component.is_empty() {
            wrong(span, "a breakdown needs a [[breakdown.component]]");
        }
        let named = variant_names(self.repeated_by, &mut wrong);
        let (unit, components) = checked(self.component, &mut wrong);
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
fn checked(
    raw: Vec<RawComponent>,
    wrong: &mut dyn FnMut(Range<usize>, &str),
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
            wrong(span.clone(), "a component needs s_per_iteration, s_per_run, ms_per_sample or percent");
        }
        let mut time = None;
        for (of, given) in times {
            let Some(given) = given else { continue };
            if let Some(before) = unit.filter(|before| *before != of) {
                let reason =
                    format!("the times of a breakdown have one unit: {} here, {} above", of.key(), before.key());
                wrong(given.span(), &reason);
            }
            unit = unit.or(Some(of));
            time = amount(given, of.key(), f64::INFINITY, wrong);
        }
        let percent = match one.percent {
            Some(given) => amount(given, "percent", 100.0, wrong),
            None => None,
        };
        match (one.kind, one.within) {
            (Some(_), Some(_)) => wrong(span.clone(), "`within` is for a component without a `kind`"),
            (None, None) => {
                wrong(span.clone(), "a component needs a `kind`, or `within` and the kind that contains it")
            }
            _ => {}
        }
        if let Some(kind) = one.kind.filter(|kind| all.iter().any(|other| other.kind == Some(*kind))) {
            let name = kind.name();
            let reason = format!(
                "this breakdown has a component of kind {name} already; a detail of it says within = \"{name}\""
            );
            wrong(span.clone(), &reason);
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
            wrong(span.clone(), &format!("no component of this breakdown is of kind {}", kind.name()));
        }
    }
    check_sums(&all, &spans, wrong);
    (unit, all)
}

/// A number or a range, from 0 to `highest`. Another one is a mistake and gives `None`.
fn amount(
    given: Spanned<OneOrMore<f64>>,
    key: &str,
    highest: f64,
    wrong: &mut dyn FnMut(Range<usize>, &str),
) -> Option<Amount> {
    let span = given.span();
    let ends = given.into_inner().into_vec();
    let (low, high) = match ends[..] {
        [one] => (one, one),
        [low, high] => (low, high),
        _ => (f64::NAN, f64::NAN),
    };
    if !(low.is_finite() && low >= 0.0 && low <= high) {
        wrong(span, &format!("{key} is a number from 0 on, or [lowest, highest]"));
        return None;
    }
    if high > highest {
        wrong(span, &format!("{key} is at most {highest}"));
        return None;
    }
    Some(Amount { low, high })
}

/// The shares of what one component contains, or of the whole, add up to no more than that, but for what rounding adds.
fn check_sums(all: &[PublishedComponent], spans: &[Range<usize>], wrong: &mut dyn FnMut(Range<usize>, &str)) {
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
        wrong(
            (*last).clone(),
            &format!("with this share those of {of} add up to {sum:.1} percent, more than {percent}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::exit::Exit;
    use crate::ledger::PublishedFile;

    /// The components follow from line 18 on.
    const HEAD: &str = "schema = 1\nstudy = \"s\"\nsource = { title = \"t\", from = \"f\", date = \"2025-01-01\" }\n\
        [[result]]\njob = 5\nconfig = \"c\"\nmethod = \"m\"\nmode = \"forward\"\nit_per_s = 1.0\nestimator = \"e\"\nranks = 1\nbatch_size = 28\n\
        [[breakdown]]\n";

    fn file(components: &[&str]) -> String {
        let lines: String = components.iter().map(|line| format!("    {{ {line} }},\n")).collect();
        format!("{HEAD}job = 5\nconfig = \"c\"\nfrom = \"table\"\ncomponent = [\n{lines}]\n")
    }

    fn parsed(text: &str) -> Result<PublishedFile, String> {
        PublishedFile::parse(text, Path::new("p.toml")).map_err(|failure| {
            assert_eq!(failure.exit, Exit::Config);
            failure.message
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
