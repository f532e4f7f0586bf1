use std::collections::{BTreeMap, BTreeSet};

use super::Row;
use super::row::measured;
use crate::exit::{Exit, Failure};
use expctl_record::{MeasuredJob, Run};

/// A job with its runs of one variant.
type OfJob<'a> = (&'a MeasuredJob, Vec<&'a Run>);

/// The rows of several jobs as if they were one: the runs of a variant together, whichever job they are of.
///
/// # Errors
/// Exit 7 if a variant did not do the same work on the same data in all of them.
pub(super) fn pooled_rows(jobs: &[MeasuredJob]) -> Result<Vec<Row>, Failure> {
    let name = jobs.iter().map(|job| job.record.job.to_string()).collect::<Vec<_>>().join("/");
    let mut found: Vec<(String, Vec<OfJob<'_>>)> = Vec::new();
    for job in jobs {
        for (label, runs) in job.by_label() {
            match found.iter_mut().find(|(known, _)| *known == label) {
                Some((_, all)) => all.push((job, runs)),
                None => found.push((label, vec![(job, runs)])),
            }
        }
    }
    found.into_iter().map(|(label, of_jobs)| pooled(&name, label, &of_jobs)).collect()
}

fn pooled(name: &str, label: String, jobs: &[OfJob<'_>]) -> Result<Row, Failure> {
    let parts: Vec<Row> = jobs.iter().map(|(job, runs)| measured(job, label.clone(), runs)).collect();
    let first = &parts[0];
    for part in &parts[1..] {
        let other = kind(part).into_iter().zip(kind(first)).find(|(part, first)| part != first);
        if let Some(((key, of_part), (_, of_first))) = other {
            let what = format!("{key} is {of_first} in job {} and {of_part} in job {}", first.job, part.job);
            return Err(Failure::new(Exit::Refused, format!("jobs {name} cannot be pooled: of `{label}`, {what}"))
                .hint("name them apart to compare them, as 12 13 instead of 12/13"));
        }
    }
    // Figures are those of all runs together; what is said of single jobs is kept from these.
    let runs: Vec<&Run> = jobs.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
    let all = measured(jobs[0].0, label, &runs);
    let mut notes: Vec<String> = parts.iter().flat_map(|part| part.notes.iter().cloned()).collect();
    let differs = differing(&parts);
    if !differs.is_empty() {
        notes.insert(0, format!("its jobs are not alike: {}", differs.join(", ")));
    }
    Ok(Row {
        job: name.to_owned(),
        config: together(parts.iter().map(|part| part.config.clone()), "/"),
        settings: settings(&parts),
        notes,
        estimator: format!("{} of all jobs", all.estimator),
        // Repeats count from 1 in every job.
        interleaved: false,
        parts,
        ..all
    })
}

/// What must be the same for runs to be of the same thing.
fn kind(row: &Row) -> [(&'static str, String); 5] {
    [
        ("train.mode", row.mode.clone()),
        ("loader.batch_size", row.batch_size.to_string()),
        ("launch.ranks", row.ranks.to_string()),
        ("the profiler", if row.profiler { "on" } else { "off" }.to_owned()),
        ("data.set", row.settings.get("data.set").cloned().unwrap_or_default()),
    ]
}

/// Values once each, in order.
fn together(values: impl Iterator<Item = String>, separator: &str) -> String {
    let mut once: Vec<String> = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once.join(separator)
}

/// Settings of all jobs; where they differ, all values.
fn settings(parts: &[Row]) -> BTreeMap<String, String> {
    let keys: BTreeSet<&String> = parts.iter().flat_map(|part| part.settings.keys()).collect();
    let of = |key: &String| together(parts.iter().filter_map(|part| part.settings.get(key).cloned()), " and ");
    keys.into_iter().map(|key| (key.clone(), of(key))).collect()
}

fn differing(parts: &[Row]) -> Vec<String> {
    let rows: Vec<&Row> = parts.iter().collect();
    super::differences(&rows).iter().map(super::Difference::words).collect()
}
