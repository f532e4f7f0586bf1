//! Submission and release.

use std::path::Path;

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::answer::{Answer, list, number};
use super::client::Rest;
use super::directives::directives;
use super::environment::{variables, written};
use super::fields::write;
use super::version::Api;
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::tools::ToolError;

/// Slurm 22.05 takes `requeue: false` back without a word, so the script itself has to end a second run.
const NO_REQUEUE: &str = "\
# slurmrestd of this version does not pass --no-requeue on.
[ -z \"${SLURM_RESTART_COUNT:-}\" ] || { echo 'requeued by Slurm, which --no-requeue forbids' >&2; exit 1; }
";

impl Rest {
    /// Submit a batch script whose options are `#SBATCH` lines, on hold if `hold`, to be started once `dependency` is
    /// fulfilled and cancelled if that can never be. Its working directory is `folder`. Sent once: an answer that does not
    /// come may leave a job behind.
    ///
    /// # Errors
    /// With exit code 3 for an option that this version has no field for; with 4 and Slurm's words if slurmrestd cannot be
    /// reached or Slurm refuses the job.
    pub fn submit(
        &self,
        script: &str,
        hold: bool,
        dependency: Option<&str>,
        folder: &Path,
    ) -> Result<Submitted, ToolError> {
        let api = self.api()?;
        let mut request = request(script, hold, dependency, folder, api)?;
        request["job"]["environment"] = written(variables(&self.slurm, folder), api);
        let answer = self.tell(Method::POST, &format!("slurm/{api}/job/submit"), Some(&request))?;
        // A held job comes with an error that says so; what counts is whether there is a job.
        let id = answer.body.get("job_id").and_then(number).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
        let Some(id) = id.filter(|_| answer.is_success()) else {
            return Err(self.error(&answer));
        };
        let submitted = Submitted::here(id);
        if let Some(ignored) = ignored(&answer) {
            let cancelled = self.cancel(&[(submitted, None)], None);
            let end = cancelled
                .map_or_else(|e| format!("could not be cancelled again: {e}"), |()| "was cancelled again".to_owned());
            return Err(self.refused(format!("{ignored}; job {id} {end}")));
        }
        Ok(submitted)
    }

    /// Let a held job wait for others, too.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached or says no.
    pub fn run_after(&self, job: &Submitted, dependency: &str) -> Result<(), ToolError> {
        let api = self.api()?;
        let change = json!({"dependency": dependency});
        let answer = self.tell(Method::POST, &format!("slurm/{api}/job/{}", job.id), Some(&change))?;
        // As with a release, 22.05 lists errors without a number where all went well.
        let fine = answer.is_success() && answer.errors().iter().all(|e| e.number.is_none());
        if fine { Ok(()) } else { Err(self.error(&answer)) }
    }

    /// Let a held job go.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached or says no.
    pub fn release(&self, job: &Submitted) -> Result<(), ToolError> {
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
}

/// The request without the environment.
fn request(script: &str, hold: bool, dependency: Option<&str>, folder: &Path, api: Api) -> Result<Value, ToolError> {
    let options = directives(script)?;
    let mut job = Map::new();
    job.insert("current_working_directory".to_owned(), folder.to_string_lossy().into());
    for option in &options {
        write(&mut job, option, api)?;
    }
    if hold {
        job.insert("hold".to_owned(), true.into());
    }
    if let Some(dependency) = dependency {
        job.insert("dependency".to_owned(), dependency.into());
        let kill = super::directives::Directive { name: "kill-on-invalid-dep".to_owned(), value: None };
        write(&mut job, &kill, api)?;
    }
    let once = options.iter().rfind(|o| matches!(o.name.as_str(), "requeue" | "no-requeue"));
    let script = match script.split_once('\n') {
        Some((shebang, rest)) if api.is_plain() && once.is_some_and(|o| o.name == "no-requeue") => {
            format!("{shebang}\n{NO_REQUEUE}{rest}")
        }
        _ => script.to_owned(),
    };
    Ok(json!({"script": script, "job": job}))
}

/// What newer versions say of a field that they do not know: they warn, and go on without it.
fn ignored(answer: &Answer) -> Option<String> {
    let warnings = list(&answer.body, "warnings").iter();
    let mut texts = warnings.filter_map(|warning| warning.get("description")?.as_str());
    texts.find(|text| text.contains("unknown field")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/bash\n#SBATCH --array=0-3%1\n#SBATCH --no-requeue\necho hello\n";

    #[test]
    fn a_request_in_both_styles() {
        let of = |api| request(SCRIPT, true, Some("afterany:7"), Path::new("/work"), api).unwrap();
        let old = of(Api::OLDEST);
        assert_eq!(
            old["job"],
            json!({"current_working_directory": "/work", "array": "0-3%1", "requeue": false, "hold": true,
                "dependency": "afterany:7", "kill_on_invalid_dependency": true})
        );
        let new = of(Api::NEWEST);
        assert_eq!(new["job"]["flags"], json!(["KILL_INVALID_DEPENDENCY"]));
        assert_eq!(new["script"], SCRIPT);
    }

    #[test]
    fn the_script_guards_itself_where_the_server_does_not() {
        let old = request(SCRIPT, false, None, Path::new("/"), Api::OLDEST).unwrap();
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
        assert_eq!(request(&again, false, None, Path::new("/"), Api::OLDEST).unwrap()["script"], again);
    }

    #[test]
    fn a_field_that_is_ignored_is_noticed() {
        let text = r#"{"job_id": 5, "warnings": [{"description": "Job is in held state"},
            {"description": "Ignoring unknown field \"gres_flags\" of type string in DATA_PARSER_JOB_DESC_MSG"}]}"#;
        assert!(ignored(&Answer::new(200, text.as_bytes())).unwrap().contains("gres_flags"));
        assert_eq!(ignored(&Answer::new(200, b"{\"job_id\": 5}")), None);
    }
}
