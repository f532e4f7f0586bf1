//! Who we are to slurmrestd. Invariant: a token is shown to nobody but slurmrestd.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::launch::slurm::tools::{Slurm, ToolError};

/// The variable with the name of a file that holds a token.
pub(super) const TOKEN_FILE: &str = "EXPCTL_SLURM_TOKEN_FILE";
/// How long a token that `scontrol` makes for us is good, s: Slurm's own default.
const LIFESPAN_S: u64 = 1800;

/// A token, which does not show itself.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    /// A token as somebody wrote it: bare, or as the `SLURM_JWT=…` that `scontrol token` prints.
    fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let token = text.strip_prefix("SLURM_JWT=").unwrap_or(text);
        // What a token looks like (three parts in base64url), so that no page of a portal is sent as one.
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        (!token.is_empty() && token.chars().all(valid)).then(|| Self(token.to_owned()))
    }

    /// The token itself, for a header.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Where tokens come from.
enum Source {
    /// `SLURM_JWT`.
    Given(Secret),
    /// A file, which somebody may write anew whenever a token expires.
    File(PathBuf),
    /// `scontrol token`, asked again when half of a token's life is over.
    Command(Slurm, Mutex<Option<(Secret, Instant)>>),
}

/// A user and that user's tokens.
pub(super) struct Credentials {
    /// The user.
    pub user: String,
    source: Source,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// From `SLURM_USER`, `USER` or `LOGNAME`, and `SLURM_JWT`, `EXPCTL_SLURM_TOKEN_FILE` or the command `scontrol token`.
    pub fn of(slurm: &Slurm) -> Result<Self, ToolError> {
        let environment = slurm.environment();
        let set = |name: &str| {
            let value = environment.get(std::ffi::OsStr::new(name))?.to_str()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let user = ["SLURM_USER", "USER", "LOGNAME"].into_iter().find_map(set).ok_or_else(|| {
            setup(
                "slurmrestd has to be told a user name, and none of SLURM_USER, USER and LOGNAME is set",
                "export USER",
            )
        })?;
        let source = match (set("SLURM_JWT"), set(TOKEN_FILE)) {
            (Some(token), _) => Source::Given(
                Secret::new(&token)
                    .ok_or_else(|| setup("SLURM_JWT does not hold a token", "export $(scontrol token)"))?,
            ),
            (None, Some(file)) => Source::File(file.into()),
            (None, None) => Source::Command(slurm.clone(), Mutex::new(None)),
        };
        Ok(Self { user, source })
    }

    /// A token that is good now, as far as can be told here.
    pub fn token(&self) -> Result<Secret, ToolError> {
        match &self.source {
            Source::Given(token) => Ok(token.clone()),
            Source::File(path) => read(path),
            Source::Command(slurm, last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                match &*last {
                    Some((token, made)) if made.elapsed() < Duration::from_secs(LIFESPAN_S / 2) => Ok(token.clone()),
                    _ => {
                        let token = make(slurm)?;
                        *last = Some((token.clone(), Instant::now()));
                        Ok(token)
                    }
                }
            }
        }
    }
}

fn setup(message: impl Into<String>, hint: impl Into<String>) -> ToolError {
    ToolError::Setup { message: message.into(), hint: hint.into() }
}

/// The token in a file that nobody else may read.
fn read(path: &Path) -> Result<Secret, ToolError> {
    let name = path.display();
    let failed =
        |e: std::io::Error| setup(format!("cannot read the token in {name}: {e}"), format!("{TOKEN_FILE} names it"));
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(setup(
            format!("others may read or write {name}, which holds a token (its mode is {:03o})", mode & 0o777),
            format!("chmod 600 {name}, and make a new token: this one may be known"),
        ));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Secret::new(&text).ok_or_else(|| setup(format!("{name} does not hold a token"), format!("scontrol token > {name}")))
}

fn make(slurm: &Slurm) -> Result<Secret, ToolError> {
    let hint = format!("set SLURM_JWT to a token, or {TOKEN_FILE} to a file that holds one");
    let lifespan = format!("lifespan={LIFESPAN_S}");
    let answer = slurm
        .run("scontrol", ["token", lifespan.as_str()])
        .map_err(|e| setup(format!("no token for slurmrestd: {e}"), hint.clone()))?;
    // Sites print greetings; the token is the last line. Whatever else is there is not shown: it may hold the token.
    let token = answer.trim().lines().last().filter(|line| line.starts_with("SLURM_JWT=")).and_then(Secret::new);
    token.ok_or_else(|| setup("scontrol token did not answer with a token", hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Slurm {
        let none = Slurm::from_environment().with_variable("SLURM_JWT", "").with_variable(TOKEN_FILE, "");
        let start = none.with_variable("SLURM_USER", "ada");
        variables.iter().fold(start, |slurm, (name, value)| slurm.with_variable(*name, *value))
    }

    #[test]
    fn a_token_does_not_show_itself() {
        let credentials = Credentials::of(&with(&[("SLURM_JWT", "eyJ.eyJ.c2VjcmV0")])).unwrap();
        assert_eq!(credentials.token().unwrap().reveal(), "eyJ.eyJ.c2VjcmV0");
        let shown = format!("{credentials:?} {:?}", credentials.token());
        assert!(shown.contains("ada") && !shown.contains("c2VjcmV0"), "{shown}");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "SLURM_JWT=eyJ.eyJ.c2VjcmV0\n").unwrap();
        let credentials = Credentials::of(&with(&[(TOKEN_FILE, path.to_str().unwrap())])).unwrap();
        for (mode, accepted) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            match credentials.token() {
                Ok(token) => assert!(accepted && token.reveal() == "eyJ.eyJ.c2VjcmV0", "{mode:o}"),
                Err(e) => {
                    let shown = crate::exit::Failure::from(e).to_string();
                    assert!(
                        !accepted && shown.contains("chmod 600") && !shown.contains("c2VjcmV0"),
                        "{mode:o}: {shown}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_file_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = Credentials::of(&with(&[(TOKEN_FILE, path.to_str().unwrap())])).unwrap();
        assert!(credentials.token().unwrap_err().to_string().contains("cannot read the token"));
        for token in ["a.b.c", "d.e.f"] {
            std::fs::write(&path, token).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            assert_eq!(credentials.token().unwrap().reveal(), token);
        }
        std::fs::write(&path, "<html>log in</html>").unwrap();
        assert!(credentials.token().unwrap_err().to_string().ends_with("does not hold a token"));
    }
}
