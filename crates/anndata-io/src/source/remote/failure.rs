//! Errors of requests, sorted by what can be done about them.

use std::fmt;
use std::path::PathBuf;

use crate::AnnDataError;
use crate::source::remote::address::{Address, ObjectHost};

/// Characters of a server's message that an error repeats at most.
const MAX_MESSAGE_CHARS: usize = 300;

/// Error of a request for an object.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub url: String,
    pub kind: FailureKind,
    pub reason: String,
}

/// What the caller can do about a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Retry.
    Passing,
    /// Nothing: the object is not the one that was opened any more.
    Changed,
    /// Nothing: there is no such object.
    Absent,
    /// Only what the reason says.
    Lasting,
}

impl Failure {
    /// An error without a request.
    pub fn refused(url: impl Into<String>, reason: &str) -> Self {
        Self { url: url.into(), kind: FailureKind::Lasting, reason: reason.to_owned() }
    }

    /// An error after which a retry may succeed.
    pub fn passing(address: &Address, reason: impl Into<String>) -> Self {
        Self { url: address.url.clone(), kind: FailureKind::Passing, reason: reason.into() }
    }

    /// The object is not the one that was opened any more.
    pub fn changed(address: &Address) -> Self {
        Self {
            url: address.url.clone(),
            kind: FailureKind::Changed,
            reason: "it was rewritten while it was read".to_owned(),
        }
    }

    /// Whether the object is not the one that was opened any more.
    pub fn is_change(&self) -> bool {
        self.kind == FailureKind::Changed
    }

    /// Whether there is no such object.
    pub fn is_absence(&self) -> bool {
        self.kind == FailureKind::Absent
    }

    /// The failure for an error of object_store; `status` is that of the last answer. With `opened`, an object that is absent was
    /// removed since then, and counts as changed.
    pub fn from_answer(address: &Address, error: &object_store::Error, status: Option<u16>, opened: bool) -> Self {
        let (kind, reason) = match status {
            Some(412 | 416) => return Self::changed(address),
            Some(404 | 410) if opened => return Self::changed(address),
            Some(404 | 410) => {
                (FailureKind::Absent, format!("there is no such object ({})", describe_answer(error, status)))
            }
            Some(401 | 403) => (
                FailureKind::Lasting,
                format!("access is denied ({}); {}", describe_answer(error, status), credentials(address)),
            ),
            Some(301 | 302 | 307 | 308) => (
                FailureKind::Lasting,
                format!("it is elsewhere ({}): for S3, set AWS_REGION", describe_answer(error, status)),
            ),
            Some(status @ (408 | 429 | 500..)) => (FailureKind::Passing, describe_answer(error, Some(status))),
            Some(status @ 400..) => (FailureKind::Lasting, describe_answer(error, Some(status))),
            // The answer has the whole object instead of the range.
            Some(200) if matches!(error, object_store::Error::NotSupported { .. }) => (
                FailureKind::Lasting,
                "the server sends whole objects only, not parts of them (HTTP range requests)".to_owned(),
            ),
            _ => (FailureKind::Passing, describe_answer(error, status)),
        };
        Self { url: address.url.clone(), kind, reason }
    }

    /// The error of the crate. This is no `From`: with a second one, `?` in closures would need type annotations.
    pub fn into_error(self) -> AnnDataError {
        match self.kind {
            FailureKind::Changed => AnnDataError::Rewritten { path: PathBuf::from(self.url) },
            FailureKind::Passing | FailureKind::Absent | FailureKind::Lasting => {
                AnnDataError::Remote { url: self.url, reason: self.reason }
            }
        }
    }

    /// The final failure after so many attempts.
    pub fn after(self, attempts: u32) -> Self {
        let Self { url, reason, .. } = self;
        Self { url, kind: FailureKind::Lasting, reason: format!("{reason} (asked for {attempts} times)") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.reason)
    }
}

/// The sentence on the credentials that were looked for.
fn credentials(address: &Address) -> String {
    match address.host {
        ObjectHost::Http(_) => "no credentials are sent over http:// and https://".to_owned(),
        ObjectHost::S3(_) => {
            let names = [
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_SKIP_SIGNATURE",
            ];
            format!("{}; AWS_SKIP_SIGNATURE=true reads public objects", credentials_in_environment(&names))
        }
        ObjectHost::Gs(_) => {
            let names = credentials_in_environment(&["GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY"]);
            format!("{names}, an HMAC key of Google Cloud Storage; without one, public objects alone are read")
        }
    }
}

/// The sentence on which of these variables are set.
fn credentials_in_environment(names: &[&str]) -> String {
    let (set, unset): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| std::env::var_os(name).is_some());
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("credentials are those of the environment (set: {}; not set: {})", list(&set), list(&unset))
}

/// Status, code and message of an S3 error, or the error of the connection. Nothing else of the answer is repeated: some servers
/// repeat the signed request.
fn describe_answer(error: &object_store::Error, status: Option<u16>) -> String {
    let text = error.to_string();
    let inside = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim().to_owned())
    };
    let code = inside("Code").map(|code| format!(" {code}")).unwrap_or_default();
    let message = inside("Message").map(|message| format!(": {message}")).unwrap_or_default();
    match status {
        Some(status) if status >= 300 => shortened(&format!("the server answers {status}{code}{message}")),
        _ => shortened(&innermost(error)),
    }
}

/// The innermost cause of an error, and the one around it if it says more.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    let mut parts: Vec<String> = Vec::new();
    for cause in causes.into_iter().rev().take(2) {
        if !parts.iter().any(|inner| cause.contains(inner.as_str())) {
            parts.insert(0, cause);
        }
    }
    parts.join(": ")
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
