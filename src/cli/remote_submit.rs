//! `expctl submit --on NAME`: send the code, and submit there once.
//!
//! Invariant: the number of the job is printed as soon as it is known, and its end is written down; what comes then changes neither.

use std::path::{Component, Path, PathBuf};

use expctl_text::format::moment;

use super::submit::SubmitArgs;
use crate::console::{say, try_out};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::provenance::source_state;
use crate::remote::protocol::{HostReply, HostRequest};
use crate::remote::{
    Host, HostSession, LocalSubmission, ProjectTree, RemoteError, SubmissionResult, SubmissionRoot, Transferred,
    ask_again,
};

/// A submission there.
#[derive(Debug)]
pub struct Submitted {
    /// Its job; none where there was nothing to submit.
    pub job: Option<u64>,
    /// Still open: behind its answer, the other side removes old code.
    session: HostSession,
    /// Listens for Ctrl-C from the moment that the job was submitted.
    interrupt: Interrupt,
}

impl Submitted {
    /// End the connection, after what the other side does behind its answer. Returns what heard of Ctrl-C meanwhile.
    pub fn close(self) -> Interrupt {
        let host = self.session.host().to_owned();
        if !self.session.close() {
            say(format!(
                "warning: {host} did not end the connection in time; old code there may not have been removed"
            ));
        }
        self.interrupt
    }
}

/// The code as it is now, and the words of a verb on these configs, in the order in which it names them, for a machine that has the code.
pub fn tree_and_words(
    project: &Project,
    host: &Host,
    configs: &[&Path],
    passed: &[String],
) -> Result<(ProjectTree, Vec<String>), Failure> {
    let inside: Vec<PathBuf> = configs.iter().map(|config| inside(project.root(), config)).collect::<Result<_, _>>()?;
    let tree = ProjectTree::take(project, host)?;
    if let Some(config) = inside.iter().find(|config| !tree.has(config)) {
        let message = format!("{} is not among the files that travel", config.display());
        return Err(Failure::new(Exit::Config, message)
            .hint("git ignores it, it is not there, or it lies in data/ or results/ (docs/guide/remote.md)"));
    }
    tree.warning().into_iter().for_each(say);
    let mut words = passed.to_vec();
    let mut behind_verb = words.iter_mut().skip(1);
    for (given, config) in configs.iter().zip(&inside) {
        let config = config.to_str().ok_or_else(|| {
            let message = format!("{} is no text, which is all that another machine takes", config.display());
            Failure::new(Exit::Usage, message)
        })?;
        let given = given.to_str().unwrap_or_default();
        if let Some(word) = behind_verb.find(|word| *word == given) {
            config.clone_into(word);
        }
    }
    Ok((tree, words))
}

/// A path from the project's folder.
fn inside(root: &Path, path: &Path) -> Result<PathBuf, Failure> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| absolute(path));
    // `..` may lead anywhere, through a link too.
    let is_plain = |found: &PathBuf| found.components().all(|component| matches!(component, Component::Normal(_)));
    let below = |path: PathBuf, root: PathBuf| path.strip_prefix(root).map(Path::to_owned).ok().filter(is_plain);
    below(absolute(path), absolute(root)).or_else(|| below(real(path), real(root))).ok_or_else(|| {
        let message = format!("{} does not lie in the project's folder {}", path.display(), root.display());
        Failure::new(Exit::Usage, message).hint("only what lies in it travels; --root names another one")
    })
}

/// Submit a config there; the job goes to stdout as `NAME:NUMBER`.
pub fn submit(project: &Project, host: &Host, args: &SubmitArgs, passed: &[String]) -> Result<Submitted, Failure> {
    let (tree, words) = tree_and_words(project, host, &[args.config()], passed)?;
    let root = SubmissionRoot::Tree(tree.hash().to_owned());
    ask(project, host, root, &words, Some(&tree))
}

/// Run a verb there that submits a job on the code of another one.
pub fn submit_of_job(project: &Project, host: &Host, job: u64, passed: &[String]) -> Result<Submitted, Failure> {
    ask(project, host, SubmissionRoot::Job(job), passed, None)
}

/// Waiting is done here: a connection need not last as long as a job.
fn without_wait(words: &[String]) -> Vec<String> {
    words.iter().filter(|word| *word != "--wait").cloned().collect()
}

/// Say what was sent.
pub fn say_sent(host: &Host, sent: &Transferred) {
    if sent.files > 0 {
        say(format!("sent to {}: {}", host.name(), sent.words()));
    }
}

fn ask(
    project: &Project,
    host: &Host,
    root: SubmissionRoot,
    words: &[String],
    tree: Option<&ProjectTree>,
) -> Result<Submitted, Failure> {
    let folder = project.host_folder(host.name());
    host.address().check(host.name(), &folder)?;
    // The code of a past job is not that of this commit.
    let source = tree.and_then(|_| source_state(project));
    let arguments = without_wait(words);
    let waits = arguments.len() < words.len();
    let local = LocalSubmission::begin(&folder, host.address(), root, host.profile(), arguments, source)?;
    if let Some(begun) = local.resumed_from() {
        say(format!(
            "going on with the submission of {}, which has no job that is known here: it happens once",
            moment(begun)
        ));
    }
    if let Some(begun) = local.overtakes() {
        say(format!(
            "warning: the submission of {} with other code has no job that is known here, and may have one there: expctl status --on {}",
            moment(begun),
            host.name()
        ));
    }
    let (session, result) = asked(host, &folder, &local, tree).map_err(|error| {
        let again = error.is_of_connection().then_some("the same command again goes on with this submission");
        again.into_iter().fold(Failure::from(error), Failure::hint)
    })?;
    // From now on Ctrl-C ends no more than the waiting.
    let interrupt = Interrupt::listen();
    let job = result.job();
    if let Some(job) = job {
        print_id(host, job);
    }
    if result.is_final() {
        local.end(&result)?;
    }
    // Else verbs that read its records would show those of an earlier job of its number.
    if let Some(Err(error)) = job.map(|job| ask_again(&folder, job)) {
        say(format!("warning: {error}"));
    }
    ended(&result)?;
    if let Some(job) = job.filter(|_| !waits) {
        let name = host.name();
        say(format!("  progress: expctl watch {name}:{job}\n  stop it: expctl cancel {name}:{job}"));
    }
    Ok(Submitted { job, session, interrupt: interrupt? })
}

/// Send the code, and submit; returns the connection, which is still open.
fn asked(
    host: &Host,
    folder: &Path,
    local: &LocalSubmission,
    tree: Option<&ProjectTree>,
) -> Result<(HostSession, SubmissionResult), RemoteError> {
    let mut session = HostSession::open(host)?;
    session.claim(folder)?;
    if let Some(tree) = tree {
        say_sent(host, &tree.send(&mut session)?);
    }
    match session.ask(&HostRequest::Submit(local.order().clone()))? {
        HostReply::Submitted(result) => Ok((session, result)),
        _ => Err(session.other_answer()),
    }
}

/// Print the job, alone on stdout. It exists by now, and goes on even if stdout is closed.
fn print_id(host: &Host, job: u64) {
    let name = host.name();
    if let Err(e) = try_out(format_args!("{name}:{job}")) {
        say(format!("job {name}:{job} was submitted, but its id cannot be written to stdout: {e}"));
    }
}

/// Say what was said there, and fail as it failed there.
fn ended(result: &SubmissionResult) -> Result<(), Failure> {
    let said = result.stderr.trim_end();
    if result.exit == 0 {
        if !said.is_empty() {
            say(said);
        }
        return Ok(());
    }
    Err(Failure::rendered(Exit::from_code(result.exit).unwrap_or(Exit::Internal), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_named_from_the_folder_of_the_project() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("conf")).unwrap();
        std::fs::write(root.path().join("conf/a.toml"), "").unwrap();
        let inside = |path: &Path| inside(root.path(), path).ok();
        assert_eq!(inside(&root.path().join("conf/a.toml")), Some("conf/a.toml".into()));
        assert_eq!(inside(&root.path().join("conf/../conf/a.toml")), Some("conf/a.toml".into()));
        assert_eq!(inside(&root.path().join("conf/../../x.toml")), None);
        assert_eq!(inside(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn a_failure_there_is_one_here() {
        let result = |exit| SubmissionResult { exit, stdout: String::new(), stderr: "error: no\n".to_owned() };
        let failure = ended(&result(3)).unwrap_err();
        assert_eq!((failure.exit, failure.to_string().as_str()), (Exit::Config, "error: no"));
        assert!(ended(&result(0)).is_ok());
        assert_eq!(ended(&result(99)).unwrap_err().exit, Exit::Internal);
    }
}
