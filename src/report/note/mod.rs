//! The note of a job: options, pictures, and how an existing note is updated.

mod context;
mod file;
mod head;
mod measures;
mod template;

pub use context::answers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use expctl_charts::chart_files;
use expctl_ledger::{Attempt, JobDir, JobRecord, Ledger, MeasuredJob, read_attempts};
use expctl_text::{GeneratedText, MergedNote, RegionError, RegionLayout, merge_regions, with_updated};
pub use file::submission;
use file::{HEAD_BYTES, NoteFile, identity, link_target};
use serde::Serialize;
pub use template::BUILT_IN;

use super::next_change::SuggestChange;
use super::pictures::{LEARNING, charts};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::ledger::ListedJob;
use crate::project::Project;

/// How notes link each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteLinks {
    /// `[Title](file.md)`, relative.
    Markdown,
    /// `[[Title|name]]`, or with a vault `[[Title|dendron://vault/name]]`.
    Dendron {
        /// Name of the vault.
        vault: Option<String>,
    },
}

/// Options of a note.
#[derive(Clone, Debug)]
pub struct NoteOptions {
    /// Folder of the notes.
    pub folder: PathBuf,
    /// Pattern of the file name; `None`: [`expctl_text::NoteName::DEFAULT`].
    pub name: Option<String>,
    /// Template; `None`: the built-in one.
    pub template: Option<PathBuf>,
    /// How it links other notes.
    pub links: NoteLinks,
    /// Replace sections that were edited, and notes of earlier versions; the old file is kept beside.
    pub force: bool,
    /// Removed sections to put back; `all` is every one.
    pub restore: Vec<String>,
    /// Leave earlier jobs of the config out of the performance comparison table.
    pub alone: bool,
    /// Finds the change that the note proposes.
    pub suggest: SuggestChange,
    /// All jobs of the ledger, where they are known: many notes that are written together need not ask for them each.
    pub listed: Option<Arc<Vec<ListedJob>>>,
}

/// A path relative to the root of the project, if it is inside.
fn shown_path(project: &Project, path: &Path) -> String {
    path.strip_prefix(project.root()).unwrap_or(path).display().to_string()
}

/// A picture that a note shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// Its file, relative to the note.
    pub file: String,
    /// Alternative text, one sentence.
    pub alt: String,
    /// Class of the figures, n, and what else a reader must know.
    pub caption: String,
}

/// Folder of a note's pictures, as in Dendron.
fn picture_folder(note: &Path) -> PathBuf {
    note.with_file_name("assets").join("images")
}

/// Start of the file names of a note's pictures.
fn picture_stem(note: &Path) -> String {
    note.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Link to a picture by its file name, relative to the note.
fn picture_link(file: &str) -> String {
    format!("assets/images/{}", link_target(file))
}

/// File name of the learning curves.
fn learning_picture(note: &Path) -> String {
    format!("{}_learning.svg", picture_stem(note))
}

/// The pictures of a note in memory: if the note is refused, the old files stay.
struct Pictures {
    shown: Vec<Picture>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Pictures {
    /// Draw the pictures of a job. The learning curves have their own section and are not in [`Self::shown`].
    ///
    /// # Errors
    /// A chart that cannot be drawn.
    pub fn draw(job: &MeasuredJob, note: &Path) -> Result<Self, Failure> {
        let (mut shown, mut files) = (Vec::new(), Vec::new());
        for chart in charts(job) {
            let of_chart = chart_files(&chart, None, &picture_stem(note)).map_err(Failure::internal)?;
            if chart.name != LEARNING {
                shown.push(Picture { file: picture_link(&of_chart[0].0), alt: chart.alt, caption: chart.caption });
            }
            files.extend(of_chart.map(|(name, content)| (picture_folder(note).join(name), content)));
        }
        Ok(Self { shown, files })
    }

    /// The pictures for the template.
    pub fn shown(&self) -> &[Picture] {
        &self.shown
    }

    /// Write the files.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self) -> Result<(), Failure> {
        for (path, content) in &self.files {
            expctl_ledger::write_atomic(path, content)?;
        }
        Ok(())
    }
}

/// Write or update the note of a measured job. Gives its path and the job as it was read. The path is `<config>_<job>.md` in the folder of the
/// notes, or what `options` say; if another file has that name, the next free one, with a message on stderr.
///
/// An existing note keeps all text outside of its markers, byte for byte, and is not touched if nothing changed.
///
/// # Errors
/// Exit 7 for a job that was not measured here; 3 for invalid settings, template or note, which then stays as it is; 70 for a ledger that
/// cannot be read or a note that cannot be written.
pub fn write_note(project: &Project, job: u64, options: &NoteOptions) -> Result<(PathBuf, MeasuredJob), Failure> {
    let (dir, job) = load(project, job)?;
    let NoteFile { path, taken } = NoteFile::find(&options.folder, options.name.as_deref(), &job.record)?;
    if let Some(taken) = taken {
        say(format!(
            "{} is not the note of this submission and stays as it is; writing {}",
            taken.display(),
            path.display()
        ));
    }
    let old = match std::fs::read(&path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
    };
    let pictures = Pictures::draw(&job, &path)?;
    let text = text(project, &job, &repeated_attempts(&dir, &job)?, &path, pictures.shown(), options)?;
    match old {
        None => {
            let new = sound(&text, &job.record, options)?;
            if let Some(name) = options.restore.iter().find(|name| *name != "all") {
                let what = format!("no section `{name}` was removed: {} is not there yet", path.display());
                return Err(Failure::new(Exit::Usage, what).hint("a new note has every section; leave --restore out"));
            }
            pictures.save()?;
            expctl_ledger::write_atomic(&path, new.new_note().as_bytes())?;
        }
        Some(old) => {
            let update = update(&old, &sound(&text, &job.record, options)?, &path, options)?;
            pictures.save()?;
            save(&old, update, &path)?;
        }
    }
    Ok((path, job))
}

/// The text of the note of a job at `path`, as markdown without frontmatter and markers, with markdown links.
///
/// # Errors
/// As [`write_note`], without those of the file.
pub fn generated(
    project: &Project,
    job: &MeasuredJob,
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<String, Failure> {
    let options = NoteOptions { links: NoteLinks::Markdown, ..options.clone() };
    let attempts = repeated_attempts(&project.job(job.record.job), job)?;
    let text = text(project, job, &attempts, path, shown, &options)?;
    let plain = sound(&text, &job.record, &options)?.without_markers();
    let body =
        plain.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map(|(_, body)| body.trim_start());
    Ok(body.unwrap_or(&plain).to_owned())
}

fn load(project: &Project, job: u64) -> Result<(JobDir, MeasuredJob), Failure> {
    let dir = project.job(job);
    if !dir.record_path().exists() {
        let ledger = Ledger::open(project)?;
        // `find` fails for an unknown job; otherwise it is a published one.
        ledger.find(&job.to_string())?;
        return Err(Failure::new(
            Exit::Refused,
            format!("job {job} is published, not measured here: there are no steps to report"),
        )
        .hint(format!("expctl compare {job} shows what is published")));
    }
    let job = MeasuredJob::load(&dir)?;
    Ok((dir, job))
}

/// The attempts of those trials that have more than one.
fn repeated_attempts(dir: &JobDir, job: &MeasuredJob) -> Result<Vec<Attempt>, Failure> {
    if job.runs.iter().all(|run| run.attempts < 2) {
        return Ok(Vec::new());
    }
    let mut attempts = read_attempts(dir, &job.record, &|_| None)?;
    attempts.retain(|attempt| job.runs.get(attempt.task).is_some_and(|run| run.attempts > 1));
    Ok(attempts)
}

fn text(
    project: &Project,
    job: &MeasuredJob,
    attempts: &[Attempt],
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<String, Failure> {
    let values = context::values(project, job, attempts, path, shown, options)?;
    template::render(options.template.as_deref(), &values)
}

/// Parse a generated text, which must have its identity line: without it the note would not be found again.
fn sound<'a>(text: &'a str, record: &JobRecord, options: &NoteOptions) -> Result<GeneratedText<'a>, Failure> {
    let new = GeneratedText::parse(text).map_err(|e| wrong_template(e.line(), &e.to_string(), &e.remedy(), options))?;
    let (identity, mut at) = (identity(record), 0);
    for line in text.split_inclusive('\n') {
        at += line.len() as u64;
        if at <= HEAD_BYTES && line.trim_end() == identity {
            return Ok(new);
        }
    }
    let what = format!("the line `{identity}` is missing from its first {} KiB", HEAD_BYTES / 1024);
    let remedy = "put `{{ identity }}` on a line of its own near the top: by it the note is found again";
    Err(wrong_template(1, &what, remedy, options))
}

/// The new text of a note, and whether to keep its old text beside it.
struct NoteUpdate {
    text: Vec<u8>,
    keep: bool,
}

fn update(old: &[u8], new: &GeneratedText<'_>, path: &Path, options: &NoteOptions) -> Result<NoteUpdate, Failure> {
    let damaged = |line: usize, what: &str, remedy: &str| {
        let message = format!("{}:{line}: {what}", path.display());
        Failure::new(Exit::Config, message).hint(remedy).hint("the note was left as it is")
    };
    let layout = RegionLayout::parse(old).map_err(|e: RegionError| damaged(e.line(), &e.to_string(), &e.remedy()))?;
    if layout.note.is_none() {
        if layout.regions.is_empty() {
            return unmarked(new, path, options);
        }
        let remedy = "put `<!-- expctl:note 1 -->` on a line of its own above the first section";
        return Err(damaged(layout.regions[0].line, "the line `<!-- expctl:note 1 … -->` is gone", remedy));
    }
    let MergedNote { text, edited, stale, not_restored } = merge_regions(old, &layout, new, &options.restore);
    if let Some(name) = not_restored.first() {
        let mistake = match layout.region(name) {
            Some(region) => format!("{}:{}: the section `{name}` is there", path.display(), region.line),
            None => format!("there is no section `{name}` to put into {}", path.display()),
        };
        return Err(Failure::new(Exit::Usage, mistake).hint("--restore all puts back every section that was removed"));
    }
    if !edited.is_empty() && !options.force {
        let lines = edited.iter().map(|(name, line)| {
            format!("{}:{line}: the section `{name}` was edited since it was generated", path.display())
        });
        return Err(Failure::new(Exit::Config, lines.collect::<Vec<_>>().join("\n       "))
            .hint("move your text out of the markers and remove what is left of the section: it stays removed then")
            .hint("--force generates it again and keeps the note as it is in a file beside it")
            .hint("the note was left as it is"));
    }
    for name in stale {
        say(format!("note: the template has no section `{name}` any more; it stays as it is in {}", path.display()));
    }
    Ok(NoteUpdate { text, keep: !edited.is_empty() })
}

/// A note without markers is from an early version; edits in it cannot be told from generated text.
fn unmarked(new: &GeneratedText<'_>, path: &Path, options: &NoteOptions) -> Result<NoteUpdate, Failure> {
    if !options.force {
        return Err(Failure::new(
            Exit::Config,
            format!("{} is a note without markers, so what is yours in it cannot be told", path.display()),
        )
        .hint("--force writes it anew, with the same id, and keeps the note as it is in a file beside it")
        .hint("the note was left as it is"));
    }
    Ok(NoteUpdate { text: new.new_note().into_bytes(), keep: true })
}

fn save(old: &[u8], update: NoteUpdate, path: &Path) -> Result<(), Failure> {
    if update.text == old {
        return Ok(());
    }
    let text = with_updated(&update.text, jiff::Timestamp::now().as_millisecond());
    // Follow symbolic links.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if std::fs::read(&path).ok().as_deref() != Some(old) {
        return Err(Failure::internal(format!("{} was changed in this moment; it stays as it is", path.display()))
            .hint("run the command again"));
    }
    if update.keep {
        let digest = blake3::hash(old).to_hex();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".kept-{}", &digest[..8]));
        let kept = path.with_file_name(name);
        expctl_ledger::write_atomic(&kept, old)?;
        say(format!("the note as it was is in {}", kept.display()));
    }
    Ok(expctl_ledger::write_atomic(&path, &text)?)
}

fn wrong_template(line: usize, what: &str, remedy: &str, options: &NoteOptions) -> Failure {
    let name = template::name(options.template.as_deref());
    let message = format!("the template {name} makes a wrong note: line {line} of the note: {what}");
    Failure::new(Exit::Config, message).hint(remedy)
}
