//! `expctl data convert`: stores of other kinds.

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{Conversion, Dataset};
use expctl_record::StoreKind;
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::data::{GOES_ON, Set, failure, known};
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::parallel;
use crate::project::Project;
use crate::report::format;

/// Arguments of `expctl data convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    set: Set,
    /// Store to make; may be given more than once
    #[arg(long, value_name = "KIND", value_enum, required = true)]
    to: Vec<Kind>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

/// [`StoreKind`] on the command line, without the base store.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// Positions of the False entries of every mask
    Compressed,
    /// Every mask, a byte per entry
    FullMasks,
    /// Every mask, a bit per entry
    PackedMasks,
    /// Gene ids and labels alone
    Ids,
}

impl Kind {
    const fn store(self) -> StoreKind {
        match self {
            Self::Compressed => StoreKind::Compressed,
            Self::FullMasks => StoreKind::FullMasks,
            Self::PackedMasks => StoreKind::PackedMasks,
            Self::Ids => StoreKind::Ids,
        }
    }
}

/// Run the verb: the folders of the stores on stdout.
pub(super) fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let data = known(project, &args.set)?;
    let dataset = Dataset::open(&project.data_dir(&data)).map_err(|e| failure(&e))?;
    let interrupt = Interrupt::listen()?;
    let jobs = args.jobs.map_or_else(parallel::threads, usize::from);
    for kind in &args.to {
        convert(&dataset, kind.store(), jobs, &interrupt)?;
        out(dataset.store_folder(kind.store()).display());
    }
    Ok(())
}

/// Make a store if it is not there, with an estimate of its size and progress on stderr.
pub(super) fn convert(dataset: &Dataset, kind: StoreKind, jobs: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    if dataset.converted(kind).map_err(|e| failure(&e))?.is_some() {
        return Ok(());
    }
    let conversion = Conversion::new(dataset, kind).map_err(|e| failure(&e))?;
    if conversion.size().missing() == 0 {
        say(format_args!("{}: {}", kind.name(), conversion.size()));
    }
    let mut progress = BuildBar::new(interrupt);
    let manifest = conversion.run(jobs, &mut |p| progress.show(p)).map_err(|e| match e {
        PipelineError::Stopped => {
            Failure::new(Exit::Incomplete, format_args!("stopped before the store was complete: {}", kind.name()))
                .hint(GOES_ON)
        }
        e => failure(&e),
    })?;
    progress.finish();
    say(format_args!(
        "{}: {} records, {} in {:.1} s: {}",
        kind.name(),
        HumanCount(manifest.store.records),
        format::bytes(manifest.file.bytes as f64),
        manifest.build_seconds,
        dataset.store_folder(kind).display()
    ));
    Ok(())
}
