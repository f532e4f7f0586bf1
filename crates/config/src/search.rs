//! `[search]`: settings with the values among which `expctl search` finds the fastest, and how it searches.
//!
//! ```toml
//! [search]
//! loader.workers = [0, 1, 2, 4]               # the points are made as those of [sweep]
//! loader.prefetch_factor = [1, 2, 8]
//! budget_s = 600
//! ```
//!
//! The config's own settings are a point, too. A point that the rules refuse is left out with the reason, and is no mistake of the config: not
//! every combination of values has to fit.

use std::collections::{BTreeMap, BTreeSet};

use expctl_settings::{Experiment, KeySpec, Launch, Loader, Measure, Profile, Search, Section, Slurm, TraceAt, Train};
use serde_json::{Map, Value as Json};

use crate::config::{Config, Run, Values};
use crate::layer::{Layer, Setting};
use crate::node::{NodeTable, ValueOrigin};
use crate::past_job::toml_of;
use crate::plan::trial_id;
use crate::problem::Problem;
use crate::sweep::{PointTable, Sweep, SweepRow, read_points};

/// The table as the texts give it.
#[derive(Clone, Debug)]
pub struct SearchTable {
    /// The settings that are searched.
    pub points: Sweep,
    /// How they are searched: the keys of [`Search`].
    pub options: Layer,
}

impl Default for SearchTable {
    fn default() -> Self {
        Self { points: Sweep { table: PointTable::Search, ..Sweep::default() }, options: Layer::new() }
    }
}

/// Read `table`, the content of `[search]`, whose header stands at `at`.
pub fn read_search(at: ValueOrigin, table: &NodeTable, problems: &mut Vec<Problem>) -> SearchTable {
    let option = |name: &str| Search::KEYS.iter().find(|spec| spec.leaf() == name);
    let mut options = Layer::new();
    let mut settings = NodeTable::new();
    for (key, node) in table {
        match option(&key.name) {
            Some(spec) => {
                options.insert(spec.key, Setting::read(spec, node, problems));
            }
            None => settings.push((key.clone(), node.clone())),
        }
    }
    let points = read_points(PointTable::Search, at, &settings, problems);
    let mut said = BTreeSet::new();
    for (key, at) in points.keys() {
        if decides_the_work(key) && said.insert(key) {
            let problem = Problem::new(at, format!("`{key}` cannot be searched"), "steps would do other work");
            problems.push(problem.help("points of a search do the same steps; compare modes and lengths with [sweep]"));
        }
    }
    SearchTable { points, options }
}

/// Whether points with other values of the key do other steps, or are measured in another way, so that the fastest is no choice.
fn decides_the_work(key: &str) -> bool {
    let section = key.split_once('.').map_or(key, |(section, _)| section);
    [Measure::NAME, Profile::NAME, TraceAt::NAME].contains(&section)
        || [Train::MODE.name(), Train::EPOCHS.name()].contains(&key)
}

impl SearchTable {
    /// Put `over` on top.
    pub fn extend(&mut self, over: Self) {
        self.points.extend(over.points);
        self.options.extend(over.options);
    }

    /// How it is searched; none while a key has no valid value.
    pub fn options(&self) -> Option<Search> {
        let value = |spec: &KeySpec| match self.options.get(spec.key) {
            Some(setting) => setting.value.clone(),
            None => spec.default_value(),
        };
        let section = Search::KEYS.iter().map(|spec| Some((spec.leaf().to_owned(), value(spec)?)));
        serde_json::from_value(Json::Object(section.collect::<Option<Map<_, _>>>()?)).ok()
    }

    /// The point of the variant's own settings, which has the value of every searched key.
    pub fn baseline_point(&self, own: &Values) -> Layer {
        let keys = self.points.keys().into_iter().map(|(key, _)| key);
        keys.map(|key| (key, Setting::unwritten(own.json(key).cloned()))).collect()
    }

    /// What keeps a config with these settings, which are valid, from being searched.
    pub fn refuse(&self, own: &Values, problems: &mut Vec<Problem>) {
        let Some(at) = self.points.at else { return };
        let is_set = |key: &str| own.json(key).and_then(Json::as_u64).is_some_and(|value| value > 0);
        for key in [Train::EPOCHS.name(), Measure::EPOCHS.name()] {
            if is_set(key) {
                let problem = Problem::new(own.at(key).unwrap_or(at), "a search measures steps, not epochs", "epochs");
                problems.push(problem.also(at, "the search").help("set measure.steps in place of epochs"));
            }
        }
        for key in [Profile::ACTIVE.name(), TraceAt::AT_STEP.name()] {
            if is_set(key) {
                let problem = Problem::new(own.at(key).unwrap_or(at), "a search runs no profiler", "costs time");
                problems.push(problem.also(at, "the search").help("leave one of the two out"));
            }
        }
    }
}

/// The points of one variant.
#[derive(Clone, Debug)]
pub struct VariantPoints {
    /// Name of the variant.
    pub variant: String,
    /// The points: first that of the variant's own settings, then the others in the order of the config. Points that run the same are one.
    pub points: Vec<Run>,
    /// Points that the rules refuse.
    pub refused: Vec<RefusedPoint>,
}

/// A point that cannot run.
#[derive(Clone, Debug)]
pub struct RefusedPoint {
    /// Its searched settings.
    pub point: Layer,
    /// The rule that refuses it, one line.
    pub reason: String,
}

impl VariantPoints {
    /// The points of a variant, so far only that of its own settings.
    pub fn new(own: Run) -> Self {
        Self { variant: own.variant.clone(), points: vec![own], refused: Vec::new() }
    }

    /// Add a point, unless one of the points runs the same, or `problems` refuse it.
    pub fn add(&mut self, run: Run, problems: Vec<Problem>) {
        if let Some(first) = problems.into_iter().next() {
            let help = first.help.map(|help| format!(" ({help})")).unwrap_or_default();
            self.refused.push(RefusedPoint { point: run.point, reason: format!("{}{help}", first.message) });
            return;
        }
        let what = what_runs(&run.values);
        if !self.points.iter().any(|known| what_runs(&known.values) == what) {
            self.points.push(run);
        }
    }

    /// Which search this is: the same text for the same config name, points, lengths and options, on every machine. The budget does not count:
    /// with more of it a search goes on.
    pub fn id(&self, config: &str, options: &Search) -> String {
        let trials = self.points.iter().map(|run| trial_id(&run.variant, 1, &run.swept(), &run.values.flat()));
        let trials: Vec<String> = trials.collect();
        // Texts and numbers, which always can be written.
        let canonical =
            serde_json::to_vec(&(config, trials, options.max_repeats, options.min_gain_percent)).unwrap_or_default();
        blake3::hash(&canonical).to_hex()[..12].to_owned()
    }
}

/// All settings that decide what runs, as text. Without loader threads nothing is loaded ahead.
fn what_runs(values: &Values) -> String {
    let mut flat = values.flat();
    if values.number(Loader::WORKERS) == Some(0) {
        flat.remove(Loader::PREFETCH_FACTOR.name());
    }
    serde_json::to_string(&flat).unwrap_or_default()
}

/// `[search]` of a valid config.
#[derive(Clone, Debug)]
pub struct SearchSpace {
    /// How it is searched.
    pub options: Search,
    /// The points of each variant.
    pub variants: Vec<VariantPoints>,
}

/// Settings of a point of the search: the layer of `row`, with the values of `own` for keys that the row lacks.
pub fn whole_point(row: &SweepRow, own: &Layer) -> Layer {
    let mut point = own.clone();
    point.extend(row.settings.clone());
    point
}

/// Batches that were loaded ahead cost the step nothing: a point that loads more of them than its config's warm-up has steps gets a longer one.
pub fn lengthen_warm_up(values: &mut Values) {
    let (workers, factor) = (values.number(Loader::WORKERS), values.number(Loader::PREFETCH_FACTOR));
    let (Some(workers), Some(factor)) = (workers, factor) else { return };
    let ahead = workers.saturating_mul(factor);
    if values.get(Measure::WARMUP).is_some_and(|warm_up| warm_up < ahead) {
        values.derive(Measure::WARMUP, Some(ahead));
    }
}

impl Config {
    /// The config of a round of a search: each of these points once, with so many measured steps.
    #[must_use]
    pub fn search_round(&self, round: u32, points: &[(&Run, u64)]) -> Self {
        let is_resource = |key: &str| {
            key.starts_with(&format!("{}.", Slurm::NAME)) || key == Launch::RANKS.name() || key == Launch::NODES.name()
        };
        let resources = |run: &Run| -> Vec<(&'static str, Json)> {
            let flat = run.values.flat();
            flat.into_iter().filter(|(key, _)| is_resource(key)).map(|(key, value)| (key, value.clone())).collect()
        };
        let is_alike = points.windows(2).all(|two| resources(two[0].0) == resources(two[1].0));
        let of_round = |(run, steps): &(&Run, u64)| {
            let mut run = (*run).clone();
            let title = run.values.get(Experiment::TITLE).filter(|title| !title.is_empty());
            let title = title.unwrap_or_else(|| self.name.clone());
            run.values.derive(Experiment::TITLE, Some(format!("{title} (search, round {round})")));
            run.values.derive(Measure::STEPS, Some(*steps));
            run.values.derive(Measure::REPEATS, Some(1));
            // On the same nodes, one after another: what slows a node slows all points of a round.
            run.values.derive(Measure::INTERLEAVE, Some(is_alike));
            // Side by side, the rate of a point would depend on the other points.
            run.values.derive(Slurm::PACK, Some(1));
            run
        };
        let runs: Vec<Run> = points.iter().map(of_round).collect();
        let baseline = runs.first().map(|run| run.variant.clone());
        Self { points: runs.len(), variants: 1, baseline, runs, search: None, ..self.clone() }
    }
}

/// The point as `--set` takes it, an argument for each setting: `loader.workers=4`. A text without blanks needs no quotes.
pub fn set_arguments(point: &BTreeMap<String, Json>) -> Vec<String> {
    let value = |value: &Json| match value.as_str() {
        Some(word) if is_bare(word) => word.to_owned(),
        _ => toml_of(value),
    };
    point.iter().map(|(key, set)| format!("{key}={}", value(set))).collect()
}

/// Whether `--set` takes the text for itself, as it stands.
fn is_bare(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let first = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    plain && first && !["true", "false", "inf", "nan"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::literal_node;
    use crate::node::NodeKey;

    fn table(entries: &[(&str, &str)]) -> NodeTable {
        let at = ValueOrigin::start_of(0);
        let entry =
            |(key, value): &(&str, &str)| (NodeKey { name: (*key).to_owned(), at }, literal_node(value).unwrap());
        entries.iter().map(entry).collect()
    }

    fn read(entries: &[(&str, &str)]) -> (SearchTable, Vec<String>) {
        let mut problems = Vec::new();
        let read = read_search(ValueOrigin::start_of(0), &table(entries), &mut problems);
        (read, problems.into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn options_stand_beside_the_settings() {
        let (read, problems) = read(&[("loader.workers", "[0, 2]"), ("budget_s", "60"), ("min_gain_percent", "1.5")]);
        assert_eq!(problems, Vec::<String>::new());
        let expected = Search { budget_s: 60.0, min_gain_percent: 1.5, ..Search::default() };
        assert_eq!((read.options(), read.points.grid.len()), (Some(expected), 1));
        assert_eq!(SearchTable::default().options(), Some(Search::default()));
    }

    #[test]
    fn what_decides_the_work_cannot_be_searched() {
        let (_, problems) = read(&[("measure.steps", "[10, 20]"), ("train.mode", "[\"data\", \"train\"]")]);
        assert_eq!(problems, ["`measure.steps` cannot be searched", "`train.mode` cannot be searched"]);
        let (wrong, problems) = read(&[("budget", "3"), ("max_repeats", "0")]);
        assert_eq!(problems, ["`search.max_repeats` is out of range: the number 0", "unknown key `search.budget`"]);
        assert_eq!(wrong.options(), None);
    }

    #[test]
    fn arguments_are_as_set_takes_them() {
        let point = [("array.format", Json::from("h5ad")), ("loader.workers", 4.into()), ("data.set", "1".into())];
        let point = point.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(set_arguments(&point), ["array.format=h5ad", "data.set=\"1\"", "loader.workers=4"]);
    }
}
