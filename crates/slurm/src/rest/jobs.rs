//! Requests of [`Rest`] that change jobs: submit, release, cancel.

use std::path::Path;

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::fields::{Directive, directives, write_field};
use super::{Answer, ApiVersion, Rest, errno, list, number};
use crate::client::Slurm;
use crate::error::SlurmError;
use crate::task::JobId;

/// Slurm 22.05 takes `requeue: false` back without a word, so the script itself has to end a second run.
const NO_REQUEUE: &str = "\
# slurmrestd of this version does not pass --no-requeue on.
[ -z \"${SLURM_RESTART_COUNT:-}\" ] || { echo 'requeued by Slurm, which --no-requeue forbids' >&2; exit 1; }
";

impl Rest {
    /// Submit a batch script whose options are `#SBATCH` lines, with `folder` as its working directory. `hold` keeps
    /// the job in the queue until it is released. Slurm starts it once `dependency` is fulfilled, and cancels it if
    /// that can never be. Sent once: a request whose answer is lost may leave a job behind.
    ///
    /// # Errors
    /// [`SlurmError::UnsupportedOption`] for an option that this version has no field for; else [`SlurmError`], with
    /// Slurm's own words where it refuses the job.
    pub fn submit(
        &self,
        script: &str,
        hold: bool,
        dependency: Option<&str>,
        folder: &Path,
    ) -> Result<JobId, SlurmError> {
        let api = self.api()?;
        let mut request = request(script, hold, dependency, folder, api)?;
        request["job"]["environment"] = environment_json(variables(&self.slurm, folder), api);
        let answer = self.tell(Method::POST, &format!("slurm/{api}/job/submit"), Some(&request))?;
        // The answer about a held job lists an error that says so: the job's id is what counts.
        let id = answer.body.get("job_id").and_then(number).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
        let Some(id) = id.filter(|_| answer.is_success()) else {
            return Err(self.error(&answer));
        };
        let submitted = JobId::new(id);
        if let Some(ignored) = ignored(&answer) {
            let cancelled = self.cancel(&[(submitted, None)], None);
            let end = cancelled
                .map_or_else(|e| format!("could not be cancelled again: {e}"), |()| "was cancelled again".to_owned());
            return Err(self.refused(format!("{ignored}; job {id} {end}")));
        }
        Ok(submitted)
    }

    /// Let a held job also wait for other jobs, named as `--dependency` takes them.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached or refuses.
    pub fn set_dependency(&self, job: &JobId, dependency: &str) -> Result<(), SlurmError> {
        let api = self.api()?;
        let change = json!({"dependency": dependency});
        let answer = self.tell(Method::POST, &format!("slurm/{api}/job/{}", job.id), Some(&change))?;
        // Like for a release, Slurm 22.05 lists errors without a number where all went well.
        let fine = answer.is_success() && answer.errors().iter().all(|e| e.number.is_none());
        if fine { Ok(()) } else { Err(self.error(&answer)) }
    }

    /// Let a held job run.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached or refuses.
    pub fn release(&self, job: &JobId) -> Result<(), SlurmError> {
        let api = self.api()?;
        let answer = self.tell(Method::POST, &format!("slurm/{api}/job/{}", job.id), Some(&json!({"hold": false})))?;
        if answer.is_success() && answer.errors().is_empty() {
            return Ok(());
        }
        // Slurm 22.05 lists an error without a number also where it released an array: see whether it is still held.
        let nameless = answer.is_success() && answer.errors().iter().all(|e| e.number.is_none());
        if nameless && !self.queued(std::slice::from_ref(job))?.values().any(|task| task.detail.starts_with("JobHeld"))
        {
            return Ok(());
        }
        Err(self.error(&answer))
    }

    /// Cancel array tasks, or whole arrays; with `signal`, send them and their batch scripts a signal (`USR1`) instead.
    /// A task that has ended or is forgotten is no error.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached, or refuses one of them; the others are cancelled all the same.
    pub fn cancel(&self, tasks: &[(JobId, Option<u32>)], signal: Option<&str>) -> Result<(), SlurmError> {
        let api = self.api()?;
        let names: Vec<String> = tasks
            .iter()
            .map(|(job, task)| task.map_or_else(|| job.id.to_string(), |task| format!("{}_{task}", job.id)))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        if api.cancels_many() {
            let mut body = json!({"jobs": names});
            if let Some(signal) = signal {
                body["signal"] = signal.into();
            }
            let answer = self.tell(Method::DELETE, &format!("slurm/{api}/jobs"), Some(&body))?;
            // Slurm 23.11 has the version, but not this request.
            if !matches!(answer.status, 404 | 405) || answer.body.is_object() {
                let over = answer.errors().iter().all(|e| e.number.is_some_and(is_over));
                if !over || (!answer.is_success() && answer.errors().is_empty()) {
                    return Err(self.error(&answer));
                }
                return refusal(&answer.body).map_or(Ok(()), |words| Err(self.refused(words)));
            }
        }
        let query = signal.map_or_else(String::new, |signal| format!("?signal={signal}"));
        let mut first = Ok(());
        for name in names {
            let answer = self.tell(Method::DELETE, &format!("slurm/{api}/job/{name}{query}"), None)?;
            let over = !answer.errors().is_empty() && answer.errors().iter().all(|e| e.number.is_some_and(is_over));
            if !over {
                first = first.and(self.checked(answer).map(drop));
            }
        }
        first
    }
}

/// The JSON of a submission, without the environment.
fn request(
    script: &str,
    hold: bool,
    dependency: Option<&str>,
    folder: &Path,
    api: ApiVersion,
) -> Result<Value, SlurmError> {
    let options = directives(script)?;
    let mut job = Map::new();
    job.insert("current_working_directory".to_owned(), folder.to_string_lossy().into());
    for option in &options {
        write_field(&mut job, option, api)?;
    }
    if hold {
        job.insert("hold".to_owned(), true.into());
    }
    if let Some(dependency) = dependency {
        job.insert("dependency".to_owned(), dependency.into());
        let kill = Directive { name: "kill-on-invalid-dep".to_owned(), value: None };
        write_field(&mut job, &kill, api)?;
    }
    let requeue = options.iter().rfind(|o| matches!(o.name.as_str(), "requeue" | "no-requeue"));
    let script = match script.split_once('\n') {
        Some((shebang, rest)) if api.is_plain() && requeue.is_some_and(|o| o.name == "no-requeue") => {
            format!("{shebang}\n{NO_REQUEUE}{rest}")
        }
        _ => script.to_owned(),
    };
    Ok(json!({"script": script, "job": job}))
}

/// The warning of newer versions about a field that they do not know, and then go on without.
fn ignored(answer: &Answer) -> Option<String> {
    let warnings = list(&answer.body, "warnings").iter();
    let mut texts = warnings.filter_map(|warning| warning.get("description")?.as_str());
    texts.find(|text| text.contains("unknown field")).map(str::to_owned)
}

/// Whether an error number says that there is nothing left to cancel.
fn is_over(number: i64) -> bool {
    matches!(number, errno::NO_SUCH_JOB | errno::ALREADY_DONE)
}

/// The refusals in the answer to a request about several jobs; `None` if there are none.
fn refusal(body: &Value) -> Option<String> {
    let refused = list(body, "status").iter().filter_map(|status| {
        let error = status.get("error")?;
        let number = error.get("code").and_then(Value::as_i64).unwrap_or(0);
        let words = ["message", "string"].iter().find_map(|name| error.get(*name)?.as_str());
        let job = status.get("step_id").and_then(Value::as_str).unwrap_or("a job");
        (number != 0 && !is_over(number)).then(|| format!("{job}: {}", words.unwrap_or("refused")))
    });
    let all: Vec<String> = refused.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Variables that jobs do not get: a token.
const WITHHELD: [&str; 1] = ["SLURM_JWT"];

/// The variables of the submitter, and those that `sbatch` adds itself: where it ran, and the umask, which slurmd sets
/// for the job's files. A variable that is not UTF-8 cannot be written.
fn variables(slurm: &Slurm, folder: &Path) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for (name, value) in slurm.environment() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), _) if WITHHELD.contains(&name.as_str()) => {}
            (Ok(name), Ok(value)) => variables.push((name, value)),
            (name, _) => tracing::warn!("variable {name:?} is not handed to the job: it is not UTF-8"),
        }
    }
    let mut add = |name: &str, value: String| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
    };
    add("SLURM_SUBMIT_DIR", folder.to_string_lossy().into_owned());
    if let Ok(host) = nix::unistd::gethostname() {
        add("SLURM_SUBMIT_HOST", host.to_string_lossy().into_owned());
    }
    if let Some(umask) = umask() {
        add("SLURM_UMASK", umask);
    }
    variables
}

/// Variables in the form that a version takes.
fn environment_json(variables: Vec<(String, String)>, api: ApiVersion) -> Value {
    if api.is_plain() {
        return Value::Object(variables.into_iter().map(|(name, value)| (name, value.into())).collect::<Map<_, _>>());
    }
    variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The umask of this process, in octal. Not by umask(2): that reads it only by changing it, for all threads.
fn umask() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Umask:")).map(|mask| mask.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/bash\n#SBATCH --array=0-3%1\n#SBATCH --no-requeue\necho hello\n";

    #[test]
    fn a_request_in_both_styles() {
        let of = |api| request(SCRIPT, true, Some("afterany:7"), Path::new("/work"), api).unwrap();
        let old = of(ApiVersion::OLDEST);
        assert_eq!(
            old["job"],
            json!({"current_working_directory": "/work", "array": "0-3%1", "requeue": false, "hold": true,
                "dependency": "afterany:7", "kill_on_invalid_dependency": true})
        );
        let new = of(ApiVersion::NEWEST);
        assert_eq!(new["job"]["flags"], json!(["KILL_INVALID_DEPENDENCY"]));
        assert_eq!(new["script"], SCRIPT);
    }

    #[test]
    fn the_script_guards_itself_where_the_server_does_not() {
        let old = request(SCRIPT, false, None, Path::new("/"), ApiVersion::OLDEST).unwrap();
        let script = old["script"].as_str().unwrap();
        let run = |count: &str| {
            let mut bash = std::process::Command::new("bash");
            bash.args(["-uc", script]).env_remove("SLURM_RESTART_COUNT");
            if !count.is_empty() {
                bash.env("SLURM_RESTART_COUNT", count);
            }
            bash.output().unwrap()
        };
        assert_eq!(run("").stdout, b"hello\n");
        let second = run("1");
        assert!(!second.status.success() && second.stdout.is_empty(), "{second:?}");
        let again = SCRIPT.replace("--no-requeue", "--requeue");
        assert_eq!(request(&again, false, None, Path::new("/"), ApiVersion::OLDEST).unwrap()["script"], again);
    }

    #[test]
    fn a_field_that_is_ignored_is_noticed() {
        let text = r#"{"job_id": 5, "warnings": [{"description": "Job is in held state"},
            {"description": "Ignoring unknown field \"gres_flags\" of type string in DATA_PARSER_JOB_DESC_MSG"}]}"#;
        assert!(ignored(&Answer::new(200, text.as_bytes())).unwrap().contains("gres_flags"));
        assert_eq!(ignored(&Answer::new(200, b"{\"job_id\": 5}")), None);
    }

    #[test]
    fn what_is_over_is_not_refused() {
        let body = json!({"status": [
            {"error": {"string": "Access/permission denied", "code": 2002, "message": "Access/permission denied"}, "step_id": "34"},
            {"error": {"string": "Invalid job id specified", "code": 2017}, "step_id": "77777_1"},
        ]});
        assert_eq!(refusal(&body).unwrap(), "34: Access/permission denied");
        assert_eq!(refusal(&json!({"status": []})), None);
    }

    #[test]
    fn a_job_gets_what_sbatch_would_hand_over_but_no_token() {
        let slurm = Slurm::from_environment()
            .with_variable("SLURM_JWT", "a.b.c2VjcmV0")
            .with_variable("SLURM_RESTART_COUNT", "1")
            .with_variable("SBATCH_ARRAY", "0-9")
            .with_variable("TWO_LINES", "a\nb");
        let variables = variables(&slurm, Path::new("/some/folder"));
        let has = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(has("TWO_LINES"), Some("a\nb"));
        assert_eq!(has("SLURM_SUBMIT_DIR"), Some("/some/folder"));
        assert!(has("SLURM_UMASK").is_some_and(|mask| u32::from_str_radix(mask, 8).is_ok()));
        assert!(has("PATH").is_some());
        for name in ["SLURM_JWT", "SLURM_RESTART_COUNT", "SBATCH_ARRAY"] {
            assert_eq!(has(name), None, "{name}");
        }
        let pair = vec![("A".to_owned(), "b=c".to_owned())];
        assert_eq!(environment_json(pair.clone(), ApiVersion::OLDEST), serde_json::json!({"A": "b=c"}));
        assert_eq!(environment_json(pair, ApiVersion::NEWEST), serde_json::json!(["A=b=c"]));
    }
}
