//! [`Credentials`]: who slurmrestd takes a request for. Invariant: a token is shown to nobody but slurmrestd.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::Slurm;
use crate::error::SetupError;

/// Lifespan of a token from `scontrol token`, s: Slurm's own default.
const LIFESPAN_S: u64 = 1800;

/// A token. `Debug` hides it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token as somebody wrote it: bare, or as the `SLURM_JWT=…` that `scontrol token` prints. `None` for other
    /// texts, so that no page of a portal is sent as one.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let token = text.strip_prefix("SLURM_JWT=").unwrap_or(text);
        // Three parts in base64url.
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        (!token.is_empty() && token.chars().all(valid)).then(|| Self(token.to_owned()))
    }

    /// The token itself, for a header.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The source of tokens.
enum TokenSource {
    /// `SLURM_JWT`.
    Fixed(Token),
    /// A file that somebody may write anew whenever a token expires.
    File(PathBuf),
    /// `scontrol token`, asked again when half of the last token's life is over.
    Command(Slurm, Mutex<Option<(Token, Instant)>>),
}

/// A user and that user's tokens.
pub struct Credentials {
    pub user: String,
    source: TokenSource,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The user is `SLURM_USER`, `USER` or `LOGNAME`; the token is that of `SLURM_JWT`, of `token_file`, or of
    /// `scontrol token`.
    ///
    /// # Errors
    /// [`SetupError`] if no variable names the user, or `SLURM_JWT` holds no token.
    pub fn new(slurm: &Slurm, token_file: Option<PathBuf>) -> Result<Self, SetupError> {
        let variables = ["SLURM_USER", "USER", "LOGNAME"];
        let user = variables.into_iter().find_map(|name| slurm.variable(name)).ok_or(SetupError::NoUser)?;
        let source = match (slurm.variable("SLURM_JWT"), token_file) {
            (Some(token), _) => TokenSource::Fixed(Token::parse(&token).ok_or(SetupError::InvalidToken)?),
            (None, Some(file)) => TokenSource::File(file),
            (None, None) => TokenSource::Command(slurm.clone(), Mutex::new(None)),
        };
        Ok(Self { user, source })
    }

    /// A token that is valid now, as far as can be told here.
    ///
    /// # Errors
    /// [`SetupError`] if the file or `scontrol token` gives none.
    pub fn token(&self) -> Result<Token, SetupError> {
        match &self.source {
            TokenSource::Fixed(token) => Ok(token.clone()),
            TokenSource::File(path) => read_token(path),
            TokenSource::Command(slurm, last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                match &*last {
                    Some((token, since)) if since.elapsed() < Duration::from_secs(LIFESPAN_S / 2) => Ok(token.clone()),
                    _ => {
                        let token = new_token(slurm)?;
                        *last = Some((token.clone(), Instant::now()));
                        Ok(token)
                    }
                }
            }
        }
    }
}

/// The token in a file that nobody else may read.
fn read_token(path: &Path) -> Result<Token, SetupError> {
    let failed = |source| SetupError::TokenFile { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(SetupError::TokenFileMode { path: path.to_owned(), mode: mode & 0o777 });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Token::parse(&text).ok_or_else(|| SetupError::InvalidTokenFile { path: path.to_owned() })
}

/// A token from `scontrol token`.
fn new_token(slurm: &Slurm) -> Result<Token, SetupError> {
    let lifespan = format!("lifespan={LIFESPAN_S}");
    let answer = slurm
        .run("scontrol", ["token", lifespan.as_str()])
        .map_err(|e| SetupError::TokenCommand { source: Box::new(e) })?;
    // Sites print greetings; the token is the last line. The other lines are not shown: they may hold the token.
    let last = answer.trim().lines().last().filter(|line| line.starts_with("SLURM_JWT="));
    last.and_then(Token::parse).ok_or(SetupError::NoTokenInAnswer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(variables: &[(&str, &str)], file: Option<&Path>) -> Credentials {
        let none = Slurm::from_environment().with_variable("SLURM_JWT", "");
        let start = none.with_variable("SLURM_USER", "ada");
        let slurm = variables.iter().fold(start, |slurm, (name, value)| slurm.with_variable(*name, *value));
        Credentials::new(&slurm, file.map(Path::to_owned)).unwrap()
    }

    #[test]
    fn a_token_does_not_show_itself() {
        let credentials = credentials(&[("SLURM_JWT", "eyJ.eyJ.c2VjcmV0")], None);
        assert_eq!(credentials.token().unwrap().reveal(), "eyJ.eyJ.c2VjcmV0");
        let shown = format!("{credentials:?} {:?}", credentials.token());
        assert!(shown.contains("ada") && !shown.contains("c2VjcmV0"), "{shown}");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "SLURM_JWT=eyJ.eyJ.c2VjcmV0\n").unwrap();
        let credentials = credentials(&[], Some(&path));
        for (mode, accepted) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            match credentials.token() {
                Ok(token) => assert!(accepted && token.reveal() == "eyJ.eyJ.c2VjcmV0", "{mode:o}"),
                Err(e) => {
                    let shown = e.to_string();
                    assert!(!accepted && matches!(e, SetupError::TokenFileMode { .. }), "{mode:o}: {shown}");
                    assert!(!shown.contains("c2VjcmV0"), "{mode:o}: {shown}");
                }
            }
        }
    }

    #[test]
    fn a_file_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = credentials(&[], Some(&path));
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
