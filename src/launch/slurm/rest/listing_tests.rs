use proptest::prelude::*;
use serde_json::json;

use super::*;

fn shown(tasks: &Tasks) -> Vec<String> {
    tasks.iter().map(|(index, task)| format!("{index} {task}")).collect()
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_array_in_two_versions() {
    for (version, job, text) in [
        ("22.05", 53, include_str!("../../../../tests/slurm/samples/rest-job-22.05.json")),
        ("24.11", 37, include_str!("../../../../tests/slurm/samples/rest-job-24.11.json")),
    ] {
        let listed = queue_of(&read(text), job).unwrap();
        let waiting = [3, 4, 6].map(|index| format!("{index} PENDING (JobArrayTaskLimit)"));
        let expected = ["0 COMPLETED", "1 FAILED (NonZeroExitCode)", "2 RUNNING"].map(str::to_owned);
        assert_eq!(shown(&listed.tasks), [expected.as_slice(), &waiting].concat(), "Slurm {version}");
        assert!(listed.cut.is_none() && queue_of(&read(text), 2).unwrap().tasks.is_empty());
    }
}

#[test]
fn accounting_in_two_versions() {
    for (version, job, failed, text) in [
        ("22.05", 53, "1 FAILED", include_str!("../../../../tests/slurm/samples/rest-accounting-22.05.json")),
        (
            "24.11",
            37,
            "1 FAILED (exit code 1:0)",
            include_str!("../../../../tests/slurm/samples/rest-accounting-24.11.json"),
        ),
    ] {
        let tasks = shown(&accounting_of(&read(text), job).unwrap());
        assert_eq!(tasks[..2], ["0 COMPLETED (exit code 0:0)", failed], "Slurm {version}");
        let states: Vec<&str> = tasks[2..].iter().filter_map(|task| task.split(" (").next()).collect();
        assert_eq!(states, ["2 RUNNING", "3 PENDING", "4 PENDING", "6 PENDING"], "Slurm {version}");
    }
}

#[test]
fn a_list_that_is_cut_is_known_as_such() {
    let body = json!({"jobs": [{"array_job_id": 7, "array_task_id": null, "array_task_string": "1,4,11-13,15:2,112-11...%1",
        "job_state": "PENDING", "state_reason": "JobHeldUser"}]});
    let listed = queue_of(&body, 7).unwrap();
    assert_eq!(listed.cut.unwrap().to_string(), "PENDING (JobHeldUser)");
    assert!(
        [1, 4, 11, 12, 13].iter().all(|index| listed.tasks.contains_key(index)) && !listed.tasks.contains_key(&112)
    );
    let states = json!({"jobs": [{"job_id": "7_1", "state": ["PENDING"]}, {"job_id": "7_118"}, {"job_id": "9_3"}, {"job_id": "7"}]});
    assert_eq!(states_of(&states, 7), [1, 118]);
}

#[test]
fn masks_and_lists() {
    assert_eq!(mask("0x58"), [3, 4, 6]);
    assert_eq!(mask("0x2C%1"), [2, 3, 5]);
    assert_eq!(mask("0-6:3"), [0, 3, 6]);
    assert_eq!(mask(""), [0_u32; 0]);
}

#[test]
fn states_of_both_kinds() {
    for (value, word, over) in [
        (json!("RUNNING"), "RUNNING", false),
        (json!(["CANCELLED"]), "CANCELLED", true),
        (json!(["COMPLETED", "COMPLETING"]), "COMPLETING", false),
        (json!(["PENDING", "REQUEUED"]), "REQUEUED", false),
        (json!(["RUNNING", "POWER_UP_NODE"]), "RUNNING", false),
        (json!(["LEVITATING"]), "LEVITATING", false),
    ] {
        let state = state(&value).unwrap();
        assert_eq!((state.to_string().as_str(), state.is_over()), (word, over), "{value}");
    }
    assert_eq!(state(&json!([])), None);
    assert_eq!(state(&json!(7)), None);
}

#[test]
fn an_answer_without_jobs_is_no_answer() {
    for body in [json!(null), json!({}), json!({"jobs": null}), json!({"jobs": {"x": 1}})] {
        assert!(queue_of(&body, 7).is_none() && accounting_of(&body, 7).is_none(), "{body}");
    }
}

/// JSON with the names that are looked for, and anything for their values.
fn anything() -> impl Strategy<Value = Value> {
    let names = proptest::sample::select(vec![
        "jobs",
        "errors",
        "array",
        "array_job_id",
        "job_id",
        "array_task_id",
        "task_id",
        "array_task_string",
        "task",
        "job_state",
        "state",
        "current",
        "state_reason",
        "exit_code",
        "return_code",
        "signal",
        "id",
        "set",
        "infinite",
        "number",
        "error_number",
        "description",
        "error",
        "status",
        "code",
        "warnings",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(7)),
        "\\PC{0,12}".prop_map(Value::from),
        "(0x)?[0-9A-F,:.%-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names.clone(), inner), 0..8)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn no_answer_is_too_strange(mut body in anything(), jobs in proptest::collection::vec(anything(), 0..3), wrap in any::<bool>()) {
        if wrap {
            // Past the first look, where most of them would end.
            body = json!({"jobs": jobs.into_iter().map(|mut job| {
                if let Value::Object(fields) = &mut job {
                    fields.insert("array_job_id".to_owned(), json!(7));
                }
                job
            }).collect::<Vec<_>>(), "errors": body});
        }
        let _ = queue_of(&body, 7);
        let _ = accounting_of(&body, 7);
        let _ = states_of(&body, 7);
        let answer = super::super::answer::Answer::new(500, body.to_string().as_bytes());
        let _ = (answer.message(), answer.errors(), answer.is_passing());
    }
}
