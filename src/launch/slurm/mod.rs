//! Jobs on Slurm: an array per submission (several where trials ask for different resources, or are many), a task per
//! trial (or per list of trials), an `srun` per trial.
//!
//! Invariant: Slurm only knows where and when trials run. What a trial is, and how it ended, is in the ledger.

mod array_plan;
mod array_task;
mod backend;
mod recover;
mod script;
mod usage;
mod wait;

pub(crate) use array_plan::Resources;
pub use array_task::{Lane, TaskStop, conclude_task, stage_task};
pub use backend::{Adjustment, SlurmBackend};
pub use script::{SHIPPED_TEMPLATE, batch_template, render, scripts};
use slurm_client::{RestOptions, SetupError, Slurm, SlurmError};
pub use usage::{awaits_usage, collect_missing_usage, collect_usage};
pub use wait::{Standing, Standings, TrialProgress, WaitProgress};

use crate::exit::{Exit, Failure};

/// The variable that names a file with a token for slurmrestd.
const TOKEN_FILE: &str = "EXPCTL_SLURM_TOKEN_FILE";

/// Options for slurmrestd, from the environment of `slurm`.
pub fn rest_options(slurm: &Slurm) -> RestOptions {
    RestOptions {
        token_file: slurm.variable(TOKEN_FILE).map(Into::into),
        user_agent: Some(concat!("expctl/", env!("CARGO_PKG_VERSION")).to_owned()),
    }
}

impl From<SlurmError> for Failure {
    fn from(error: SlurmError) -> Self {
        let exit = match error {
            SlurmError::UnsupportedOption { .. } => Exit::Config,
            SlurmError::Script(_) => Exit::Internal,
            _ => Exit::Cluster,
        };
        let failure = Self::new(exit, &error);
        match error {
            SlurmError::Setup(error) => failure.hint(setup_hint(&error)),
            SlurmError::TokenRefused { .. } => failure
                .hint("it may have expired; a new one: export $(scontrol token lifespan=SECONDS)")
                .hint(format_args!("{TOKEN_FILE}=FILE is read anew for every request")),
            SlurmError::UnsupportedOption { .. } => failure.hint("sbatch takes every option: backend = \"slurm\""),
            _ => failure,
        }
    }
}

/// The hint for a missing or malformed setting of slurmrestd.
fn setup_hint(error: &SetupError) -> String {
    match error {
        SetupError::NoUrl
        | SetupError::InvalidUrl { .. }
        | SetupError::UrlNotPlainHttp
        | SetupError::HttpClient { .. } => "for example: export SLURMRESTD_URL=http://HOST:6820".to_owned(),
        SetupError::InvalidPath { .. } | SetupError::TokenNotSendable => "see SLURM_USER and SLURM_JWT".to_owned(),
        SetupError::NoUser => "export USER".to_owned(),
        SetupError::InvalidToken => "export $(scontrol token)".to_owned(),
        SetupError::TokenFile { .. } => format!("{TOKEN_FILE} names it"),
        SetupError::TokenFileMode { path, .. } => {
            format!("chmod 600 {}, and make a new token: this one may be known", path.display())
        }
        SetupError::InvalidTokenFile { path } => format!("scontrol token > {}", path.display()),
        SetupError::TokenCommand { .. } | SetupError::NoTokenInAnswer => {
            format!("set SLURM_JWT to a token, or {TOKEN_FILE} to a file that holds one")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_to_do() {
        let mode = SetupError::TokenFileMode { path: "/t".into(), mode: 0o640 };
        let shown = Failure::from(SlurmError::from(mode)).to_string();
        let expected = "error: others may read or write /t, which holds a token (its mode is 640)\n  hint: chmod 600 /t, and make a new \
                        token: this one may be known";
        assert_eq!(shown, expected);
        let option = SlurmError::UnsupportedOption { option: "--switches=1".to_owned(), reason: "no".to_owned() };
        assert_eq!(Failure::from(option).exit, Exit::Config);
    }
}
