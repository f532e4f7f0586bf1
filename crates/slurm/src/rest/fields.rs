//! The `#SBATCH` lines of a batch script as fields of a job's JSON, for each version of slurmrestd.

use serde_json::{Map, Value, json};

use super::ApiVersion;
use crate::error::SlurmError;

/// An option in a batch script: `--name=value`, or `--name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub name: String,
    pub value: Option<String>,
}

impl Directive {
    /// The option as it would be written on a command line.
    pub fn shown(&self) -> String {
        match &self.value {
            Some(value) => format!("--{}={value}", self.name),
            None => format!("--{}", self.name),
        }
    }
}

/// The options in the `#SBATCH` lines of a script, in order. Like `sbatch`, stops at the first line of code. slurmctld
/// itself does not read these lines.
///
/// # Errors
/// [`SlurmError::UnsupportedOption`] for anything but long options whose values follow an equals sign.
pub fn directives(script: &str) -> Result<Vec<Directive>, SlurmError> {
    let mut found = Vec::new();
    for line in script.lines() {
        let line = line.trim_start();
        if let Some(options) = line.strip_prefix("#SBATCH") {
            for word in words(options) {
                found.push(directive(&word)?);
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            break;
        }
    }
    Ok(found)
}

fn directive(word: &str) -> Result<Directive, SlurmError> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    match name.strip_prefix("--") {
        Some(name) if !name.is_empty() => Ok(Directive { name: name.to_owned(), value }),
        _ => Err(SlurmError::UnsupportedOption {
            option: word.to_owned(),
            reason: "only --name and --name=value are read".to_owned(),
        }),
    }
}

/// The words of a line: blanks separate them, quotes keep them together, inside double quotes a backslash protects a
/// quote or a backslash, and a `#` between words begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"'), '\\') => {
                let protected = characters.next_if(|next| matches!(next, '"' | '\\'));
                word.get_or_insert_default().push(protected.unwrap_or('\\'));
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The field of a job's JSON for an option, and its type.
#[derive(Clone, Copy)]
enum FieldShape {
    /// There is no field for it.
    Missing,
    /// The option asks for what happens anyway.
    Default,
    Text(&'static str),
    Whole(&'static str),
    Time(&'static str),
    Memory(&'static str),
    /// An option without a value, or one of the submission itself.
    Switch(&'static str, bool),
    /// A list, its items as they are.
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

use FieldShape::{
    Default, Exclusive, Flag, Gpus, Gres, List, Memory, Missing, Signal, Switch, Text, Time, Whole, Words,
};

/// Option, its shape in v0.0.38, and its shape in all newer versions.
const FIELDS: &[(&str, FieldShape, FieldShape)] = &[
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

/// Write an option into the JSON of a job.
///
/// # Errors
/// [`SlurmError::UnsupportedOption`] if `api` has no field for the option or its value.
pub fn write_field(job: &mut Map<String, Value>, directive: &Directive, api: ApiVersion) -> Result<(), SlurmError> {
    let refuse = |reason: String| SlurmError::UnsupportedOption { option: directive.shown(), reason };
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
                TimeLimit::Minutes(minutes) => number(minutes, api),
                TimeLimit::Unlimited if api.is_plain() => return Err(refuse(format!("{api} has no field for it"))),
                TimeLimit::Unlimited => json!({"set": true, "infinite": true, "number": 0}),
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
fn number(number: u64, api: ApiVersion) -> Value {
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

fn exclusive(job: &mut Map<String, Value>, what: &str, api: ApiVersion) -> Option<Value> {
    if api.is_plain() {
        return job.insert("exclusive".to_owned(), what.into());
    }
    let what = if what == "exclusive" { "none" } else { what };
    job.insert("shared".to_owned(), json!([what]))
}

/// `[B:]SIGNAL[@SECONDS]`; v0.0.38 can only signal the steps.
fn signal(job: &mut Map<String, Value>, value: &str, api: ApiVersion) -> Option<()> {
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

/// A time limit as `--time` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeLimit {
    /// Minutes, rounded up.
    Minutes(u64),
    /// No limit.
    Unlimited,
}

/// `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
/// `days-hours:minutes:seconds`, `UNLIMITED`.
fn minutes(text: &str) -> Option<TimeLimit> {
    if ["UNLIMITED", "INFINITE"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Some(TimeLimit::Unlimited);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u32>().ok()?), rest),
        None => (None, text),
    };
    let fields = rest.split(':').map(|field| field.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, fields.as_slice()) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return None,
    };
    let hours = u64::from(days.unwrap_or(0)) * 24 + u64::from(hours);
    Some(TimeLimit::Minutes(hours * 60 + u64::from(minutes) + u64::from(seconds.div_ceil(60))))
}

/// MiB of `N`, `NK`, `NM`, `NG`, `NT`; MiB without a unit.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().ok()?;
    match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KB" => Some(amount.div_ceil(1024)),
        "" | "M" | "MB" => Some(amount),
        "G" | "GB" => amount.checked_mul(1024),
        "T" | "TB" => amount.checked_mul(1024 * 1024),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVERYTHING: &str = "#SBATCH --job-name=\"a b\" --array=0-3%2 --nodes=2 --ntasks=4 --cpus-per-task=3 --mem=4G --time=1:30:00\n\
        #SBATCH --gres=gpu:h200:2,shard:1 --exclusive --open-mode=append --no-requeue --kill-on-invalid-dep --mail-type=END,FAIL\n\
        #SBATCH --signal=USR1@120 --export=ALL --output=/x/%A.log\n";

    fn job(script: &str, api: ApiVersion) -> Result<Value, SlurmError> {
        let mut job = Map::new();
        for directive in directives(script)? {
            write_field(&mut job, &directive, api)?;
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
        assert_eq!(job(EVERYTHING, ApiVersion::OLDEST).unwrap(), expected);
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
        assert_eq!(job(EVERYTHING, ApiVersion::NEWEST).unwrap(), expected);
    }

    #[test]
    fn an_option_without_a_field_is_named() {
        for (option, api) in [
            ("--switches=1", ApiVersion::NEWEST),
            ("--nodelist=n1", ApiVersion::OLDEST),
            ("--signal=B:USR1@60", ApiVersion::OLDEST),
            ("--time=UNLIMITED", ApiVersion::OLDEST),
            ("--mem=lots", ApiVersion::NEWEST),
            ("--export=NONE", ApiVersion::NEWEST),
            ("--nodes", ApiVersion::NEWEST),
            ("--hold=1", ApiVersion::NEWEST),
        ] {
            let error = job(&format!("#SBATCH {option}\n"), api).unwrap_err();
            assert!(error.to_string().contains(option), "{error}");
            assert!(matches!(error, SlurmError::UnsupportedOption { .. }), "{error:?}");
        }
    }

    /// The fields that a recorded server says it has.
    #[test]
    fn every_field_is_one_that_the_server_knows() {
        for (api, known) in [
            (ApiVersion::OLDEST, include_str!("../../samples/rest-fields-v0.0.38.txt")),
            (ApiVersion::NEWEST, include_str!("../../samples/rest-fields-v0.0.42.txt")),
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
                    write_field(&mut job, &directive, api).unwrap();
                }
                assert!(!job.is_empty() && job.keys().all(|k| known.contains(&k.as_str())), "{api} {option}: {job:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_value_is_written_or_refused(which in 0..FIELDS.len(), value in proptest::option::of("\\PC{0,20}"), old in any::<bool>()) {
            let directive = Directive { name: FIELDS[which].0.to_owned(), value };
            let _ = write_field(&mut Map::new(), &directive, if old { ApiVersion::OLDEST } else { ApiVersion::NEWEST });
        }
    }

    fn option(name: &str, value: Option<&str>) -> Directive {
        Directive { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    #[test]
    fn options_end_where_the_code_begins() {
        let script = "#!/bin/bash\n# --nodes=9\n#SBATCH --job-name=\"a \\\"b\\\" \\\\ $(c) # '\"\n#SBATCH --array=0-3%2 --exclusive # x\n\n\
                      #SBATCH --no-requeue\nset -u\n#SBATCH --nodes=2\n";
        assert_eq!(
            directives(script).unwrap(),
            [
                option("job-name", Some(r#"a "b" \ $(c) # '"#)),
                option("array", Some("0-3%2")),
                option("exclusive", None),
                option("no-requeue", None),
            ]
        );
    }

    #[test]
    fn short_options_are_named_in_the_error() {
        let error = directives("#!/bin/sh\n#SBATCH -N 2\n").unwrap_err().to_string();
        assert!(error.contains("option -N of"), "{error}");
    }

    proptest! {
        #[test]
        fn what_the_script_quotes_is_read_back(value in "[^\\p{Cc}]{0,40}") {
            // Quoted like in a batch template.
            let quoted = format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            let script = format!("#!/bin/bash\n#SBATCH --comment={quoted}\n");
            prop_assert_eq!(directives(&script).unwrap(), [option("comment", Some(&value))]);
        }

        #[test]
        fn any_script_is_read(script in "(#SBATCH )?\\PC{0,60}") {
            let _ = directives(&script);
        }
    }

    #[test]
    fn times_as_sbatch_reads_them() {
        let of = |text| match minutes(text) {
            Some(TimeLimit::Minutes(minutes)) => Some(minutes),
            _ => None,
        };
        assert_eq!(of("90"), Some(90));
        assert_eq!(of("90:01"), Some(91));
        assert_eq!(of("2:30:00"), Some(150));
        assert_eq!(of("1-2"), Some(26 * 60));
        assert_eq!(of("1-2:03"), Some(26 * 60 + 3));
        assert_eq!(of("1-2:03:04"), Some(26 * 60 + 4));
        assert_eq!(minutes("unlimited"), Some(TimeLimit::Unlimited));
        for wrong in ["", "x", "1:2:3:4", "-1", "1.5"] {
            assert_eq!(minutes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_as_sbatch_reads_it() {
        for (text, mib) in [("4096M", 4096), ("100", 100), ("2G", 2048), ("1T", 1 << 20), ("1500K", 2), ("0", 0)] {
            assert_eq!(mebibytes(text), Some(mib), "{text}");
        }
        for wrong in ["", "G", "1X", "1.5G", "99999999999999999999", "9999999999999999999T"] {
            assert_eq!(mebibytes(wrong), None, "{wrong}");
        }
    }
}
