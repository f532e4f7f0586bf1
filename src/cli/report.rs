//! `expctl report`: the note of a job with its pictures, and on request a web page and a reference record. Other verbs write notes with
//! `note_options`, too.

use std::path::PathBuf;

use expctl_config::{LinkStyle, NotesSettings};
use expctl_ledger::RunState;

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::launch::slurm;
use crate::predict::next_change;
use crate::project::Project;
use crate::report::html::write_page;
use crate::report::next_change::SuggestChange;
use crate::report::note::{BUILT_IN, NoteLinks, NoteOptions, write_note};
use crate::report::reference::{ReferenceError, ReferenceRecord};

/// Arguments of `expctl report`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "expctl report [OPTIONS] <JOB>\n       expctl report --print-template > FILE")]
#[command(
    after_help = "Examples:\n  expctl report 12 --html\n  expctl report 12 --notes ~/vault/notes --links dendron"
)]
pub struct ReportArgs {
    /// The job; needed unless --print-template is given
    #[arg(value_name = "JOB", required_unless_present = "print_template")]
    job: Option<u64>,
    #[command(flatten)]
    note: NoteArgs,
    /// Write the note as one page for a browser, too: tables that sort, pictures that zoom, nothing from outside
    #[arg(long)]
    html: bool,
    /// Write what documents cite of the job into this file, too: rates of each run, stages, memory, machine, commit; refused of a
    /// working tree with changes and of incomplete jobs, unless --force is given, which marks the record
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the template that is compiled in, to start one's own from
    #[arg(long, conflicts_with = "job")]
    print_template: bool,
}

impl ReportArgs {
    /// The job, unless only the template is asked for.
    pub fn job(&self) -> Option<u64> {
        self.job
    }
}

/// How the note is written.
#[derive(Debug, clap::Args)]
struct NoteArgs {
    /// Folder of the notes [default: results/]
    #[arg(long, value_name = "DIR")]
    notes: Option<PathBuf>,
    /// Name of the note in it, for example experiments.{study}.{config}.{date}.results [default: {config}_{job}]
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Template of the note [default: templates/note.md.j2, then the one compiled in]
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// How notes link each other [default: markdown]
    #[arg(long, value_enum)]
    links: Option<LinkStyle>,
    /// Put a section back that was removed from the note (all: every one)
    #[arg(long, value_name = "SECTION")]
    restore: Vec<String>,
    /// Replace what was edited between markers, or a note without markers; the old file is kept beside
    #[arg(long)]
    force: bool,
    /// Leave earlier jobs of the config out of the performance comparison table
    #[arg(long)]
    alone: bool,
}

impl NoteArgs {
    fn options(&self, project: &Project) -> Result<NoteOptions, Failure> {
        let asked = NotesSettings {
            folder: self.notes.clone(),
            name: self.name.clone(),
            template: self.template.clone(),
            links: self.links,
            vault: None,
        };
        let options = note_options(project, asked)?;
        Ok(NoteOptions {
            force: self.force,
            restore: self.restore.clone(),
            alone: self.alone,
            suggest: options.suggest.for_one_job(),
            ..options
        })
    }
}

/// Options of a note: `asked`, and what it leaves open from the settings of the project and the user.
pub fn note_options(project: &Project, asked: NotesSettings) -> Result<NoteOptions, Failure> {
    // A mistake is on the command line, or in a file of settings.
    let exit = if asked.folder.is_some() { Exit::Usage } else { Exit::Config };
    let NotesSettings { folder, name, template, links, vault } = asked.over(NotesSettings::load(project)?);
    let folder = folder.unwrap_or_else(|| project.results());
    // Numbers of jobs there may be those of other jobs here.
    let name = name.or_else(|| project.host().map(|host| format!("{{config}}_{host}_{{job}}")));
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::new(exit, format!("the folder of the notes, {}, is a file", folder.display()))
            .hint("--notes, and `folder` in [notes] of expctl.toml or the user's config.toml, name a folder"));
    }
    let links = match links.unwrap_or_default() {
        LinkStyle::Markdown => NoteLinks::Markdown,
        LinkStyle::Dendron => NoteLinks::Dendron { vault },
    };
    Ok(NoteOptions {
        folder,
        name,
        template,
        links,
        force: false,
        restore: Vec::new(),
        alone: false,
        suggest: SuggestChange::new(next_change),
        listed: None,
    })
}

/// Why trials cannot be read is printed for so many of them; the note has all.
const REASONS: usize = 8;

/// Write the note of a job and print its path.
///
/// The note is written for what there is; the exit code then says what is missing.
pub fn run(project: &Project, args: &ReportArgs) -> Result<(), Failure> {
    if args.print_template {
        out(BUILT_IN.trim_end());
        return Ok(());
    }
    let job = args.job.ok_or_else(|| Failure::new(Exit::Usage, "name a job"))?;
    let folder = project.job(job);
    // Of a job elsewhere, its own cluster is asked.
    if project.host().is_none()
        && folder.head().is_ok_and(|head| head.on_slurm())
        && let Err(failure) = slurm::collect_missing_usage(project, job)
    {
        // The ledger may be read-only. The note is then written without those figures.
        say(format!("what Slurm measured is not in the note: {}", failure.message));
    }
    let options = args.note.options(project)?;
    let (path, job) = write_note(project, job, &options)?;
    out(path.display());
    if args.html {
        out(write_page(project, &job, &path, &options)?.display());
    }
    if let Some(record) = &args.record {
        ReferenceRecord::from_job(&folder, &job, args.note.force)
            .and_then(|made| made.write(record))
            .map_err(record_failure)?;
        out(record.display());
    }
    // The verdict has the names alone.
    let unreadable = job.incomplete().filter_map(|run| match &run.state {
        RunState::Unreadable(reason) => Some(reason),
        _ => None,
    });
    for reason in unreadable.take(REASONS) {
        tracing::warn!("{reason}");
    }
    Ok(job.verdict()?)
}

/// A failure to make a reference record, with its exit code.
fn record_failure(error: ReferenceError) -> Failure {
    match error {
        ReferenceError::File(e) => e.into(),
        ReferenceError::Incomplete { .. } => Failure::new(Exit::Incomplete, &error),
        _ => Failure::new(Exit::Refused, &error)
            .hint("commit what is changed, build and submit again; or mark the record as one not to cite: --force"),
    }
}
