//! `expctl remote`: the far side of `--on`, which expctl calls over `ssh` in the folder of a project on a cluster.

use std::io::BufWriter;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exit::{Exit, Failure};
use crate::remote::protocol::PROTOCOL;
use crate::remote::{OnceSubmission, RemoteError, RemoteFolder, SubmissionRoot, serve};

/// Verbs of `expctl remote`.
#[derive(Debug, clap::Subcommand)]
pub enum RemoteCommand {
    /// Answer what is asked over a connection
    Serve(ServeArgs),
    /// Run a verb
    Run(RunThereArgs),
    /// Run a submission that was asked for over a connection
    RunSubmission(RunSubmissionArgs),
}

/// Arguments of `expctl remote serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Folder of the project here
    #[arg(long, value_name = "DIR")]
    folder: String,
}

/// Arguments of `expctl remote run`.
#[derive(Debug, clap::Args)]
pub struct RunThereArgs {
    /// Folder of the project here
    #[arg(long, value_name = "DIR")]
    folder: String,
    /// Version of the protocol that the other side speaks
    #[arg(long, value_name = "N")]
    protocol: u32,
    /// Run it on this tree of code instead of the one of the job that is named
    #[arg(long, value_name = "HASH")]
    tree: Option<String>,
    /// The job that the verb is about
    #[arg(long, value_name = "N")]
    job: Option<u64>,
    /// The profile of configs that name none
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Ask the verb to stop when standard input ends, and with it the connection
    #[arg(long)]
    tied: bool,
    /// The verb and its arguments
    #[arg(last = true, required = true, value_name = "WORD")]
    words: Vec<String>,
}

/// Arguments of `expctl remote run-submission`.
#[derive(Debug, clap::Args)]
pub struct RunSubmissionArgs {
    /// Folder of the project here
    #[arg(long, value_name = "DIR")]
    folder: String,
    /// The submission
    #[arg(long, value_name = "TOKEN")]
    token: String,
}

/// Be the far side.
pub fn run(command: &RemoteCommand) -> Result<(), Failure> {
    match command {
        RemoteCommand::Serve(args) => {
            let open = || RemoteFolder::open(&args.folder);
            let output = std::io::stdout().lock();
            Ok(serve(open, &mut std::io::stdin().lock(), &mut BufWriter::new(output))?)
        }
        RemoteCommand::Run(args) => run_here(args),
        RemoteCommand::RunSubmission(args) => {
            let folder = RemoteFolder::open(&args.folder)?;
            Ok(OnceSubmission::new(&folder, &args.token)?.run()?)
        }
    }
}

/// Become the verb, or start it.
fn run_here(args: &RunThereArgs) -> Result<(), Failure> {
    if args.protocol != PROTOCOL {
        let message = format!(
            "expctl {} there speaks version {PROTOCOL} of the protocol, this expctl speaks version {}",
            env!("CARGO_PKG_VERSION"),
            args.protocol
        );
        // Read on the other side.
        let older = if args.protocol < PROTOCOL { "here" } else { "there" };
        return Err(Failure::new(Exit::Cluster, message).hint(format!("update expctl {older}")));
    }
    let folder = RemoteFolder::open(&args.folder)?;
    let root = match (&args.tree, args.job) {
        (Some(hash), _) => folder.root(&SubmissionRoot::Tree(hash.clone()))?,
        (None, Some(job)) => folder.root_of_job(job),
        (None, None) => folder.path().to_owned(),
    };
    let mut command = folder.command(&root)?;
    if let Some(profile) = &args.profile {
        command.env("EXPCTL_PROFILE", profile);
    }
    command.args(&args.words);
    let failed = |source| Failure::from(RemoteError::Io { action: "start", path: "expctl".into(), source });
    if args.tied { run_tied(command).map_err(failed) } else { Err(failed(command.exec())) }
}

/// Start the verb, and end as it does. A verb that runs for long would otherwise go on when nobody hears of it any more.
fn run_tied(mut command: Command) -> std::io::Result<()> {
    let mut verb = command.stdin(Stdio::null()).spawn()?;
    let process = Pid::from_raw(verb.id().cast_signed());
    std::thread::spawn(move || {
        // Nothing is sent: it ends with the connection.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        // As Ctrl-C does.
        let _ = kill(process, Signal::SIGTERM);
    });
    let status = verb.wait()?;
    std::process::exit(status.code().unwrap_or(Exit::Incomplete as i32))
}
