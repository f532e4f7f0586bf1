//! Bench records: figures of a measurement that is no job, in a file small enough to commit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use host_metrics::hardware;
use serde::{Deserialize, Serialize};

use crate::layout::read_json;
use crate::{LedgerError, write_json};

/// Version of the form of a bench record.
pub const BENCH_SCHEMA_VERSION: u32 = 1;

/// Figures of a bench or an example that documents cite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchRecord {
    /// [`BENCH_SCHEMA_VERSION`].
    pub bench_schema: u32,
    /// The command that repeats the measurement.
    pub command: String,
    /// Commit of the working tree; ends in `-dirty` if tracked files outside of `results/` had changes. `None`: not in a repository.
    pub commit: Option<String>,
    /// When it was written, seconds since the epoch.
    pub measured: i64,
    /// Processor model.
    pub cpu: String,
    /// Processors that the program may use.
    pub cpus: u32,
    /// Memory of the machine, bytes.
    pub memory_bytes: u64,
    /// When it was measured, if that was not at one go; the first sitting first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sittings: Vec<BenchSitting>,
    /// The figures, by unique keys.
    pub figures: Vec<BenchFigure>,
}

/// A time in which some parts of a bench were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchSitting {
    /// Its first part began, seconds since the epoch.
    pub began: i64,
    /// Its last part ended, seconds since the epoch.
    pub ended: i64,
    /// Parts that were measured.
    pub parts: u64,
}

/// A figure of a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchFigure {
    /// Name in documents: `line_50.useful`.
    pub key: String,
    /// Median of its repeats, in `unit`.
    pub median: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Kind of the interval.
    pub interval: BenchInterval,
    /// Number of repeats.
    pub n: u64,
    /// Unit: `ns`, `rows/s`, `MB/s`; empty for a ratio or count.
    pub unit: String,
}

/// Kind of the interval of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchInterval {
    /// The smallest and the largest repeat.
    Range,
    /// First and third quartile of the repeats.
    Quartiles,
    /// A 95 % confidence interval of the median.
    Confidence95,
}

impl BenchFigure {
    /// The median of repeats, with the smallest and the largest as ends of the interval. `None`: no repeats.
    pub fn from_range(key: impl Into<String>, unit: &str, repeats: &[f64]) -> Option<Self> {
        let mut sorted = repeats.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        let n = sorted.len() as u64;
        Some(Self { key: key.into(), median, low, high, interval: BenchInterval::Range, n, unit: unit.to_owned() })
    }
}

impl BenchRecord {
    /// A record of figures that were measured on this machine with the code that is checked out in `repository`.
    pub fn new(command: impl Into<String>, repository: &Path, figures: Vec<BenchFigure>) -> Self {
        let machine = hardware(false);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        Self {
            bench_schema: BENCH_SCHEMA_VERSION,
            command: command.into(),
            commit: commit(repository),
            measured: now,
            cpu: machine.cpu,
            cpus: machine.cpus,
            memory_bytes: machine.memory_bytes,
            sittings: Vec::new(),
            figures,
        }
    }

    /// Read a record.
    ///
    /// # Errors
    /// A file that cannot be read or has another form.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        read_json(path)
    }

    /// Write it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), LedgerError> {
        write_json(path, self)
    }

    /// The reason why no document may cite the record: the code that measured is in no commit. `None`: documents may cite it.
    pub fn flaw(&self) -> Option<String> {
        match &self.commit {
            None => Some("it does not say of which commit it is".to_owned()),
            Some(commit) if commit.ends_with("-dirty") => Some(format!("it ran from changes on top of {commit}")),
            Some(_) => None,
        }
    }

    /// Write the figures to the file after `--record` among the arguments of this program, or in `EXPCTL_BENCH_RECORD` (benches of
    /// criterion refuse arguments that are not criterion's), if one is named. The command of the record is `program` with all the
    /// other arguments.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_if_asked(
        program: &str,
        repository: &Path,
        figures: Vec<BenchFigure>,
    ) -> Result<Option<PathBuf>, LedgerError> {
        let (file, others) = asked(std::env::args().skip(1));
        let Some(file) = file.or_else(|| std::env::var_os("EXPCTL_BENCH_RECORD").map(PathBuf::from)) else {
            return Ok(None);
        };
        let command = std::iter::once(program.to_owned()).chain(others).collect::<Vec<_>>().join(" ");
        Self::new(command, repository, figures).write(&file)?;
        Ok(Some(file))
    }
}

/// The file after `--record`, and the other arguments.
fn asked(arguments: impl IntoIterator<Item = String>) -> (Option<PathBuf>, Vec<String>) {
    let (mut file, mut others) = (None, Vec::new());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--record" {
            file = arguments.next().map(PathBuf::from);
        } else {
            others.push(argument);
        }
    }
    (file, others)
}

/// The commit that is checked out, with `-dirty` where tracked files differ from it outside of `results/`, which measurements write.
fn commit(repository: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        Command::new("git").arg("-C").arg(repository).args(arguments).env("GIT_OPTIONAL_LOCKS", "0").output().ok()
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]).filter(|output| output.status.success())?;
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    let clean = git(&["diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)results"])?.status.success();
    Some(if clean { head } else { format!("{head}-dirty") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_the_ends_of_its_repeats() {
        let figure = BenchFigure::from_range("a.b", "ms", &[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((figure.median, figure.low, figure.high, figure.n), (2.5, 1.0, 10.0, 4));
        assert_eq!(BenchFigure::from_range("a", "", &[7.0]).unwrap().median, 7.0);
        assert_eq!(BenchFigure::from_range("a", "", &[]), None);
    }

    #[test]
    fn the_record_is_an_argument_of_its_own() {
        let (file, others) = asked(["31", "--record", "a.json", "--cold"].map(str::to_owned));
        assert_eq!((file, others), (Some(PathBuf::from("a.json")), vec!["31".to_owned(), "--cold".to_owned()]));
        assert_eq!(asked(std::iter::empty()), (None, Vec::new()));
    }

    #[test]
    fn changes_are_told_from_new_results() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            let ran = Command::new("git").arg("-C").arg(folder.path()).args(user).args(arguments).output().unwrap();
            assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        git(&["init", "-q"]);
        std::fs::create_dir(folder.path().join("results")).unwrap();
        write("code", "1");
        write("results/note", "1");
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "a"]);
        let flaw = || BenchRecord::new("bench", folder.path(), Vec::new()).flaw();
        assert_eq!(flaw(), None);
        write("results/note", "2");
        assert_eq!(flaw(), None);
        write("code", "2");
        assert!(flaw().is_some_and(|flaw| flaw.contains("-dirty")));
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let figures = vec![BenchFigure::from_range("line_50.useful", "MB/s", &[49.4, 49.5]).unwrap()];
        let record = BenchRecord { commit: None, ..BenchRecord::new("bench 1", folder.path(), figures) };
        let path = folder.path().join("a.json");
        record.write(&path).unwrap();
        assert_eq!(BenchRecord::read(&path).unwrap(), record);
        assert!(record.flaw().is_some());
    }
}
