//! Options of `sbatch` as fields of a job's JSON, for each version of slurmrestd.

use serde_json::{Map, Value, json};

use super::directives::Directive;
use super::values::{Minutes, mebibytes, minutes};
use super::version::Api;
use crate::launch::slurm::tools::ToolError;

/// How an option is written.
#[derive(Clone, Copy)]
enum Shape {
    /// There is no way to write it.
    Missing,
    /// It says what is so anyway.
    Default,
    Text(&'static str),
    Whole(&'static str),
    Minutes(&'static str),
    Memory(&'static str),
    /// An option without a value, or one of the submission itself.
    Switch(&'static str, bool),
    /// A list, its parts as they are.
    List(&'static str),
    /// A list of words that are upper case here.
    Words(&'static str),
    /// Resources, which are named with their kind: `gres/gpu:2`.
    Gres(&'static str),
    /// A number of GPUs, with their type or without: `gres/gpu:2`.
    Gpus(&'static str),
    /// A word in the list `flags`.
    Flag(&'static str),
    Exclusive,
    Signal,
}

use Shape::{
    Default, Exclusive, Flag, Gpus, Gres, List, Memory, Minutes as Time, Missing, Signal, Switch, Text, Whole, Words,
};

/// Option, its shape in v0.0.38, and its shape in all newer versions.
const FIELDS: &[(&str, Shape, Shape)] = &[
    ("account", Text("account"), Text("account")),
    ("array", Text("array"), Text("array")),
    ("begin", Text("begin_time"), Text("begin_time")),
    ("chdir", Text("current_working_directory"), Text("current_working_directory")),
    ("comment", Text("comment"), Text("comment")),
    ("constraint", Text("constraints"), Text("constraints")),
    ("cpus-per-task", Whole("cpus_per_task"), Whole("cpus_per_task")),
    ("dependency", Text("dependency"), Text("dependency")),
    ("error", Text("standard_error"), Text("standard_error")),
    ("exclude", Missing, List("excluded_nodes")),
    ("exclusive", Exclusive, Exclusive),
    ("export", Default, Default),
    ("gpus", Text("gpus"), Gpus("tres_per_job")),
    ("gpus-per-node", Text("gpus_per_node"), Gpus("tres_per_node")),
    ("gpus-per-task", Text("gpus_per_task"), Gpus("tres_per_task")),
    ("gres", Text("gres"), Gres("tres_per_node")),
    ("hold", Switch("hold", true), Switch("hold", true)),
    ("input", Text("standard_input"), Text("standard_input")),
    ("job-name", Text("name"), Text("name")),
    ("kill-on-invalid-dep", Switch("kill_on_invalid_dependency", true), Flag("KILL_INVALID_DEPENDENCY")),
    ("licenses", Text("licenses"), Text("licenses")),
    ("mail-type", Text("mail_type"), Words("mail_type")),
    ("mail-user", Text("mail_user"), Text("mail_user")),
    ("mem", Memory("memory_per_node"), Memory("memory_per_node")),
    ("mem-per-cpu", Memory("memory_per_cpu"), Memory("memory_per_cpu")),
    ("nice", Whole("nice"), Whole("nice")),
    // v0.0.38 takes this back without a word: see `Rest::submit`.
    ("no-requeue", Switch("requeue", false), Switch("requeue", false)),
    ("nodelist", Missing, List("required_nodes")),
    ("nodes", Text("nodes"), Text("nodes")),
    ("ntasks", Whole("tasks"), Whole("tasks")),
    ("ntasks-per-node", Whole("tasks_per_node"), Whole("tasks_per_node")),
    ("open-mode", Text("open_mode"), Words("open_mode")),
    ("output", Text("standard_output"), Text("standard_output")),
    ("partition", Text("partition"), Text("partition")),
    ("prefer", Text("prefer"), Text("prefer")),
    ("qos", Text("qos"), Text("qos")),
    ("requeue", Switch("requeue", true), Switch("requeue", true)),
    ("reservation", Text("reservation"), Text("reservation")),
    ("signal", Signal, Signal),
    ("time", Time("time_limit"), Time("time_limit")),
    ("time-min", Time("time_minimum"), Time("time_minimum")),
    ("wckey", Text("wckey"), Text("wckey")),
];

/// Write an option into a job.
///
/// # Errors
/// Names the option if this version has no field for it, or none for its value.
pub(super) fn write(job: &mut Map<String, Value>, directive: &Directive, api: Api) -> Result<(), ToolError> {
    let refuse = |why: String| ToolError::Option { option: directive.shown(), why };
    let shape = FIELDS.iter().find(|(name, ..)| *name == directive.name);
    let shape = shape.map_or(Missing, |(_, plain, newer)| if api.is_plain() { *plain } else { *newer });
    // sbatch wants a word here where slurmrestd wants none.
    let given = directive.value.as_deref().filter(|value| directive.name != "kill-on-invalid-dep" || *value != "yes");
    let Some(value) = given else {
        match shape {
            Switch(field, on) => job.insert(field.to_owned(), on.into()),
            Flag(word) => push(job, "flags", word),
            Exclusive => exclusive(job, "exclusive", api),
            _ => return Err(refuse(format!("{api} has no field for it"))),
        };
        return Ok(());
    };
    let unreadable = || refuse("its value cannot be read".to_owned());
    let gpus = |count: &str| format!("gres/gpu:{count}");
    match shape {
        Missing | Switch(..) | Flag(_) => return Err(refuse(format!("{api} has no field for it"))),
        Default if value.eq_ignore_ascii_case("ALL") => None,
        Default => return Err(refuse("the environment is handed over as it is".to_owned())),
        Text(field) => job.insert(field.to_owned(), value.into()),
        Whole(field) => job.insert(field.to_owned(), value.parse::<i64>().map_err(|_| unreadable())?.into()),
        Memory(field) => job.insert(field.to_owned(), number(mebibytes(value).ok_or_else(unreadable)?, api)),
        Time(field) => {
            let value = match minutes(value).ok_or_else(unreadable)? {
                Minutes::Some(minutes) => number(minutes, api),
                Minutes::Unlimited if api.is_plain() => return Err(refuse(format!("{api} has no field for it"))),
                Minutes::Unlimited => json!({"set": true, "infinite": true, "number": 0}),
            };
            job.insert(field.to_owned(), value)
        }
        List(field) => job.insert(field.to_owned(), value.split(',').collect()),
        Words(field) => job.insert(field.to_owned(), value.to_ascii_uppercase().split(',').collect()),
        Gres(field) => join(job, field, value.split(',').map(|one| format!("gres/{one}"))),
        Gpus(field) => join(job, field, value.split(',').map(gpus)),
        Exclusive => exclusive(job, value, api),
        Signal => return signal(job, value, api).ok_or_else(|| refuse(format!("{api} has no field for it"))),
    };
    Ok(())
}

/// A number that may be unset.
fn number(number: u64, api: Api) -> Value {
    if api.is_plain() { number.into() } else { json!({"set": true, "infinite": false, "number": number}) }
}

fn push(job: &mut Map<String, Value>, field: &str, word: &str) -> Option<Value> {
    match job.entry(field).or_insert_with(|| json!([])) {
        Value::Array(words) => words.push(word.into()),
        other => *other = json!([word]),
    }
    None
}

/// Add to a text with commas: several options may go into one field.
fn join(job: &mut Map<String, Value>, field: &str, more: impl Iterator<Item = String>) -> Option<Value> {
    let before = job.get(field).and_then(Value::as_str).map(str::to_owned);
    let all: Vec<String> = before.into_iter().chain(more).collect();
    job.insert(field.to_owned(), all.join(",").into())
}

fn exclusive(job: &mut Map<String, Value>, what: &str, api: Api) -> Option<Value> {
    if api.is_plain() {
        return job.insert("exclusive".to_owned(), what.into());
    }
    let what = if what == "exclusive" { "none" } else { what };
    job.insert("shared".to_owned(), json!([what]))
}

/// `[B:]SIGNAL[@SECONDS]`; v0.0.38 can only signal the steps.
fn signal(job: &mut Map<String, Value>, value: &str, api: Api) -> Option<()> {
    if api.is_plain() {
        let refused = value.contains(':');
        return (!refused).then(|| drop(job.insert("signal".to_owned(), value.into())));
    }
    let (flags, rest) = value.split_once(':').unwrap_or(("", value));
    let (name, seconds) = rest.split_once('@').unwrap_or((rest, "60"));
    match flags {
        "" => {}
        "B" => drop(job.insert("kill_warning_flags".to_owned(), json!(["BATCH_JOB"]))),
        _ => return None,
    }
    job.insert("kill_warning_signal".to_owned(), name.into());
    job.insert("kill_warning_delay".to_owned(), number(seconds.parse().ok()?, api));
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::slurm::rest::directives::directives;

    const EVERYTHING: &str = "#SBATCH --job-name=\"a b\" --array=0-3%2 --nodes=2 --ntasks=4 --cpus-per-task=3 --mem=4G --time=1:30:00\n\
        #SBATCH --gres=gpu:h200:2,shard:1 --exclusive --open-mode=append --no-requeue --kill-on-invalid-dep --mail-type=END,FAIL\n\
        #SBATCH --signal=USR1@120 --export=ALL --output=/x/%A.log\n";

    fn job(script: &str, api: Api) -> Result<Value, ToolError> {
        let mut job = Map::new();
        for directive in directives(script)? {
            write(&mut job, &directive, api)?;
        }
        Ok(job.into())
    }

    #[test]
    fn a_job_in_the_oldest_version() {
        let expected = json!({
            "name": "a b", "array": "0-3%2", "nodes": "2", "tasks": 4, "cpus_per_task": 3, "memory_per_node": 4096,
            "time_limit": 90, "gres": "gpu:h200:2,shard:1", "exclusive": "exclusive", "open_mode": "append", "requeue": false,
            "kill_on_invalid_dependency": true, "mail_type": "END,FAIL", "signal": "USR1@120", "standard_output": "/x/%A.log",
        });
        assert_eq!(job(EVERYTHING, Api::OLDEST).unwrap(), expected);
    }

    #[test]
    fn a_job_in_the_newest_version() {
        let number = |n| json!({"set": true, "infinite": false, "number": n});
        let expected = json!({
            "name": "a b", "array": "0-3%2", "nodes": "2", "tasks": 4, "cpus_per_task": 3, "memory_per_node": number(4096),
            "time_limit": number(90), "tres_per_node": "gres/gpu:h200:2,gres/shard:1", "shared": ["none"],
            "open_mode": ["APPEND"], "requeue": false, "flags": ["KILL_INVALID_DEPENDENCY"], "mail_type": ["END", "FAIL"],
            "kill_warning_signal": "USR1", "kill_warning_delay": number(120), "standard_output": "/x/%A.log",
        });
        assert_eq!(job(EVERYTHING, Api::NEWEST).unwrap(), expected);
    }

    #[test]
    fn an_option_without_a_field_is_named() {
        for (option, api) in [
            ("--switches=1", Api::NEWEST),
            ("--nodelist=n1", Api::OLDEST),
            ("--signal=B:USR1@60", Api::OLDEST),
            ("--time=UNLIMITED", Api::OLDEST),
            ("--mem=lots", Api::NEWEST),
            ("--export=NONE", Api::NEWEST),
            ("--nodes", Api::NEWEST),
            ("--hold=1", Api::NEWEST),
        ] {
            let error = job(&format!("#SBATCH {option}\n"), api).unwrap_err();
            assert!(error.to_string().contains(option), "{error}");
            assert_eq!(crate::exit::Failure::from(error).exit, crate::exit::Exit::Config);
        }
    }

    /// The fields that a recorded server says it has.
    #[test]
    fn every_field_is_one_that_the_server_knows() {
        for (api, known) in [
            (Api::OLDEST, include_str!("../../../../tests/slurm/samples/rest-fields-v0.0.38.txt")),
            (Api::NEWEST, include_str!("../../../../tests/slurm/samples/rest-fields-v0.0.42.txt")),
        ] {
            let known: Vec<&str> = known.lines().collect();
            for (option, plain, newer) in FIELDS {
                let mut job = Map::new();
                let values: &[Option<&str>] = match if api.is_plain() { plain } else { newer } {
                    Missing | Default => continue,
                    Switch(..) | Flag(_) => &[None],
                    Exclusive => &[None, Some("user")],
                    _ => &[Some("1")],
                };
                for value in values {
                    let directive = Directive { name: (*option).to_owned(), value: value.map(str::to_owned) };
                    write(&mut job, &directive, api).unwrap();
                }
                assert!(!job.is_empty() && job.keys().all(|k| known.contains(&k.as_str())), "{api} {option}: {job:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_value_is_written_or_refused(which in 0..FIELDS.len(), value in proptest::option::of("\\PC{0,20}"), old in any::<bool>()) {
            let directive = Directive { name: FIELDS[which].0.to_owned(), value };
            let _ = write(&mut Map::new(), &directive, if old { Api::OLDEST } else { Api::NEWEST });
        }
    }
}
