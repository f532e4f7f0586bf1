use std::path::{Path, PathBuf};

use expctl_record::JobDir;
use minijinja::{Environment, context};

use super::bottleneck::OTHER;
use super::frontmatter::Frontmatter;
use super::note_file::{NoteFile, identity};
use super::pictures::{self, Picture};
use super::sections::{self, Titled};
use super::{format, warnings};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::launch::life::{Attempt, lineage};
use crate::ledger::{Ledger, MeasuredJob};
use crate::project::Project;

const TEMPLATE: &str = include_str!("note.md.j2");

/// Write the note of a measured job for what there is of it, and give back where it is: `results/<config>_<job>.md`, or
/// the next free name if that is the note of another submission, which is said on stderr. With it comes the job as it was
/// read.
///
/// # Errors
/// Exit 7 for a job that is not measured here; 70 for a ledger that cannot be read or a note that cannot be written.
pub fn write_note(project: &Project, job: u64) -> Result<(PathBuf, MeasuredJob), Failure> {
    let dir = project.job(job);
    if !dir.record_path().exists() {
        let ledger = Ledger::open(project)?;
        // An unknown job is explained by the ledger; what is left is a published one.
        ledger.find(&job.to_string())?;
        return Err(Failure::new(
            Exit::Refused,
            format!("job {job} is published, not measured here: there are no steps to report"),
        )
        .hint(format!("expctl compare {job} shows what is published")));
    }
    let job = MeasuredJob::load(&dir)?;
    let NoteFile { path, taken } = NoteFile::of(project, &job.record)?;
    if let Some(taken) = taken {
        say(format!(
            "{} is not the note of this submission and stays as it is; writing {}",
            taken.display(),
            path.display()
        ));
    }
    let pictures = pictures::write(&job, &path)?;
    let text = render(&job, &again(&dir, &job)?, &path, &pictures)?;
    expctl_record::write_atomic(&path, text.as_bytes())?;
    Ok((path, job))
}

/// File name of the learning curves beside a note.
fn plot_name(note: &Path) -> String {
    let stem = note.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy());
    format!("{stem}_learning.svg")
}

/// The attempts of those trials that have more than one.
fn again(dir: &JobDir, job: &MeasuredJob) -> Result<Vec<Attempt>, Failure> {
    if job.runs.iter().all(|run| run.attempts < 2) {
        return Ok(Vec::new());
    }
    let mut attempts = lineage(dir, &job.record, None)?;
    attempts.retain(|attempt| job.runs.get(attempt.task).is_some_and(|run| run.attempts > 1));
    Ok(attempts)
}

fn render(job: &MeasuredJob, again: &[Attempt], path: &Path, pictures: &[Picture]) -> Result<String, Failure> {
    let record = &job.record;
    let experiment = job.runs.first().map(|r| &r.trial.settings.experiment);
    let title = experiment.map(|e| e.title.as_str()).filter(|t| !t.is_empty()).unwrap_or(record.config.as_str());
    let titled = |all: Vec<Titled>| -> Vec<minijinja::Value> {
        all.into_iter().map(|t| context! { label => t.label, table => t.table, sentence => t.sentence }).collect()
    };
    let results = sections::Results::of(job);
    let mut environment = Environment::new();
    // A value that the template forgets is a mistake, not an empty place.
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    let text = environment
        .render_str(
            TEMPLATE,
            context! {
                frontmatter => Frontmatter::for_note(path).render(&format!("{title} ({})", record.job), ""),
                identity => identity(record),
                day => format::day(record.submitted),
                title => title,
                job => record.job,
                config => record.config.as_str(),
                submitted => format::moment(record.submitted),
                backend => record.backend.as_str(),
                version => env!("CARGO_PKG_VERSION"),
                description => experiment.map_or("", |e| e.description.trim()),
                measures => experiment.map(|e| e.measures.clone()).unwrap_or_default(),
                does_not_measure => experiment.map(|e| e.does_not_measure.clone()).unwrap_or_default(),
                warnings => warnings(job),
                results => results.table().markdown(),
                bottlenecks => results.bottlenecks(),
                masks_in_step => results.masks_in_step(),
                other => OTHER,
                verdicts => results.verdicts(),
                step_times => results.step_times().markdown(),
                learning => sections::learning(job, &plot_name(path)),
                pictures => pictures.iter().map(Picture::value).collect::<Vec<_>>(),
                isolation => sections::isolation(job),
                estimated => titled(sections::estimated(job)),
                mixed_modes => sections::mixed_modes(job),
                steps_of => "the measured steps of all completed runs",
                breakdowns => titled(sections::breakdowns(job)),
                ranks => titled(sections::ranks(job)),
                common => sections::common(job),
                differences => sections::variant_differences(job).map(|t| t.markdown()),
                data_read => sections::data_read(job),
                trials => sections::trials(job).markdown(),
                attempts => (!again.is_empty()).then(|| sections::attempts(again, false).markdown()),
                slurm => sections::slurm(job).map(|(table, notes)| context! { table => table.markdown(), notes }),
                provenance => sections::provenance(job),
            },
        )
        .map_err(Failure::internal)?;
    Ok(format!("{}\n", text.trim_end()))
}
