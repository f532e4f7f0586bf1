use std::path::Path;

use super::file::{Known, known_notes};
use super::links::to_note;
use super::options::NoteOptions;
use crate::ledger::{Ledger, MeasuredJob};
use crate::project::Project;
use crate::report::compare::{Comparison, Format, measured_rows};

/// How many earlier jobs a note stands beside: each one is read with all its steps.
const COMPARED: usize = 3;

/// Links to the notes of earlier jobs of the same config or study that lie in the folder, the latest first, and why each is there.
pub(super) fn links(project: &Project, folder: &Path, job: &MeasuredJob, options: &NoteOptions) -> Vec<String> {
    let record = &job.record;
    let study_of = |note: &Known| {
        let dir = project.job(note.job);
        let found = dir.record_path().exists().then(|| dir.record().ok()).flatten()?;
        (found.submitted == note.submitted).then_some(found.study)
    };
    let mut notes: Vec<(Known, &str)> = known_notes(folder)
        .into_iter()
        .filter(|note| note.submitted < record.submitted)
        .filter_map(|note| match () {
            () if note.config == record.config => Some((note, "same config")),
            () if study_of(&note).is_some_and(|study| study == record.study) => Some((note, "same study")),
            () => None,
        })
        .collect();
    notes.sort_by_key(|(note, why)| (*why, std::cmp::Reverse(note.submitted)));
    notes
        .iter()
        .map(|(note, why)| format!("job {}, config `{}` ({why}): {}", note.job, note.config, to_note(note, options)))
        .collect()
}

/// The job beside the last earlier ones of its config, as `expctl compare` shows them; alone where there are none, or none that
/// compares.
pub(super) fn comparison(project: &Project, job: &MeasuredJob) -> Option<String> {
    let record = &job.record;
    let mut earlier: Vec<(i64, u64)> = Vec::new();
    let ids = Ledger::open(project).map(|ledger| ledger.measured_ids()).unwrap_or_default();
    for id in ids.into_iter().filter(|id| *id != record.job) {
        match project.job(id).record() {
            Ok(other) if other.config == record.config && other.submitted < record.submitted => {
                earlier.push((other.submitted, id));
            }
            _ => {}
        }
    }
    earlier.sort_unstable_by(|a, b| b.cmp(a));
    let own = measured_rows(job);
    let mut jobs = vec![own.clone()];
    for (_, id) in earlier.into_iter().take(COMPARED) {
        if let Ok(other) = MeasuredJob::load(&project.job(id)) {
            jobs.push(measured_rows(&other));
        }
    }
    let comparison = Comparison::new(&jobs, 0).or_else(|_| Comparison::new(&[own], 0)).ok()?;
    comparison.render(Format::Markdown).ok()
}
