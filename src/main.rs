//! The `expctl` binary: parses the command line, runs one verb, prints its failure.

use std::process::ExitCode;

fn main() -> ExitCode {
    expctl::cli::main()
}
