//! The values that the template of a note is given.

use std::collections::BTreeSet;
use std::path::Path;

use expctl_ledger::{Attempt, JobRecord, Ledger, MeasuredJob, PublishedError, Run};
use expctl_text::Frontmatter;
use expctl_text::format::{self, MISSING};
use serde_json::{Map, Value, json};

use super::file::{KnownNote, identity, known_notes, link_to_name, link_to_note};
use super::head::{bottleneck, causes, next_change, no_answer, no_cause, trust};
use super::measures::{measures_of_modes, not_shown};
use super::{NoteOptions, Picture, learning_picture, picture_link, shown_path};
use crate::console::say;
use crate::exit::Failure;
use crate::ledger::{ListedJob, all_keys, flatten_in_job};
use crate::project::Project;
use crate::report::attempts::attempts_table;
use crate::report::bottleneck::OTHER;
use crate::report::caution::Bearing;
use crate::report::compare::{CompareError, Comparison, Format, Published};
use crate::report::emulation::AU_MEANING;
use crate::report::learning::learning;
use crate::report::scaling::scaling;
use crate::report::sections::breakdowns::breakdowns;
use crate::report::sections::configuration::{
    common_settings, data_read, shuffle, variant_differences, variant_settings,
};
use crate::report::sections::epochs::epochs;
use crate::report::sections::estimated::estimated;
use crate::report::sections::isolation::{isolation, loading_answers};
use crate::report::sections::profiler::{operations, trace_summaries};
use crate::report::sections::provenance::{provenance, slurm_usage, trials};
use crate::report::sections::ranks::ranks;
use crate::report::sections::results::{Results, mixed_modes};
use crate::report::sections::stages::stage_tables;
use crate::report::sections::usage::usage;
use crate::report::sections::{MAX_ROWS, MAX_RUN_ROWS, TitledTable};
use crate::report::variant_row::{VariantRow, measured_rows};
use crate::report::warning::{Warning, by_cause, warnings};

/// All values for a template. docs/guide/notes.md lists them, and a test compares the two.
pub fn values(
    project: &Project,
    job: &MeasuredJob,
    attempts: &[Attempt],
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<Value, Failure> {
    let record = &job.record;
    let experiment = job.runs.first().map(|r| &r.trial.settings.experiment);
    let title = experiment.map(|e| e.title.as_str()).filter(|t| !t.is_empty()).unwrap_or(record.config.as_str());
    let titled = |mut all: Vec<TitledTable>| -> Vec<Value> {
        if all.len() > MAX_ROWS {
            let label = format!("{} more", format::thousands((all.len() - MAX_ROWS) as u64));
            let sentence = format!("They are left out; `expctl export {}` has the steps of all trials.", record.job);
            all.truncate(MAX_ROWS);
            all.push(TitledTable { label, table: String::new(), sentence });
        }
        all.into_iter().map(|t| json!({ "label": t.label, "table": t.table, "sentence": t.sentence })).collect()
    };
    let results = Results::from_job(job);
    let verdicts = results.verdicts();
    let warnings = warnings(job, results.lines());
    let rows = results.rows();
    // Without a baseline all rows answer.
    let answering = Some(results.answering_rows()).filter(|rows| !rows.is_empty()).unwrap_or_else(|| rows.clone());
    let lead = results.lead();
    let next = lead.map(|(row, _)| next_change(&options.suggest.of_variant(job, &row.label), row, record.job));
    let (folded, shown_warnings): (Vec<_>, Vec<_>) =
        warnings.iter().partition(|warning| warning.bearing == Bearing::ChangesNoVerdict);
    let texts = |all: &[&Warning]| json!(by_cause(all));
    let folder = path.parent().unwrap_or(project.root());
    let to_name = |name: &String| link_to_name(folder, name, &options.links);
    let plot = picture_link(&learning_picture(path));
    let learning = learning(job, &plot).map(serde_json::to_value).transpose();
    let isolation = isolation(job, &results).map(serde_json::to_value).transpose();
    let settings = variant_settings(job);
    let usage = usage(job);
    let (usage_beside, usage_apart) = match &usage {
        Some(usage) if usage.is_narrow() => (Some(usage), None),
        usage => (None, usage.as_ref()),
    };
    let not_shown = not_shown(job);
    let slurm = slurm_usage(job).map(|(table, notes)| (table.at_most(MAX_RUN_ROWS).markdown(), notes));
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
        ("purpose", json!(purpose(record))),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("description", json!(experiment.map_or("", |e| e.description.trim()))),
        ("continues", json!(experiment.map(|e| &e.continues).filter(|name| !name.is_empty()).map(to_name))),
        ("links", json!(experiment.iter().flat_map(|e| &e.links).map(to_name).collect::<Vec<_>>())),
        ("measures", json!(experiment.map(|e| e.measures.clone()).unwrap_or_default())),
        ("does_not_measure", json!(experiment.map(|e| e.does_not_measure.clone()).unwrap_or_default())),
        ("modes", json!(measures_of_modes(job))),
        ("warnings", texts(&warnings.iter().collect::<Vec<_>>())),
        ("shown_warnings", texts(&shown_warnings)),
        ("folded_warnings", texts(&folded)),
        ("results", json!(results_table(&results, record.job))),
        ("shuffle", json!(shuffle(job).map(|t| t.at_most(MAX_ROWS).markdown()))),
        ("usage", json!(usage_apart.map(|usage| usage.table().at_most(MAX_ROWS).markdown()))),
        ("sampled", json!(usage.as_ref().filter(|u| u.sampled).map(|u| json!({ "gpu": u.gpu })))),
        ("emulated", json!(results.emulated())),
        ("side_by_side", json!(results.side_by_side())),
        ("packed", json!(rows.iter().any(|row| row.counted() == "pack"))),
        ("au", json!(AU_MEANING)),
        ("bottlenecks", json!(results.bottlenecks())),
        ("masks_in_step", json!(results.masks_in_step())),
        ("other", json!(OTHER)),
        ("verdicts", json!(verdicts)),
        ("tests", json!(results.tests().map(|table| table.at_most(MAX_ROWS).markdown()))),
        ("remarks", json!(results.remarks())),
        ("answers", json!(answers_with(job, &results))),
        ("best_points", json!(results.best_points())),
        ("others", json!(without_tests(results.other_findings()))),
        ("no_answer", json!(no_answer(lead.map(|(row, _)| row), &rows))),
        ("bottleneck", json!(bottleneck(lead))),
        ("next_change", json!(next)),
        ("not_shown", json!(not_shown.line)),
        ("not_shown_rest", json!(not_shown.rest)),
        ("trust", json!(trust(&rows, &shown_warnings))),
        ("findings", json!(without_tests(results.findings()))),
        ("causes", json!(causes(&answering))),
        ("no_cause", json!(no_cause(&rows, &answering))),
        ("step_times", json!(results.step_times(usage_beside).at_most(MAX_ROWS).markdown())),
        ("epochs", json!(epochs(job, &rows))),
        ("comparison", json!(comparison(project, job, &rows, options))),
        ("earlier", json!(earlier_notes(project, folder, job, options))),
        ("methods", json!(methods(job, &rows))),
        ("pictures", json!(shown)),
        ("learning", json!(learning.map_err(Failure::internal)?)),
        ("isolation", json!(isolation.map_err(Failure::internal)?)),
        ("scaling", json!(scaling(job, &rows))),
        ("estimated", json!(titled(estimated(job)))),
        ("published", json!(published(project, &rows))),
        ("mixed_modes", json!(mixed_modes(job))),
        ("steps_of", json!("the measured steps of all completed runs")),
        ("breakdowns", json!(titled(breakdowns(job)))),
        ("stages", json!(stage_tables(job, &results.labels()))),
        ("operations", json!(titled(operations(job)))),
        ("profile", json!(trace_summaries(&project.job(record.job), job))),
        ("ranks", json!(titled(ranks(job)))),
        ("common", json!(common_settings(job, &settings))),
        ("differences", json!(variant_differences(&settings).map(|t| t.at_most(MAX_ROWS).markdown()))),
        ("data_read", json!(data_read(job))),
        ("trials", json!(trials(job).at_most(MAX_RUN_ROWS).markdown())),
        (
            "attempts",
            json!((!attempts.is_empty()).then(|| attempts_table(attempts, false).at_most(MAX_RUN_ROWS).markdown())),
        ),
        ("slurm", json!(slurm.map(|(table, notes)| json!({ "table": table, "notes": notes })))),
        ("location", json!(location(project, job))),
        ("provenance", json!(provenance(job))),
    ];
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into())
}

/// The table of results; where it leaves rows out, with a sentence on what has all.
fn results_table(results: &Results<'_>, job: u64) -> String {
    let table = results.table().at_most(MAX_ROWS).markdown();
    let n = results.rows().len();
    if n <= MAX_ROWS {
        return table;
    }
    let (ask, n) = (format!("`expctl compare {job} --format csv`"), format::thousands(n as u64));
    format!("{table}\n\nThe tables of this note leave out their middle: {ask} has all {n} variants.")
}

/// What a job was run for, if not for its own trials, and the command that shows what came of it.
fn purpose(record: &JobRecord) -> Option<String> {
    if let Some(search) = &record.search {
        let conf = record.config_path.display();
        let round = search.round;
        return Some(format!(
            "Round {round} of a search for the fastest settings; `expctl search {conf}` shows what it found"
        ));
    }
    let verifies = record.verifies.as_ref()?;
    Some(format!("Verifies what was predicted from job {0}; `expctl predict {0}` shows both", verifies.job))
}

/// What a job answers, a sentence for each baseline; none if it has no comparison.
pub fn answers(job: &MeasuredJob) -> Vec<String> {
    answers_with(job, &Results::from_job(job))
}

fn answers_with(job: &MeasuredJob, results: &Results<'_>) -> Vec<String> {
    loading_answers(job).into_iter().chain(results.answers()).collect()
}

/// Maximum number of earlier jobs in the comparison of a note: each is read with all its steps.
const MAX_COMPARED: usize = 3;

/// Links to the notes of earlier jobs of the same config or study in the folder, the latest first, each with its reason.
fn earlier_notes(project: &Project, folder: &Path, job: &MeasuredJob, options: &NoteOptions) -> Vec<String> {
    let record = &job.record;
    let study_of = |note: &KnownNote| {
        let found = project.job(note.job).head().ok()?;
        (found.submitted == note.submitted).then_some(found.study)
    };
    let mut notes: Vec<(KnownNote, &str)> = known_notes(folder)
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
        .map(|(note, why)| {
            format!("job {}, config `{}` ({why}): {}", note.job, note.config, link_to_note(note, &options.links))
        })
        .collect()
}

/// The job beside the last earlier ones of its config, as a comparison, if there are some that compare. Below it: which of them are
/// missing, and why. An earlier job without a completed trial is left out.
fn comparison(project: &Project, job: &MeasuredJob, rows: &[&VariantRow], options: &NoteOptions) -> Option<String> {
    let mut missing: Vec<String> = Vec::new();
    let mut earlier: Vec<(i64, u64)> = match (options.alone, &options.listed) {
        (true, _) => Vec::new(),
        (false, Some(listed)) => {
            let of_config =
                listed.iter().filter(|other| other.job != job.record.job && other.config == job.record.config);
            of_config.map(|other| (other.submitted, other.job)).collect()
        }
        (false, None) => jobs_of_config(project, &job.record).unwrap_or_else(|error| {
            missing.push(format!("Earlier jobs are missing: {}", reason(project, &error.to_string())));
            Vec::new()
        }),
    };
    earlier.retain(|(submitted, _)| *submitted < job.record.submitted);
    earlier.sort_unstable_by(|a, b| b.cmp(a));
    if rows.len() > MAX_ROWS && !earlier.is_empty() {
        // The table would be as long as that of the results, and reading all those trials takes as long as all else.
        let others: Vec<String> = earlier.iter().take(MAX_COMPARED).map(|(_, id)| id.to_string()).collect();
        let ask = format!("expctl compare {} {}", job.record.job, others.join(" "));
        missing.insert(0, format!("Too many variants for a table here: `{ask}` compares them with earlier jobs."));
        return Some(missing.join("\n\n"));
    }
    let mut of_job: Vec<VariantRow> = rows.iter().map(|row| (*row).clone()).collect();
    // They are among the warnings of the note.
    for row in &mut of_job {
        row.cautions.clear();
        row.notes.clear();
    }
    let mut jobs = vec![of_job.clone()];
    for (_, id) in earlier {
        if jobs.len() > MAX_COMPARED {
            break;
        }
        match MeasuredJob::load_without_samples(&project.job(id)) {
            Ok(other) if !other.runs.iter().any(Run::completed) => {}
            Ok(other) => jobs.push(measured_rows(&other)),
            Err(e) => {
                missing.push(format!("Job {id} is missing: {}", reason(project, &e.to_string())));
            }
        }
    }
    let mut together = jobs.len() > 1;
    // Alone, its rows are those of the results; only what a profiler costs is not there.
    let has_profiled = rows.iter().any(|row| row.profiler);
    if !together && !has_profiled {
        return (!missing.is_empty()).then(|| missing.join("\n\n"));
    }
    let comparison = Comparison::new(&jobs, &[], 0).or_else(|refused| {
        together = false;
        let mut why = vec![refused.to_string()];
        if let CompareError::NothingComparable { details } = refused {
            why.extend(details);
        }
        missing.push(format!("Earlier jobs are missing: {}", reason(project, &why.join("; "))));
        Comparison::new(&[of_job], &[], 0)
    });
    let says_more = together || has_profiled;
    let table = comparison.ok().filter(|_| says_more).and_then(|comparison| comparison.render(Format::Markdown).ok());
    let parts: Vec<String> = table.into_iter().chain(missing).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// When the other jobs of a job's config were submitted, with their numbers.
///
/// # Errors
/// The ledger cannot be read.
fn jobs_of_config(project: &Project, record: &JobRecord) -> Result<Vec<(i64, u64)>, PublishedError> {
    let ids: Vec<u64> = Ledger::open(project)?.measured_ids().into_iter().filter(|id| *id != record.job).collect();
    let cache = ListedJob::cache(project);
    // There may be thousands, and only some are of the config.
    let heads = parallel_map::map(&ids, |id| {
        let folder = project.job(*id);
        match cache.get_of_record(&folder) {
            Some(known) => Ok((known.config == record.config, known.submitted)),
            None => folder.head().map(|head| (head.config == record.config, head.submitted)),
        }
    });
    let mut found = Vec::new();
    for (id, head) in ids.into_iter().zip(heads) {
        match head {
            Ok((true, submitted)) => found.push((submitted, id)),
            Ok(_) => {}
            // Its config is not known.
            Err(e) => say(format!("job {id} is not compared with: {e}")),
        }
    }
    Ok(found)
}

/// Published rows and breakdowns that name a variant of the job as the one that repeats them. `None` if nothing names one.
fn published(project: &Project, rows: &[&VariantRow]) -> Option<String> {
    // The comparison with earlier jobs says why published files cannot be read.
    let ledger = Ledger::open(project).ok()?;
    Published::beside_job(&ledger, rows).markdown()
}

/// The message of a failure for a note: without the path of the project, in one line.
fn reason(project: &Project, message: &str) -> String {
    let root = format!("{}/", project.root().display());
    message.replace(&root, "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Findings without their p values, which are below the table of results.
fn without_tests(findings: Vec<String>) -> Vec<String> {
    let cut = |line: String| line.split_once("; p ").map_or(line.clone(), |(finding, _)| finding.to_owned());
    findings.into_iter().map(cut).collect()
}

/// Each variant with the settings that differ and its rates.
fn methods(job: &MeasuredJob, rows: &[&VariantRow]) -> Vec<Value> {
    let groups = job.by_label();
    let settings = flatten_in_job(job, groups.iter().map(|(_, runs)| &runs[0].trial.settings));
    let differs = |key: &&str| {
        let of_first = settings[0].get(*key);
        settings.iter().any(|other| other.get(*key) != of_first)
    };
    let differing: BTreeSet<&str> = all_keys(&settings).into_iter().filter(differs).collect();
    let mut all = Vec::new();
    for (((label, runs), of_variant), row) in groups.iter().zip(&settings).zip(rows) {
        let apart = of_variant.iter().filter(|(key, _)| differing.contains(key.as_str()));
        let apart = apart.map(|(key, value)| format!("{key} = {}", quoted(value)));
        // The version of our own worker is in the provenance.
        let program = runs.iter().flat_map(|run| run.environments()).find_map(|found| found.program.as_ref());
        let apart: Vec<String> = apart.chain(program.map(|facts| format!("program: {}", facts.words()))).collect();
        let rate = |rate: Option<f64>| rate.map_or_else(|| MISSING.to_owned(), format::rate);
        let result = if row.n == 0 {
            "no completed run".to_owned()
        } else {
            let (it, samples) = (rate(row.median_it_per_s()), rate(row.median_samples_per_s()));
            format!("{it} it/s, {samples} samples/s (measured, median, n = {})", row.n)
        };
        all.push(json!({ "label": label, "method": runs[0].trial.method, "settings": apart, "result": result }));
    }
    all
}

fn quoted(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

/// Paths of the raw results, with their contents.
pub fn location(project: &Project, job: &MeasuredJob) -> Vec<Value> {
    let dir = project.job(job.record.job);
    let folder = shown_path(project, dir.record_path().parent().unwrap_or(project.root()));
    let last = job.runs.iter().map(|run| run.trial.id.as_str()).next().unwrap_or("<trial>");
    let of_attempt = "trial.json, env.json, outcome.json, rank-<r>.log, rank-<r>.parquet with a row per step";
    [
        (format!("{folder}/"), "job.json, config.toml, provenance.json, snapshot.json or source.diff"),
        (format!("{folder}/{last}/attempt-<n>/"), of_attempt),
    ]
    .into_iter()
    .map(|(path, what)| json!({ "path": path, "what": what }))
    .collect()
}
