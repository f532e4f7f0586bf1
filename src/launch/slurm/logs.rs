//! Where the batch scripts of a job print.

use std::path::PathBuf;

use expctl_record::{JobDir, JobRecord};

use super::arrays::Arrays;
use crate::exit::Failure;

/// The file of the task that makes the newest attempt of each trial; none for a trial that no array has. Trials of one task
/// share it. The files need not exist.
///
/// # Errors
/// The list of arrays cannot be read.
pub fn script_logs(folder: &JobDir, record: &JobRecord) -> Result<Vec<Option<PathBuf>>, Failure> {
    let trials = record.trials.len();
    let places = Arrays::load(folder, record.job, trials)?.places(trials);
    Ok(places.into_iter().map(|place| Some(folder.path().join(place?.log()))).collect())
}
