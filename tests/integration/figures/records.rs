//! The committed records that documents cite, by the name of their file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl::report::reference::ReferenceRecord;
use expctl_ledger::{BenchFigure, BenchRecord};

/// A record.
#[derive(Clone, Debug)]
pub enum Record {
    /// Of a job.
    Job(Box<ReferenceRecord>),
    /// Of a bench or an example.
    Bench(BenchRecord),
}

/// All records of a folder.
#[derive(Clone, Debug, Default)]
pub struct Records(pub BTreeMap<String, Record>);

impl Records {
    /// Read every `.json` of a folder.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                all.insert(name(&path), read(&path)?);
            }
        }
        Ok(Self(all))
    }

    fn get(&self, name: &str) -> Result<&Record, String> {
        let missing =
            || format!("there is no results/reference/records/{name}.json: scripts/reference.sh {name} makes it");
        self.0.get(name).ok_or_else(missing)
    }

    /// The record of a job.
    pub fn job(&self, name: &str) -> Result<&ReferenceRecord, String> {
        match self.get(name)? {
            Record::Job(record) => Ok(record),
            Record::Bench(_) => Err(format!("{name} is the record of a bench, not of a job")),
        }
    }

    /// The record of a bench.
    pub fn bench(&self, name: &str) -> Result<&BenchRecord, String> {
        match self.get(name)? {
            Record::Bench(record) => Ok(record),
            Record::Job(_) => Err(format!("{name} is the record of a job, not of a bench")),
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

fn read(path: &Path) -> Result<Record, String> {
    let say = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| say(&e))?;
    if text.contains("\"bench_schema\"") {
        BenchRecord::read(path).map(Record::Bench).map_err(|e| say(&e))
    } else {
        ReferenceRecord::read(path).map(|record| Record::Job(Box::new(record))).map_err(|e| say(&e))
    }
}

/// A line of `scripts/reference.tsv`: how a note and its record are made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Source {
    /// Name of the record.
    pub name: String,
    /// `job` or `bench`.
    pub kind: String,
    /// The command that measures, as a user types it.
    pub command: String,
    /// What has to be done before; empty where nothing has.
    pub before: String,
}

/// The lines of `scripts/reference.tsv`.
pub fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let path: PathBuf = root.join("scripts/reference.tsv");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [name, kind @ ("job" | "bench"), arguments, before] => Ok(Source {
                name: name.to_owned(),
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
