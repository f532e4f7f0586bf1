//! Cancelling.

use reqwest::Method;
use serde_json::{Value, json};

use super::answer::{errno, list};
use super::client::Rest;
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::tools::ToolError;

impl Rest {
    /// Cancel array tasks, or whole arrays, or send them a signal (`USR1`), which then also goes to their batch scripts. What
    /// is over or forgotten already is what was wanted.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached, or refuses one of them; the others are cancelled all the same.
    pub fn cancel(&self, tasks: &[(Submitted, Option<u32>)], signal: Option<&str>) -> Result<(), ToolError> {
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
                let over = answer.errors().iter().all(|e| e.number.is_some_and(wanted));
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
            let over = !answer.errors().is_empty() && answer.errors().iter().all(|e| e.number.is_some_and(wanted));
            if !over {
                first = first.and(self.checked(answer).map(drop));
            }
        }
        first
    }
}

/// Whether an error says that there is nothing to cancel any more.
fn wanted(number: i64) -> bool {
    matches!(number, errno::NO_SUCH_JOB | errno::ALREADY_DONE)
}

/// What the answer to a request about several jobs says of those that it refused.
fn refusal(body: &Value) -> Option<String> {
    let refused = list(body, "status").iter().filter_map(|status| {
        let error = status.get("error")?;
        let number = error.get("code").and_then(Value::as_i64).unwrap_or(0);
        let words = ["message", "string"].iter().find_map(|name| error.get(*name)?.as_str());
        let job = status.get("step_id").and_then(Value::as_str).unwrap_or("a job");
        (number != 0 && !wanted(number)).then(|| format!("{job}: {}", words.unwrap_or("refused")))
    });
    let all: Vec<String> = refused.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_not_refused() {
        let body = json!({"status": [
            {"error": {"string": "Access/permission denied", "code": 2002, "message": "Access/permission denied"}, "step_id": "34"},
            {"error": {"string": "Invalid job id specified", "code": 2017}, "step_id": "77777_1"},
        ]});
        assert_eq!(refusal(&body).unwrap(), "34: Access/permission denied");
        assert_eq!(refusal(&json!({"status": []})), None);
    }
}
