use expctl_pipeline::array::zarr::is_zarr;
use expctl_record::{SamplerPreset, is_url};
use serde_json::Value as Json;

use super::array_files::matching;
use super::keys::{KEYS, KeySpec};
use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;

/// Sections of which nothing matters where rows of an array are read, but for the keys of [`FOR_ARRAYS`].
const OF_GRAPHS: [&str; 2] = ["pipeline", "select"];
const FOR_ARRAYS: [&str; 1] = ["pipeline.processor"];

/// Further keys that matter for graphs alone.
const KEYS_OF_GRAPHS: [&str; 22] = [
    "data.networks",
    "data.labels",
    "loader.shuffle",
    "model.edge_types",
    "model.implementation",
    "model.aggregation",
    "model.aggregation_norm",
    "model.convolution_layers",
    "model.norm",
    "model.preprocessor_norm",
    "model.local_head",
    "model.attention_layers",
    "model.path",
    "model.inputs",
    "train.reconstruction",
    "train.standardise_labels",
    "train.sinkhorn_weight",
    "train.sinkhorn_buffer",
    "train.sinkhorn_gather",
    "train.monitor",
    "train.patience",
    "profile.operations",
];

/// Keys that matter for arrays alone, besides those of [`OF_ARRAYS`].
const KEYS_OF_ARRAYS: [&str; 3] = ["data.files", "data.genes", "model.tokens"];
const OF_ARRAYS: [&str; 2] = ["array", "sampler"];

/// What says which rows are built: with own files it may not be set, but for `data.samples` where some are remote.
pub const OF_BUILT_ROWS: [&str; 6] =
    ["data.set", "data.samples", "data.scale", "data.seed", "data.files", "data.genes"];

/// Whether rows of an array are read.
pub(super) fn reads_array(values: &Values) -> bool {
    values.text("array.format").is_some_and(|format| format != "none")
}

/// Whether the setting has no effect where rows of an array are read (`array`), or where they are not, and may not be set there.
pub fn of_other_family(spec: &KeySpec, array: bool) -> bool {
    match array {
        true => {
            (OF_GRAPHS.contains(&spec.section()) && !FOR_ARRAYS.contains(&spec.key))
                || KEYS_OF_GRAPHS.contains(&spec.key)
        }
        false => {
            (OF_ARRAYS.contains(&spec.section()) && spec.key != "array.format") || KEYS_OF_ARRAYS.contains(&spec.key)
        }
    }
}

/// Fill in what follows from what is read: rows of an array, or samples of a graph.
pub(super) fn derive_family(values: &mut Values) {
    let (array, known) = (reads_array(values), values.get("array.format").is_some());
    let either = |rows: &'static str, samples: &'static str| Some(Json::from(if array { rows } else { samples }));
    let mut derive = |key: &'static str, value: Option<Json>| {
        if !values.has(key) {
            values.derive(key, value);
        }
    };
    derive("data.set", either("arrayloader", "006-kuzmin-tmi"));
    derive("data.networks", either("none", "real"));
    derive("model.kind", either("mlp", "dango"));
    derive("train.loss", either("cross_entropy", "log_cosh"));
    derive("train.validate_every", Some(Json::from(u64::from(!array))));
    if !known {
        // A word that is none: it is not known what is read, and nothing more is asked for.
        derive("pipeline.processor", None);
    }
    if array {
        derive("pipeline.processor", Some(Json::from("rows")));
        derive("pipeline.edge_types", Some(Json::from(Vec::<String>::new())));
        derive("model.edge_types", Some(Json::from(Vec::<String>::new())));
    }
    let preset =
        values.text("sampler.preset").and_then(|name| SamplerPreset::ALL.into_iter().find(|p| p.name() == name));
    let (chunk_rows, chunks) = preset.unwrap_or_default().chunks();
    for (key, number) in [("sampler.chunk_rows", chunk_rows), ("sampler.chunks", chunks)] {
        if !values.has(key) {
            values.derive(key, Some(Json::from(number)));
        }
    }
}

impl Judge<'_> {
    /// Settings of the one family in a config of the other.
    pub(super) fn family(&self, values: &Values, problems: &mut Vec<Problem>) {
        let array = reads_array(values);
        for spec in KEYS.iter() {
            let Some(at) = values.at(spec.key).filter(|_| values.get(spec.key).is_some()) else { continue };
            if !of_other_family(spec, array) {
                continue;
            }
            let (message, help) = if array {
                let message = format!("`{}` is of graphs, but rows of an array are read", spec.key);
                (message, "leave it out, or array.format")
            } else {
                let message = format!("`{}` is of arrays, but samples of a graph are read", spec.key);
                (message, "set array.format, for example to \"h5ad\"")
            };
            let problem = Problem::new(at, message, "would have no effect").help(help);
            problems.push(match values.at("array.format") {
                Some(format) => problem.also(format, "`array.format`"),
                None => problem,
            });
        }
        if array != (values.text("pipeline.processor") == Some("rows")) && values.text("pipeline.processor").is_some() {
            let message = match array {
                true => "rows of an array have no processor but \"rows\"",
                false => "processor `rows` is of arrays, but samples of a graph are read",
            };
            let problem = Problem::new(self.at(values, "pipeline.processor"), message, "does not fit");
            problems.push(problem.help(if array { "leave it out" } else { "set array.format" }));
        }
    }

    /// Files, sampler and model of an array.
    pub(super) fn array(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.files_and_sampler(values, problems);
        self.array_model(values, problems);
        let every = values.number("train.validate_every").is_some_and(|every| every > 0);
        if every && values.number("train.epochs").is_some_and(|epochs| epochs > 0) {
            let at = self.at(values, "train.validate_every");
            let message = "`train.validate_every`: rows of an array have no split to validate on";
            problems.push(Problem::new(at, message, "not possible").help("set it to 0, or leave it out"));
        }
    }

    /// Files and sampler of an array.
    pub(super) fn files_and_sampler(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.file_count(values, problems);
        self.array_files(values, problems);
        self.sampler(values, problems);
    }

    /// A number of files is that of parquet files of the data set.
    fn file_count(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "array.file_count";
        let Some(count) = values.number(KEY).filter(|count| *count > 0) else { return };
        let at = self.at(values, KEY);
        let mut report = |message: String, label: &str, help: &str, with: &str| {
            let problem = Problem::new(at, message, label);
            let problem = match values.at(with) {
                Some(at) => problem.also(at, format!("`{with}`")),
                None => problem,
            };
            problems.push(problem.help(help));
        };
        let format = values.text("array.format").unwrap_or_default();
        if values.texts("array.files").is_some_and(|files| !files.is_empty()) {
            let message = format!("`{KEY}` says how files are made, but own files are read");
            report(message, "would have no effect", "leave it out, or array.files", "array.files");
        } else if !format.starts_with("parquet") {
            let message = format!("`{KEY}` is of parquet files, but `{format}` is read");
            let help = "data.files says how many files a data set is built of; other formats have one for each of them";
            report(message, "would have no effect", help, "array.format");
        } else if let Some(rows) = values.number("data.samples").filter(|rows| count > *rows) {
            let message = format!("{rows} rows cannot be in {count} files");
            report(message, "too many", "set array.file_count to at most data.samples", "data.samples");
        }
    }

    /// Own files take the place of the data set's.
    fn array_files(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "array.files";
        let named: Vec<String> = values.texts(KEY).unwrap_or_default().into_iter().map(str::to_owned).collect();
        if named.is_empty() {
            return;
        }
        let remote = named.iter().any(|named| is_url(named));
        // How many rows servers have is not asked when a config is checked.
        let said = if remote { Some("data.samples") } else { None };
        for key in OF_BUILT_ROWS.into_iter().filter(|key| Some(*key) != said) {
            if let Some(at) = values.at(key) {
                let message = format!("`{key}` says what is built, but own files are read");
                let problem = Problem::new(at, message, "would have no effect");
                problems.push(problem.help("leave it out, or array.files"));
            }
        }
        let format = values.text("array.format").unwrap_or_default().to_owned();
        if !matches!(format.as_str(), "h5ad" | "parquet" | "mds" | "zarr") {
            let message = format!("own files are \"h5ad\", \"parquet\", \"mds\" or \"zarr\", not \"{format}\"");
            let problem = Problem::new(self.at(values, "array.format"), message, "does not fit");
            problems.push(problem.help("how they are compressed is found out from the files"));
            return;
        }
        let mut rows = Some(0u64);
        for (i, named) in named.iter().enumerate() {
            let at = values.item_at(KEY, i).unwrap_or_else(|| self.at(values, KEY));
            let files = match matching(self.root(), named) {
                Ok(files) => files,
                Err(reason) => {
                    let problem = Problem::new(at, format!("`{KEY}`: {reason}"), "not there");
                    problems.push(problem.help("paths start at the project folder"));
                    rows = None;
                    continue;
                }
            };
            for file in files {
                let shown = file.strip_prefix(self.root()).unwrap_or(&file).display();
                let (fits, should) = match format.as_str() {
                    "mds" => (file.is_dir(), "is no folder with MDS shards".to_owned()),
                    // It may have any name: annbatch calls them dataset_0, dataset_1, … Of a URL it is seen when it is read.
                    "zarr" => (file.to_str().is_some_and(is_url) || is_zarr(&file), "is no folder in zarr".to_owned()),
                    _ => (
                        !file.is_dir() && file.extension() == Some(format.as_ref()),
                        format!("is not called .{format}"),
                    ),
                };
                if !fits {
                    let message = format!("`{KEY}`: {shown} {should}, as array.format says");
                    problems
                        .push(Problem::new(at, message, "does not fit").help("set array.format to what the files are"));
                    rows = None;
                    continue;
                }
                if file.to_str().is_some_and(is_url) {
                    continue;
                }
                match self.rows_of(&file, values.text("array.layer").unwrap_or_default()) {
                    Ok(found) => rows = rows.map(|rows| rows + found),
                    Err(reason) => {
                        problems.push(Problem::new(at, format!("`{KEY}`: {reason}"), "cannot be read"));
                        rows = None;
                    }
                }
            }
        }
        if values.at("data.samples").is_none() {
            if remote {
                let message = format!("`{KEY}` names remote files, which are not opened before the job");
                let problem = Problem::new(self.at(values, KEY), message, "of how many rows?");
                problems.push(problem.help("set data.samples to the rows of all files together"));
            }
            values.derive("data.samples", rows.filter(|_| !remote).map(Json::from));
        }
    }

    fn sampler(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(draw) = values.text("sampler.draw") else { return };
        let by = values.text("sampler.by").unwrap_or_default();
        let replaces = matches!(draw, "weighted" | "balanced");
        let mut no_effect = |key: &str, help: &str| {
            let Some(at) = values.at(key).filter(|_| values.get(key).is_some()) else { return };
            let problem =
                Problem::new(at, format!("`{key}` is set, but rows are drawn `{draw}`"), "would have no effect");
            let problem = match values.at("sampler.draw") {
                Some(at) => problem.also(at, "`sampler.draw`"),
                None => problem,
            };
            problems.push(problem.help(help));
        };
        if draw != "chunked" {
            let keys = ["sampler.chunks", "sampler.preset", "sampler.chunk_rows"];
            for key in &keys[..if draw == "sequential" { 2 } else { 3 }] {
                no_effect(key, "set sampler.draw to \"chunked\", or leave it out");
            }
        }
        if !replaces {
            for key in ["sampler.by", "sampler.rows"] {
                no_effect(key, "set sampler.draw to \"weighted\" or \"balanced\", or leave it out");
            }
        }
        let has_runs = |format: &str| format.starts_with("parquet") || format.starts_with("mds");
        let row_groups = values.text("array.format").is_none_or(has_runs);
        if draw == "chunked" && values.number("sampler.chunk_rows") == Some(0) && !row_groups {
            let key = ["sampler.chunk_rows", "sampler.preset"].into_iter().find(|key| values.at(key).is_some());
            let at = self.at(values, key.unwrap_or("sampler.chunk_rows"));
            let message = "a chunk is to be a row group, which AnnData files do not have";
            let help = "set sampler.chunk_rows, or array.format to \"parquet\"";
            problems.push(Problem::new(at, message, "of how many rows?").help(help));
        }
        if values.text("array.fetch") == Some("row") {
            let (reason, with) = match values.get("array.memory") {
                Some(Json::Bool(true)) => ("rows are in memory", "array.memory"),
                _ if !matches!(draw, "uniform" | "weighted" | "balanced") => ("chunks are read whole", "sampler.draw"),
                _ => ("", ""),
            };
            if !reason.is_empty() {
                let message = format!("`array.fetch` = \"row\", but {reason}");
                let problem = Problem::new(self.at(values, "array.fetch"), message, "would have no effect");
                let problem = match values.at(with) {
                    Some(at) => problem.also(at, format!("`{with}`")),
                    None => problem,
                };
                problems.push(problem.help("leave it out, or draw single rows of files"));
            }
        }
        if replaces && by.is_empty() {
            let message = format!("`sampler.draw` = \"{draw}\", but no column of obs is named");
            let help = match draw {
                "weighted" => "set sampler.by to the column with the weights",
                _ => "set sampler.by to the column with the classes",
            };
            problems.push(Problem::new(self.at(values, "sampler.draw"), message, "by what?").help(help));
        }
    }

    fn array_model(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(kind) = values.text("model.kind") else { return };
        if values.text("train.mode").is_none_or(|mode| mode == "data") {
            return;
        }
        let mut report = |key: &str, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        if !matches!(kind, "mlp" | "transformer") {
            let message = format!("model `{kind}` does not read rows of an array");
            report("model.kind", message, "does not fit", "set model.kind to \"mlp\" or \"transformer\"");
        }
        if values.texts("array.labels").is_some_and(|labels| labels.is_empty()) {
            let message = format!("model `{kind}` tells classes, but `array.labels` names no column of obs");
            report("array.labels", message, "which classes?", "for example labels = [\"cell_type\"]");
        }
        if values.text("train.loss").is_some_and(|loss| loss != "cross_entropy") {
            let message = format!("model `{kind}` tells classes: its loss is \"cross_entropy\"");
            report("train.loss", message, "does not fit", "leave it out");
        }
        if kind == "mlp" {
            for key in ["model.heads", "model.tokens"] {
                if values.at(key).is_some() {
                    let message = format!("`{key}` is set, but model `mlp` has none");
                    report(key, message, "would have no effect", "leave it out, or set model.kind to \"transformer\"");
                }
            }
        }
    }
}
