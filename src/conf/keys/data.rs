use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, COUNT32, KeySpec, NATURAL, NATURAL32, key, words};

/// `[experiment]`, `[data]` and `[select]`.
pub(super) const KEYS: &[KeySpec] = &[
    key("experiment.study", Kind::Text, Derived("data.set"), "Folder in `experiments/`"),
    key("experiment.title", Kind::Text, Value("\"\""), "One line for the note"),
    key("experiment.description", Kind::Text, Value("\"\""), "What the experiment asks"),
    key("experiment.measures", Kind::TextList, Value("[]"), "What the figures contain"),
    key("experiment.does_not_measure", Kind::TextList, Value("[]"), "What they do not contain"),
    key(
        "experiment.continues",
        Kind::Text,
        Value("\"\""),
        "Note that the job's note continues, without `.md`: a plan, say",
    ),
    key("experiment.links", Kind::TextList, Value("[]"), "Further notes that the job's note links, without `.md`"),
    key(
        "data.set",
        Kind::Text,
        Derived("`006-kuzmin-tmi`; `arrayloader` with `array.format`"),
        "Data set: a folder in `experiments/` with a `dataset.toml`",
    ),
    key(
        "data.samples",
        COUNT,
        Derived("all that the recipe has"),
        "Number of samples, at most what the recipe has; of an array any number of rows",
    ),
    key(
        "data.scale",
        Kind::Number { min: 0.0, from: false, max: 1.0 },
        Value("1.0"),
        "Share of the genes that the graph has, or the array",
    ),
    key(
        "data.networks",
        words(&["real", "completed"]),
        Derived("`real`; none with `array.format`"),
        "STRING networks as they are, or completed with generated edges to the published counts",
    ),
    key("data.seed", NATURAL, Value("42"), "Seed of everything that is generated"),
    key(
        "data.labels",
        words(&["random", "planted"]),
        Value("\"random\""),
        "Labels drawn at random, from which nothing can be learned, or a function of the three perturbed genes; mean and deviation are the published ones",
    ),
    key("data.files", COUNT32, Value("1"), "With `array.format`: number of files that the rows are in"),
    key(
        "data.genes",
        NATURAL32,
        Value("0"),
        "With `array.format`: number of genes, in place of `scale`; beyond those of the recipe genes are rare, and a row has no more values. 0 goes by `scale`",
    ),
    key(
        "select.samples",
        words(&["all", "metabolic"]),
        Value("\"all\""),
        "Candidates: all samples, or those that perturb a gene of a reaction",
    ),
    key(
        "select.subset",
        NATURAL,
        Value("0"),
        "The most samples that are taken of the candidates, drawn per number of perturbed genes; a split takes its share of it; 0 takes all",
    ),
    key(
        "select.split",
        words(&["all", "train", "val", "test"]),
        Value("\"all\""),
        "Part of all samples: 80 %, 10 % and 10 %, drawn at random before anything else",
    ),
    key("select.seed", NATURAL, Value("42"), "Seed of subset and split"),
];
