//! What `submit` would do: said, or asked of Slurm, and not done.

use std::path::Path;

use expctl_record::JobRecord;
use serde_json::json;

use super::{data, out, say};
use crate::conf;
use crate::data_size::DataSize;
use crate::data_state::{DataState, data_states};
use crate::exit::{Exit, Failure};
use crate::launch::slurm::{self, SlurmBackend};
use crate::plan::{self, Plan};
use crate::project::Project;
use crate::report::format::count;

/// Trials that are named one by one.
const MOST: usize = 12;

/// Say what would be run. Nothing is written anywhere. In a `chain` the data are built by a job, maybe on another disk.
pub(super) fn dry_run(project: &Project, plan: &Plan, job: &JobRecord, json: bool, chain: bool) -> Result<(), Failure> {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    let on_slurm = job.on_slurm();
    let scripts = if on_slurm { slurm::scripts(project, job)? } else { Vec::new() };
    let path = project.runs().join("<job>").join("batch.sh").display().to_string();
    let template = conf::batch_template(project)?.0;

    say(format!("dry run: {} on {}", count(plan.trials.len() as u64, "trial"), backend_in_words(job)));
    for trial in plan.trials.iter().take(MOST) {
        say(format!("  {}", trial.id));
    }
    if plan.trials.len() > MOST {
        say(format!("  and {} more", plan.trials.len() - MOST));
    }
    for (folder, state) in &data {
        match state {
            DataState::There(()) => say(format!("data: {} is there", folder.display())),
            DataState::Missing => say(would_be_built(folder, &size)),
            // The error says where.
            DataState::Refused(e) => say(format!("data: {e}")),
        }
    }
    size.summary().into_iter().for_each(|summary| say(format!("data: {summary}")));
    for script in &scripts {
        say(format!("script: {path}, from {template}, asks for\n  {}", options(script).join("\n  ")));
    }
    say("nothing was written, built or submitted");
    if json {
        let asked: Vec<_> = scripts.iter().map(|script| json!({ "path": path, "options": options(script) })).collect();
        let ids: Vec<&str> = plan.trials.iter().map(|trial| trial.id.as_str()).collect();
        let states: Vec<_> = data.iter().map(|(folder, state)| in_json(folder, state, &size)).collect();
        let answer = json!({
            "backend": job.backend,
            "trials": ids,
            "cost": on_slurm.then(|| plan::cost(plan)).flatten(),
            "data": states,
            "free_bytes": size.free(),
            "template": on_slurm.then_some(template),
            "scripts": asked,
        });
        out(serde_json::to_string_pretty(&answer).map_err(Failure::internal)?);
    }
    // What submitting would refuse, this refuses too, once all is said.
    data::refuse_damaged(&data)?;
    if chain { Ok(()) } else { size.refuse() }
}

/// Say of each folder of data that is missing what it will take, and of the disk what is free.
pub(super) fn say_what_is_missing(project: &Project, plan: &Plan) {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    for (folder, _) in data.iter().filter(|(_, state)| matches!(state, DataState::Missing)) {
        say(would_be_built(folder, &size));
    }
    size.summary().into_iter().for_each(|summary| say(format!("data: {summary}")));
}

fn would_be_built(folder: &Path, size: &DataSize) -> String {
    let expected = size.of_folder(folder).map(|expected| format!(", {expected} (estimated)")).unwrap_or_default();
    format!("data: {} would be built{expected}", folder.display())
}

/// How each folder of data stands, for `plan --json`.
pub(super) fn data_in_json(project: &Project, plan: &Plan) -> serde_json::Value {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    data.iter().map(|(folder, state)| in_json(folder, state, &size)).collect()
}

fn in_json(folder: &Path, state: &DataState, size: &DataSize) -> serde_json::Value {
    let (word, reason) = match state {
        DataState::There(()) => ("there", None),
        DataState::Missing => ("missing", None),
        DataState::Refused(e) => ("refused", Some(e.to_string())),
    };
    let expected = size.of_folder(folder).map(|expected| expected.bytes);
    json!({ "folder": folder, "built": word == "there", "state": word, "reason": reason, "estimated_bytes": expected })
}

/// Ask Slurm when it would start the job, or why it would not take it.
pub(super) fn test_only(project: &Project, job: &JobRecord, json: bool) -> Result<(), Failure> {
    if job.backend == "slurmrest" {
        return Err(Failure::new(Exit::Usage, "slurmrestd has nothing like `sbatch --test-only`")
            .hint("--dry-run says what would be submitted; --backend slurm asks the commands"));
    }
    let cluster = SlurmBackend::default();
    let mut answers = Vec::new();
    for script in cluster.scripts(project, job)? {
        let file = tempfile::Builder::new().prefix("expctl-").suffix(".sh").tempfile().map_err(Failure::internal)?;
        std::fs::write(file.path(), &script).map_err(Failure::internal)?;
        let answer = cluster.client().test_only(file.path())?;
        say(format!("Slurm would take it: {answer}"));
        answers.push(json!({ "answer": answer, "options": options(&script) }));
    }
    say("nothing was submitted");
    if json {
        let ids: Vec<&str> = job.trials.iter().map(|trial| trial.id.as_str()).collect();
        let answer = json!({ "backend": job.backend, "trials": ids, "scripts": answers });
        out(serde_json::to_string_pretty(&answer).map_err(Failure::internal)?);
    }
    Ok(())
}

/// The answer where `--only-missing` left nothing.
pub(super) fn nothing() -> Result<(), Failure> {
    out(serde_json::to_string_pretty(&json!({ "trials": [], "scripts": [] })).map_err(Failure::internal)?);
    Ok(())
}

/// What a script asks Slurm for: its `#SBATCH` lines. As for Slurm, they end where its commands begin.
fn options(script: &str) -> Vec<&str> {
    let head = script.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix("#SBATCH ")).collect()
}

fn backend_in_words(job: &JobRecord) -> &'static str {
    if job.on_slurm() { "Slurm" } else { "this machine" }
}
