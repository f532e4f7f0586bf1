//! How large the data that a job would build will be, and whether they fit on the disk that they go to: before anything is built.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use expctl_datasets::array::{ArrayDataset, ArrayRecipe};
use expctl_datasets::graph::{Dataset, Recipe};
use expctl_datasets::{DatasetError, array as arrays, graph as graphs};
use expctl_settings::{ArrayFormat, Data, StoreKind, Trial};
use expctl_text::format::{bytes, count};

use super::data_state::{DataState, StoredForm};
use crate::exit::{Exit, Failure};
use crate::project::Project;

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

/// A file system that folders go to.
#[derive(Clone, Debug)]
struct Disk {
    /// The folder by which it was found: the nearest one above what is to be built that is there.
    folder: PathBuf,
    /// Number of the file system; none where it is not known.
    device: Option<u64>,
    /// Bytes that are free; none where the file system does not say.
    free: Option<u64>,
    /// Folders to be built on it.
    folders: u64,
    /// Bytes that are still to be written of these.
    missing: u64,
}

impl Disk {
    fn of(folder: &Path) -> Self {
        let folder = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder).to_owned();
        let device = folder.metadata().ok().map(|about| about.dev());
        let free = expctl_datasets::free_bytes(&folder).ok();
        Self { folder, device, free, folders: 0, missing: 0 }
    }
}

/// The folders that would be built, and the disks that they go to.
#[derive(Clone, Debug)]
pub struct DataSize {
    expected: BTreeMap<PathBuf, Expected>,
    /// That of all data sets first. A data set may be a link to a folder on another one.
    disks: Vec<Disk>,
}

impl DataSize {
    /// Of all that `trials` read and that is missing, as `states` say. A folder whose recipe cannot be read is left out.
    pub fn of(project: &Project, trials: &[Trial], states: &BTreeMap<PathBuf, DataState>) -> Self {
        let mut expected = BTreeMap::new();
        for trial in trials {
            let Some(form) = StoredForm::from_settings(&trial.settings) else { continue };
            for (folder, part) in parts(&trial.data_dir, form) {
                let missing = matches!(states.get(&folder), Some(DataState::Missing));
                if !missing || expected.contains_key(&folder) {
                    continue;
                }
                if let Ok(found) = size(project, &trial.settings.data, part) {
                    let there = graphs::unfinished_bytes(&folder).min(found);
                    let at_most = matches!(part, StoredForm::Array(format) if format != ArrayFormat::H5ad);
                    expected.insert(folder, Expected { bytes: found, there, at_most });
                }
            }
        }
        let mut disks = vec![Disk::of(project.data())];
        for (folder, of) in &expected {
            let disk = Disk::of(folder);
            let known = disks.iter().position(|known| known.device == disk.device);
            let at = known.unwrap_or_else(|| {
                disks.push(disk);
                disks.len() - 1
            });
            disks[at].folders += 1;
            disks[at].missing = disks[at].missing.saturating_add(of.bytes - of.there);
        }
        Self { expected, disks }
    }

    /// What a folder will take; none of one that is there, and of one whose recipe cannot be read.
    pub fn of_folder(&self, folder: &Path) -> Option<&Expected> {
        self.expected.get(folder)
    }

    /// Bytes that are free where data sets go.
    pub fn free(&self) -> Option<u64> {
        self.disks.first().and_then(|disk| disk.free)
    }

    /// `12 GB are to be written (estimated), 80.1 GB are free in /data`, for each disk; none where nothing is to be built.
    pub fn summary(&self) -> Option<String> {
        let of_disk = |disk: &Disk| {
            let (missing, folder) = (bytes(disk.missing as f64), disk.folder.display());
            let free = match disk.free {
                Some(free) => format!("{} are free in {folder}", bytes(free as f64)),
                None => format!("how much is free in {folder} is not known"),
            };
            format!("{missing} are to be written (estimated), {free}")
        };
        let said: Vec<String> = self.disks.iter().filter(|disk| disk.folders > 0).map(of_disk).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Refuse what does not fit, before hours of building the part of it that does.
    ///
    /// # Errors
    /// Exit 3 where more is to be written to a disk than is free there.
    pub fn refuse(&self) -> Result<(), Failure> {
        let too_much = |disk: &Disk| disk.free.filter(|free| disk.missing > *free).map(|free| (disk.clone(), free));
        let Some((disk, free)) = self.disks.iter().find_map(too_much) else { return Ok(()) };
        let what = count(disk.folders, "folder");
        let message = format!(
            "the data do not fit: {what} to be built take {} more, estimated from the recipe, and {} are free in {}",
            bytes(disk.missing as f64),
            bytes(free as f64),
            disk.folder.display()
        );
        Err(Failure::new(Exit::Config, message)
            .hint("fewer data.samples need less, and so does another pipeline.store or array.format; EXPCTL_DATA moves data sets to another disk"))
    }
}

/// The folders that a trial with data in `folder` reads, each with what is in it: the data set, and a store that is made from it.
fn parts(folder: &Path, form: StoredForm) -> Vec<(PathBuf, StoredForm)> {
    let made = match form {
        StoredForm::Graph(StoreKind::Json) | StoredForm::Array(ArrayFormat::H5ad) => None,
        StoredForm::Graph(kind) => Some(Dataset::store_folder_in(folder, kind)),
        StoredForm::Array(format) => Some(ArrayDataset::store_folder_in(folder, format)),
    };
    let base = match form {
        StoredForm::Graph(_) => StoredForm::Graph(StoreKind::Json),
        StoredForm::Array(_) => StoredForm::Array(ArrayFormat::H5ad),
    };
    std::iter::once((folder.to_owned(), base)).chain(made.map(|made| (made, form))).collect()
}

fn size(project: &Project, data: &Data, part: StoredForm) -> Result<u64, DatasetError> {
    let study = project.study(&data.set);
    match part {
        StoredForm::Graph(kind) => graphs::expected_bytes(&Recipe::load(&study)?, data, kind),
        StoredForm::Array(format) => Ok(arrays::expected_bytes(&ArrayRecipe::load(&study)?, data, format)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: u64, there: u64, free: Option<u64>) -> DataSize {
        let expected = BTreeMap::from([(PathBuf::from("/d/a"), Expected { bytes, there, at_most: false })]);
        DataSize { expected, disks: vec![disk(1, bytes - there, free)] }
    }

    fn disk(folders: u64, missing: u64, free: Option<u64>) -> Disk {
        Disk { folder: PathBuf::from("/d"), device: None, free, folders, missing }
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
        let none = DataSize { expected: BTreeMap::new(), disks: vec![disk(0, 0, Some(0))] };
        assert!(none.refuse().is_ok() && none.summary().is_none());
    }

    #[test]
    fn each_disk_has_to_hold_what_goes_to_it() {
        let two = |free: u64| {
            let other = Disk { folder: PathBuf::from("/e"), ..disk(1, 700, Some(1000)) };
            DataSize { expected: BTreeMap::new(), disks: vec![disk(2, 700, Some(free)), other] }
        };
        // Together more than is free on either.
        assert!(two(1000).refuse().is_ok());
        let failure = two(600).refuse().unwrap_err();
        assert!(failure.message.contains("2 folders to be built take 700 B more"), "{}", failure.message);
        let summary = two(1000).summary().unwrap();
        let said = "700 B are to be written (estimated), 1 kB are free in /d; 700 B are to be written (estimated), 1 kB are free in /e";
        assert_eq!(summary, said);
    }

    #[test]
    fn sizes_are_said_with_what_is_there() {
        let expected = Expected { bytes: 8_100_000_000, there: 2_300_000_000, at_most: true };
        assert_eq!(expected.to_string(), "at most about 8.1 GB, 2.3 GB of it are there");
        assert_eq!(Expected { there: 0, at_most: false, ..expected }.to_string(), "about 8.1 GB");
    }
}
