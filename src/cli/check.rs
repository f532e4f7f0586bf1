use std::path::{Path, PathBuf};

use expctl_text::format::count;

use super::say;
use crate::conf;
use crate::exit::{Exit, Failure};
use crate::plan::{self, Plan};
use crate::project::Project;

/// Arguments of `expctl check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Config files
    #[arg(required = true, value_name = "CONF")]
    configs: Vec<PathBuf>,
    /// Set a key on top of everything the config says, for example loader.workers=4
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Args {
    pub(super) fn config(&self) -> Option<&Path> {
        self.configs.first().map(PathBuf::as_path)
    }
}

/// Check every config and print all that is wrong with each.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for path in &args.configs {
        let checked = conf::load(project, path, &args.set)
            .and_then(|config| plan::expand(project, &config).map(|plan| (config, plan)));
        match checked {
            Ok((config, plan)) => say(format_args!(
                "ok {}: {}, {}, {}, {}",
                path.display(),
                count(config.variants as u64, "variant"),
                count(config.points as u64, "point"),
                count(plan.trials.len() as u64, "trial"),
                count(steps(&plan), "step"),
            )),
            Err(errors) => failed.push(errors.to_string()),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::rendered(Exit::Config, failed.join("\n\n")))
}

/// Steps of all trials, warm-up included.
fn steps(plan: &Plan) -> u64 {
    plan.trials.iter().map(|t| t.settings.measure.warmup.saturating_add(t.settings.measure.steps)).sum()
}
