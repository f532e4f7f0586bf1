use std::path::{Path, PathBuf};

use expctl_record::{JobDir, JobRecord};

use super::file::{HEAD, NoteFile, identity};
use super::options::NoteOptions;
use super::pictures::Pictures;
use super::{context, template};
use crate::conf::LinkStyle;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::launch::status::{Attempt, lineage};
use crate::ledger::{Ledger, MeasuredJob};
use crate::project::Project;
use crate::report::Picture;
use crate::report::regions::{Damage, Fresh, Layout, Merged, fresh, merge, plain, with_updated};

/// Write the note of a measured job for what there is of it, and give back where it is: `<config>_<job>.md` in the folder of
/// the notes, or what was asked for; the next free name if that is the note of another submission, which is said on stderr.
/// With it comes the job as it was read.
///
/// A note that is there keeps all that stands outside of its markers, byte for byte, and is not touched if nothing changed.
///
/// # Errors
/// Exit 7 for a job that is not measured here; 3 for settings, a template or a note that is wrong, which then stays as it
/// is; 70 for a ledger that cannot be read or a note that cannot be written.
pub fn write_note(project: &Project, job: u64, options: &NoteOptions) -> Result<(PathBuf, MeasuredJob), Failure> {
    let (dir, job) = load(project, job)?;
    let asked = options;
    let options = options.filled(project)?;
    let folder = options.folder(project);
    if folder.exists() && !folder.is_dir() {
        // Whoever typed it made the mistake, else the file of settings has it.
        let exit = if asked.settings.folder.is_some() { Exit::Usage } else { Exit::Config };
        return Err(Failure::new(exit, format!("the folder of the notes, {}, is a file", folder.display()))
            .hint("--notes, and `folder` in [notes] of expctl.toml or the user's config.toml, name a folder"));
    }
    let NoteFile { path, taken } = NoteFile::of(&folder, options.settings.name.as_deref(), &job.record)?;
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
    let pictures = Pictures::of(&job, &path)?;
    let text = text(project, &job, &again(&dir, &job)?, &path, pictures.shown(), &options)?;
    match old {
        None => {
            let new = sound(&text, &job.record, &options)?;
            if let Some(name) = options.restore.iter().find(|name| *name != "all") {
                let what = format!("no section `{name}` was removed: {} is not there yet", path.display());
                return Err(Failure::new(Exit::Usage, what).hint("a new note has every section; leave --restore out"));
            }
            pictures.save()?;
            expctl_record::write_atomic(&path, fresh(&new).as_bytes())?;
        }
        Some(old) => {
            let update = update(&old, &sound(&text, &job.record, &options)?, &path, &options)?;
            pictures.save()?;
            save(&old, update, &path)?;
        }
    }
    Ok((path, job))
}

/// What the note of a job at `path` would say, as markdown without frontmatter and markers. Links are those of markdown, whatever
/// the notes have.
///
/// # Errors
/// As [`write_note`], but for what concerns the file.
pub fn generated(
    project: &Project,
    job: &MeasuredJob,
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<String, Failure> {
    let mut options = options.filled(project)?;
    options.settings.links = Some(LinkStyle::Markdown);
    let again = again(&project.job(job.record.job), job)?;
    let text = text(project, job, &again, path, shown, &options)?;
    let plain = plain(&sound(&text, &job.record, &options)?);
    let body =
        plain.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map(|(_, body)| body.trim_start());
    Ok(body.unwrap_or(&plain).to_owned())
}

fn load(project: &Project, job: u64) -> Result<(JobDir, MeasuredJob), Failure> {
    let dir = project.job(job);
    if !dir.record_path().exists() {
        let ledger = Ledger::open(project)?;
        // An unknown job is explained by the ledger; what is left is a published one.
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
fn again(dir: &JobDir, job: &MeasuredJob) -> Result<Vec<Attempt>, Failure> {
    if job.runs.iter().all(|run| run.attempts < 2) {
        return Ok(Vec::new());
    }
    let mut attempts = lineage(dir, &job.record, None)?;
    attempts.retain(|attempt| job.runs.get(attempt.task).is_some_and(|run| run.attempts > 1));
    Ok(attempts)
}

fn text(
    project: &Project,
    job: &MeasuredJob,
    again: &[Attempt],
    path: &Path,
    shown: &[Picture],
    options: &NoteOptions,
) -> Result<String, Failure> {
    let values = context::values(project, job, again, path, shown, options)?;
    template::render(options.settings.template.as_deref(), &values)
}

/// The sections of a generated text, which must say of which submission it is: else the note would not be found again, and each
/// run would write another one.
fn sound<'a>(text: &'a str, record: &JobRecord, options: &NoteOptions) -> Result<Fresh<'a>, Failure> {
    let new = Fresh::of(text).map_err(|damage| wrong_template(&damage, options))?;
    let (identity, mut at) = (identity(record), 0);
    for line in text.split_inclusive('\n') {
        at += line.len() as u64;
        if at <= HEAD && line.trim_end() == identity {
            return Ok(new);
        }
    }
    let what = format!("the line `{identity}` is missing from its first {} KiB", HEAD / 1024);
    let remedy = "put `{{ identity }}` on a line of its own near the top: by it the note is found again".to_owned();
    Err(wrong_template(&Damage { line: 1, what, remedy }, options))
}

/// A note, regenerated, with whether its old text has to be kept beside it.
struct Update {
    text: Vec<u8>,
    keep: bool,
}

fn update(old: &[u8], new: &Fresh<'_>, path: &Path, options: &NoteOptions) -> Result<Update, Failure> {
    let damaged = |damage: Damage| {
        let message = format!("{}:{}: {}", path.display(), damage.line, damage.what);
        Failure::new(Exit::Config, message).hint(damage.remedy).hint("the note was left as it is")
    };
    let layout = Layout::of(old).map_err(damaged)?;
    if layout.note.is_none() {
        if layout.regions.is_empty() {
            return unmarked(new, path, options);
        }
        let (line, what) = (layout.regions[0].line, "the line `<!-- expctl:note 1 … -->` is gone".to_owned());
        let remedy = "put `<!-- expctl:note 1 -->` on a line of its own above the first section".to_owned();
        return Err(damaged(Damage { line, what, remedy }));
    }
    let Merged { text, edited, stale, not_restored } = merge(old, &layout, new, &options.restore);
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
    Ok(Update { text, keep: !edited.is_empty() })
}

/// A note from before there were markers was generated as a whole; what was written into it cannot be told.
fn unmarked(new: &Fresh<'_>, path: &Path, options: &NoteOptions) -> Result<Update, Failure> {
    if !options.force {
        return Err(Failure::new(
            Exit::Config,
            format!("{} is a note without markers, so what is yours in it cannot be told", path.display()),
        )
        .hint("--force writes it anew, with the same id, and keeps the note as it is in a file beside it")
        .hint("the note was left as it is"));
    }
    Ok(Update { text: fresh(new).into_bytes(), keep: true })
}

fn save(old: &[u8], update: Update, path: &Path) -> Result<(), Failure> {
    if update.text == old {
        return Ok(());
    }
    let text = with_updated(&update.text, jiff::Timestamp::now().as_millisecond());
    // A link to a note stays one.
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
        expctl_record::write_atomic(&kept, old)?;
        say(format!("the note as it was is in {}", kept.display()));
    }
    Ok(expctl_record::write_atomic(&path, &text)?)
}

fn wrong_template(damage: &Damage, options: &NoteOptions) -> Failure {
    let name = template::name(options.settings.template.as_deref());
    let message = format!("the template {name} makes a wrong note: line {} of the note: {}", damage.line, damage.what);
    Failure::new(Exit::Config, message).hint(&damage.remedy)
}
