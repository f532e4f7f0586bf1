//! Text: configs, progress bars of others, and what Slurm's commands print.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expctl::data::ProjectData;
use expctl::ledger::read_log;
use expctl::project::Project;
use slurm_client::{JobId, Slurm, process_exits};

use crate::Outcome;

/// A config with its rules and its sweep; Hydra's YAML is translated.
pub fn config(path: &Path) -> Outcome<u64> {
    let text = fs::read(path)?;
    if path.extension().is_some_and(|extension| extension == "yaml") {
        return Ok(expctl_config::toml_of_yaml("case", &String::from_utf8_lossy(&text)).len() as u64);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let project = Project::find(Some(&root), None)?;
    let data = ProjectData(&project);
    let text = std::str::from_utf8(&text)?;
    let config = expctl_config::load_text(&data, "case", "case.toml", text, &[]).map_err(|e| e.to_string())?;
    let plan = expctl_config::expand(&data, &config).map_err(|e| e.to_string())?;
    Ok(plan.trials.len() as u64)
}

/// Progress text of a log.
pub fn log(path: &Path) -> Outcome<u64> {
    let reading = read_log(std::io::BufReader::new(fs::File::open(path)?), None)?;
    Ok(reading.training_bars)
}

/// What a command of Slurm's prints: the seed's name says which.
pub fn slurm(path: &Path) -> Outcome<u64> {
    let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    if path.extension().is_some_and(|extension| extension == "srun") {
        return Ok(process_exits(&text, 143, 4).iter().flatten().count() as u64);
    }
    // A program in the place of the command prints the file.
    let folder = tempfile::tempdir()?;
    let command = if path.extension().is_some_and(|extension| extension == "sacct") { "sacct" } else { "squeue" };
    let program = folder.path().join(command);
    fs::write(&program, format!("#!/bin/sh\nexec cat '{}'\n", path.display()))?;
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    let search = format!("{}:/usr/bin:/bin", folder.path().display());
    let slurm = Slurm::from_environment().with_variable("PATH", search);
    let jobs = [JobId::new(7)];
    let queue = if command == "sacct" { slurm.accounted(&jobs)? } else { slurm.queued(&jobs)? };
    Ok(queue.len() as u64)
}
