//! `expctl fetch`, and the fetching before verbs that read the records of another machine.

use expctl_text::format::count;

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::remote::{FetchExtent, FetchedJobs, Host, HostSession, RemoteError, fetch, fetched_before};

/// Arguments of `expctl fetch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl fetch --on delta\n  expctl fetch delta:392 --all")]
pub struct FetchArgs {
    /// The jobs [default: all]
    #[arg(value_name = "JOB")]
    jobs: Vec<u64>,
    /// Everything: traces, checkpoints, weights and the copies of the code, too
    #[arg(long)]
    all: bool,
}

/// Copy the records of jobs of `host` here; prints the folder of its ledger.
pub fn run(project: &Project, host: &Host, args: &FetchArgs) -> Result<(), Failure> {
    let extent = if args.all { FetchExtent::All } else { FetchExtent::Records };
    let fetched = fetch_jobs(project, host, &args.jobs, extent)?;
    let jobs = count(fetched.jobs.len() as u64, "job");
    say(match fetched.transferred.files {
        0 => format!("{jobs} of {}: all is here", host.name()),
        _ => format!("{jobs} of {}: {}", host.name(), fetched.transferred.words()),
    });
    out(project.clone().of_host(host.name()).runs().display());
    if fetched.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<String> = fetched.unknown.iter().map(u64::to_string).collect();
    Err(Failure::new(Exit::Refused, format!("{} has no job {}", host.name(), unknown.join(", ")))
        .hint(format!("expctl status --on {}", host.name())))
}

/// Where no machine is named.
pub fn no_host() -> Failure {
    Failure::new(Exit::Usage, "fetch copies records from another machine: name it").hint("expctl fetch --on NAME")
}

/// Open a connection and copy the records of jobs, or of all jobs. Connects to nothing if all were fetched before.
pub fn fetch_jobs(
    project: &Project,
    host: &Host,
    jobs: &[u64],
    extent: FetchExtent,
) -> Result<FetchedJobs, RemoteError> {
    let folder = project.host_folder(host.name());
    host.address().check(host.name(), &folder)?;
    match fetched_before(&folder, jobs, extent)? {
        Some(fetched) => Ok(fetched),
        None => fetch(&mut HostSession::open(host)?, &folder, jobs, extent),
    }
}
