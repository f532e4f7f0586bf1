//! The command of the user's that hears of the end of a job.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use test_support::{Requirement, skip};

/// Run an example of the guide with a program in the place of curl; what that was given: its arguments, a line each, and its input.
fn sent_by(example: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let curl = folder.path().join("curl");
    std::fs::write(&curl, "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$0-args\"\ncat > \"$0-input\"\n").unwrap();
    std::fs::set_permissions(&curl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", example]).env("PATH", path).env("EXPCTL_MESSAGE", "job 12 \"ended\"").stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let summary = serde_json::json!({"job": 12, "message": "job 12 \"ended\""});
    writeln!(shell.stdin.take().unwrap(), "{summary}").unwrap();
    assert!(shell.wait().unwrap().success(), "{example}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    (read("curl-args"), read("curl-input"))
}

#[test]
fn the_examples_of_the_guide_send_the_message() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/jobs.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let between = |begin: &str, end: &str| guide.split_once(begin).unwrap().1.split_once(end).unwrap().0;
    let (args, _) = sent_by(between("on_end = '", "'"));
    assert_eq!(args, "-sf\n-d\njob 12 \"ended\"\nhttps://ntfy.sh/my-topic\n");
    if !Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return skip(Requirement::Other, "jq is not there");
    }
    let (args, input) = sent_by(between("Slack: `", "`"));
    assert!(args.contains("\n@-\nhttps://hooks.slack.com/services/"), "{args}");
    let sent: serde_json::Value = serde_json::from_str(&input).unwrap();
    assert_eq!(sent, serde_json::json!({"text": "job 12 \"ended\""}));
}

mod slow {
    use serde_json::Value as Json;

    use crate::common::{SMALL, TestProject, text};

    /// A program that fails at once.
    const FAILS: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
[data]
set = "none"
[worker]
command = ["/bin/false"]
[loader]
batch_size = 4
[measure]
steps = 2
repeats = 1
"#;

    /// A project whose user has this command.
    fn project(on_end: &str) -> TestProject {
        let project = TestProject::new();
        let folder = project.path().join("config").join("expctl");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), format!("on_end = '{on_end}'\n")).unwrap();
        project
    }

    fn summary(project: &TestProject) -> Json {
        serde_json::from_str(&std::fs::read_to_string(project.path().join("told.json")).unwrap()).unwrap()
    }

    #[test]
    fn it_is_told_of_a_job_that_completed() {
        let project = project(
            r#"cat > told.json; printf "%s\n%s\n%s" "$EXPCTL_JOB" "$EXPCTL_STATE" "$EXPCTL_MESSAGE" > told.txt"#,
        );
        let job = project.completed(SMALL, &["--only", "ids"]);
        let told = summary(&project);
        assert_eq!((told["job"].to_string(), told["state"].as_str()), (job.clone(), Some("completed")));
        assert_eq!((&told["trials"], &told["completed"]), (&1.into(), &1.into()));
        assert_eq!((told["config"].as_str(), told["backend"].as_str()), (Some("small"), Some("local")));
        assert!(std::path::Path::new(told["note"].as_str().unwrap()).is_file(), "{told}");
        let message = told["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("expctl job {job} (small) completed, 1 trial")), "{message}");
        let variables = std::fs::read_to_string(project.path().join("told.txt")).unwrap();
        assert_eq!(variables, format!("{job}\ncompleted\n{message}"));
    }

    #[test]
    fn it_is_told_of_a_job_that_failed_and_changes_nothing_itself() {
        // It reads the summary, writes to standard output and fails.
        let project = project("cat > told.json; echo noise; exit 3");
        let output = project.submission(FAILS, &[]).output().unwrap();
        let stderr = text(&output.stderr);
        let told = summary(&project);
        let failed = output.status.code() == Some(5);
        assert!(failed, "{}\n{stderr}", output.status);
        assert_eq!(text(&output.stdout).trim(), told["job"].to_string());
        assert_eq!((told["state"].as_str(), &told["completed"]), (Some("failed"), &0.into()));
        assert!(told["reason"].as_str().unwrap().contains("1 of 1 trials failed: "), "{told}");
        assert!(
            stderr.contains("warning: on_end: `cat > told.json; echo noise; exit 3` ended with exit status: 3"),
            "{stderr}"
        );
    }

    #[test]
    fn the_variable_wins_and_a_command_that_reads_nothing_is_fine() {
        let project = project("false");
        let output =
            project.submission(SMALL, &["--only", "ids"]).env("EXPCTL_ON_END", "touch heard").output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success() && !stderr.contains("on_end"), "{}\n{stderr}", output.status);
        assert!(project.path().join("heard").is_file());
    }
}
