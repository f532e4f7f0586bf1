//! Requests to slurmrestd, with the user's token, and how often they are tried.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::blocking::Client;
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde_json::Value;

use super::answer::{Answer, errno, list};
use super::token::Credentials;
use super::version::{Api, offered};
use crate::launch::slurm::tools::{Slurm, ToolError};

/// Longest that connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest that an answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest that looking for a controller may take.
const PROBE: Duration = Duration::from_secs(5);
/// Pauses before a question is asked again.
const PAUSES: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(750), Duration::from_secs(2)];

/// The Slurm behind a slurmrestd. Not for use inside an asynchronous runtime: its calls block.
pub struct Rest {
    url: Url,
    client: Client,
    credentials: Credentials,
    pub(super) slurm: Slurm,
    api: OnceLock<Api>,
}

/// Without what may hold the token, as the variables for Slurm's commands do.
impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest").field("server", &self.name()).field("api", &self.api).finish_non_exhaustive()
    }
}

impl Rest {
    /// The slurmrestd at `SLURMRESTD_URL`, as the user `SLURM_USER` or `USER`, with the token in `SLURM_JWT`, in the file
    /// that `EXPCTL_SLURM_TOKEN_FILE` names, or from `scontrol token`. Nothing is sent yet.
    ///
    /// # Errors
    /// If one of these is missing or not as it must be, with a hint.
    pub fn from_environment() -> Result<Self, ToolError> {
        Self::of(&Slurm::from_environment())
    }

    /// The same with the variables of `slurm`.
    ///
    /// # Errors
    /// As [`Rest::from_environment`].
    pub fn of(slurm: &Slurm) -> Result<Self, ToolError> {
        let environment = slurm.environment();
        let text =
            environment.get(std::ffi::OsStr::new("SLURMRESTD_URL")).and_then(|url| url.to_str()).unwrap_or_default();
        let setup = |message: &str| ToolError::Setup {
            message: message.to_owned(),
            hint: "for example: export SLURMRESTD_URL=http://HOST:6820".to_owned(),
        };
        if text.trim().is_empty() {
            return Err(setup("SLURMRESTD_URL, the address of slurmrestd, is not set"));
        }
        // The address is not shown where it cannot be read: it may hold a password.
        let url = Url::parse(text.trim()).map_err(|e| setup(&format!("SLURMRESTD_URL is not an address: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(setup("SLURMRESTD_URL must be http://HOST:PORT or https://HOST:PORT, without a user"));
        }
        // Fails if it was done before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT)
            // Nobody else is to get the token.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("expctl/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| setup(&format!("no HTTP client: {}", cause(&e))))?;
        let credentials = Credentials::of(slurm)?;
        Ok(Self { url, client, credentials, slurm: slurm.clone(), api: OnceLock::new() })
    }

    /// What `scontrol ping` would answer: a line for each controller, with UP in it if it answers.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached or says no.
    pub fn ping(&self) -> Result<String, ToolError> {
        let api = self.api()?;
        let answer = self.send(Method::GET, &format!("slurm/{api}/ping"), None, PROBE)?;
        let body = self.checked(answer)?;
        let controllers: Vec<String> = list(&body, "pings").iter().map(controller).collect();
        if controllers.is_empty() { Err(self.unreadable(&body)) } else { Ok(controllers.join("; ")) }
    }

    /// The version that is spoken, chosen by what the server offers; asked once.
    pub(super) fn api(&self) -> Result<Api, ToolError> {
        if let Some(api) = self.api.get() {
            return Ok(*api);
        }
        let mut last = None;
        for path in ["openapi/v3", "openapi"] {
            let (status, bytes) = self.retried(|| self.exchange(&Method::GET, path, None, ANSWER))?;
            if status == 200
                && let Some(versions) = offered(&bytes)
            {
                let api = Api::choose(&versions).ok_or_else(|| {
                    self.refused(format!("it offers no version that is known here ({} and newer)", Api::OLDEST))
                })?;
                if api > Api::NEWEST {
                    tracing::warn!("slurmrestd offers {api} and newer only, which was not tried");
                }
                return Ok(*self.api.get_or_init(|| api));
            }
            last = Some(Answer::new(status, &bytes));
        }
        Err(last.map_or_else(|| self.refused("no answer".to_owned()), |answer| self.error(&answer)))
    }

    /// Ask for something, again where that may help.
    pub(super) fn ask(&self, path: &str) -> Result<Answer, ToolError> {
        let (status, bytes) = self.retried(|| self.exchange(&Method::GET, path, None, ANSWER))?;
        Ok(Answer::new(status, &bytes))
    }

    /// Tell Slurm to do something; once.
    pub(super) fn tell(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, ToolError> {
        self.send(method, path, body, ANSWER)
    }

    fn send(&self, method: Method, path: &str, body: Option<&Value>, limit: Duration) -> Result<Answer, ToolError> {
        let (status, bytes) = self.exchange(&method, path, body, limit).map_err(|(e, _)| e)?;
        Ok(Answer::new(status, &bytes))
    }

    /// Repeat an exchange while it fails in a way that may pass.
    fn retried(
        &self,
        exchange: impl Fn() -> Result<(u16, Vec<u8>), (ToolError, bool)>,
    ) -> Result<(u16, Vec<u8>), ToolError> {
        for pause in PAUSES {
            match exchange() {
                Ok((status, bytes)) if !Answer::new(status, &bytes).is_passing() => return Ok((status, bytes)),
                Err((e, false)) => return Err(e),
                Ok((status, _)) => tracing::debug!("{} answered {status}; asked again", self.name()),
                Err((e, true)) => tracing::debug!("{e}; asked again"),
            }
            std::thread::sleep(pause);
        }
        exchange().map_err(|(e, _)| e)
    }

    /// One request. With an error comes whether it may pass.
    fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<(u16, Vec<u8>), (ToolError, bool)> {
        let setup = |message: String| ToolError::Setup { message, hint: "see SLURM_USER and SLURM_JWT".to_owned() };
        let url = self.url.join(path).map_err(|e| (setup(format!("no address for {path}: {e}")), false))?;
        let token = self.credentials.token().map_err(|e| (e, false))?;
        let mut secret =
            HeaderValue::from_str(token.reveal()).map_err(|_| (setup("unusable token".to_owned()), false))?;
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
                return (ToolError::Silent { program, limit }, false);
            }
            (ToolError::Refused { program, message: format!("cannot be reached: {}", cause(&e)) }, true)
        };
        let answer = request.send().map_err(failed)?;
        let status = answer.status().as_u16();
        Ok((status, answer.bytes().map_err(failed)?.to_vec()))
    }

    /// The JSON of an answer without errors.
    pub(super) fn checked(&self, answer: Answer) -> Result<Value, ToolError> {
        if answer.is_success() && answer.errors().is_empty() { Ok(answer.body) } else { Err(self.error(&answer)) }
    }

    /// What an answer says went wrong.
    pub(super) fn error(&self, answer: &Answer) -> ToolError {
        let (program, user) = (self.name(), self.credentials.user.clone());
        let message = answer.message();
        if matches!(answer.status, 401 | 403 | 511) || answer.has(errno::AUTHENTICATION) {
            return ToolError::Token { program, user, message };
        }
        // Slurm 22.05 has no words of its own for a token that is wrong or has expired: its controller hangs up.
        let silent = self.api.get().is_some_and(|api| api.is_plain()) && answer.status == 500;
        if silent && (answer.has(errno::UNSPECIFIED) || message.contains("Zero Bytes were transmitted")) {
            let message = format!("{message} (this Slurm says no more than that of a token that it does not accept)");
            return ToolError::Token { program, user, message };
        }
        ToolError::Refused { program, message }
    }

    pub(super) fn refused(&self, message: String) -> ToolError {
        ToolError::Refused { program: self.name(), message }
    }

    pub(super) fn unreadable(&self, body: &Value) -> ToolError {
        ToolError::Unreadable { program: self.name(), answer: body.to_string().chars().take(80).collect() }
    }

    /// The server, for messages.
    fn name(&self) -> String {
        format!("slurmrestd at {}", self.url.origin().ascii_serialization())
    }
}

/// A controller as `scontrol ping` shows it.
fn controller(ping: &Value) -> String {
    let text = |name: &str| ping.get(name).and_then(Value::as_str);
    let up = ping.get("responding").and_then(Value::as_bool).map(|up| if up { "UP" } else { "DOWN" });
    let state = up.or_else(|| text("ping")).or_else(|| text("pinged")).unwrap_or("DOWN");
    format!("Slurmctld({}) at {} is {state}", text("mode").unwrap_or("?"), text("hostname").unwrap_or("?"))
}

/// The innermost cause, which is the one in plain words.
fn cause(e: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
