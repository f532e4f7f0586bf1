//! `expctl doctor`: each requirement of jobs on this machine and cluster with its state, and what to do where it is not met.

use expctl_config::{Layer, UserDefaults};
use expctl_text::Table;
use expctl_text::format::{bytes, count};
use slurm_client::Slurm;

use crate::console::{out_json, out_table, say};
use crate::doctor::{self, Check, CheckState, Subject};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::snapshot::prune;

/// Arguments of `expctl doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Check what this cluster profile asks for; else the one in ~/.config/expctl/config.toml
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Instead, remove the files of code snapshots that no job in the ledger has any more
    #[arg(long, conflicts_with_all = ["profile", "json"])]
    prune: bool,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Check all that jobs need here, and say what to do about problems.
pub fn run(project: &Project, args: &DoctorArgs) -> Result<(), Failure> {
    if args.prune {
        let pruned = prune(project)?;
        let (files, size) = (count(pruned.objects as u64, "file"), bytes(pruned.bytes as f64));
        say(format!("removed {files} of code snapshots, {size}"));
        return Ok(());
    }
    let user = UserDefaults::load(project)?;
    let text = |layer: &Layer, key: &str| {
        layer.get(key).and_then(|s| s.value.as_ref()?.as_str()).map(str::to_owned).filter(|t| !t.is_empty())
    };
    let name = args.profile.clone().or_else(|| text(&user.settings, "slurm.profile"));
    let profile = name.map(|name| expctl_config::profile(project, &name)).transpose()?;
    let own = profile.as_ref().and_then(|p| user.profiles.get(&p.name));
    let layers = [own, profile.as_ref().map(|p| &p.settings), Some(&user.settings)];
    let partition = layers.into_iter().flatten().find_map(|layer| text(layer, "slurm.partition")).unwrap_or_default();

    let mut checks: Vec<Check> = Vec::new();
    if let Some(profile) = &profile {
        checks.push(Check::ok("profile", format!("{}, {}", profile.name, profile.found)));
    }
    let (cluster, with_slurm) = doctor::cluster(&Slurm::from_environment(), profile.as_ref(), &partition);
    checks.extend(cluster);
    checks.push(doctor::project(project.root(), project.has_studies()));
    checks.push(doctor::folder("ledger", project.runs(), "EXPCTL_RUNS", with_slurm));
    checks.push(doctor::folder("data", project.data(), "EXPCTL_DATA", with_slurm));
    checks.extend(project.cache_home().map(doctor::cache));
    checks.push(doctor::system());
    checks.extend(doctor::worker(with_slurm));

    if args.json {
        out_json(&checks)?;
    } else {
        let mut table = Table::new(["check", "state", "found", "what to do"]);
        for check in &checks {
            table.row([check.check.as_str(), check.state.name(), &check.found, &check.todo]);
        }
        out_table(&table);
    }
    verdict(&checks)
}

/// Exit 4 if a problem is the cluster's, 70 if one is of the programs, else 6: a folder cannot be written.
fn verdict(checks: &[Check]) -> Result<(), Failure> {
    let problems: Vec<&Check> = checks.iter().filter(|c| c.state == CheckState::Problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let has = |subject| problems.iter().any(|check| check.subject == subject);
    let exit = match () {
        () if has(Subject::Cluster) => Exit::Cluster,
        () if has(Subject::Programs) => Exit::Internal,
        () => Exit::Incomplete,
    };
    let names: Vec<&str> = problems.iter().map(|c| c.check.as_str()).collect();
    Err(Failure::new(exit, format!("jobs cannot run here; see {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_says_what_the_problem_is_about() {
        let problem = |subject| Check { subject, ..Check::problem("x", "found", "todo") };
        let code = |checks: &[Check]| verdict(checks).map_err(|failure| failure.exit);
        let [cluster, folder, programs] = [Subject::Cluster, Subject::Folder, Subject::Programs].map(problem);
        assert_eq!(code(&[Check::ok("x", "found")]), Ok(()));
        assert_eq!(code(std::slice::from_ref(&folder)), Err(Exit::Incomplete));
        assert_eq!(code(&[folder.clone(), programs.clone()]), Err(Exit::Internal));
        assert_eq!(code(&[folder, programs, cluster]), Err(Exit::Cluster));
    }
}
