use std::path::Path;

use serde_json::{Map, Value, json};

use super::file::identity;
use super::options::NoteOptions;
use super::{earlier, links, pictures, prose};
use crate::exit::Failure;
use crate::launch::status::Attempt;
use crate::ledger::MeasuredJob;
use crate::project::Project;
use crate::report::bottleneck::OTHER;
use crate::report::frontmatter::Frontmatter;
use crate::report::sections::{self, Titled};
use crate::report::{Bearing, Picture, Warning, format, warnings};

/// All that a template is given; docs/notes.md lists it, and a test holds the two together.
pub(super) fn values(
    project: &Project,
    job: &MeasuredJob,
    again: &[Attempt],
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<Value, Failure> {
    let record = &job.record;
    let experiment = job.runs.first().map(|r| &r.trial.settings.experiment);
    let title = experiment.map(|e| e.title.as_str()).filter(|t| !t.is_empty()).unwrap_or(record.config.as_str());
    let titled = |all: Vec<Titled>| -> Vec<Value> {
        all.into_iter().map(|t| json!({ "label": t.label, "table": t.table, "sentence": t.sentence })).collect()
    };
    let results = sections::Results::of(job);
    let verdicts = results.verdicts();
    let warnings = warnings(job, results.lines());
    let (folded, shown_warnings): (Vec<_>, Vec<_>) =
        warnings.iter().partition(|warning| warning.bearing == Bearing::ChangesNoVerdict);
    let texts = |all: &[&Warning]| json!(all.iter().map(|warning| &warning.text).collect::<Vec<_>>());
    let folder = path.parent().unwrap_or(project.root());
    let to_name = |name: &String| links::to_name(folder, name, options);
    let plot = pictures::link(&pictures::learning(path));
    let learning = sections::learning(job, &plot).map(serde_json::to_value).transpose();
    let isolation = sections::isolation(job, &results).map(serde_json::to_value).transpose();
    let usage = sections::usage(job);
    let values = [
        ("frontmatter", json!(Frontmatter::for_note(path).render(&format!("{title} ({})", record.job), ""))),
        ("identity", json!(identity(record))),
        ("day", json!(format::day(record.submitted))),
        ("title", json!(title)),
        ("job", json!(record.job)),
        ("config", json!(record.config)),
        ("study", json!(record.study)),
        ("submitted", json!(format::moment(record.submitted))),
        ("backend", json!(record.backend)),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("description", json!(experiment.map_or("", |e| e.description.trim()))),
        ("continues", json!(experiment.map(|e| &e.continues).filter(|name| !name.is_empty()).map(to_name))),
        ("links", json!(experiment.iter().flat_map(|e| &e.links).map(to_name).collect::<Vec<_>>())),
        ("measures", json!(experiment.map(|e| e.measures.clone()).unwrap_or_default())),
        ("does_not_measure", json!(experiment.map(|e| e.does_not_measure.clone()).unwrap_or_default())),
        ("modes", json!(prose::measures_of_modes(job))),
        ("warnings", texts(&warnings.iter().collect::<Vec<_>>())),
        ("shown_warnings", texts(&shown_warnings)),
        ("folded_warnings", texts(&folded)),
        ("results", json!(results.table().markdown())),
        ("shuffle", json!(sections::shuffle(job).map(|t| t.markdown()))),
        ("usage", json!(usage.as_ref().map(|u| u.table.markdown()))),
        ("sampled", json!(usage.as_ref().filter(|u| u.sampled).map(|u| json!({ "gpu": u.gpu })))),
        ("bottlenecks", json!(results.bottlenecks())),
        ("masks_in_step", json!(results.masks_in_step())),
        ("other", json!(OTHER)),
        ("verdicts", json!(verdicts)),
        ("findings", json!(prose::findings(&verdicts))),
        ("causes", json!(prose::causes(job))),
        ("step_times", json!(results.step_times().markdown())),
        ("epochs", json!(sections::epochs(job))),
        ("comparison", json!(earlier::comparison(project, job, options))),
        ("earlier", json!(earlier::links(project, folder, job, options))),
        ("methods", json!(prose::methods(job))),
        ("pictures", json!(shown)),
        ("learning", json!(learning.map_err(Failure::internal)?)),
        ("isolation", json!(isolation.map_err(Failure::internal)?)),
        ("scaling", json!(sections::scaling(job))),
        ("estimated", json!(titled(sections::estimated(job)))),
        ("published", json!(sections::published(project, job))),
        ("mixed_modes", json!(sections::mixed_modes(job))),
        ("steps_of", json!("the measured steps of all completed runs")),
        ("breakdowns", json!(titled(sections::breakdowns(job)))),
        ("operations", json!(titled(sections::operations(job)))),
        ("profile", json!(sections::profile(project, job))),
        ("ranks", json!(titled(sections::ranks(job)))),
        ("common", json!(sections::common(job))),
        ("differences", json!(sections::variant_differences(job).map(|t| t.markdown()))),
        ("data_read", json!(sections::data_read(job))),
        ("trials", json!(sections::trials(job).markdown())),
        ("attempts", json!((!again.is_empty()).then(|| sections::attempts(again, false).markdown()))),
        (
            "slurm",
            json!(sections::slurm(job).map(|(table, notes)| json!({ "table": table.markdown(), "notes": notes }))),
        ),
        ("location", json!(prose::location(project, job))),
        ("provenance", json!(sections::provenance(job))),
    ];
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into())
}
