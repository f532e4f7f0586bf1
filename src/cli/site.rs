//! `expctl site`: all jobs of a ledger as a folder of pages.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use expctl_config::NotesSettings;

use super::report::note_options;
use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::site::{Site, write_site};

/// Between two looks at whether the user asked to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `expctl site`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl site ~/public/jobs\n  expctl site /tmp/jobs --every 30")]
pub struct SiteArgs {
    /// Folder of the pages: a new or empty one, or one that this command made
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Make pages of this many of the newest jobs; the list has all jobs
    #[arg(long, value_name = "N", default_value_t = 100)]
    pages: usize,
    /// Make the pages again every so many seconds, until stopped; a browser follows while jobs wait or run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
}

impl SiteArgs {
    /// Whether the pages are made again and again.
    pub fn repeats(&self) -> bool {
        self.every.is_some()
    }
}

/// Write the site and print the path of its first page.
pub fn run(project: &Project, args: &SiteArgs) -> Result<(), Failure> {
    let options = note_options(project, NotesSettings::default())?;
    let write = || write_site(project, &args.folder, args.pages, args.every, &options);
    let Some(every) = args.every else {
        let site = write()?;
        out(site.index.display());
        return complete(&site);
    };
    let interrupt = Interrupt::listen()?;
    let mut site = write()?;
    out(site.index.display());
    say("the pages follow the ledger; Ctrl-C ends this");
    loop {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(every) {
            if interrupt.is_set() {
                return complete(&site);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        site = write()?;
    }
}

/// Say which jobs are not on the page.
fn complete(site: &Site) -> Result<(), Failure> {
    for (folder, failure) in &site.unreadable {
        say(format!("warning: left out: {}: {}", folder.path().display(), failure.message));
    }
    match site.unreadable.len() {
        0 => Ok(()),
        n => Err(Failure::new(Exit::Incomplete, format!("{n} jobs cannot be read"))
            .hint("move the folder of a damaged job out of the ledger, or restore the file")),
    }
}
