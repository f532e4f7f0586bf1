//! The environment of a job that slurmrestd is given: what `sbatch` would hand over.

use std::path::Path;

use serde_json::{Map, Value};

use super::version::Api;
use crate::launch::slurm::tools::Slurm;

/// Not for jobs: a token.
const KEPT_BACK: [&str; 1] = ["SLURM_JWT"];

/// The variables of the submitter, and those that `sbatch` adds itself: where it ran, and the umask, which slurmd sets for the
/// job's files. A variable that is not UTF-8 cannot be written.
pub(super) fn variables(slurm: &Slurm, folder: &Path) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for (name, value) in slurm.environment() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), _) if KEPT_BACK.contains(&name.as_str()) => {}
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

/// Variables as a version wants them.
pub(super) fn written(variables: Vec<(String, String)>, api: Api) -> Value {
    if api.is_plain() {
        return Value::Object(variables.into_iter().map(|(name, value)| (name, value.into())).collect::<Map<_, _>>());
    }
    variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Ours, in octal. The system call can only read it by changing it, for all threads.
fn umask() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Umask:")).map(|mask| mask.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(written(pair.clone(), Api::OLDEST), serde_json::json!({"A": "b=c"}));
        assert_eq!(written(pair, Api::NEWEST), serde_json::json!(["A=b=c"]));
    }
}
