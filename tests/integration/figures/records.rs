//! The records that documents cite, by the name of their file: those that are committed, and synthetic ones of the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expctl::report::reference::{REFERENCE_SCHEMA_VERSION, ReferenceRecord, VariantFigures};
use expctl_ledger::{BenchFigure, BenchRecord, LabelMixing, ShuffleQuality};
use regex::Regex;

use super::render::templates;
use super::root;

/// A record.
#[derive(Clone, Debug)]
pub enum FigureRecord {
    /// Of a job.
    Job(Box<ReferenceRecord>),
    /// Of a bench or an example.
    Bench(BenchRecord),
}

/// Records of one or more folders.
#[derive(Clone, Debug, Default)]
pub struct FigureRecords(pub BTreeMap<String, FigureRecord>);

impl FigureRecords {
    /// Read every `.json` of a folder.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                all.insert(name(&path), read_record(&path)?);
            }
        }
        Ok(Self(all))
    }

    /// These, and others of other names.
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    fn get(&self, name: &str) -> Result<&FigureRecord, String> {
        let missing = || {
            let script = if name.starts_with("gpu_") { "scripts/gpu.sh bench" } else { "scripts/reference.sh" };
            format!("there is no record {name}.json: {script} {name} makes it")
        };
        self.0.get(name).ok_or_else(missing)
    }

    /// The record of a job.
    pub fn job(&self, name: &str) -> Result<&ReferenceRecord, String> {
        match self.get(name)? {
            FigureRecord::Job(record) => Ok(record),
            FigureRecord::Bench(_) => Err(format!("{name} is the record of a bench, not of a job")),
        }
    }

    /// The record of a bench.
    pub fn bench(&self, name: &str) -> Result<&BenchRecord, String> {
        match self.get(name)? {
            FigureRecord::Bench(record) => Ok(record),
            FigureRecord::Job(_) => Err(format!("{name} is the record of a job, not of a bench")),
        }
    }

    /// A figure of a bench.
    pub fn figure(&self, name: &str, key: &str) -> Result<&BenchFigure, String> {
        let record = self.bench(name)?;
        record.figures.iter().find(|figure| figure.key == key).ok_or_else(|| {
            let known: Vec<&str> = record.figures.iter().map(|figure| figure.key.as_str()).collect();
            format!("{name} has no figure {key}; it has {}", known.join(", "))
        })
    }
}

fn name(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read_record(path: &Path) -> Result<FigureRecord, String> {
    let say = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| say(&e))?;
    if text.contains("\"bench_schema\"") {
        BenchRecord::read(path).map(FigureRecord::Bench).map_err(|e| say(&e))
    } else {
        ReferenceRecord::read(path).map(|record| FigureRecord::Job(Box::new(record))).map_err(|e| say(&e))
    }
}

/// A line of `scripts/reference.tsv` or `scripts/gpu.tsv`: how a note and its record are made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Source {
    /// Name of the record.
    pub name: String,
    /// Folder of the note in results/: `reference`, or `gpu`.
    pub folder: &'static str,
    /// `job` or `bench`.
    pub kind: String,
    /// The command that measures, as a user types it.
    pub command: String,
    /// What has to be done before; empty where nothing has.
    pub before: String,
}

/// The lines of `scripts/reference.tsv` and `scripts/gpu.tsv`.
pub fn sources(root: &Path) -> Result<Vec<Source>, String> {
    Ok([reference_sources(root)?, gpu_sources(root)?].concat())
}

/// The lines of a list, in columns.
fn columns(path: &Path) -> Result<Vec<Vec<String>>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn gpu_sources(root: &Path) -> Result<Vec<Source>, String> {
    let path = root.join("scripts/gpu.tsv");
    let source = |line: &Vec<String>| match line.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name, kind @ ("job" | "trace" | "program"), _, _, arguments, ..] => Ok(Source {
            name: name.to_owned(),
            folder: "gpu",
            kind: if kind == "program" { "bench" } else { "job" }.to_owned(),
            command: match kind {
                "program" => arguments.to_owned(),
                _ => format!("expctl submit {arguments} --backend local --wait"),
            },
            before: String::new(),
        }),
        _ => Err(format!("{}: five columns are expected in {line:?}", path.display())),
    };
    columns(&path)?.iter().map(source).collect()
}

fn reference_sources(root: &Path) -> Result<Vec<Source>, String> {
    let path: PathBuf = root.join("scripts/reference.tsv");
    columns(&path)?
        .iter()
        .map(|line| match line.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [name, kind @ ("job" | "bench"), arguments, before] => Ok(Source {
                name: name.to_owned(),
                folder: "reference",
                kind: kind.to_owned(),
                command: match kind {
                    "job" => {
                        // Variables of the environment stand before the config.
                        let (variables, submitted) = arguments.split_at(arguments.find("conf/").unwrap_or(0));
                        format!("{variables}expctl submit {submitted} --backend local --wait")
                    }
                    _ => arguments.to_owned(),
                },
                before: before.to_owned(),
            }),
            _ => Err(format!("{}: four columns are expected in {line:?}", path.display())),
        })
        .collect()
}

/// A record of each name that scripts/reference.tsv has: jobs with the variants of their config, all of the same figures, benches with
/// the figures that the templates ask for.
pub fn synthetic() -> FigureRecords {
    let shuffle = ShuffleQuality {
        epoch_rows: 1_000,
        metered_rows: 1_000,
        metered_batches: 8,
        duplicates: 0,
        neighbour_correlation: Some(0.25),
        mean_distance: 0.3,
        expected_distance: 1.0 / 3.0,
        labels: Some(LabelMixing { column: "cell_type".into(), classes: 3, entropy: 1.2, ideal_entropy: 1.5 }),
    };
    let variant = VariantFigures {
        method: "a method".into(),
        mode: "data".into(),
        ranks: 1,
        workers: 2,
        batch_size: 128,
        interleaved: true,
        repeats: vec![1, 2, 3, 4, 5],
        it_per_s: vec![10.0, 11.0, 12.0, 10.5, 11.5],
        samples_per_s: vec![1280.0, 1408.0, 1536.0, 1344.0, 1472.0],
        measured_s: vec![10.0; 5],
        step_mean_ns: 1e8,
        step_median_ns: 9e7,
        step_p5_ns: 8e7,
        step_p95_ns: 1.2e8,
        exposed_ns: [("collate", 8e7), ("decode", 1e7), ("mask", 1e6), ("read", 1e6), ("allreduce", 1e6)]
            .into_iter()
            .map(|(stage, ns)| (stage.into(), ns))
            .collect(),
        busy_ns: ["read", "decode", "mask", "collate"].into_iter().map(|stage| (stage.into(), 1e7)).collect(),
        peak_memory_bytes: Some(500_000_000),
        storage_bytes: Some(2_000_000_000),
        batch_bytes: Some(1e6),
        shuffle: Some(shuffle),
        versions: BTreeMap::new(),
        cautions: vec!["step times drift".into()],
    };
    let label = Regex::new(r"(?m)^\[variant\.(\w+)\]").unwrap();
    let key = Regex::new(r#"bench(?:_median)?\("(\w+)", "([^"]+)""#).unwrap();
    let texts: String = templates(&root()).into_values().collect();
    let mut all = BTreeMap::new();
    for source in sources(&root()).unwrap() {
        let record = if source.kind == "job" {
            let config = source.command.split(' ').find(|word| word.ends_with(".toml")).unwrap();
            let mut text = super::read(&root().join(config));
            // Variants that the config takes over from another one. Where a variant extends `FILE#VARIANT`, those of that file
            // are there as well and nobody asks for them.
            if let Some(base) = text.lines().find_map(|line| line.strip_prefix("extends = \"")?.strip_suffix('"')) {
                let file = base.split('#').next().unwrap_or(base);
                text += &super::read(&root().join("conf").join(file));
            }
            let labels = label.captures_iter(&text).map(|found| found[1].to_owned());
            let labels = labels.chain(swept_labels(&texts, &source.name)).enumerate();
            let labels = labels.map(|(place, label)| (label, scattered(&variant, place)));
            FigureRecord::Job(Box::new(ReferenceRecord {
                schema: REFERENCE_SCHEMA_VERSION,
                job: 1,
                config: source.name.clone(),
                config_path: config.into(),
                config_hash: None,
                command: source.command.clone(),
                commit: Some("0123456789ab".into()),
                flaws: Vec::new(),
                expctl: "0.1.0".into(),
                submitted: 1_762_214_400,
                baseline: None,
                machines: Vec::new(),
                warnings: Vec::new(),
                variants: labels.collect(),
            }))
        } else {
            let mut keys: BTreeSet<String> = key
                .captures_iter(&texts)
                .filter(|found| found[1] == source.name)
                .map(|found| found[2].to_owned())
                .collect();
            keys.extend(looped_keys(&source.name));
            let figures =
                keys.iter().filter_map(|key| BenchFigure::from_range(key.as_str(), "ns", &[1500.0, 1600.0, 1700.0]));
            let record = BenchRecord::new(source.command.clone(), &root(), figures.collect());
            FigureRecord::Bench(BenchRecord { commit: Some("0123456789ab".into()), measured: 1_762_214_400, ..record })
        };
        all.insert(source.name, record);
    }
    FigureRecords(all)
}

/// Labels of swept points, as `lazy (train.mode="forward")`, that the templates ask for of a record.
fn swept_labels(templates: &str, record: &str) -> BTreeSet<String> {
    let call = Regex::new(&format!(r#"\w+\("{record}", (.*?)\) *\}}\}}"#)).unwrap();
    let label = Regex::new(r#""(\w+ \([^"]+\))"|'(\w+ \([^']+\))'"#).unwrap();
    let arguments = call.captures_iter(templates).map(|found| found[1].to_owned());
    arguments
        .flat_map(|all| {
            label
                .captures_iter(&all)
                .map(|found| found.get(1).or(found.get(2)).map_or_else(String::new, |label| label.as_str().to_owned()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The same figures with runs a little apart from those of the variants at other places, and the same mean: without any spread there is
/// no test.
fn scattered(variant: &VariantFigures, place: usize) -> VariantFigures {
    let wave: Vec<f64> =
        (0..variant.samples_per_s.len()).map(|run| ((place * 7 + run * 11 + 1) as f64).sin()).collect();
    let mean = wave.iter().sum::<f64>() / wave.len() as f64;
    let rates = variant.samples_per_s.iter().zip(&wave).map(|(rate, wave)| rate * (1e-3 * (wave - mean)).exp());
    VariantFigures { samples_per_s: rates.collect(), ..variant.clone() }
}

/// Keys that templates put together from lists: those that the bench of this name writes.
fn looped_keys(bench: &str) -> Vec<String> {
    let of = |names: &[&str], figures: &[&str]| -> Vec<String> {
        names.iter().flat_map(|name| figures.iter().map(move |figure| format!("{name}.{figure}"))).collect()
    };
    let floors = ["floor", "this", "ratio"];
    match bench {
        "masks" => of(&["byte masks of a sample", "bit masks of a sample", "removed lists of a sample"], &floors),
        "stores" => {
            let stores = ["json", "ids", "compressed", "full_masks"];
            let names: Vec<String> =
                stores.iter().flat_map(|s| ["cache", "disk"].map(|from| format!("{s}, from the {from}"))).collect();
            of(&names.iter().map(String::as_str).collect::<Vec<_>>(), &floors)
        }
        "remote_cache" | "remote_rows_cache" => of(&["cold", "warm"], &["useful", "rows", "sent"]),
        _ if bench.starts_with("remote_") => of(&["direct"], &["useful", "rows", "sent"]),
        _ if bench.starts_with("lazy_") => ["forward", "backward", "rate", "memory"].map(str::to_owned).into(),
        "timing_cost" => {
            let step = ["stages", "batch", "allreduce", "journal", "last_words", "all", "all_cold"];
            let others = ["loader", "operations", "operations_step"];
            step.iter().chain(&others).map(|key| (*key).to_owned()).collect()
        }
        _ => Vec::new(),
    }
}
