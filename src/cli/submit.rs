//! `expctl submit`.

use std::path::{Path, PathBuf};

use super::plan::search_words;
use super::run_plan::{RunOptions, run_plan};
use crate::console::say;
use crate::data::ProjectData;
use crate::exit::Failure;
use crate::project::Project;
use crate::provenance::CodeOf;

/// Arguments of `expctl submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl submit conf/demo.toml --backend local --wait\n  \
                  expctl submit conf/demo.toml --only ids --set measure.steps=50")]
pub struct SubmitArgs {
    /// The config (TOML)
    conf: PathBuf,
    /// Run only these variants
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Set a key on top of everything the config says, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Let programs run in the project's folder, as it is when they start, instead of from a copy of the code
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    run: RunOptions,
}

impl SubmitArgs {
    pub fn config(&self) -> &Path {
        &self.conf
    }

    /// How it is run.
    pub fn run_options(&self) -> &RunOptions {
        &self.run
    }
}

/// Submit a config; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &SubmitArgs) -> Result<(), Failure> {
    args.run.check()?;
    let files = ProjectData(project);
    let config = expctl_config::load_only(&files, &args.conf, &args.overrides, &args.only)?;
    let whole = expctl_config::expand(&files, &config)?;
    let plan = whole.clone().only(&args.only)?;
    if let Some(search) = &config.search {
        say(format!(
            "note: this runs the config's own settings; {} with expctl search {}",
            search_words(search),
            args.conf.display()
        ));
    }
    let code = if args.live { CodeOf::Live } else { CodeOf::Now };
    run_plan(project, &config, (&whole, plan), &args.run, code)
}
