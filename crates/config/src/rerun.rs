//! The config that runs a past job again with other settings: its variants at the points where they ran, as they were resolved.

use std::fmt::Write;
use std::path::Path;

use crate::past_job::{PastJob, Point, recorded_value, sweep_row, write_variant};

/// A config as text, for [`load_text`](crate::load_text).
#[derive(Clone, Debug)]
pub struct Rerun {
    /// TOML. Variants are written out line by line, so that a message about a line says whose it is.
    pub text: String,
    /// Which variant ran at which point of the sweep.
    pub ran: Vec<(String, Point)>,
}

impl Rerun {
    /// Everything as the job resolved it. Files below `root`, the project, are named from there, so that ids do not depend on where it lies.
    pub fn new(root: &Path, past: PastJob<'_>) -> Self {
        let mut ran: Vec<(String, Point)> = Vec::new();
        for trial in past.trials {
            let at = (trial.variant.clone(), trial.point.clone());
            if !ran.contains(&at) {
                ran.push(at);
            }
        }
        let mut text = format!("# Job {} (config {}) again, with other settings.\n", past.job, past.config);
        past.write_job_settings(&mut text, &past.trials.iter().collect::<Vec<_>>(), |_| None);
        let variants = past.variants();
        for variant in &variants {
            let Some(first) = past.trials.iter().find(|trial| trial.variant == *variant) else { continue };
            write_variant(&mut text, (variant, &first.method), first, &first.point, |key, value| {
                recorded_value(key, root, first, value)
            });
        }
        past.write_comparison(&mut text, &variants.iter().map(String::as_str).collect::<Vec<_>>());
        let mut points: Vec<&Point> = Vec::new();
        for (_, point) in ran.iter().filter(|(_, point)| !point.is_empty()) {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        if !points.is_empty() {
            let rows: Vec<String> = points.into_iter().map(sweep_row).collect();
            let _ = writeln!(text, "\nsweep.list = [{}]", rows.join(", "));
        }
        Self { text, ran }
    }
}

/// Name of the config of such a job in messages and the ledger, instead of a path.
pub fn rerun_path(job: u64) -> String {
    format!("job {job}, rerun")
}

/// Whether a config's path is such a name.
pub fn is_rerun(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.strip_prefix("job ")?.strip_suffix(", rerun"));
    text.is_some_and(|number| number.parse::<u64>().is_ok())
}
