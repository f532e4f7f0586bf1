use expctl_config::{Layer, UserDefaults};
use expctl_text::Table;
use slurm_client::Slurm;

use crate::console::{out_json, out_table};
use crate::doctor::{self, Check, CheckState};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Arguments of `expctl doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Check what this cluster profile asks for; else the one in ~/.config/expctl/config.toml
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Check all that jobs need here, and say what to do about problems.
pub fn run(project: &Project, args: &DoctorArgs) -> Result<(), Failure> {
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
    let studies = if project.has_studies() { "experiments/ is there" } else { "no experiments/" };
    checks.push(Check::ok("project", format!("{}, {studies}", project.root().display())));
    checks.push(doctor::folder("ledger", project.runs(), with_slurm));
    checks.push(doctor::folder("data", project.data(), with_slurm));
    checks.extend(doctor::worker());

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

/// Exit 4 if a problem is the cluster's, else 70.
fn verdict(checks: &[Check]) -> Result<(), Failure> {
    let problems: Vec<&Check> = checks.iter().filter(|c| c.state == CheckState::Problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let exit = if problems.iter().any(|c| c.cluster) { Exit::Cluster } else { Exit::Internal };
    let names: Vec<&str> = problems.iter().map(|c| c.check.as_str()).collect();
    Err(Failure::new(exit, format!("jobs cannot run here; see {}", names.join(", "))))
}
