use std::path::PathBuf;

use super::{out, say};
use crate::exit::Failure;
use crate::ledger;
use crate::project::Project;
use crate::report::format::range;

/// Arguments of `expctl import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file of published results (docs/ledger.md describes the form)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace a file of the same name with other content
    #[arg(long)]
    force: bool,
}

/// Take published results into the project; prints the path of the copy.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let imported = ledger::import(project, &args.file, args.force)?;
    let verb = if imported.changed { "took" } else { "unchanged:" };
    for row in &imported.file.rows {
        let (low, high) = row.it_per_s;
        let batch = row.global_batch() as f64;
        let (speed, samples) = (range(low, high), range(low * batch, high * batch));
        let name = format!("job {} {} {}", row.job_name(), row.config, row.method);
        say(format!("{verb} {name}: {speed} it/s, {samples} samples/s, imported"));
    }
    out(imported.path.display());
    Ok(())
}
