//! `--on NAME`: a verb that runs on another machine, or here with the records of its jobs.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use super::remote_submit::{self, Submitted};
use super::search::SearchArgs;
use super::{Verb, dispatch, fetch, predict, run_plan, search};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::remote::protocol::{HostReply, HostRequest, MessageError, PROTOCOL};
use crate::remote::{
    self, EndedThere, FetchExtent, Host, HostSession, ProjectTree, RemoteError, ThereStreams, run_there,
};
use crate::search::SearchResult;

/// First and longest pause between two questions about a job.
const POLL: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];
/// First and longest pause between two connections.
const RECONNECT: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(300)];

/// Run a verb for the machine `name`. `passed` are its words.
pub fn run(project: &Project, name: &str, verb: Verb, passed: &[String]) -> Result<(), Failure> {
    let host = Host::find(project, name)?;
    refuse_options(name, &verb)?;
    match &verb {
        Verb::Submit(args) if args.run_options().only_asks() => {
            args.run_options().check()?;
            run_on_tree(project, &host, &[args.config()], ThereStreams::Printed, passed)
        }
        Verb::Check(args) => run_on_tree(project, &host, &args.configs(), ThereStreams::Printed, passed),
        Verb::Plan(args) => run_on_tree(project, &host, &[args.config()], ThereStreams::Printed, passed),
        Verb::Data(_) => run_on_tree(project, &host, &[], ThereStreams::Tied, passed),
        Verb::Search(args) => run_search(project, &host, args, passed),
        Verb::Submit(args) => {
            args.run_options().check()?;
            let submitted = remote_submit::submit(project, &host, args, passed)?;
            end(project, &host, submitted, args.run_options().waits())
        }
        Verb::Rerun(args) if !args.run_options().only_asks() => {
            let words = known_as(&host, passed);
            let submitted = remote_submit::submit_of_job(project, &host, args.job(), &words)?;
            end(project, &host, submitted, args.run_options().waits())
        }
        Verb::Isolate(args) if !args.run_options().only_asks() => {
            let submitted = remote_submit::submit_of_job(project, &host, args.job(), passed)?;
            end(project, &host, submitted, args.run_options().waits())
        }
        Verb::Predict(args) if args.verifies() => {
            let submitted = remote_submit::submit_of_job(project, &host, args.job(), passed)?;
            let job = submitted.job;
            let interrupt = submitted.close();
            let Some(job) = job else { return Ok(()) };
            wait(project, &host, job, &interrupt)?;
            let there = project.clone().of_host(host.name());
            let ended = run_plan::finish(&there, job, Ok(()));
            predict::show_verified(&there, job, args)?;
            ended
        }
        Verb::Watch(_) => {
            let is_watched = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
            let streams = if is_watched { ThereStreams::Terminal } else { ThereStreams::Printed };
            let options = ThereOptions { job: named_job(&verb), streams, ..ThereOptions::default() };
            pass_on(&host, options, passed)
        }
        Verb::Rerun(_) | Verb::Isolate(_) => {
            let options = ThereOptions { job: named_job(&verb), profile: host.profile(), ..ThereOptions::default() };
            pass_on(&host, options, passed)
        }
        Verb::Retry(_) | Verb::Status(_) | Verb::Logs(_) | Verb::Cancel(_) | Verb::Diff(_) | Verb::Doctor(_) => {
            pass_on(&host, ThereOptions { job: named_job(&verb), ..ThereOptions::default() }, passed)
        }
        Verb::Fetch(args) => fetch::run(project, &host, args),
        Verb::Report(args) => read(project, &host, args.job().map(|job| vec![job]), FetchExtent::Records, verb),
        Verb::Compare(args) => read(project, &host, numbers(args.names()), FetchExtent::Records, verb),
        Verb::Export(args) => read(project, &host, numbers([args.name()]), FetchExtent::Records, verb),
        Verb::Trace(args) => read(project, &host, Some(args.numbers()), FetchExtent::Traces, verb),
        Verb::Timings(args) => read(project, &host, args.jobs(), FetchExtent::Records, verb),
        Verb::Predict(args) => read(project, &host, Some(vec![args.job()]), FetchExtent::Records, verb),
        // Of all jobs.
        Verb::History(_) | Verb::Site(_) => read(project, &host, Some(Vec::new()), FetchExtent::Records, verb),
        _ => Err(Failure::new(Exit::Usage, format!("--on {name}: this verb works on this machine alone"))
            .hint(
                "check, plan, data, submit, search, status, watch, logs, cancel, retry, rerun, isolate, diff and doctor \
                 run there",
            )
            .hint("fetch, report, compare, history, site, predict, timings, trace and export read its records here")),
    }
}

/// Refuse options that make no sense for another machine, before anything is sent.
fn refuse_options(name: &str, verb: &Verb) -> Result<(), Failure> {
    let (option, instead) = match verb {
        Verb::Watch(args) if args.writes_metrics() => {
            ("watch --metrics writes a file of the machine that it runs on", "log in and run it there")
        }
        Verb::Site(args) if args.repeats() => {
            ("site --every follows the ledger of this machine", "without --every it writes the pages once")
        }
        Verb::Data(args) if args.is_of_files() => (
            "data convert --out converts files of the machine that it runs on, which do not travel",
            "log in and run it there",
        ),
        _ => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, format!("--on {name}: {option}")).hint(instead))
}

/// The job whose code a verb runs on.
fn named_job(verb: &Verb) -> Option<u64> {
    match verb {
        Verb::Status(args) => args.first_job(),
        Verb::Watch(args) => Some(args.job()),
        Verb::Logs(args) => Some(args.job()),
        Verb::Cancel(args) => Some(args.job()),
        Verb::Retry(args) => Some(args.job()),
        Verb::Rerun(args) => Some(args.job()),
        Verb::Isolate(args) => Some(args.job()),
        Verb::Diff(args) => args.first_job(),
        _ => None,
    }
}

/// The numbers of jobs in names such as `428/430` and `published:392`; none if there are none.
fn numbers<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Vec<u64>> {
    let jobs: Vec<u64> =
        names.into_iter().flat_map(|name| name.split('/')).filter_map(|name| name.parse().ok()).collect();
    (!jobs.is_empty()).then_some(jobs)
}

/// Fetch the records of `jobs` (all if none is named, nothing for `None`), and run a verb on the ledger of the machine here.
fn read(
    project: &Project,
    host: &Host,
    jobs: Option<Vec<u64>>,
    extent: FetchExtent,
    verb: Verb,
) -> Result<(), Failure> {
    let there = project.clone().of_host(host.name());
    if let Some(jobs) = jobs {
        match fetch::fetch_jobs(project, host, &jobs, extent) {
            Ok(_) => {}
            // On the way, without a network.
            Err(error) if error.is_of_connection() && are_here(&there, &jobs) => {
                say(format!("warning: {error}; this is what was fetched before"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    dispatch(verb, &there)
}

/// Whether records of these jobs are here; of any jobs, if none is named.
fn are_here(there: &Project, jobs: &[u64]) -> bool {
    there.runs().is_dir() && jobs.iter().all(|job| there.job(*job).record_path().exists())
}

/// Open a connection and send a tree.
fn send(host: &Host, tree: &ProjectTree) -> Result<(), Failure> {
    let sent = tree.send(&mut HostSession::open(host)?)?;
    remote_submit::say_sent(host, &sent);
    Ok(())
}

/// How a verb runs there.
#[derive(Clone, Copy, Debug, Default)]
struct ThereOptions<'a> {
    /// The code; else that of the job.
    tree: Option<&'a ProjectTree>,
    /// The job that the verb is about.
    job: Option<u64>,
    /// The profile of configs that name none.
    profile: Option<&'a str>,
    /// What becomes of its output.
    streams: ThereStreams,
}

/// Run a verb there; its exit code becomes that of this process.
fn pass_on(host: &Host, options: ThereOptions<'_>, words: &[String]) -> Result<(), Failure> {
    run_verb(host, options, words).map(drop)
}

/// Run a verb there, which has to succeed: another exit code than 0 becomes that of this process. Returns what [`ThereStreams::Answered`] gives.
fn run_verb(host: &Host, options: ThereOptions<'_>, words: &[String]) -> Result<Vec<u8>, Failure> {
    let words = known_as(host, words);
    let (protocol, job) = (PROTOCOL.to_string(), options.job.map(|job| job.to_string()));
    let mut arguments = vec!["remote", "run", "--folder", host.folder(), "--protocol", protocol.as_str()];
    arguments.extend(options.tree.into_iter().flat_map(|tree| ["--tree", tree.hash()]));
    arguments.extend(job.iter().flat_map(|job| ["--job", job.as_str()]));
    arguments.extend(options.profile.into_iter().flat_map(|profile| ["--profile", profile]));
    let is_tied = matches!(options.streams, ThereStreams::Tied | ThereStreams::Answered);
    if is_tied {
        arguments.push("--tied");
    }
    arguments.push("--");
    arguments.extend(words.iter().map(String::as_str));
    let ended = run_there(host, &arguments, options.streams).map_err(|error| {
        let again = (is_tied && error.is_of_connection()).then_some("the same command again goes on with it");
        again.into_iter().fold(Failure::from(error), Failure::hint)
    })?;
    match ended {
        EndedThere { code: 0, answer } => Ok(answer),
        EndedThere { code, .. } => std::process::exit(code),
    }
}

/// Send the code as it is now, and run a verb on these configs of it there.
fn run_on_tree(
    project: &Project,
    host: &Host,
    configs: &[&Path],
    streams: ThereStreams,
    passed: &[String],
) -> Result<(), Failure> {
    let (tree, words) = remote_submit::tree_and_words(project, host, configs, passed)?;
    send(host, &tree)?;
    pass_on(
        host,
        ThereOptions { tree: Some(&tree), profile: host.profile(), streams, ..ThereOptions::default() },
        &words,
    )
}

/// The words of a verb that is told how its machine is called here: what it proposes is typed here.
fn known_as(host: &Host, words: &[String]) -> Vec<String> {
    // Behind the verb: at the end it may be behind `--`.
    let (verb, arguments) = words.split_at(words.len().min(1));
    let named = ["--known-as".to_owned(), host.name().to_owned()];
    [verb, &named, arguments].concat()
}

/// Search there: its rounds are jobs of that ledger, and what it measured is there. The result is shown here, and the records of the rounds are
/// fetched.
fn run_search(project: &Project, host: &Host, args: &SearchArgs, passed: &[String]) -> Result<(), Failure> {
    host.address().check(host.name(), &project.host_folder(host.name()))?;
    let (tree, words) = remote_submit::tree_and_words(project, host, &[args.config()], passed)?;
    send(host, &tree)?;
    let streams = ThereStreams::Answered;
    let options = ThereOptions { tree: Some(&tree), profile: host.profile(), streams, ..ThereOptions::default() };
    let result = search_result(host.name(), &run_verb(host, options, &words)?)?;
    search::show(&project.clone().of_host(host.name()), &result, args)?;
    // Earlier jobs of these numbers may have been fetched, from before the folder there was emptied.
    let folder = project.host_folder(host.name());
    result.jobs.iter().try_for_each(|job| remote::ask_again(&folder, *job))?;
    fetch::fetch_jobs(project, host, &result.jobs, FetchExtent::Records)?;
    Ok(())
}

/// The result in the last line of an answer: a login may print before it.
fn search_result(host: &str, answer: &[u8]) -> Result<SearchResult, RemoteError> {
    let last = answer.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let result: SearchResult = serde_json::from_slice(last)
        .map_err(|source| RemoteError::Answer { host: host.to_owned(), source: MessageError::Malformed { source } })?;
    // The note is named after it.
    if Path::new(&result.config).file_name() != Some(OsStr::new(&result.config)) {
        return Err(RemoteError::UnsafePath { path: result.config });
    }
    Ok(result)
}

/// Stay with a job that was submitted, if that was asked for.
fn end(project: &Project, host: &Host, submitted: Submitted, waits: bool) -> Result<(), Failure> {
    let job = submitted.job;
    let interrupt = submitted.close();
    match job {
        Some(job) if waits => {
            wait(project, host, job, &interrupt)?;
            run_plan::finish(&project.clone().of_host(host.name()), job, Ok(()))
        }
        _ => Ok(()),
    }
}

/// Wait until a job there has ended, however often the connection is lost; then fetch its records.
fn wait(project: &Project, host: &Host, job: u64, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut pauses = Pauses::new(RECONNECT);
    let mut shown = String::new();
    let mut said = false;
    let folder = project.host_folder(host.name());
    loop {
        if interrupt.is_set() {
            return Err(goes_on(host, job));
        }
        let fetched = HostSession::open(host).and_then(|mut session| {
            pauses = Pauses::new(RECONNECT);
            if said {
                say(format!("{} answers again", host.name()));
                said = false;
            }
            poll_until_end(&mut session, job, &mut shown, interrupt)?;
            if interrupt.is_set() {
                return Ok(());
            }
            remote::fetch(&mut session, &folder, &[job], FetchExtent::Records).map(drop)
        });
        match fetched {
            _ if interrupt.is_set() => return Err(goes_on(host, job)),
            Ok(()) => return Ok(()),
            Err(error) if error.is_of_connection() => {
                if !said {
                    say(format!("{error}; job {}:{job} goes on, and I try again until Ctrl-C", host.name()));
                    said = true;
                }
                if pauses.wait(interrupt) {
                    return Err(goes_on(host, job));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ask about a job over one connection until it has ended, or the user stops it.
fn poll_until_end(
    session: &mut HostSession,
    job: u64,
    shown: &mut String,
    interrupt: &Interrupt,
) -> Result<(), RemoteError> {
    let mut pauses = Pauses::new(POLL);
    loop {
        let HostReply::State { summary, ended } = session.ask(&HostRequest::State { job })? else {
            return Err(session.other_answer());
        };
        let summary = printable(&summary);
        if *shown != summary {
            say(format!("job {}:{job}: {summary}", session.host()));
            *shown = summary;
            pauses = Pauses::new(POLL);
        }
        if ended || pauses.wait(interrupt) {
            return Ok(());
        }
    }
}

/// A text without characters that steer a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What is said where the user stops waiting.
fn goes_on(host: &Host, job: u64) -> Failure {
    let name = host.name();
    Failure::rendered(Exit::Incomplete, format!("job {name}:{job} goes on without me"))
        .hint(format!("watch it with `expctl watch {name}:{job}`, stop it with `expctl cancel {name}:{job}`"))
}

/// Pauses that grow.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn new([next, longest]: [Duration; 2]) -> Self {
        Self { next, longest }
    }

    /// Wait; whether the user stopped it.
    fn wait(&mut self, interrupt: &Interrupt) -> bool {
        let begun = std::time::Instant::now();
        while begun.elapsed() < self.next && !interrupt.is_set() {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.next = (self.next * 2).min(self.longest);
        interrupt.is_set()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_does_not_steer_the_terminal() {
        assert_eq!(printable("1 running\x1b]0;x\x07\r\n"), "1 running]0;x");
    }

    #[test]
    fn a_result_is_one_of_a_search_and_names_no_other_folder() {
        let answer = |config: &str| {
            let result = serde_json::json!({
                "config": config, "variant": "v", "class": "measured", "end": "budget", "gain": null, "gain_runs": 0, "set": [], "rows": [],
                "runner_up": null, "refused": [], "jobs": [4, 5], "trial_s": 1.5, "grid_s": 9.0, "grid_repeats": 3, "budget_s": null,
                "min_gain_percent": 3.0, "max_repeats": 5, "other_batch_sizes": false
            });
            search_result("far", format!("Welcome\n{result}\n").as_bytes())
        };
        assert_eq!(answer("small").unwrap().jobs, [4, 5]);
        for config in ["../small", "/small", "a/b", "a/", "..", ""] {
            assert!(matches!(answer(config), Err(RemoteError::UnsafePath { .. })), "{config}");
        }
        for other in [&b""[..], b"Welcome\n", b"{}\n"] {
            assert!(matches!(search_result("far", other), Err(RemoteError::Answer { .. })));
        }
    }

    #[test]
    fn jobs_are_the_numbers_in_names() {
        assert_eq!(numbers(["428/430", "published:392", "12"]), Some(vec![428, 430, 12]));
        assert_eq!(numbers(["published:392"]), None);
    }
}
