use std::collections::BTreeSet;
use std::path::Path;

use super::file::{Known, known_notes};
use super::links::to_note;
use super::options::NoteOptions;
use crate::console::say;
use crate::project::Project;
use crate::report::compare::{Comparison, Format, measured_rows};
use expctl_record::{Ledger, MeasuredJob, Run};

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
/// compares. Below it stands which of them are missing, and why; an earlier job without a completed trial is left out unnamed.
pub(super) fn comparison(project: &Project, job: &MeasuredJob, options: &NoteOptions) -> Option<String> {
    let record = &job.record;
    let mut earlier: Vec<(i64, u64)> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    let known =
        if options.alone { Ok(BTreeSet::new()) } else { Ledger::open(project).map(|ledger| ledger.measured_ids()) };
    let ids = known.unwrap_or_else(|error| {
        missing.push(format!("Earlier jobs are missing: {}", reason(project, &error.to_string())));
        BTreeSet::new()
    });
    for id in ids.into_iter().filter(|id| *id != record.job) {
        match project.job(id).record() {
            Ok(other) if other.config == record.config && other.submitted < record.submitted => {
                earlier.push((other.submitted, id));
            }
            Ok(_) => {}
            // Of which config it is, is not known.
            Err(e) => say(format!("job {id} is not compared with: {e}")),
        }
    }
    earlier.sort_unstable_by(|a, b| b.cmp(a));
    let mut own = measured_rows(job);
    // The note's own warnings say these.
    for row in &mut own {
        row.cautions.clear();
        row.notes.clear();
    }
    let mut jobs = vec![own.clone()];
    for (_, id) in earlier {
        if jobs.len() > COMPARED {
            break;
        }
        match MeasuredJob::load(&project.job(id)) {
            Ok(other) if !other.runs.iter().any(Run::completed) => {}
            Ok(other) => jobs.push(measured_rows(&other)),
            Err(e) => {
                missing.push(format!("Job {id} is missing: {}", reason(project, &e.to_string())));
            }
        }
    }
    let comparison = Comparison::new(&jobs, 0).or_else(|refused| {
        // Its hints say which job has what.
        let why: Vec<String> = std::iter::once(refused.message).chain(refused.hints).collect();
        missing.push(format!("Earlier jobs are missing: {}", reason(project, &why.join("; "))));
        Comparison::new(&[own], 0)
    });
    let table = comparison.ok().and_then(|comparison| comparison.render(Format::Markdown).ok());
    let parts: Vec<String> = table.into_iter().chain(missing).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// The reason of a failure as a part of a sentence of the note, which others read elsewhere.
fn reason(project: &Project, message: &str) -> String {
    let root = format!("{}/", project.root().display());
    message.replace(&root, "").split_whitespace().collect::<Vec<_>>().join(" ")
}
