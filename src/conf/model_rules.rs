use expctl_datasets::graph::split_sizes;
use expctl_record::Train;
use graph_loader::DistributedSampler;
use serde_json::Value as Json;

use super::array_rules::reads_array;
use super::contradictions::WITH_EDGES;
use super::mask_rules::types_of_graph;
use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;

/// Steps that are measured where nothing says how many.
const USUAL_STEPS: u64 = 100;

/// What a TorchScript module can take, besides `edge_index.TYPE` and `edge_mask.TYPE`.
const MODULE_INPUTS: [&str; 5] = ["genes", "gene_sample", "gene_ptr", "batch_size", "gene_mask"];

impl Judge<'_> {
    /// Sizes that depend on the kind of model.
    pub(super) fn model_sizes(&self, values: &mut Values) {
        let (hidden, heads, layers) = match values.text("model.kind") {
            Some("lazy") => (64, 8, 3),
            Some("mlp") => (1024, 1, 5),
            Some("transformer") => (256, 4, 8),
            _ => (64, 4, 2),
        };
        for (key, size) in [("model.hidden", hidden), ("model.heads", heads), ("model.layers", layers)] {
            if !values.has(key) {
                values.derive(key, Some(Json::from(size)));
            }
        }
    }

    /// The model and what it is fed with. Without a model none of it matters.
    pub(super) fn model_inputs(&self, values: &Values, problems: &mut Vec<Problem>) {
        // The values keep the text as it was given: trial ids come from them, and are the same wherever the project lies.
        for key in ["model.path", "train.start_from"] {
            self.existing_file(values, key, problems);
        }
        if values.text("train.mode").is_none_or(|mode| mode == "data") {
            return;
        }
        let (Some(kind), Some(processor)) = (values.text("model.kind"), values.text("pipeline.processor")) else {
            return;
        };
        let mut report = |key: &str, message: String, label: &str, also: &str, help: &str| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            if let Some(at) = values.at(also) {
                problem = problem.also(at, format!("`{also}`"));
            }
            problems.push(problem.help(help));
        };
        match (kind, values.text("model.implementation")) {
            ("lazy", Some("replicated"))
                if !WITH_EDGES.contains(&processor) || values.text("pipeline.collation") == Some("shared_index") =>
            {
                let message = "the replicated lazy model needs the graph of each sample in the batch".to_owned();
                let help = "set pipeline.processor to \"lazy\" (with the collation \"pyg\" or \"lazy_collater\"), \"subgraph\", \
                            \"incidence_subgraph\" or \"neighborhood\", or model.implementation to \"shared\" (with the \
                            processor \"shared\" or \"ids\")";
                report("model.implementation", message, "its edges are not in the batch", "pipeline.processor", help);
            }
            ("lazy", Some(one_graph @ ("shared" | "operations"))) if !matches!(processor, "shared" | "ids") => {
                let message = format!(
                    "the lazy model with the implementation \"{one_graph}\" reads the removed edges of each sample, or its \
                     genes"
                );
                let help = "set pipeline.processor to \"shared\" or \"ids\", or model.implementation to \"replicated\" where \
                            the batch has a graph for each sample";
                report("model.implementation", message, "does not fit", "pipeline.processor", help);
            }
            ("mlp" | "transformer", _) => {
                let message = format!("model `{kind}` reads rows of an array, not samples of a graph");
                report(
                    "model.kind",
                    message,
                    "does not fit",
                    "pipeline.processor",
                    "set array.format, or another model.kind",
                );
            }
            ("torchscript", _) if values.text("model.path") == Some("") => {
                let message = "`model.kind` = \"torchscript\", but no file is named".to_owned();
                report("model.kind", message, "which module?", "model.path", "set model.path");
            }
            _ => {}
        }
        if values.text("train.loss") == Some("cross_entropy") {
            let message = "the loss \"cross_entropy\" is of classes, and samples of a graph have numbers".to_owned();
            report("train.loss", message, "does not fit", "model.kind", "set train.loss to \"log_cosh\" or \"mse\"");
        }
        if kind == "torchscript" {
            self.module_inputs(values, problems);
        }
    }

    fn module_inputs(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "model.inputs";
        let graphs = values.text("pipeline.processor") == Some("lazy");
        let one_index = values.text("pipeline.collation") == Some("shared_index");
        let types = types_of_graph(values).unwrap_or_default();
        for (i, input) in values.texts(KEY).unwrap_or_default().into_iter().enumerate() {
            let edges = input.strip_prefix("edge_index.").or_else(|| input.strip_prefix("edge_mask."));
            let known = edges.map_or(MODULE_INPUTS.contains(&input), |name| types.iter().any(|of| of.name == name));
            let of_graphs = edges.is_some() || input == "gene_mask";
            if known && (!of_graphs || graphs && !(edges.is_some() && one_index)) {
                continue;
            }
            let at = values.item_at(KEY, i).unwrap_or_else(|| self.at(values, KEY));
            let (message, help) = if known && graphs {
                let message =
                    format!("`{input}` is of each sample's edges, and the batch has one list for all samples");
                (message, "set pipeline.collation to \"pyg\" or \"lazy_collater\"".to_owned())
            } else if known {
                let message = format!("`{input}` is of the graph of each sample, which the batch does not have");
                (message, "set pipeline.processor to \"lazy\"".to_owned())
            } else {
                let help = format!("inputs are {}, edge_index.TYPE and edge_mask.TYPE", MODULE_INPUTS.join(", "));
                (format!("there is no input `{input}`"), help)
            };
            problems.push(Problem::new(at, message, "cannot be had").help(help));
        }
    }

    /// The file that `key` names is there, if it names one.
    pub(super) fn existing_file(&self, values: &Values, key: &str, problems: &mut Vec<Problem>) {
        let Some(named) = values.text(key).filter(|path| !path.is_empty()) else { return };
        let path = self.root().join(named);
        if path.is_file() {
            return;
        }
        let message = format!("`{key}`: there is no file {}", path.display());
        problems
            .push(Problem::new(self.at(values, key), message, "not there").help("paths start at the project folder"));
    }

    /// Epochs, and the steps that they have.
    pub(super) fn epochs(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        if let Some(entries) = values.texts("train.accumulation")
            && let Err((i, reason)) = Train::accumulation_pairs(&entries)
        {
            let at = values.item_at("train.accumulation", i).unwrap_or_else(|| self.at(values, "train.accumulation"));
            let help = "for example [\"0:1\", \"10:4\"]: from epoch 10 on, four batches a step";
            problems.push(Problem::new(at, format!("`train.accumulation`: {reason}"), "this one").help(help));
        }
        let (epochs, measured) =
            (values.number("train.epochs").unwrap_or(0), values.number("measure.epochs").unwrap_or(0));
        if epochs > 0 && measured > 0 {
            let message = "`measure.epochs` and `train.epochs` both say how long the run is".to_owned();
            let at = self.at(values, "measure.epochs");
            problems.push(Problem::new(at, message, "only one of them can").help("leave one out"));
        }
        if epochs == 0 {
            if measured > 0 {
                self.steps_of_epochs(values, "measure.epochs", measured, problems);
            } else if !values.has("measure.steps") {
                values.derive("measure.steps", Some(Json::from(USUAL_STEPS)));
            }
            if values.number("train.patience").is_some_and(|patience| patience > 0) {
                let message = "`train.patience` is set, but without epochs nothing is validated".to_owned();
                let at = self.at(values, "train.patience");
                problems.push(Problem::new(at, message, "would have no effect").help("set train.epochs"));
            }
            return;
        }
        let mut report = |key: &str, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        if let Some(mode) = values.text("train.mode").filter(|mode| *mode != "train") {
            let message = format!("`train.epochs` is set, but mode `{mode}` does not train");
            report("train.epochs", message, "would have no effect", "set train.mode to \"train\", or leave epochs out");
        }
        let validates = values.number("train.validate_every").is_some_and(|every| every > 0);
        let validates = validates && !reads_array(values);
        if let Some(split) = values.text("select.split").filter(|split| validates && matches!(*split, "all" | "val")) {
            let message = format!("split `{split}` is trained on, and `val`, which is in it, is validated on");
            let help = "set select.split to \"train\", or train.validate_every to 0";
            report("select.split", message, "the figures would say nothing", help);
        }
        self.steps_of_epochs(values, "train.epochs", epochs, problems);
    }

    /// The steps that so many epochs have, which `key` says.
    fn steps_of_epochs(&self, values: &mut Values, key: &str, epochs: u64, problems: &mut Vec<Problem>) {
        let mut report = |key: &str, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        if values.has("measure.steps") {
            if values.at("measure.steps").is_some() {
                let message = format!("`measure.steps` and `{key}` both say how long the run is");
                report("measure.steps", message, "only one of them can", "leave one out");
            }
            return;
        }
        let steps = steps_of(values, epochs).and_then(|steps| steps.checked_sub(values.number("measure.warmup")?));
        match steps {
            Some(steps) if steps > 0 => values.derive("measure.steps", Some(Json::from(steps))),
            _ if values.text("select.samples") == Some("metabolic") => {
                let message = "how many samples are metabolic is not known before the data set is built".to_owned();
                let help = format!("set measure.steps instead of {key}");
                report(key, message, "its steps cannot be counted", &help);
                values.derive("measure.steps", None);
            }
            _ => {
                let message = format!("{epochs} epochs have no step beyond the warm-up");
                report(key, message, "nothing would be measured", "set more epochs, or measure.warmup to less");
                values.derive("measure.steps", None);
            }
        }
    }
}

/// Steps of so many epochs; none where a number is not known.
fn steps_of(values: &Values, epochs: u64) -> Option<u64> {
    if reads_array(values) {
        // As many rows as there are, or as `sampler.rows` has drawn of them.
        let rows = values.number("sampler.rows")?;
        let rows = if rows == 0 { values.number("data.samples")? } else { rows };
        return batches_of(values, rows)?.checked_mul(epochs);
    }
    if values.text("select.samples")? != "all" {
        return None;
    }
    let (samples, subset) = (values.number("data.samples")?, values.number("select.subset")?);
    let part = |samples| {
        let [train, val, test] = split_sizes(samples);
        match values.text("select.split") {
            Some("train") => train,
            Some("val") => val,
            Some("test") => test,
            _ => samples,
        }
    };
    let len = if subset == 0 { part(samples) } else { part(subset).min(part(samples)) };
    batches_of(values, len)?.checked_mul(epochs)
}

/// Batches of an epoch of `len` samples, on each rank.
fn batches_of(values: &Values, len: u64) -> Option<u64> {
    let batch = values.number("loader.batch_size")?;
    let world_size = u32::try_from(values.number("launch.ranks")?).ok()?;
    let drop_last = values.get("loader.drop_last")? == &Json::Bool(true);
    let sampler = DistributedSampler { len, world_size, rank: 0, shuffle: false, seed: 0, drop_last };
    let samples = sampler.samples_per_rank();
    Some(if drop_last { samples / batch } else { samples.div_ceil(batch) })
}
