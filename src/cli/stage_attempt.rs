use crate::exit::Failure;

/// Arguments of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Run the verb.
pub fn run(_args: &Args) -> Result<(), Failure> {
    Err(Failure::internal("not there yet"))
}
