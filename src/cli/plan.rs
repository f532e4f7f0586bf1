use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::out;
use crate::exit::Failure;
use crate::project::Project;
use crate::{conf, launch, plan};

/// Arguments of `expctl plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Config file
    #[arg(value_name = "CONF")]
    config: PathBuf,
    /// Print the trials as JSON
    #[arg(long, conflicts_with = "script")]
    json: bool,
    /// Print the batch script that would be submitted to Slurm
    #[arg(long)]
    script: bool,
    /// Set a key on top of everything the config says, for example loader.workers=4
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Only this variant or trial (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Args {
    pub(super) fn config(&self) -> &Path {
        &self.config
    }
}

/// Print the trials of a config: a table on a terminal, markdown into a file or pipe.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let config = conf::load(project, &args.config, &args.set)?;
    let plan = plan::expand(project, &config)?.only(&args.only)?;
    if args.json {
        out(serde_json::to_string_pretty(&plan.trials).map_err(Failure::internal)?);
    } else if args.script {
        out(launch::slurm::script(project, &plan.job_record("slurm"))?.trim_end());
    } else {
        out(plan::table(&plan, !std::io::stdout().is_terminal()));
    }
    Ok(())
}
