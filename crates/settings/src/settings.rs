//! All sections together, the table of their keys, and the trial that has them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::LazyLock;

use expctl_settings_derive::section;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    Array, ArrayFormat, Checkpoint, Data, Draw, KeyDefault, KeySpec, Launch, Loader, Measure, Mode, Model, Pipeline,
    Profile, Sampler, Search, Section, Select, Slurm, TraceAt, Train, Worker, Workload,
};

/// The data set of a program that brings its own data: nothing is built.
pub const NO_DATA_SET: &str = "none";

const SECTION_KEYS: [(&str, &[KeySpec]); 16] = [
    keys_of::<Experiment>(),
    keys_of::<Data>(),
    keys_of::<Select>(),
    keys_of::<Pipeline>(),
    keys_of::<Array>(),
    keys_of::<Sampler>(),
    keys_of::<Loader>(),
    keys_of::<Model>(),
    keys_of::<Train>(),
    keys_of::<Measure>(),
    keys_of::<Profile>(),
    keys_of::<TraceAt>(),
    keys_of::<Checkpoint>(),
    keys_of::<Worker>(),
    keys_of::<Launch>(),
    keys_of::<Slurm>(),
];

const fn keys_of<S: Section>() -> (&'static str, &'static [KeySpec]) {
    (S::NAME, S::KEYS)
}

/// Sections of a config, in the order of the reference.
pub const SECTIONS: [&str; SECTION_KEYS.len()] = {
    let mut names = [""; SECTION_KEYS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = SECTION_KEYS[i].0;
        i += 1;
    }
    names
};

/// All keys, in the order of the reference.
pub static KEYS: LazyLock<Vec<KeySpec>> =
    LazyLock::new(|| SECTION_KEYS.iter().flat_map(|(_, keys)| keys.iter().copied()).collect());

/// [`KEYS`] by name.
static KEYS_BY_NAME: LazyLock<HashMap<&'static str, &'static KeySpec>> =
    LazyLock::new(|| KEYS.iter().map(|spec| (spec.key, spec)).collect());

/// The key with this dotted name.
pub fn find(key: &str) -> Option<&'static KeySpec> {
    KEYS_BY_NAME.get(key).copied()
}

/// The reference of all keys as markdown: the part of docs/reference/config.md between its `keys` marks.
pub fn reference() -> String {
    let mut text = String::new();
    for (section, keys) in SECTION_KEYS.into_iter().chain([keys_of::<Search>()]) {
        text.push_str(&format!("### [{section}]\n\n| Key | Takes | Default | Meaning |\n|---|---|---|---|\n"));
        for spec in keys {
            let default = match spec.default {
                KeyDefault::Required => "**required**".to_owned(),
                KeyDefault::Value(value) => format!("`{}`", literal(&value())),
                KeyDefault::Derived(from) => from.to_owned(),
            };
            text.push_str(&format!("| `{}` | {} | {default} | {} |\n", spec.leaf(), spec.value.describe(), spec.help));
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// A default as a config spells it.
fn literal(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// All settings of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Question and note of the experiment.
    pub experiment: Experiment,
    /// The data set.
    pub data: Data,
    /// The samples of a graph that are used.
    #[serde(default)]
    pub select: Select,
    /// How a sample is made from a record.
    pub pipeline: Pipeline,
    /// Rows of an array in place of records.
    #[serde(default)]
    pub array: Array,
    /// The order of an array's rows.
    #[serde(default)]
    pub sampler: Sampler,
    /// How batches are loaded.
    pub loader: Loader,
    /// The model.
    pub model: Model,
    /// The work of a step, and training around it.
    pub train: Train,
    /// Number of steps and repeats.
    pub measure: Measure,
    /// The steps that a profiler records.
    #[serde(default)]
    pub profile: Profile,
    /// The short form of [`Settings::profile`].
    #[serde(default)]
    pub trace: TraceAt,
    /// When training state is saved.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// The program of the ranks.
    #[serde(default)]
    pub worker: Worker,
    /// Number of ranks, their device, and timeouts.
    pub launch: Launch,
    /// Resources that are requested from Slurm.
    pub slurm: Slurm,
}

impl Settings {
    /// Whether the trial reads rows of an array, and not samples of a graph.
    pub fn reads_array(&self) -> bool {
        self.array.format != ArrayFormat::None
    }

    /// Whether the key matters for the workloads of the trial.
    pub fn uses(&self, spec: &KeySpec) -> bool {
        let program = self.runs_command();
        spec.applies_to(Workload::from_data(self.reads_array())) && (!program || spec.applies_to(Workload::Program))
    }

    /// Batches of a rank that a block of the sampler makes, not always a whole number: loaders that read a block at once have a slow
    /// step so often. None where rows are drawn one by one, where nothing is read, and where the length of a chunk is the store's.
    pub fn block_steps(&self) -> Option<f64> {
        let Sampler { draw, chunk_rows, chunks, .. } = self.sampler;
        let reads = self.reads_array() && !self.array.memory && draw == Draw::Chunked;
        let rows = chunk_rows as f64 * chunks as f64;
        (reads && rows > 0.0 && self.loader.batch_size > 0).then(|| rows / self.loader.batch_size as f64)
    }

    /// Whether steps compute a model of expctl's own worker. Without, the settings of model and training have no effect.
    pub fn computes_model(&self) -> bool {
        !self.runs_command() && self.train.mode.computes_model()
    }

    /// Whether steps change a state that later ones depend on; without, there is nothing to keep in a checkpoint.
    pub fn keeps_state(&self) -> bool {
        !self.runs_command() && self.train.mode.steps_parameters()
    }

    /// Threads that a rank keeps busy: those of its loader and those inside an operation of its step. The thread of an emulated step sleeps,
    /// but where it loads its batches itself.
    pub fn threads_per_rank(&self) -> u32 {
        match self.train.mode {
            Mode::Emulate => self.loader.workers.max(1),
            _ => self.loader.workers + self.launch.threads,
        }
    }

    /// Whether a program of the user's runs as the ranks, and not `expctl-worker`.
    pub fn runs_command(&self) -> bool {
        !self.worker.command.is_empty()
    }

    /// Whether a second run of the trial goes on where the first one was stopped.
    pub fn can_resume(&self) -> bool {
        let Checkpoint { every_steps, every_min, on_signal } = self.checkpoint;
        self.keeps_state() && (on_signal || every_steps > 0 || every_min > 0)
    }
}

/// `[experiment]`
#[section("experiment", per_job, not_run)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// Folder in `experiments/`.
    #[setting(derived = "data.set")]
    pub study: String,
    /// One line for the note.
    #[setting(default = "")]
    pub title: String,
    /// What the experiment asks.
    #[setting(default = "")]
    pub description: String,
    /// What the figures contain.
    #[setting(default = [])]
    pub measures: Vec<String>,
    /// What they do not contain.
    #[setting(default = [])]
    pub does_not_measure: Vec<String>,
    /// Note that the job's note continues, without `.md`: a plan, say.
    #[setting(default = "", added)]
    pub continues: String,
    /// Further notes that the job's note links, without `.md`.
    #[setting(default = [], added)]
    pub links: Vec<String>,
}

/// Version of `trial.json` and `job.json`.
pub const TRIAL_SCHEMA_VERSION: u32 = 1;

/// Suffix of the config name of a job that isolates the variants of another job; the name of that job's config precedes it.
pub const ISOLATION_SUFFIX: &str = "_isolation";

/// `trial.json`: one variant at one point in one repeat, with all that its ranks need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// [`TRIAL_SCHEMA_VERSION`].
    pub schema: u32,
    /// Stable identity: the same settings and repeat give the same id in every job.
    pub id: String,
    /// Name of the config.
    pub config: String,
    /// Name of the variant.
    pub variant: String,
    /// Its name in tables.
    pub method: String,
    /// The swept settings of this point, by dotted key.
    pub point: BTreeMap<String, serde_json::Value>,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// All settings, resolved.
    pub settings: Settings,
    /// Folder of the built data set, absolute.
    pub data_dir: PathBuf,
    /// Whether `model.kind` is the default of the data's family because the config names no model. False in records that are older than the
    /// field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_model: bool,
    /// The step times that `train.step_times_of` stands for, ms, ascending; empty without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded_step_ms: Vec<f64>,
}

/// What the label of a row with emulated steps says.
pub const EMULATED: &str = "emulated";

/// The id of a trial with its swept settings in words, which may be empty.
pub fn with_point(id: &str, point: &str) -> String {
    if point.is_empty() { id.to_owned() } else { format!("{id} ({point})") }
}

impl Trial {
    /// Label of a row in tables: the variant and its swept settings, without the repeat. It says of emulated steps that they are, and how
    /// many trials ran side by side.
    pub fn label(&self) -> String {
        let emulates = self.settings.train.mode == Mode::Emulate && !self.point.contains_key(Train::MODE.name());
        let pack = self.settings.slurm.pack;
        let packed = pack > 1 && !self.point.contains_key(Slurm::PACK.name());
        let words = [
            self.point_words(),
            if emulates { EMULATED.to_owned() } else { String::new() },
            if packed { format!("{pack} side by side") } else { String::new() },
        ];
        let words: Vec<String> = words.into_iter().filter(|said| !said.is_empty()).collect();
        with_point(&self.variant, &words.join(", "))
    }

    /// The part of its id that all repeats share and that depends on what runs: equal settings have an equal one in every job.
    pub fn settings_hash(&self) -> &str {
        self.id.rsplit_once('-').map_or(self.id.as_str(), |(_, hash)| hash)
    }

    /// Its swept settings, `loader.workers=2, train.mode="data"`; empty without a sweep.
    pub fn point_words(&self) -> String {
        let point: Vec<String> = self.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        point.join(", ")
    }

    /// Its name in messages: the id, and the swept settings if there are any.
    pub fn name(&self) -> String {
        with_point(&self.id, &self.point_words())
    }
}
