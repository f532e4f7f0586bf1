use clap::CommandFactory;

use super::out;
use crate::exit::Failure;

/// Arguments of `expctl completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to complete for
    shell: clap_complete::Shell,
}

/// Print the completion script of a shell on stdout.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "expctl", &mut script);
    out(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
