use clap::CommandFactory;

use crate::exit::Failure;

/// Arguments of `expctl completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to complete for
    shell: clap_complete::Shell,
}

/// Print the completion script of a shell on stdout.
pub fn run(args: &Args) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut super::Cli::command(), "expctl", &mut std::io::stdout().lock());
    Ok(())
}
