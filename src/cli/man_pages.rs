//! `expctl man-pages`: a manual page for each verb, which packages put into `share/man/man1`.

use std::fs::create_dir_all;
use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use crate::exit::{Exit, Failure};

/// Arguments of `expctl man-pages`.
#[derive(Debug, clap::Args)]
pub struct ManPagesArgs {
    /// Folder for the pages
    dir: PathBuf,
}

/// Write `expctl.1` and `expctl-VERB.1` for all verbs that users see.
pub fn run(args: &ManPagesArgs) -> Result<(), Failure> {
    let failed =
        |error| Failure::new(Exit::Incomplete, format_args!("{} cannot be written: {error}", args.dir.display()));
    create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)
}
