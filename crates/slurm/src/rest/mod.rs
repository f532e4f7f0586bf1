//! [`Rest`]: a client of slurmrestd, Slurm's own HTTP service. It does over HTTP what `sbatch`, `squeue`, `sacct`,
//! `scontrol` and `scancel` do: `jobs.rs` has the requests that change jobs, `listing.rs` those that list them. Here: how
//! a request is sent and repeated, and how an answer and its errors are read.
//!
//! Invariants: a request that changes something is sent once, because a repeated submission could make a second job. The
//! user's token is in no error, log or job.

mod fields;
mod jobs;
mod listing;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::blocking::Client;
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use self::token::Credentials;
use crate::client::Slurm;
use crate::error::{SetupError, SlurmError};

/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request, from its start to the end of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The same of [`Rest::ping`].
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses before the second, third and fourth try of a request that only reads.
const RETRY_PAUSES: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(750), Duration::from_secs(2)];

/// Options of [`Rest`] that are not in the environment.
#[derive(Clone, Debug, Default)]
pub struct RestOptions {
    /// A file with the user's token, used where `SLURM_JWT` is not set. It is read for every request, so it may be replaced.
    pub token_file: Option<PathBuf>,
    /// Value of the header `User-Agent`. `None`: the name and version of this crate.
    pub user_agent: Option<String>,
}

/// A client of one slurmrestd. Not for use inside an asynchronous runtime: its calls block.
pub struct Rest {
    url: Url,
    client: Client,
    credentials: Credentials,
    /// The environment variables: of this client, and those that a submitted job gets.
    slurm: Slurm,
    /// The version of the interface; empty before the first request.
    api: OnceLock<ApiVersion>,
}

/// Shows neither the token nor the environment variables, one of which may be the token.
impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("server", &self.name()).field("api", &self.api).finish_non_exhaustive()
    }
}

impl Rest {
    /// A client of the slurmrestd at `SLURMRESTD_URL`. The user is the first that is set of `SLURM_USER`, `USER` and
    /// `LOGNAME`; the token is that in `SLURM_JWT`, else that in the file of `options`, else one from `scontrol token`.
    /// All variables are those of `slurm`. Sends no request yet.
    ///
    /// # Errors
    /// [`SetupError`] if the address, the user or the token is missing or malformed.
    pub fn new(slurm: &Slurm, options: RestOptions) -> Result<Self, SetupError> {
        let text = slurm.variable("SLURMRESTD_URL").ok_or(SetupError::NoUrl)?;
        let url = Url::parse(&text).map_err(|e| SetupError::InvalidUrl { reason: e.to_string() })?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(SetupError::UrlNotPlainHttp);
        }
        // Fails if this process has a provider of cryptography already; then TLS uses that one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let agent =
            options.user_agent.unwrap_or_else(|| concat!("slurm-client/", env!("CARGO_PKG_VERSION")).to_owned());
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect or a proxy would hand the token to another server.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(agent)
            .build()
            .map_err(|e| SetupError::HttpClient { reason: innermost_cause(&e) })?;
        let credentials = Credentials::new(slurm, options.token_file)?;
        Ok(Self { url, client, credentials, slurm: slurm.clone(), api: OnceLock::new() })
    }

    /// Whether Slurm's controllers answer, in the words of `scontrol ping`: `Slurmctld(primary) at HOST is UP`, or `DOWN`.
    /// Several are joined by `; `.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached, refuses the request, or names no controller.
    pub fn ping(&self) -> Result<String, SlurmError> {
        let api = self.api()?;
        let answer = self.send(Method::GET, &format!("slurm/{api}/ping"), None, PING_TIMEOUT)?;
        let body = self.checked(answer)?;
        let controllers: Vec<String> = list(&body, "pings").iter().map(controller).collect();
        if controllers.is_empty() { Err(self.not_a_table(&body)) } else { Ok(controllers.join("; ")) }
    }

    /// The version of the interface that requests use, chosen from those that the server offers. Asked for once.
    fn api(&self) -> Result<ApiVersion, SlurmError> {
        if let Some(api) = self.api.get() {
            return Ok(*api);
        }
        let mut last = None;
        // slurmrestd describes its interface at one of these paths; which one depends on its version.
        for path in ["openapi/v3", "openapi"] {
            let (status, bytes) = self.get_with_retries(path)?;
            if status == 200
                && let Some(versions) = offered_versions(&bytes)
            {
                let api = ApiVersion::choose(&versions).ok_or_else(|| {
                    self.refused(format!("it offers no version that is known here ({} and newer)", ApiVersion::OLDEST))
                })?;
                if api > ApiVersion::NEWEST {
                    tracing::warn!("slurmrestd offers {api} and newer only, which was not tried");
                }
                return Ok(*self.api.get_or_init(|| api));
            }
            last = Some(Answer::new(status, &bytes));
        }
        Err(last.map_or_else(|| self.refused("no answer".to_owned()), |answer| self.error(&answer)))
    }

    /// Send a request that only reads. It is repeated after a failure that may pass.
    fn ask(&self, path: &str) -> Result<Answer, SlurmError> {
        let (status, bytes) = self.get_with_retries(path)?;
        Ok(Answer::new(status, &bytes))
    }

    /// Send a request that changes something, once.
    fn tell(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, SlurmError> {
        self.send(method, path, body, ANSWER_TIMEOUT)
    }

    fn send(&self, method: Method, path: &str, body: Option<&Value>, limit: Duration) -> Result<Answer, SlurmError> {
        let (status, bytes) = self.exchange(&method, path, body, limit).map_err(|failure| failure.error)?;
        Ok(Answer::new(status, &bytes))
    }

    /// GET `path`, up to four times while it fails in a way that may pass. Returns the HTTP status and the body.
    fn get_with_retries(&self, path: &str) -> Result<(u16, Vec<u8>), SlurmError> {
        let exchange = || self.exchange(&Method::GET, path, None, ANSWER_TIMEOUT);
        for pause in RETRY_PAUSES {
            match exchange() {
                Ok((status, bytes)) if !Answer::new(status, &bytes).is_passing() => return Ok((status, bytes)),
                Err(ExchangeFailure { error, may_pass: false }) => return Err(error),
                Ok((status, _)) => tracing::debug!("{} answered {status}; asked again", self.name()),
                Err(ExchangeFailure { error, may_pass: true }) => tracing::debug!("{error}; asked again"),
            }
            std::thread::sleep(pause);
        }
        exchange().map_err(|failure| failure.error)
    }

    /// Send one request. Returns the HTTP status and the body of the answer, whatever the status is.
    fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<(u16, Vec<u8>), ExchangeFailure> {
        let setup = |e: SetupError| ExchangeFailure { error: e.into(), may_pass: false };
        let no_url = |reason: String| setup(SetupError::InvalidPath { path: path.to_owned(), reason });
        let url = self.url.join(path).map_err(|e| no_url(e.to_string()))?;
        let token = self.credentials.token().map_err(setup)?;
        let mut secret = HeaderValue::from_str(token.reveal()).map_err(|_| setup(SetupError::TokenNotSendable))?;
        secret.set_sensitive(true);
        let mut request = self
            .client
            .request(method.clone(), url)
            .timeout(limit)
            .header("X-SLURM-USER-NAME", &self.credentials.user)
            .header("X-SLURM-USER-TOKEN", secret);
        if let Some(body) = body {
            request = request.json(body);
        }
        let failed = |e: reqwest::Error| {
            let program = self.name();
            if e.is_timeout() && !e.is_connect() {
                return ExchangeFailure { error: SlurmError::Timeout { program, limit }, may_pass: false };
            }
            let message = format!("cannot be reached: {}", innermost_cause(&e));
            ExchangeFailure { error: SlurmError::Refused { program, message }, may_pass: true }
        };
        let answer = request.send().map_err(failed)?;
        let status = answer.status().as_u16();
        Ok((status, answer.bytes().map_err(failed)?.to_vec()))
    }

    /// The JSON of an answer; fails if it reports an error.
    fn checked(&self, answer: Answer) -> Result<Value, SlurmError> {
        if answer.is_success() && answer.errors().is_empty() { Ok(answer.body) } else { Err(self.error(&answer)) }
    }

    /// The error that an answer reports.
    fn error(&self, answer: &Answer) -> SlurmError {
        let (program, user) = (self.name(), self.credentials.user.clone());
        let message = answer.message();
        if matches!(answer.status, 401 | 403 | 511) || answer.has(errno::AUTHENTICATION) {
            return SlurmError::TokenRefused { program, user, message };
        }
        // Slurm 22.05 has no error of its own for a token that is wrong or has expired: its controller closes the
        // connection.
        let is_unspecific = self.api.get().is_some_and(|api| api.is_plain()) && answer.status == 500;
        if is_unspecific && (answer.has(errno::UNSPECIFIED) || message.contains("Zero Bytes were transmitted")) {
            let message = format!("{message} (this Slurm says no more than that of a token that it does not accept)");
            return SlurmError::TokenRefused { program, user, message };
        }
        SlurmError::Refused { program, message }
    }

    /// An error with a message of this client.
    fn refused(&self, message: String) -> SlurmError {
        SlurmError::Refused { program: self.name(), message }
    }

    /// The error for a body that lacks the list that was asked for; it quotes the first 80 characters.
    fn not_a_table(&self, body: &Value) -> SlurmError {
        SlurmError::NotATable { program: self.name(), answer: body.to_string().chars().take(80).collect() }
    }

    /// The server as messages name it: `slurmrestd at http://HOST:PORT`.
    fn name(&self) -> String {
        format!("slurmrestd at {}", self.url.origin().ascii_serialization())
    }
}

/// Why a request got no answer.
struct ExchangeFailure {
    error: SlurmError,
    /// Whether the same request may succeed a little later.
    may_pass: bool,
}

/// A controller as `scontrol ping` shows it. Its state is in `responding`, `ping` or `pinged`, by the version of the
/// interface.
fn controller(ping: &Value) -> String {
    let text = |name: &str| ping.get(name).and_then(Value::as_str);
    let up = ping.get("responding").and_then(Value::as_bool).map(|up| if up { "UP" } else { "DOWN" });
    let state = up.or_else(|| text("ping")).or_else(|| text("pinged")).unwrap_or("DOWN");
    format!("Slurmctld({}) at {} is {state}", text("mode").unwrap_or("?"), text("hostname").unwrap_or("?"))
}

/// The innermost cause of an error: the reason that the system gives (`Connection refused`). The outer ones only name the
/// step that failed.
fn innermost_cause(e: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Error numbers of Slurm, from its `slurm_errno.h`.
mod errno {
    /// An unspecified error; Slurm 22.05 also gives it when it does not accept a token.
    pub const UNSPECIFIED: i64 = -1;
    /// The token is not accepted.
    pub const AUTHENTICATION: i64 = 1007;
    /// There is no such job, or it ended so long ago that the controller has removed it.
    pub const NO_SUCH_JOB: i64 = 2017;
    /// The job has ended already.
    pub const ALREADY_DONE: i64 = 2021;
    /// The accounting database has no such job.
    pub const NOTHING_FOUND: i64 = 9003;
}

/// An answer of slurmrestd.
#[derive(Clone, Debug)]
struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON in it; null if it is no JSON.
    pub body: Value,
    /// The first 80 characters of its text, in one line.
    pub text: String,
}

/// An entry of `errors` in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiError {
    /// A number of [`errno`]. `None`: Slurm gives none.
    pub number: Option<i64>,
    /// What Slurm says about it; may be empty.
    pub text: String,
}

impl Answer {
    pub fn new(status: u16, bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        Self { status, body: serde_json::from_slice(bytes).unwrap_or_default(), text }
    }

    /// Whether the HTTP status and the form of the body are those of a success. [`Self::errors`] may have entries all the
    /// same.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && self.body.is_object()
    }

    /// The errors that Slurm lists.
    pub fn errors(&self) -> Vec<ApiError> {
        list(&self.body, "errors").iter().map(api_error).collect()
    }

    /// Whether Slurm lists an error with this number.
    pub fn has(&self, number: i64) -> bool {
        self.errors().iter().any(|e| e.number == Some(number))
    }

    /// Whether the failure may pass, because slurmrestd or slurmctld was not reachable. A request that Slurm refused is
    /// refused again.
    pub fn is_passing(&self) -> bool {
        // 1000 to 1006 are errors of any connection (SLURM_COMMUNICATIONS_…), 1800 to 1899 of one with slurmctld.
        let is_communication =
            |e: &ApiError| e.number.is_some_and(|n| (1000..=1006).contains(&n) || (1800..1900).contains(&n));
        let errors = self.errors();
        // 511: the token was not accepted.
        self.status >= 500 && self.status != 511 && (errors.is_empty() || errors.iter().any(is_communication))
    }

    /// The texts of all errors in one line. Without any: the HTTP status, and the beginning of the text if it is no JSON.
    pub fn message(&self) -> String {
        let mut texts: Vec<String> = self.errors().into_iter().map(|e| e.text).filter(|t| !t.is_empty()).collect();
        texts.dedup();
        match texts.is_empty() {
            false => texts.join("; "),
            true => format!("HTTP {} {}", self.status, if self.body.is_object() { "" } else { &self.text })
                .trim()
                .to_owned(),
        }
    }
}

/// The list `name` of an object; empty if there is none.
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// An entry of `errors`. Its keys depend on the version of the interface.
fn api_error(value: &Value) -> ApiError {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = ["error_number", "error_code"].iter().find_map(|name| value.get(*name)?.as_i64());
    let text = match (text("description"), text("error")) {
        ("", error) => error.to_owned(),
        (description, error) if error.is_empty() || description.contains(error) => description.to_owned(),
        (description, error) => format!("{description}: {error}"),
    };
    ApiError { number, text }
}

/// The integer in a field: plain in Slurm 22.05, `{"set": true, "infinite": false, "number": 7}` in newer versions.
/// `None`: it is not set, infinite, or no integer.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::Object(fields) => {
            let is = |name: &str| fields.get(name).and_then(Value::as_bool);
            let is_finite = is("set") != Some(false) && is("infinite") != Some(true);
            fields.get("number").filter(|_| is_finite)?.as_i64()
        }
        _ => None,
    }
}

/// A version of the interface of slurmrestd: 42 is v0.0.42. A slurmrestd offers several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ApiVersion(u32);

impl ApiVersion {
    /// The oldest version that this client was written for; Slurm 22.05 offers it.
    pub const OLDEST: Self = Self(38);
    /// The newest version that this client was written for; Slurm 24.11 to 26.11 offer it.
    pub const NEWEST: Self = Self(42);

    /// Whether the JSON has the form of Slurm 22.05: integers are plain (see [`number`]), the environment of a job is an
    /// object and not a list, and a state is one string and not a list.
    pub fn is_plain(self) -> bool {
        self <= Self::OLDEST
    }

    /// Whether several jobs can be cancelled with one request.
    pub fn cancels_many(self) -> bool {
        self >= Self(40)
    }

    /// Choose from the versions that a server offers: the newest known one; else the oldest of those that are newer.
    /// `None`: all are older than the known ones.
    pub fn choose(offered: &[Self]) -> Option<Self> {
        let known = offered.iter().filter(|api| (Self::OLDEST..=Self::NEWEST).contains(*api)).max();
        known.or_else(|| offered.iter().filter(|api| **api > Self::NEWEST).min()).copied()
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v0.0.{}", self.0)
    }
}

/// The versions in the paths of an OpenAPI description (`/slurm/v0.0.42/ping`), ascending. `None`: the text is no such
/// description.
fn offered_versions(description: &[u8]) -> Option<Vec<ApiVersion>> {
    #[derive(Deserialize)]
    struct Description {
        // Only the names of the paths are parsed: a description is megabytes long.
        paths: BTreeMap<String, IgnoredAny>,
    }
    let Description { paths } = serde_json::from_slice(description).ok()?;
    let mut found: Vec<ApiVersion> = paths
        .keys()
        .filter_map(|path| path.strip_prefix("/slurm/v0.0.")?.split('/').next()?.parse().ok().map(ApiVersion))
        .collect();
    found.sort_unstable();
    found.dedup();
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_both_kinds() {
        assert_eq!(number(&json!(7)), Some(7));
        assert_eq!(number(&json!({"set": true, "infinite": false, "number": 7})), Some(7));
        for none in [
            json!(null),
            json!("7"),
            json!({"set": false, "number": 0}),
            json!({"set": true, "infinite": true, "number": 0}),
        ] {
            assert_eq!(number(&none), None, "{none}");
        }
    }

    #[test]
    fn errors_in_slurms_words() {
        let answer = |status, text: &str| Answer::new(status, text.as_bytes());
        let old = answer(
            500,
            r#"{"errors": [{"description": "Unable to find JobId=9", "error_number": 2017, "error": "Invalid job id specified"}]}"#,
        );
        assert_eq!(old.message(), "Unable to find JobId=9: Invalid job id specified");
        assert!(old.has(errno::NO_SUCH_JOB) && !old.is_passing());
        let held = answer(200, r#"{"errors": [{"error_code": 2042, "error": "Job is in held state"}], "job_id": 1}"#);
        assert_eq!(held.message(), "Job is in held state");
        assert_eq!(answer(502, "<html>\n Bad gateway").message(), "HTTP 502 <html> Bad gateway");
        assert_eq!(answer(500, "{}").message(), "HTTP 500");
    }

    #[test]
    fn only_what_passes_is_worth_another_try() {
        let away = r#"{"errors": [{"error_number": 1001, "error": "Communication connection failure"}]}"#;
        assert!(Answer::new(500, away.as_bytes()).is_passing());
        assert!(Answer::new(503, b"busy").is_passing());
        assert!(!Answer::new(404, b"no").is_passing());
        let token = r#"{"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}"#;
        assert!(!Answer::new(511, token.as_bytes()).is_passing());
    }

    #[test]
    fn versions_that_a_server_offers() {
        let description =
            br#"{"openapi": "3.0.3", "paths": {"/slurm/v0.0.36/ping": {}, "/slurm/v0.0.38/ping": {"get": 1},
            "/slurm/v0.0.38/jobs": {}, "/slurmdb/v0.0.41/jobs/": {}, "/openapi": {}, "/slurm/v1/ping": {}}}"#;
        assert_eq!(offered_versions(description), Some(vec![ApiVersion(36), ApiVersion(38)]));
        assert_eq!(offered_versions(b"Authentication failure"), None);
        assert_eq!(offered_versions(b"{}"), None);
    }

    #[test]
    fn the_newest_known_version_is_chosen() {
        let choose = |offered: &[u32]| ApiVersion::choose(&offered.iter().copied().map(ApiVersion).collect::<Vec<_>>());
        assert_eq!(choose(&[36, 37, 38]), Some(ApiVersion(38)));
        assert_eq!(choose(&[40, 41, 42]), Some(ApiVersion(42)));
        assert_eq!(choose(&[42, 43, 44, 45]), Some(ApiVersion(42)));
        assert_eq!(choose(&[43, 44, 45]), Some(ApiVersion(43)));
        assert_eq!(choose(&[36, 37]), None);
        assert_eq!(ApiVersion(42).to_string(), "v0.0.42");
    }
}
