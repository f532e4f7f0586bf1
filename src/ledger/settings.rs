//! Settings of trials as text for tables, notes and comparisons, by dotted key.
//! Invariant: a setting that has no effect on a trial is not shown, so two rows that do the same show no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use expctl_ledger::{Environment, MeasuredJob, Run, RunPart};
use expctl_settings::{
    AcceleratorPreset, Array, Data, Draw, Experiment, KeySpec, MaskSource, Measure, Mode, Model, NO_DATA_SET, Pipeline,
    Profile, Sampler, Section, Select, Settings, Slurm, TraceAt, Train, Worker, find, to_json,
};
use serde_json::Value;

/// Settings as text by dotted key, without those that have no effect on the trial: they say nothing.
pub fn flatten_all(settings: &Settings) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    walk("", &to_json(settings), &mut flat);
    flat.retain(|key, _| find(key).is_none_or(|spec| has_effect(spec, settings)));
    if let Some(command) = flat.get_mut(Worker::COMMAND.name()) {
        *command = command_words(&settings.worker.command);
    }
    flat
}

/// Whether a setting has an effect on a trial with these settings.
fn has_effect(spec: &KeySpec, settings: &Settings) -> bool {
    let is = |key: &str| spec.key == key;
    let in_section = |names: &[&str]| names.contains(&spec.section());
    if !settings.uses(spec) || (in_section(&[Worker::NAME]) && !settings.runs_command()) {
        return false;
    }
    let of_data_set = in_section(&[Data::NAME, Select::NAME]) || is(&Pipeline::STORE);
    if settings.data.set == NO_DATA_SET && of_data_set && !is(&Data::SET) {
        return false;
    }
    // What a generated data set is made of says nothing of own files.
    if !settings.array.files.is_empty() && in_section(&[Data::NAME]) && !is(&Data::SET) && !is(&Data::SAMPLES) {
        return false;
    }
    if in_section(&[Profile::NAME, TraceAt::NAME]) {
        return settings.profiles() || is(&Profile::OPERATIONS);
    }
    if Train::EMULATION.contains(&spec.key) {
        return settings.train.mode == Mode::Emulate && !is_left_out(spec, &settings.train);
    }
    if is(&Array::FORMAT) {
        return settings.reads_array();
    }
    if is(&Pipeline::GENE_MASKS_MIB) {
        return settings.pipeline.mask_source != MaskSource::Incidence;
    }
    if is(&Slurm::PACK_GPU) {
        return settings.slurm.pack > 1 && settings.slurm.gpus_per_rank > 0;
    }
    if is(&Pipeline::MASK_SEED) {
        return settings.pipeline.is_approximate();
    }
    !is(&Measure::EPOCHS) || settings.measure.epochs > 0
}

/// Whether the key of emulated steps says nothing: another one says how long they take.
fn is_left_out(spec: &KeySpec, train: &Train) -> bool {
    let is = |key: &str| spec.key == key;
    (is(&Train::EMULATE) && train.emulate == AcceleratorPreset::None)
        || (is(&Train::STEP_MS) && !train.step_times_of.is_empty())
        || (is(&Train::STEP_TIMES_OF) && train.step_times_of.is_empty())
}

/// A command for one line of a table: words that hold more than a name or a number are in quotes, with escapes.
fn command_words(command: &[String]) -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=+:,@%".contains(c));
    let words = command.iter().map(|word| if plain(word) { word.clone() } else { format!("{word:?}") });
    words.collect::<Vec<_>>().join(" ")
}

/// The same without `experiment.*`, which only says what the note is about.
fn flatten(settings: &Settings) -> BTreeMap<String, String> {
    let mut flat = flatten_all(settings);
    // How many array tasks run at once, and for how long they may, changes nothing that is measured inside one.
    let left_out = [Slurm::THROTTLE.name(), Slurm::TIME_MIN.name(), Slurm::PACK_CALIBRATE.name()];
    flat.retain(|key, _| section(key) != Experiment::NAME && !left_out.contains(&key.as_str()));
    flat
}

/// Settings of several trials as the note of their job shows them: those of model and training only where some run of the job computes a
/// model.
pub fn flatten_in_job<'a>(
    job: &MeasuredJob,
    settings: impl IntoIterator<Item = &'a Settings>,
) -> Vec<BTreeMap<String, String>> {
    let computes_model = job.runs.iter().any(|run| run.trial.settings.computes_model());
    let settings: Vec<&Settings> = settings.into_iter().collect();
    parallel_map::map(&settings, |settings| {
        let mut flat = flatten(settings);
        if !computes_model {
            drop_model(&mut flat);
        }
        flat
    })
}

/// Leaves out the settings of model and training, but for those that say what a step does without a model.
fn drop_model(flat: &mut BTreeMap<String, String>) {
    let is_kept = |key: &str| key == Train::MODE.name() || Train::EMULATION.contains(&key);
    flat.retain(|key, _| is_kept(key) || ![Model::NAME, Train::NAME].contains(&section(key)));
}

/// The part of a dotted key before its dot.
fn section(key: &str) -> &str {
    key.split_once('.').map_or(key, |(section, _)| section)
}

fn walk(prefix: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                walk(&key, value, flat);
            }
        }
        other => {
            flat.insert(prefix.to_owned(), setting_text(other));
        }
    }
}

/// A setting as text: texts without quotes, lists with spaces.
pub fn setting_text(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Array(all) => all.iter().map(setting_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The keys that any of these settings have. There may be thousands, and mostly all have the same.
pub fn all_keys<'a>(settings: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> BTreeSet<&'a str> {
    let mut keys = BTreeSet::new();
    let mut last: Option<&BTreeMap<String, String>> = None;
    for flat in settings {
        if !last.is_some_and(|last| last.keys().eq(flat.keys())) {
            keys.extend(flat.keys().map(String::as_str));
        }
        last = Some(flat);
    }
    keys
}

/// The draw of a row with these settings, if it has one.
pub fn draw_of(settings: &BTreeMap<String, String>) -> Option<Draw> {
    let name = settings.get(Sampler::DRAW.name())?;
    Draw::ALL.into_iter().find(|draw| draw.name() == name)
}

/// Whether a setting says something of a row with this draw: one of `[sampler]` only where rows are drawn by it.
pub fn says_something(key: &str, draw: Option<Draw>) -> bool {
    draw.is_none_or(|draw| draw.uses(key))
}

/// The text of a setting among words: an empty one is `none`.
pub fn shown_setting(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// Settings of the runs of one row, and what they ran on: all that may explain a difference besides the method.
///
/// The processor is left out: it is the method. So are model and training where steps load data alone. Where the runs differ (in
/// their nodes, for example), all values are named. Where the attempts of one run differ, each value has its steps beside it
/// ([`differences_within`]).
pub fn run_settings(job: &MeasuredJob, runs: &[&Run]) -> BTreeMap<String, String> {
    let mut flat = runs.first().map(|r| flatten(&r.trial.settings)).unwrap_or_default();
    if !runs.first().is_some_and(|run| run.trial.settings.computes_model()) {
        drop_model(&mut flat);
    }
    flat.remove(Pipeline::PROCESSOR.name());
    flat.remove(Measure::REPEATS.name());
    let record = &job.record;
    flat.insert("backend".into(), record.backend.clone());
    flat.insert("expctl".into(), record.expctl_version.clone());
    flat.insert("commit".into(), record.commit.clone().unwrap_or_else(|| "none".into()));
    let mut found: Surroundings = BTreeMap::new();
    for run in runs {
        let differing = differences_within(run);
        for (key, values) in run.environments().flat_map(surroundings) {
            if !differing.contains_key(&key) {
                found.entry(key).or_default().extend(values);
            }
        }
        for (key, value) in differing {
            found.entry(key).or_default().insert(value);
        }
    }
    flat.extend(found.into_iter().map(|(key, values)| (key, one_text(&values))));
    flat
}

/// Where and with what something ran, by key: the values over all `environments`.
pub fn surroundings_text<'a>(environments: impl Iterator<Item = &'a Environment>) -> BTreeMap<String, String> {
    let mut found: Surroundings = BTreeMap::new();
    for (key, values) in environments.flat_map(surroundings) {
        found.entry(key).or_default().extend(values);
    }
    found.into_iter().map(|(key, values)| (key, one_text(&values))).collect()
}

/// What the attempts of a run differ in, by key, where its steps come from several: `AMD EPYC 7763 (steps 0–7), Intel Xeon
/// Gold 6230 (steps 8–11)`. A rate over all its steps is of neither.
pub fn differences_within(run: &Run) -> BTreeMap<String, String> {
    if !run.resumed() {
        return BTreeMap::new();
    }
    let parts: Vec<(&RunPart, Option<Surroundings>)> =
        run.parts.iter().map(|part| (part, part.environment.as_ref().map(surroundings))).collect();
    let keys: BTreeSet<&String> = parts.iter().flat_map(|(_, of)| of).flat_map(BTreeMap::keys).collect();
    let of_key = |key: &&String| {
        // Parts that follow each other and are alike are said once.
        let mut said: Vec<(String, u64, u64)> = Vec::new();
        for (part, of) in &parts {
            let value = match of {
                Some(of) => of.get(*key).map_or_else(|| "none".to_owned(), one_text),
                None => "unknown".to_owned(),
            };
            match said.last_mut() {
                Some((last, _, end)) if *last == value => *end = part.steps.end,
                _ => said.push((value, part.steps.start, part.steps.end)),
            }
        }
        let words = said.iter().map(|(value, start, end)| format!("{value} ({})", step_words(&(*start..*end))));
        (said.len() > 1).then(|| ((**key).clone(), words.collect::<Vec<_>>().join(", ")))
    };
    keys.iter().filter_map(of_key).collect()
}

/// `steps 0–7`, `step 8`.
pub fn step_words(steps: &Range<u64>) -> String {
    match steps.end.saturating_sub(1) {
        last if last <= steps.start => format!("step {}", steps.start),
        last => format!("steps {}–{last}", steps.start),
    }
}

/// Where and with what something ran: the values of each key over all ranks.
type Surroundings = BTreeMap<String, BTreeSet<String>>;

fn surroundings(environment: &Environment) -> Surroundings {
    let mut found = Surroundings::new();
    let mut add = |key: &str, value: String| {
        found.entry(key.to_owned()).or_default().insert(value);
    };
    add("device", environment.device.clone());
    if !environment.backend.is_empty() {
        add("process_group", environment.backend.clone());
    }
    match &environment.program {
        Some(program) => {
            add("program", program.words());
            for (name, value) in &program.settings {
                add(&format!("program.{name}"), setting_text(value));
            }
        }
        None => {
            add("libtorch", environment.libtorch_version.clone());
            add("worker", environment.worker_version.clone());
        }
    }
    for rank in &environment.ranks {
        add("node", rank.host.clone());
        add("cpu", rank.cpu.clone());
        if let Some(device) = &rank.device {
            add("gpu", device.name.clone());
        }
        add("cpus_per_rank", rank.cpus.to_string());
        // The ranks of a job may share their CPUs or not, so those of the job are known only where there is one.
        if environment.ranks.len() == 1 {
            add("cpus", rank.cpus.to_string());
        }
    }
    found
}

/// Several values as one text. Between values of several words a space would not be seen.
fn one_text(values: &BTreeSet<String>) -> String {
    let separator = if values.iter().any(|value| value.contains(' ')) { "; " } else { " " };
    values.iter().map(String::as_str).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_are_there_once() {
        let flat = |keys: &[&str]| -> BTreeMap<String, String> {
            keys.iter().map(|key| ((*key).to_owned(), String::new())).collect()
        };
        let all = [flat(&["b"]), flat(&["b"]), flat(&["a", "c"]), flat(&[]), flat(&["c"])];
        assert_eq!(all_keys(&all), BTreeSet::from(["a", "b", "c"]));
    }

    #[test]
    fn a_setting_of_the_sampler_says_something_where_rows_are_drawn_by_it() {
        let draw = |name: &str| draw_of(&BTreeMap::from([(Sampler::DRAW.name().to_owned(), name.to_owned())]));
        assert_eq!((draw("chunked"), draw("no draw"), draw_of(&BTreeMap::new())), (Some(Draw::Chunked), None, None));
        let chunks = Sampler::CHUNKS.name();
        assert!(says_something(chunks, draw("chunked")) && says_something(chunks, None));
        assert!(!says_something(chunks, draw("uniform")) && says_something("loader.workers", draw("uniform")));
    }
}
