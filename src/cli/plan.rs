use crate::exit::Failure;
use crate::project::Project;

/// Arguments of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Run the verb.
pub fn run(_project: &Project, _args: &Args) -> Result<(), Failure> {
    Err(Failure::internal("not there yet"))
}
