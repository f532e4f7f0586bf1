//! How large the data that a job would build will be, and whether they fit on the disk that they go to: before anything is built.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::dataset::{self as arrays, ArrayDataset, ArrayRecipe};
use expctl_pipeline::dataset::{self as graphs, Dataset, Recipe};
use expctl_record::{ArrayFormat, Data, StoreKind, Trial};

use crate::data_state::{DataState, Wanted};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::report::format::{bytes, count};

/// What a folder that is not there will take on disk. Estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// All of it, bytes.
    pub bytes: u64,
    /// What a build that was stopped has left of it, bytes.
    pub there: u64,
    /// Whether this is the most that it takes: what compression saves is not known.
    pub at_most: bool,
}

/// `about 854 GB`, `at most about 8.1 GB, 2.3 GB of it are there`.
impl Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}about {}", if self.at_most { "at most " } else { "" }, bytes(self.bytes as f64))?;
        if self.there > 0 { write!(f, ", {} of it are there", bytes(self.there as f64)) } else { Ok(()) }
    }
}

/// The folders that would be built, and the disk that they go to.
#[derive(Clone, Debug)]
pub struct DataSize {
    expected: BTreeMap<PathBuf, Expected>,
    /// Folder of all data sets, or the nearest one above it that is there.
    disk: PathBuf,
    /// Bytes that are free there; none where the file system does not say.
    free: Option<u64>,
}

impl DataSize {
    /// Of all that `trials` read and that is missing, as `states` say. A folder whose recipe cannot be read is left out.
    pub fn of(project: &Project, trials: &[Trial], states: &BTreeMap<PathBuf, DataState>) -> Self {
        let mut expected = BTreeMap::new();
        for trial in trials {
            let Some(wanted) = Wanted::of(&trial.settings) else { continue };
            for (folder, part) in parts(&trial.data_dir, wanted) {
                let missing = matches!(states.get(&folder), Some(DataState::Missing));
                if !missing || expected.contains_key(&folder) {
                    continue;
                }
                if let Ok(found) = size(project, &trial.settings.data, part) {
                    let there = graphs::unfinished_bytes(&folder).min(found);
                    let at_most = matches!(part, Wanted::Array(format) if format != ArrayFormat::H5ad);
                    expected.insert(folder, Expected { bytes: found, there, at_most });
                }
            }
        }
        let above = project.data().ancestors().find(|folder| folder.is_dir());
        let disk = above.unwrap_or(project.root()).to_owned();
        let free = graphs::free_bytes(&disk).ok();
        Self { expected, disk, free }
    }

    /// What a folder will take; none of one that is there, and of one whose recipe cannot be read.
    pub fn of_folder(&self, folder: &Path) -> Option<&Expected> {
        self.expected.get(folder)
    }

    /// Bytes that are free where data sets go.
    pub fn free(&self) -> Option<u64> {
        self.free
    }

    /// Bytes that are still to be written.
    pub fn missing(&self) -> u64 {
        self.expected.values().fold(0, |sum: u64, of| sum.saturating_add(of.bytes - of.there))
    }

    /// `12 GB are to be written (estimated), 80.1 GB are free in /data`; none where nothing is to be built.
    pub fn summary(&self) -> Option<String> {
        if self.expected.is_empty() {
            return None;
        }
        let (missing, disk) = (bytes(self.missing() as f64), self.disk.display());
        let free = match self.free {
            Some(free) => format!("{} are free in {disk}", bytes(free as f64)),
            None => format!("how much is free in {disk} is not known"),
        };
        Some(format!("{missing} are to be written (estimated), {free}"))
    }

    /// Refuse what does not fit, before hours of building the part of it that does.
    ///
    /// # Errors
    /// Exit 3 where more is to be written than is free.
    pub fn refuse(&self) -> Result<(), Failure> {
        let (Some(free), missing) = (self.free, self.missing()) else { return Ok(()) };
        if missing <= free {
            return Ok(());
        }
        let what = count(self.expected.len() as u64, "folder");
        let message = format!(
            "the data do not fit: {what} to be built take {} more, estimated from the recipe, and {} are free in {}",
            bytes(missing as f64),
            bytes(free as f64),
            self.disk.display()
        );
        Err(Failure::new(Exit::Config, message)
            .hint("fewer data.samples need less, and so does another pipeline.store or array.format; EXPCTL_DATA moves data sets to another disk"))
    }
}

/// The folders that a trial with data in `folder` reads, each with what is in it: the data set, and a store that is made from it.
fn parts(folder: &Path, wanted: Wanted) -> Vec<(PathBuf, Wanted)> {
    let made = match wanted {
        Wanted::Graph(StoreKind::Json) | Wanted::Array(ArrayFormat::H5ad) => None,
        Wanted::Graph(kind) => Some(Dataset::store_folder_in(folder, kind)),
        Wanted::Array(format) => Some(ArrayDataset::store_folder_in(folder, format)),
    };
    let base = match wanted {
        Wanted::Graph(_) => Wanted::Graph(StoreKind::Json),
        Wanted::Array(_) => Wanted::Array(ArrayFormat::H5ad),
    };
    std::iter::once((folder.to_owned(), base)).chain(made.map(|made| (made, wanted))).collect()
}

fn size(project: &Project, data: &Data, part: Wanted) -> Result<u64, PipelineError> {
    let study = project.study(&data.set);
    match part {
        Wanted::Graph(kind) => graphs::expected_bytes(&Recipe::load(&study)?, data, kind),
        Wanted::Array(format) => Ok(arrays::expected_bytes(&ArrayRecipe::load(&study)?, data, format)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: u64, there: u64, free: Option<u64>) -> DataSize {
        let expected = BTreeMap::from([(PathBuf::from("/d/a"), Expected { bytes, there, at_most: false })]);
        DataSize { expected, disk: PathBuf::from("/d"), free }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let published = sized(853_500_000_000, 0, Some(80_100_000_000));
        let failure = published.refuse().unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        let said = "1 folder to be built take 854 GB more, estimated from the recipe, and 80.1 GB are free in /d";
        assert!(failure.message.contains(said), "{}", failure.message);
        let summary = "854 GB are to be written (estimated), 80.1 GB are free in /d";
        assert_eq!(published.summary().as_deref(), Some(summary));
        // What a stopped build has left need not be written again.
        assert!(sized(853_500_000_000, 800_000_000_000, Some(80_100_000_000)).refuse().is_ok());
        assert!(sized(10, 0, Some(10)).refuse().is_ok() && sized(11, 0, Some(10)).refuse().is_err());
        // Where nobody knows what is free, the build says it.
        assert!(sized(u64::MAX, 0, None).refuse().is_ok());
        let none = DataSize { expected: BTreeMap::new(), disk: PathBuf::from("/d"), free: Some(0) };
        assert!(none.refuse().is_ok() && none.summary().is_none());
    }

    #[test]
    fn sizes_are_said_with_what_is_there() {
        let expected = Expected { bytes: 8_100_000_000, there: 2_300_000_000, at_most: true };
        assert_eq!(expected.to_string(), "at most about 8.1 GB, 2.3 GB of it are there");
        assert_eq!(Expected { there: 0, at_most: false, ..expected }.to_string(), "about 8.1 GB");
    }
}
