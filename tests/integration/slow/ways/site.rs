//! A cluster with a project on it, used in one of the possible ways.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expctl_ledger::{AttemptDir, JobArrays, JobDir, Outcome, TrialState};
use expctl_settings::Trial;
use slurm_client::Availability;

use crate::common::cluster::Cluster;
use crate::common::{SMALL, text, worker};

/// How Slurm is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// slurmdbd runs, so `sacct` answers.
    pub accounting: bool,
    /// Through slurmrestd, not through Slurm's commands.
    pub rest: bool,
    /// An ordinary user submits, not root.
    pub user: Option<&'static str>,
    /// Each node has a network of its own.
    pub netns: bool,
}

impl Way {
    /// Options of the cluster.
    fn options(self) -> Vec<String> {
        let mut options = vec!["--nodes", "4", "--max-array-size", "5"];
        for (wanted, option) in [(self.accounting, "--dbd"), (self.rest, "--rest"), (self.netns, "--netns")] {
            options.extend(wanted.then_some(option));
        }
        let users = self.user.map(|user| format!("root,{user}"));
        if let Some(users) = &users {
            options.extend(["--users", users]);
        }
        options.into_iter().map(str::to_owned).collect()
    }

    /// What `submit --backend` is given.
    const fn backend(self) -> &'static str {
        if self.rest { "slurmrest" } else { "slurm" }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounting = if self.accounting { "accounting" } else { "no accounting" };
        write!(f, "{}, {accounting}, as {}", self.backend(), self.user.unwrap_or("root"))
    }
}

/// The cluster, and a project that the user of the way owns.
pub struct Site {
    pub cluster: Cluster,
    pub way: Way,
    root: PathBuf,
    /// Where the user finds both programs.
    programs: PathBuf,
    /// Folder of libtorch, if it is not where the build left it.
    libtorch: Option<PathBuf>,
}

impl Site {
    /// Four nodes whose arrays are short, and a project with the data that most scenarios use; none where no cluster can run.
    pub fn new(way: Way) -> Option<Self> {
        let options = way.options();
        let cluster = Cluster::start(&options.iter().map(String::as_str).collect::<Vec<_>>())?;
        let built = worker().parent().unwrap().to_owned();
        let site = match way.user {
            None => Self { root: cluster.path().join("project"), programs: built, libtorch: None, cluster, way },
            Some(user) => {
                // Makes the home, which the build under root's home is out of reach for.
                assert!(cluster.as_user(user, &["true"]).status.success());
                let home = cluster.home(user);
                let (programs, libtorch) = (home.join("bin"), home.join("libtorch"));
                for (from, names, to) in
                    [(&built, vec!["expctl", "expctl-worker"], &programs), (&linked(), vec![], &libtorch)]
                {
                    bring(from, &names, to);
                }
                Self { root: home.join("project"), programs, libtorch: Some(libtorch), cluster, way }
            }
        };
        for folder in ["conf", "experiments"] {
            std::fs::create_dir_all(site.root.join(folder)).unwrap();
        }
        // A rank that gets no processor for some seconds is not lost.
        std::fs::write(site.conf(), SMALL.replace("heartbeat_timeout_s = 5", "heartbeat_timeout_s = 120")).unwrap();
        let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        run(Command::new("cp").arg("-r").arg(studies).arg(&site.root));
        if let Some(user) = way.user {
            run(Command::new("chown").args(["-R", &format!("{user}:")]).arg(&site.root));
        }
        site.ok(&["data", "build", "006-kuzmin-tmi", "--samples", "200", "--scale", "0.05"]);
        Some(site)
    }

    /// The project.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn conf(&self) -> PathBuf {
        self.root.join("conf/small.toml")
    }

    /// `expctl` as the user of this way calls it.
    pub fn expctl(&self, args: &[&str]) -> Command {
        let program = self.programs.join("expctl");
        let mut command = match self.way.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/dev-cluster/as.sh"));
                command.arg(self.cluster.path()).arg(user).arg(program);
                command
            }
        };
        command.arg("--root").arg(&self.root).args(args).stdin(Stdio::null()).env("NO_COLOR", "1");
        for variable in ["EXPCTL_ROOT", "EXPCTL_DATA", "EXPCTL_RUNS", "EXPCTL_BACKEND", "EXPCTL_LOG"] {
            command.env_remove(variable);
        }
        command
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .env("EXPCTL_WORKER", self.programs.join("expctl-worker"));
        command.envs(self.libtorch.iter().map(|folder| ("LD_LIBRARY_PATH", folder)));
        command.envs(self.cluster.env());
        if self.way.rest {
            // Who asks is in the requests; the token comes from `scontrol token`.
            command.env("SLURM_USER", self.way.user.unwrap_or("root")).env_remove("SLURM_JWT");
        }
        command
    }

    /// Run to the end, and expect success; returns stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        succeeded(&self.expctl(args).output().unwrap(), args)
    }

    /// Submit the small config with these settings, and more options; returns what is on stdout, the job's number.
    pub fn submit(&self, settings: &[&str], options: &[&str]) -> String {
        let args = self.submission(settings, options);
        self.ok(&args.iter().map(String::as_str).collect::<Vec<_>>()).trim().to_owned()
    }

    /// The arguments of [`Self::submit`].
    pub fn submission(&self, settings: &[&str], options: &[&str]) -> Vec<String> {
        let conf = self.conf();
        let mut args = vec!["submit", conf.to_str().unwrap(), "--backend", self.way.backend()];
        args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        args.extend(options);
        args.into_iter().map(str::to_owned).collect()
    }

    /// A job of the ledger.
    pub fn job(&self, id: &str) -> JobDir {
        JobDir::new(self.root.join("results/runs").join(id))
    }

    /// Its trials.
    pub fn trials(&self, id: &str) -> Vec<Trial> {
        self.job(id).record().unwrap().trials
    }

    /// Its arrays.
    pub fn arrays(&self, id: &str) -> JobArrays {
        JobArrays::load(&self.job(id), id.parse().unwrap(), self.trials(id).len()).unwrap()
    }

    /// The attempts of all trials, in the order of the trials.
    pub fn attempts(&self, id: &str) -> Vec<Vec<AttemptDir>> {
        self.trials(id).iter().map(|trial| self.job(id).attempts(&trial.id).unwrap()).collect()
    }

    /// The only attempt of each trial, all of them completed.
    pub fn completed(&self, id: &str) -> Vec<AttemptDir> {
        let only = |mut attempts: Vec<AttemptDir>| {
            assert_eq!(attempts.len(), 1, "job {id}");
            let attempt = attempts.remove(0);
            let outcome = outcome(&attempt);
            assert_eq!(outcome.state, TrialState::Completed, "job {id}: {outcome:?}");
            attempt
        };
        self.attempts(id).into_iter().map(only).collect()
    }

    /// The note of a job, with what Slurm saw of it, from whichever source this way has.
    pub fn note(&self, id: &str) -> String {
        let note = std::fs::read_to_string(self.root.join(format!("results/small_{id}.md"))).unwrap();
        assert!(note.contains("### What Slurm saw"), "{note}");
        for attempts in self.attempts(id) {
            // Of a task that was requeued, only the accounting knows more than the last try.
            let known = if self.way.accounting { &attempts[..] } else { &attempts[attempts.len() - 1..] };
            known.iter().for_each(|attempt| self.was_seen(attempt));
        }
        note
    }

    fn was_seen(&self, attempt: &AttemptDir) {
        let usage = attempt.slurm_usage().unwrap().unwrap_or_else(|| panic!("{}", attempt.path().display()));
        let own = &usage.usage;
        assert!(own.nodes.as_ref().is_some_and(|nodes| nodes.starts_with('n')), "{usage:?}");
        assert!(own.elapsed_s.is_some() && own.started <= own.ended, "{usage:?}");
        // The controller is asked where there is no accounting.
        assert_eq!(usage.source == "sacct", self.way.accounting, "{usage:?}");
    }

    /// Let arrays have up to 1000 tasks from now on; jobs are not touched by it.
    pub fn allow_long_arrays(&self) {
        let conf = std::fs::read_to_string(self.cluster.conf()).unwrap();
        let longer = conf.replace("MaxArraySize=5\n", "MaxArraySize=1001\n");
        assert_ne!(conf, longer, "{conf}");
        std::fs::write(self.cluster.conf(), longer).unwrap();
        self.cluster.node("down", "ctld");
        self.cluster.node("up", "ctld");
        self.cluster.until("the controller", || self.cluster.slurm.availability() == Availability::Ready);
    }

    /// What a job wrote is the user's own, and nobody else's.
    pub fn everything_belongs_to_the_user(&self) {
        let owner = self.way.user.unwrap_or("root");
        let others = Command::new("find").arg(&self.root).args(["!", "-user", owner]).output().unwrap();
        assert_eq!((text(&others.stdout), text(&others.stderr)), (String::new(), String::new()));
    }
}

/// What an attempt ended with.
pub fn outcome(attempt: &AttemptDir) -> Outcome {
    attempt.outcome().unwrap().unwrap_or_else(|| panic!("{} has not ended", attempt.path().display()))
}

/// Digests of the parameters that its ranks ended with.
pub fn digests(attempt: &AttemptDir) -> Vec<String> {
    outcome(attempt).ranks.iter().map(|rank| rank.parameters_digest.clone().unwrap()).collect()
}

/// The stdout of a command that succeeded.
pub fn succeeded(output: &Output, args: &[&str]) -> String {
    assert!(output.status.success(), "{args:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

/// The folder of the libtorch that the worker was linked with.
fn linked() -> PathBuf {
    expctl::program::libtorch_folder(&worker()).unwrap_or_else(|| panic!("the worker finds no libtorch"))
}

/// Bring files (all, if none is named) into a new folder: as links, since they are large, or as copies where that cannot be.
fn bring(from: &Path, names: &[&str], to: &Path) {
    std::fs::create_dir(to).unwrap();
    let all = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap());
    for entry in all.filter(|entry| names.is_empty() || names.iter().any(|name| entry.file_name() == **name)) {
        // Through links, to the file that is there in the end.
        let file = entry.path().canonicalize().unwrap();
        let here = to.join(entry.file_name());
        if file.metadata().unwrap().is_dir() {
            continue;
        }
        if std::fs::hard_link(&file, &here).is_err() {
            std::fs::copy(&file, &here).unwrap();
        }
        assert!(here.metadata().unwrap().size() > 0 || file.metadata().unwrap().size() == 0);
    }
}
