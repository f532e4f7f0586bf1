//! The slurmrestd client: against a real slurmrestd and controller, and against a server that is in trouble.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::cluster::{Cluster, RestServer};
use expctl::exit::{Exit, Failure};
use expctl::launch::slurm::rest_options;
use slurm_client::{JobId, Queue, Rest, SetupError, Slurm, SlurmError};
use test_support::{Requirement, skip};

/// Two tasks end by themselves, one of them badly; the others stay until they are cancelled.
const SCRIPT: &str = "#!/bin/bash
#SBATCH --job-name=\"it's \\\"a\\\" job\" --array=0-4%1 --nodes=1 --ntasks=2 --cpus-per-task=1 --mem=64M --time=10
#SBATCH --output=\"@/out-%a.log\" --error=\"@/out-%a.log\" --open-mode=append --no-requeue
echo \"$HOSTILE\"; umask; pwd; echo \"token:${SLURM_JWT-none}\"
case $SLURM_ARRAY_TASK_ID in 0) exit 0 ;; 1) exit 3 ;; *) exec sleep 300 ;; esac
";
const HOSTILE: &str = "it's \"a\" $(b)\n`c` \\";

fn rest_client(slurm: &Slurm) -> Result<Rest, SetupError> {
    Rest::new(slurm, rest_options(slurm))
}

fn shown(queue: &Queue, job: &JobId) -> Vec<String> {
    queue.iter().filter(|((id, _), _)| *id == job.id).map(|((_, index), task)| format!("{index} {task}")).collect()
}

fn word(queue: &Queue, job: &JobId, index: u32) -> String {
    queue.get(&(job.id, index)).map_or_else(String::new, |task| task.state.to_string())
}

#[test]
fn the_way_of_an_array() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let server = RestServer::start(&cluster);
    let folder = tempfile::tempdir_in(cluster.conf().parent().unwrap()).unwrap();
    let slurm = cluster.slurm.clone().with_variable("SLURMRESTD_URL", &server.url).with_variable("HOSTILE", HOSTILE);
    let slurm = slurm.with_variable("SLURM_USER", "root").with_variable("SLURM_JWT", "");
    // The token comes from scontrol.
    let rest = rest_client(&slurm).unwrap();
    assert!(rest.ping().unwrap().contains(" UP"), "{:?}", rest.ping());

    let script = SCRIPT.replace('@', folder.path().to_str().unwrap());
    let job = rest.submit(&script, true, None, folder.path()).unwrap();
    let jobs = [job.clone()];
    let held = rest.queued(&jobs).unwrap();
    assert_eq!(shown(&held, &job), [0, 1, 2, 3, 4].map(|index| format!("{index} PENDING (JobHeldUser)")));
    let known = cluster.ask("scontrol", &["--oneliner", "show", "job", &job.id.to_string()]);
    for field in
        ["JobName=it's \"a\" job", "ArrayTaskThrottle=1", "NumTasks=2", "TimeLimit=00:10:00", "MinMemoryNode=64M"]
    {
        assert!(known.contains(field), "{field}: {known}");
    }
    // A job that waits for this one for ever, and goes with it.
    let after = rest.submit(&script, false, Some(&format!("afterok:{}", job.id)), folder.path()).unwrap();
    assert!(shown(&rest.queued(std::slice::from_ref(&after)).unwrap(), &after)[0].starts_with("0 PENDING"));

    rest.release(&job).unwrap();
    cluster.until("the third task", || word(&rest.queued(&jobs).unwrap(), &job, 2) == "RUNNING");
    let running = rest.queued(&jobs).unwrap();
    let expected = [
        "0 COMPLETED",
        "1 FAILED (NonZeroExitCode)",
        "2 RUNNING",
        "3 PENDING (JobArrayTaskLimit)",
        "4 PENDING (JobArrayTaskLimit)",
    ];
    assert_eq!(shown(&running, &job), expected);
    // The same as the commands say.
    let table = cluster
        .ask("squeue", &["--array", "--states=all", "--noheader", "--format=%K %T", "--jobs", &job.id.to_string()]);
    let mut lines: Vec<&str> = table.lines().map(str::trim).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 COMPLETED", "1 FAILED", "2 RUNNING", "3 PENDING", "4 PENDING"]);

    rest.cancel(&[(job.clone(), Some(2))], None).unwrap();
    cluster.until("the fourth task", || word(&rest.queued(&jobs).unwrap(), &job, 3) == "RUNNING");
    assert_eq!(word(&rest.queued(&jobs).unwrap(), &job, 2), "CANCELLED");
    // The task that is over and a job that never was are no errors.
    rest.cancel(&[(job.clone(), None), (after, None), (job.clone(), Some(0)), (JobId::new(99), None)], None).unwrap();
    cluster.until("the end", || rest.queued(&jobs).unwrap().values().all(|task| task.state.is_over()));

    let log = std::fs::read_to_string(folder.path().join("out-0.log")).unwrap();
    let umask =
        String::from_utf8(std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout).unwrap();
    assert_eq!(log, format!("{HOSTILE}\n{umask}{}\ntoken:none\n", folder.path().display()));
    assert!(rest.queued(&[JobId::new(99)]).unwrap().is_empty());
    assert_eq!(Failure::from(rest.accounted(&jobs).unwrap_err()).exit, Exit::Cluster, "there is no accounting");

    // What Slurm and we refuse.
    let refused = |script: &str| Failure::from(rest.submit(script, true, None, folder.path()).unwrap_err());
    let nowhere = refused("#!/bin/sh\n#SBATCH --partition=nowhere\ntrue\n");
    assert!(nowhere.exit == Exit::Cluster && nowhere.message.contains("Invalid partition name"), "{nowhere}");
    let switches = refused("#!/bin/sh\n#SBATCH --switches=1\ntrue\n");
    assert!(switches.exit == Exit::Config && switches.message.contains("--switches=1"), "{switches}");

    // A token that is none.
    let wrong = rest_client(&slurm.with_variable("SLURM_JWT", "eyJ.eyJ.c2VjcmV0")).unwrap();
    for failure in [
        Failure::from(wrong.queued(&jobs).unwrap_err()),
        Failure::from(wrong.submit(&script, true, None, folder.path()).unwrap_err()),
    ] {
        assert_eq!(failure.exit, Exit::Cluster);
        let text = failure.to_string();
        assert!(text.contains("does not accept the token of root") && text.contains("scontrol token"), "{text}");
        assert!(!text.contains("c2VjcmV0"), "{text}");
    }
    assert!(!format!("{wrong:?}").contains("c2VjcmV0"));
}

/// For versions that this machine's packages are not of: a running cluster, named by SLURM_CONF and SLURMRESTD_URL.
#[test]
fn the_server_that_the_environment_names() {
    if std::env::var_os("EXPCTL_TEST_SLURMRESTD").is_none() {
        return skip(
            Requirement::Other,
            "it is for a slurmrestd of your own: set EXPCTL_TEST_SLURMRESTD=1 and SLURMRESTD_URL",
        );
    }
    let rest = rest_client(&Slurm::from_environment()).unwrap();
    assert!(rest.ping().unwrap().contains(" UP"));
    let folder = tempfile::tempdir().unwrap();
    let script = SCRIPT.replace('@', folder.path().to_str().unwrap());
    let job = rest.submit(&script, true, None, folder.path()).unwrap();
    let jobs = [job.clone()];
    let after = rest.submit(&script, true, Some(&format!("afterany:{}", job.id)), folder.path()).unwrap();
    assert_eq!(rest.queued(&[job.clone(), after.clone()]).unwrap().len(), 10);
    rest.release(&job).unwrap();
    let until = |what: &str, happened: &dyn Fn() -> bool| {
        let start = std::time::Instant::now();
        while !happened() {
            assert!(start.elapsed().as_secs() < 60, "{what}: {:?}", rest.queued(&jobs).map(|q| shown(&q, &job)));
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    };
    until("the third task", &|| word(&rest.queued(&jobs).unwrap(), &job, 2) == "RUNNING");
    assert_eq!(shown(&rest.queued(&jobs).unwrap(), &job)[1], "1 FAILED (NonZeroExitCode)");
    rest.cancel(&[(job.clone(), Some(2)), (job.clone(), Some(0)), (JobId::new(999_999), None)], None).unwrap();
    until("the fourth task", &|| word(&rest.queued(&jobs).unwrap(), &job, 3) == "RUNNING");
    rest.cancel(&[(job.clone(), None), (after, None)], None).unwrap();
    until("the end", &|| rest.queued(&jobs).unwrap().values().all(|task| task.state.is_over()));
    until("the accounting", &|| word(&rest.accounted(&jobs).unwrap(), &job, 3) == "CANCELLED");
    assert_eq!(shown(&rest.accounted(&jobs).unwrap(), &job)[1], "1 FAILED (exit code 3:0)");
    // A list of waiting tasks that slurmrestd cuts.
    let odd: Vec<String> = (0..60_u32).map(|i| (i * i / 5 + i).to_string()).collect();
    let long = script.replace("0-4%1", &odd.join(","));
    let long = rest.submit(&long, true, None, folder.path()).unwrap();
    let listed = rest.queued(std::slice::from_ref(&long)).unwrap();
    rest.cancel(&[(long, None)], None).unwrap();
    assert_eq!(listed.len(), 60);
}

/// A server that gives the `answers` in turn, the last one for ever; returns its address and the number of requests.
fn server(answers: Vec<(&'static str, &'static str)>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
            // A request without a body ends with an empty line; that of a submission comes in with its head or after it.
            while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    n => seen.extend_from_slice(&buffer[..n]),
                }
            }
            let head = String::from_utf8_lossy(&seen).into_owned();
            let at = seen.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let length =
                head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
            while seen.len() < at + length.unwrap_or(0_usize) {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    n => seen.extend_from_slice(&buffer[..n]),
                }
            }
            let (status, body) = answers[counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, count)
}

fn client(url: &str) -> Rest {
    let slurm = Slurm::from_environment().with_variable("SLURMRESTD_URL", url).with_variable("SLURM_USER", "ada");
    rest_client(&slurm.with_variable("SLURM_JWT", "eyJ.eyJ.c2VjcmV0")).unwrap()
}

const OFFER: (&str, &str) = ("200 OK", r#"{"paths": {"/slurm/v0.0.40/ping": {}, "/slurm/v0.0.42/ping": {}}}"#);
const AWAY: (&str, &str) = ("503 Service Unavailable", "the proxy knows no backend");

#[test]
fn a_question_is_asked_again_and_a_submission_is_not() {
    let jobs = r#"{"jobs": [{"array_job_id": 7, "array_task_id": 1, "job_state": ["RUNNING"], "state_reason": "None"}], "errors": []}"#;
    let (url, count) = server(vec![AWAY, OFFER, AWAY, AWAY, ("200 OK", jobs)]);
    let job = JobId::new(7);
    assert_eq!(shown(&client(&url).queued(std::slice::from_ref(&job)).unwrap(), &job), ["1 RUNNING"]);
    assert_eq!(count.load(Ordering::SeqCst), 5);

    let (url, count) = server(vec![OFFER, AWAY]);
    let rest = client(&url);
    let failure = Failure::from(rest.submit("#!/bin/sh\ntrue\n", true, None, Path::new("/")).unwrap_err());
    assert!(
        failure.exit == Exit::Cluster && failure.message.contains("HTTP 503 the proxy knows no backend"),
        "{failure}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 2, "a second request might have made a second job");
    let failure = Failure::from(rest.queued(&[job]).unwrap_err());
    assert!(failure.exit == Exit::Cluster && !failure.to_string().contains("c2VjcmV0"), "{failure}");
    assert_eq!(count.load(Ordering::SeqCst), 2 + 4, "a question is asked four times");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = Failure::from(client(&format!("http://{gone}")).ping().unwrap_err());
    assert!(failure.exit == Exit::Cluster && failure.message.contains(&gone.to_string()), "{failure}");
    for (url, words) in [
        ("", "is not set"),
        ("ftp://x", "must be http"),
        ("http://ada:pw@x", "without a user"),
        ("x y", "not an address"),
    ] {
        let slurm = Slurm::from_environment().with_variable("SLURMRESTD_URL", url).with_variable("SLURM_JWT", "a.b.c");
        let failure =
            Failure::from(SlurmError::from(rest_client(&slurm.with_variable("SLURM_USER", "ada")).unwrap_err()));
        assert!(failure.exit == Exit::Cluster && failure.message.contains(words), "{failure}");
        assert!(!failure.to_string().contains("pw@"), "{failure}");
    }
}
