//! Documents from templates and records: every measured figure of a document is what one of these functions makes of a record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use expctl::report::reference::{ReferenceRecord, VariantFigures};
use expctl_ledger::{BenchFigure, BenchInterval, BenchRecord};
use expctl_stats::{Judgement, MIN_SECONDS_FOR_VERDICT, Ratio, Verdict, judge};
use expctl_text::format;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Serde};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::records::{FigureRecord, FigureRecords, Source, sources};

/// Templates in docs/templates, and the document that each makes.
pub const DOCS: [(&str, &str); 12] = [
    ("README.md.j2", "README.md"),
    ("choosing.md.j2", "docs/guide/choosing.md"),
    ("claims.md.j2", "docs/guide/claims.md"),
    ("command-workers.md.j2", "docs/guide/command-workers.md"),
    ("gpu.md.j2", "docs/guide/gpu.md"),
    ("install.md.j2", "docs/guide/install.md"),
    ("launcher-cost.md.j2", "docs/reference/launcher-cost.md"),
    ("peers.md.j2", "docs/guide/peers.md"),
    ("performance.md.j2", "docs/reference/performance.md"),
    ("predictions.md.j2", "docs/reference/predictions.md"),
    ("reference.md.j2", "results/reference/README.md"),
    ("scale.md.j2", "docs/design/scale.md"),
];

/// The templates, by file name.
pub fn templates(root: &Path) -> BTreeMap<String, String> {
    let read = |(name, _): &(&str, &str)| {
        let text = std::fs::read_to_string(root.join("docs/templates").join(name)).unwrap_or_default();
        ((*name).to_owned(), text)
    };
    DOCS.iter().map(read).collect()
}

/// Two variants of a job whose ratio a document cites.
type Pair = (String, String, String);

/// What templates ask for while they are rendered.
#[derive(Debug, Default)]
struct Asked {
    /// Ratios, in the order of their names.
    pairs: BTreeSet<Pair>,
    /// Records.
    records: BTreeSet<String>,
}

/// What templates render from.
struct Given {
    records: FigureRecords,
    sources: Vec<Source>,
    /// Names of the notes in results/reference.
    notes: BTreeSet<String>,
}

/// What rendering came to.
#[derive(Debug)]
pub struct Rendered {
    /// Documents, by their path in the repository.
    pub documents: BTreeMap<String, String>,
    /// Names of the records that they cite.
    pub cited: BTreeSet<String>,
}

/// Render all documents.
///
/// It is done twice. The first time finds out which ratios of a job the documents cite; their p values are corrected together
/// (Holm), as those of a table are, and the second time gives the verdicts.
pub fn render(root: &Path, records: &FigureRecords, templates: &BTreeMap<String, String>) -> Result<Rendered, String> {
    let notes = std::fs::read_dir(root.join("results/reference")).map_err(|e| e.to_string())?;
    let notes = notes.filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".md")?.to_owned()));
    let given = Arc::new(Given { records: records.clone(), sources: sources(root)?, notes: notes.collect() });
    let first = Arc::new(Mutex::new(Asked::default()));
    pass(&given, templates, &first, None)?;
    let pairs = first.lock().map_err(|e| e.to_string())?.pairs.clone();
    let judged = Arc::new(judged(records, &pairs)?);
    let second = Arc::new(Mutex::new(Asked::default()));
    let documents = pass(&given, templates, &second, Some(&judged))?;
    let cited = second.lock().map_err(|e| e.to_string())?.records.clone();
    Ok(Rendered { documents, cited })
}

/// A cited ratio with its verdict.
#[derive(Clone, Copy, Debug)]
struct Judged {
    ratio: Ratio,
    judgement: Judgement,
}

/// The verdicts of all cited ratios, those of a job corrected together.
fn judged(records: &FigureRecords, pairs: &BTreeSet<Pair>) -> Result<BTreeMap<Pair, Judged>, String> {
    let mut all = BTreeMap::new();
    for name in pairs.iter().map(|pair| &pair.0).collect::<BTreeSet<_>>() {
        let record = records.job(name)?;
        let of_job: Vec<&Pair> = pairs.iter().filter(|pair| pair.0 == *name).collect();
        let ratios = of_job.iter().map(|(_, side, base)| {
            for of in [side, base] {
                let shortest = record
                    .variant(of)
                    .map_err(|e| e.to_string())?
                    .measured_s
                    .iter()
                    .copied()
                    .fold(f64::INFINITY, f64::min);
                if shortest < MIN_SECONDS_FOR_VERDICT {
                    return Err(format!(
                        "{name}: a run of {of} was measured for {shortest} s, so no ratio of it can be cited"
                    ));
                }
            }
            let ratio = record.ratio(side, base).map_err(|e| e.to_string())?;
            ratio.ok_or_else(|| format!("{name}: {side} or {base} has no completed run"))
        });
        let ratios: Vec<_> = ratios.collect::<Result<_, String>>()?;
        for ((pair, (ratio, _)), judgement) in of_job.into_iter().zip(&ratios).zip(judge(&ratios)) {
            all.insert(pair.clone(), Judged { ratio: *ratio, judgement });
        }
    }
    Ok(all)
}

fn pass(
    given: &Arc<Given>,
    templates: &BTreeMap<String, String>,
    asked: &Arc<Mutex<Asked>>,
    judged: Option<&Arc<BTreeMap<Pair, Judged>>>,
) -> Result<BTreeMap<String, String>, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.map_err(|e| e.to_string())?);
    environment.set_debug(true);
    let functions = Functions { given: Arc::clone(given), asked: Arc::clone(asked), judged: judged.cloned() };
    functions.register(&mut environment);
    let mut documents = BTreeMap::new();
    for (name, target) in DOCS {
        let text = templates.get(name).ok_or_else(|| format!("there is no docs/templates/{name}"))?;
        let say = |e: Error| format!("docs/templates/{name}: {e:#}");
        let text = environment
            .render_named_str(name, text, minijinja::context! { sources => Serde(&given.sources) })
            .map_err(say)?;
        let head = format!(
            "<!-- Made from docs/templates/{name} and results/reference/records by `make figures`: edit the template. -->\n"
        );
        documents.insert(target.to_owned(), head + &text);
    }
    Ok(documents)
}

#[derive(Clone)]
struct Functions {
    given: Arc<Given>,
    asked: Arc<Mutex<Asked>>,
    /// None while ratios are being collected.
    judged: Option<Arc<BTreeMap<Pair, Judged>>>,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

impl Functions {
    /// Make the functions known to templates. docs/templates/README.md describes them.
    fn register(&self, environment: &mut Environment<'_>) {
        let this = self.clone();
        environment.add_function("recorded", move |names: Rest<String>| {
            names.iter().all(|name| this.given.records.0.contains_key(name))
        });
        let this = self.clone();
        environment.add_function("unmeasured", move |names: Rest<String>| this.unmeasured(&names));
        let this = self.clone();
        environment.add_function("noted", move |name: String| this.given.notes.contains(&name));
        let this = self.clone();
        environment.add_function("origin", move |name: String| this.origin(&name));
        let this = self.clone();
        environment.add_function("machine", move |name: String| this.machine(&name));
        let this = self.clone();
        environment.add_function("caveats", move |name: String, variants: Vec<String>| this.caveats(&name, &variants));
        let this = self.clone();
        environment.add_function("versions", move |name: String, variant: String| {
            let versions = &this.variant(&name, &variant)?.versions;
            Ok::<_, Error>(
                versions.iter().map(|(package, version)| format!("{package} {version}")).collect::<Vec<_>>().join(", "),
            )
        });
        let this = self.clone();
        environment.add_function("judged_ratios", move |name: String| {
            Value::from(this.judged.iter().flat_map(|all| all.keys()).filter(|pair| pair.0 == name).count())
        });
        let this = self.clone();
        environment
            .add_function("ratio", move |name: String, side: String, base: String| this.ratio(name, side, base, true));
        let this = self.clone();
        environment.add_function("plain_ratio", move |name: String, side: String, base: String| {
            this.ratio(name, side, base, false)
        });
        let this = self.clone();
        environment.add_function("verdict", move |name: String, side: String, base: String| {
            Ok::<_, Error>(this.judged(name, side, base)?.map_or("", |judged| judged.judgement.verdict.words()))
        });
        let this = self.clone();
        environment.add_function("against", move |name: String, side: String, base: String| {
            Ok::<_, Error>(this.judged(name, side, base)?.map_or("", |judged| judged.judgement.verdict.against()))
        });
        let this = self.clone();
        environment.add_function("fewest", move |name: String, series: String| {
            let labels = this.series(&name, &series)?;
            Ok::<_, Error>(labels.first().map(|(_, label)| label.clone()))
        });
        let this = self.clone();
        environment.add_function("threads", move |name: String, label: String| {
            let workers = this.variant(&name, &label)?.workers;
            // What a program of the user's starts, only the name of its variant says.
            let named = label.rsplit_once('_').and_then(|(_, number)| number.parse::<u32>().ok());
            Ok::<_, Error>(named.unwrap_or(workers).to_string())
        });
        let this = self.clone();
        environment.add_function("best", move |name: String, series: String| this.best(&name, &series));
        let this = self.clone();
        environment.add_function("bench", move |name: String, key: String| this.bench(&name, &key, true));
        let this = self.clone();
        environment.add_function("bench_keys", move |name: String, ending: String| this.bench_keys(&name, &ending));
        let this = self.clone();
        environment.add_function("bench_median", move |name: String, key: String| this.bench(&name, &key, false));
        for (name, figure) in FIGURES {
            let this = self.clone();
            environment.add_function(name, move |job: String, variant: String| {
                let shown = figure(this.variant(&job, &variant)?);
                shown.ok_or_else(|| wrong(format!("{job} does not know {name} of {variant}")))
            });
        }
        for (name, figure) in STAGE_FIGURES {
            let this = self.clone();
            environment.add_function(name, move |job: String, variant: String, stage: String| {
                let shown = figure(this.variant(&job, &variant)?, &stage);
                shown.ok_or_else(|| wrong(format!("{job}: {stage} is no stage of {variant}")))
            });
        }
        for (name, share) in SHARES {
            let this = self.clone();
            environment.add_function(name, move |job: String, variant: String, stage: String| {
                let share = share(this.variant(&job, &variant)?, &stage);
                share.map(format::percent).ok_or_else(|| wrong(format!("{job}: {stage} is no stage of {variant}")))
            });
        }
    }

    fn cite(&self, name: &str) -> Result<(), Error> {
        self.asked.lock().map_err(|e| wrong(e.to_string()))?.records.insert(name.to_owned());
        Ok(())
    }

    fn job(&self, name: &str) -> Result<&ReferenceRecord, Error> {
        self.cite(name)?;
        self.given.records.job(name).map_err(wrong)
    }

    fn variant(&self, name: &str, variant: &str) -> Result<&VariantFigures, Error> {
        self.job(name)?.variant(variant).map_err(|e| wrong(format!("{name}: {e}")))
    }

    /// The variants `series` and `series_N`, with their N (1 without one), the fewest threads or processes first.
    fn series(&self, name: &str, series: &str) -> Result<Vec<(u32, String)>, Error> {
        let record = self.job(name)?;
        let number = |label: &str| match label.strip_prefix(series)? {
            "" => Some(1),
            rest => rest.strip_prefix('_')?.parse::<u32>().ok(),
        };
        let mut found: Vec<_> =
            record.variants.keys().filter_map(|label| Some((number(label)?, label.clone()))).collect();
        found.sort();
        if found.is_empty() {
            let known = record.variants.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("{name} has no variant {series} or {series}_N; it has {known}")));
        }
        Ok(found)
    }

    /// The variant of a series with the highest median rate.
    fn best(&self, name: &str, series: &str) -> Result<String, Error> {
        let mut best = (0.0, String::new());
        for (_, label) in self.series(name, series)? {
            let rate = self.variant(name, &label)?.median_samples_per_s().unwrap_or(0.0);
            if rate > best.0 {
                best = (rate, label);
            }
        }
        Ok(best.1)
    }

    /// What stands where no record is committed yet.
    fn unmeasured(&self, names: &[String]) -> Result<String, Error> {
        if names.iter().all(|name| self.given.records.0.contains_key(name)) {
            return Err(wrong(format!("{} are recorded, so nothing is unmeasured", names.join(", "))));
        }
        Ok(format!("*No record of this is committed yet: `scripts/reference.sh {}` measures it.*", names.join(" ")))
    }

    /// Commit, day and job of a record.
    fn origin(&self, name: &str) -> Result<String, Error> {
        self.cite(name)?;
        let of = |commit: &Option<String>, at: i64| {
            format!("commit {}, {}", commit.as_deref().unwrap_or("unknown"), format::day(at))
        };
        match self.given.records.0.get(name) {
            Some(FigureRecord::Bench(record)) => Ok(of(&record.commit, record.measured) + &sittings(record)),
            _ => self.job(name).map(|record| of(&record.commit, record.submitted)),
        }
    }

    /// Processor and memory of the machines of a record.
    fn machine(&self, name: &str) -> Result<String, Error> {
        self.cite(name)?;
        let words = |cpu: &str, cpus: u32, memory: u64| {
            let cpu = if cpu.is_empty() { "unknown processor" } else { cpu };
            format!("{} of {cpu}, {}", format::count(cpus.into(), "processor"), format::bytes(memory as f64))
        };
        if let Some(FigureRecord::Bench(record)) = self.given.records.0.get(name) {
            return Ok(words(&record.cpu, record.cpus, record.memory_bytes));
        }
        let machines = self.job(name)?.machines.iter().map(|m| {
            let gpus: String = m.gpus.iter().map(|gpu| format!(", {gpu}")).collect();
            words(&m.cpu, m.cpus, m.memory_bytes) + &gpus
        });
        Ok(machines.collect::<Vec<_>>().join("; "))
    }

    /// What the note warns of in these variants, a list item each; empty if it warns of nothing.
    fn caveats(&self, name: &str, variants: &[String]) -> Result<String, Error> {
        let mut said = String::new();
        for variant in variants {
            for caution in &self.variant(name, variant)?.cautions {
                said.push_str(&format!("- `{variant}`: {caution}\n"));
            }
        }
        Ok(said.trim_end().to_owned())
    }

    fn judged(&self, name: String, side: String, base: String) -> Result<Option<Judged>, Error> {
        // A label that does not exist is said here, where the template's line is known.
        self.variant(&name, &side)?;
        self.variant(&name, &base)?;
        let pair = (name, side, base);
        let Some(judged) = &self.judged else {
            self.asked.lock().map_err(|e| wrong(e.to_string()))?.pairs.insert(pair);
            return Ok(None);
        };
        let found = judged.get(&pair).ok_or_else(|| {
            wrong(format!(
                "the ratio of {} to {} depends on another ratio's verdict, so it was not judged",
                pair.1, pair.2
            ))
        })?;
        Ok(Some(*found))
    }

    /// A ratio with its interval; with `verdict` also in words where that is neither faster nor slower.
    fn ratio(&self, name: String, side: String, base: String, verdict: bool) -> Result<String, Error> {
        let Some(Judged { ratio, judgement }) = self.judged(name, side, base)? else { return Ok(String::new()) };
        let shown = format::ratio_with_interval(&ratio);
        Ok(match judgement.verdict {
            Verdict::NoDifferenceShown | Verdict::TooFewRuns if verdict => {
                format!("{shown}, {}", judgement.verdict.words())
            }
            _ => shown,
        })
    }

    /// What the keys of a bench that end so begin with, in the order of the record.
    fn bench_keys(&self, name: &str, ending: &str) -> Result<Vec<String>, Error> {
        let figures = &self.given.records.bench(name).map_err(wrong)?.figures;
        Ok(figures.iter().filter_map(|figure| figure.key.strip_suffix(ending).map(str::to_owned)).collect())
    }

    /// A figure of a bench with its unit, and with its ends.
    fn bench(&self, name: &str, key: &str, ends: bool) -> Result<String, Error> {
        self.cite(name)?;
        let figure = self.given.records.figure(name, key).map_err(wrong)?;
        Ok(if ends { bench_with_ends(figure) } else { bench_value(figure, figure.median) })
    }
}

/// Shows a figure of a stage.
type StageFigureOf = fn(&VariantFigures, &str) -> Option<String>;
/// Shows a figure of a variant.
type FigureOf = fn(&VariantFigures) -> Option<String>;
/// The share of a stage.
type ShareOf = fn(&VariantFigures, &str) -> Option<f64>;

/// Figures of a variant, by the name of the function that shows them; none where the record does not know it.
const FIGURES: [(&str, FigureOf); 16] = [
    ("rate", |of| of.median_samples_per_s().map(count)),
    ("rate_interval", |of| {
        let interval = of.samples_per_s_rate()?.interval?;
        Some(format!("[{}–{}]", count(interval.low), count(interval.high)))
    }),
    ("epoch_hours", |of| {
        let rate = of.median_samples_per_s().filter(|rate| *rate > 0.0)?;
        Some(hours(EPOCH_SAMPLES / rate / 3600.0))
    }),
    ("n", |of| Some(of.samples_per_s.len().to_string())),
    ("method", |of| Some(of.method.clone())),
    ("memory", |of| of.peak_memory_bytes.map(|bytes| format::bytes(bytes as f64))),
    ("storage", |of| of.storage_bytes.map(|bytes| format::bytes(bytes as f64))),
    ("batch_mib", |of| of.batch_bytes.map(format::mebibytes)),
    ("sample_size", |of| of.batch_bytes.map(|bytes| format::bytes(bytes / of.batch_size as f64))),
    ("step_ms", |of| Some(format::milliseconds(of.step_median_ns))),
    ("step_range_ms", |of| {
        Some(format!("{}–{}", format::milliseconds(of.step_p5_ns), format::milliseconds(of.step_p95_ns)))
    }),
    ("unattributed_us", |of| Some(format::round(of.unattributed_ns() / 1e3, 0))),
    ("waits", |of| of.waits_for().map(|(stage, share)| format!("{stage}, {}", format::percent(share)))),
    // All of a step but the training itself.
    ("not_training", |of| {
        let training = ["forward", "backward", "allreduce", "clip", "optimizer"].map(|stage| of.exposed_share(stage));
        Some(format::percent(1.0 - training.iter().sum::<f64>()))
    }),
    ("mixing", |of| {
        let labels = of.shuffle.as_ref()?.labels.as_ref()?;
        (labels.ideal_entropy > 0.0).then(|| format::percent(labels.entropy / labels.ideal_entropy))
    }),
    ("neighbours", |of| of.shuffle.as_ref()?.neighbour_correlation.map(|r| format::round(r, 3))),
];

/// Figures of a stage, by the name of the function that shows them; none where the variant has no such stage.
const STAGE_FIGURES: [(&str, StageFigureOf); 1] = [
    // Work of all loader threads on one sample.
    ("busy_ms_sample", |of, stage| Some(format::milliseconds(of.busy_ns.get(stage)? / of.batch_size as f64))),
];

/// Shares of a stage, by the name of the function that shows them.
const SHARES: [(&str, ShareOf); 2] = [
    ("exposed", |of, stage| of.exposed_ns.contains_key(stage).then(|| of.exposed_share(stage))),
    ("busy", |of, stage| of.busy_ns.contains_key(stage).then(|| of.busy_share(stage))),
];

/// Samples of the epoch of [`FIGURES`]' `epoch_hours`: the cells of Tahoe-100M.
const EPOCH_SAMPLES: f64 = 1e8;

/// `, in 3 sittings from 2026.11.29 on`; empty for what was measured at one go.
fn sittings(record: &BenchRecord) -> String {
    let first = record.sittings.first().map(|first| format::day(first.began));
    first.map(|day| format!(", in {} sittings from {day} on", record.sittings.len())).unwrap_or_default()
}

/// Hours, with two digits or more.
fn hours(value: f64) -> String {
    let decimals = match value {
        ..0.1 => 3,
        ..10.0 => 2,
        _ => 1,
    };
    format::round(value, decimals)
}

/// A rate: whole with commas from 100 on, as [`format::rate`] has it below.
fn count(value: f64) -> String {
    if value >= 100.0 { format::thousands(value.round() as u64) } else { format::rate(value) }
}

fn bench_value(figure: &BenchFigure, value: f64) -> String {
    match figure.unit.as_str() {
        "" => format::figure(value),
        "B" => format::bytes(value),
        "ns" if figure.median >= 1e6 => format!("{} ms", format::rate(value / 1e6)),
        "ns" if figure.median >= 1e3 => format!("{} µs", format::rate(value / 1e3)),
        unit => format!("{} {unit}", count(value)),
    }
}

fn bench_with_ends(figure: &BenchFigure) -> String {
    let kind = match figure.interval {
        BenchInterval::Range => "",
        BenchInterval::Quartiles => "quartiles ",
        BenchInterval::Confidence95 => "95 %: ",
    };
    let bare = |value: f64| {
        let shown = bench_value(figure, value);
        // The unit stands once, but for bytes, whose prefix may change from one end to the other.
        let number = shown.split(' ').next().unwrap_or_default().to_owned();
        if figure.unit == "B" { shown } else { number }
    };
    format!("{} [{kind}{}–{}]", bench_value(figure, figure.median), bare(figure.low), bare(figure.high))
}
