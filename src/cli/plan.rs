use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::{out, rehearse, say};
use crate::exit::Failure;
use crate::project::Project;
use crate::{conf, launch, plan};

/// Arguments of `expctl plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Config file
    #[arg(value_name = "CONF")]
    config: PathBuf,
    /// Print the trials and their cost as JSON
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
        let data = rehearse::data_in_json(project, &plan);
        let planned = serde_json::json!({ "trials": plan.trials, "cost": plan::cost(&plan), "data": data });
        out(serde_json::to_string_pretty(&planned).map_err(Failure::internal)?);
    } else if args.script {
        say(format_args!("template: {}", conf::batch_template(project)?.0));
        let scripts = launch::slurm::scripts(project, &plan::job_record(&plan, "slurm"))?;
        if scripts.len() > 1 {
            say(format_args!("{} arrays, since their trials ask for different resources or are many", scripts.len()));
        }
        out(scripts.join("\n").trim_end());
    } else {
        out(plan::table(&plan, !std::io::stdout().is_terminal()));
        if let Some(cost) = plan::cost(&plan) {
            out(format_args!("\nOn Slurm, {cost}"));
        }
        for said in plan::remarks(&plan) {
            say(format_args!("note: {said}"));
        }
        rehearse::say_what_is_missing(project, &plan);
    }
    Ok(())
}
