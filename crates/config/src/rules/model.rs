//! Models: sizes, edge types, and what a model is fed with.

use expctl_settings::{
    Array, Collation, GraphType, Implementation, Loss, Mode, Model, ModelKind, Pipeline, Processor, Train,
};

use super::Judge;
use super::pipeline::{has_edges, types_of_graph};
use crate::config::Values;
use crate::problem::Problem;

/// Inputs of a TorchScript module, besides `edge_index.TYPE` and `edge_mask.TYPE`.
const MODULE_INPUTS: [&str; 5] = ["genes", "gene_sample", "gene_ptr", "batch_size", "gene_mask"];

impl Judge<'_> {
    /// Sizes that depend on the kind of model.
    pub fn model_sizes(&self, values: &mut Values) {
        let (hidden, heads, layers) = values.get(Model::KIND).unwrap_or(ModelKind::Dango).sizes();
        values.derive_missing(Model::HIDDEN, Some(hidden));
        values.derive_missing(Model::HEADS, Some(heads));
        values.derive_missing(Model::LAYERS, Some(layers));
    }

    /// Each head has an equal share of the channels.
    pub fn heads(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (Some(hidden), Some(heads)) = (values.get(Model::HIDDEN), values.get(Model::HEADS)) else { return };
        if hidden % heads == 0 {
            return;
        }
        let (key, other) = match values.at(&Model::HIDDEN) {
            Some(_) => (Model::HIDDEN, Model::HEADS),
            None => (Model::HEADS, Model::HIDDEN),
        };
        let message = format!("`{}` = {hidden} is not a multiple of `{}` = {heads}", Model::HIDDEN, Model::HEADS);
        let label = "each head takes an equal share of the channels";
        let below = hidden - hidden % heads;
        let near = if below == 0 { heads } else { below };
        let problem = self.conflict(values, &key, &other, message, label);
        problems.push(problem.help(format!("for {heads} heads, for example hidden = {near}")));
    }

    /// A model of graphs reads edge types of the graph.
    pub fn model_edge_types(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        let Some(types) = types_of_graph(values) else {
            values.derive_missing(Model::EDGE_TYPES, None);
            return;
        };
        let graph: Vec<&str> = types.iter().map(|graph_type| graph_type.name.as_str()).collect();
        if let Some(read) = values.get(Model::EDGE_TYPES) {
            for (i, name) in read.iter().enumerate().filter(|(_, name)| !graph.contains(&name.as_str())) {
                let message = format!("the model reads edge type `{name}`, which is not in `{}`", Pipeline::EDGE_TYPES);
                let problem = Problem::new(self.item_at(values, &Model::EDGE_TYPES, i), message, "not in the graph");
                let problem = match values.at(&Pipeline::EDGE_TYPES) {
                    Some(at) => problem.also(at, "the graph's edge types"),
                    None => problem,
                };
                problems.push(problem.help(format!("the graph has {}", graph.join(", "))));
            }
        } else if !values.has(&Model::EDGE_TYPES) {
            let dango = values.get(Model::KIND) == Some(ModelKind::Dango);
            // Merged types, too, if all their networks are STRING's.
            let is_string =
                |graph_type: &GraphType| graph_type.members.iter().all(|member| member.starts_with("string12_0_"));
            let chosen = types.iter().filter(|graph_type| !dango || is_string(graph_type));
            let read: Vec<String> = chosen.map(|graph_type| graph_type.name.clone()).collect();
            let uses_model = values.get(Train::MODE).is_some_and(Mode::computes_model);
            if read.is_empty() && uses_model {
                let at = self.at(values, &Pipeline::EDGE_TYPES);
                let problem = Problem::new(at, "the model has no edge types to read", "no `string12_0_*` type here");
                problems.push(problem.help("set model.edge_types"));
            }
            values.derive(Model::EDGE_TYPES, Some(read));
        }
    }

    /// A model of graphs and its batches. Without a model nothing of it matters but that its files exist.
    pub fn graph_model(&self, values: &Values, problems: &mut Vec<Problem>) {
        // The values keep the text as it was given: trial ids come from them, and are the same wherever the project lies.
        self.existing_file(values, &Model::PATH, values.get(Model::PATH), problems);
        self.start_from(values, problems);
        if values.get(Train::MODE).is_none_or(|mode| !mode.computes_model()) {
            return;
        }
        let (Some(kind), Some(processor)) = (values.get(Model::KIND), values.get(Pipeline::PROCESSOR)) else { return };
        let mut report = |key: &str, message: String, label: &str, other: &str, help: &str| {
            problems.push(self.conflict(values, key, other, message, label).help(help));
        };
        let shared_index = values.get(Pipeline::COLLATION) == Some(Collation::SharedIndex);
        match (kind, values.get(Model::IMPLEMENTATION)) {
            (ModelKind::Lazy, Some(Implementation::Replicated)) if !has_edges(processor) || shared_index => {
                let message = "the replicated lazy model needs the graph of each sample in the batch".to_owned();
                let help = "set pipeline.processor to \"lazy\" (with the collation \"pyg\" or \"lazy_collater\"), \"subgraph\", \
                            \"incidence_subgraph\" or \"neighborhood\", or model.implementation to \"shared\" (with the \
                            processor \"shared\" or \"ids\")";
                let label = "its edges are not in the batch";
                report(&Model::IMPLEMENTATION, message, label, &Pipeline::PROCESSOR, help);
            }
            (ModelKind::Lazy, Some(one_graph @ (Implementation::Shared | Implementation::Operations)))
                if !matches!(processor, Processor::Shared | Processor::Ids) =>
            {
                let message = format!(
                    "the lazy model with the implementation \"{}\" reads the removed edges of each sample, or its genes",
                    one_graph.name()
                );
                let help = "set pipeline.processor to \"shared\" or \"ids\", or model.implementation to \"replicated\" where \
                            the batch has a graph for each sample";
                report(&Model::IMPLEMENTATION, message, "does not fit", &Pipeline::PROCESSOR, help);
            }
            (ModelKind::Mlp | ModelKind::Transformer, _) => {
                let message = format!("model `{}` reads rows of an array, not samples of a graph", kind.name());
                let help = "set array.format, or another model.kind";
                report(&Model::KIND, message, "does not fit", &Pipeline::PROCESSOR, help);
            }
            (ModelKind::Torchscript, _) if values.get(Model::PATH).is_some_and(|path| path.is_empty()) => {
                let message = format!("`{}` = \"torchscript\", but no file is named", Model::KIND);
                report(&Model::KIND, message, "which module?", &Model::PATH, "set model.path");
            }
            _ => {}
        }
        if values.get(Train::LOSS) == Some(Loss::CrossEntropy) {
            let message = "the loss \"cross_entropy\" is of classes, and samples of a graph have numbers".to_owned();
            let help = "set train.loss to \"log_cosh\" or \"mse\"";
            report(&Train::LOSS, message, "does not fit", &Model::KIND, help);
        }
        if kind == ModelKind::Torchscript {
            self.module_inputs(values, problems);
        }
    }

    /// The batch has every input of a TorchScript module.
    fn module_inputs(&self, values: &Values, problems: &mut Vec<Problem>) {
        let graphs = values.get(Pipeline::PROCESSOR) == Some(Processor::Lazy);
        let one_index = values.get(Pipeline::COLLATION) == Some(Collation::SharedIndex);
        let types = types_of_graph(values).unwrap_or_default();
        for (i, input) in values.get(Model::INPUTS).unwrap_or_default().iter().enumerate() {
            let edges = input.strip_prefix("edge_index.").or_else(|| input.strip_prefix("edge_mask."));
            let known = match edges {
                Some(name) => types.iter().any(|graph_type| graph_type.name == name),
                None => MODULE_INPUTS.contains(&input.as_str()),
            };
            let of_graphs = edges.is_some() || input == "gene_mask";
            if known && (!of_graphs || graphs && !(edges.is_some() && one_index)) {
                continue;
            }
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
            let at = self.item_at(values, &Model::INPUTS, i);
            problems.push(Problem::new(at, message, "cannot be had").help(help));
        }
    }

    /// A model of arrays tells the classes of a label.
    pub fn array_model(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(kind) = values.get(Model::KIND) else { return };
        if values.get(Train::MODE).is_none_or(|mode| !mode.computes_model()) {
            return;
        }
        let mut report = |key: &str, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        let name = kind.name();
        if !kind.reads_array() {
            let message = format!("model `{name}` does not read rows of an array");
            report(&Model::KIND, message, "does not fit", "set model.kind to \"mlp\" or \"transformer\"");
        }
        if values.get(Array::LABELS).is_some_and(|labels| labels.is_empty()) {
            let message = format!("model `{name}` tells classes, but `{}` names no column of obs", Array::LABELS);
            report(&Array::LABELS, message, "which classes?", "for example labels = [\"cell_type\"]");
        }
        if values.get(Train::LOSS).is_some_and(|loss| loss != Loss::CrossEntropy) {
            let message = format!("model `{name}` tells classes: its loss is \"cross_entropy\"");
            report(&Train::LOSS, message, "does not fit", "leave it out");
        }
        if kind == ModelKind::Mlp {
            for key in [Model::HEADS, Model::TOKENS] {
                if values.at(&key).is_some() {
                    let message = format!("`{key}` is set, but model `mlp` has none");
                    let help = "leave it out, or set model.kind to \"transformer\"";
                    report(&key, message, "would have no effect", help);
                }
            }
        }
    }

    /// The weights to start from exist.
    pub fn start_from(&self, values: &Values, problems: &mut Vec<Problem>) {
        self.existing_file(values, &Train::START_FROM, values.get(Train::START_FROM), problems);
    }

    /// The file that `key` names exists, if it names one.
    fn existing_file(&self, values: &Values, key: &str, named: Option<String>, problems: &mut Vec<Problem>) {
        let Some(named) = named.filter(|path| !path.is_empty()) else { return };
        let path = self.root().join(&named);
        if path.is_file() {
            return;
        }
        // The folder of code that was sent says nothing to whoever wrote the config.
        let missing = match self.project.folders().is_sent() {
            true => format!("{named} on the machine that runs it"),
            false => path.display().to_string(),
        };
        let problem = Problem::new(self.at(values, key), format!("`{key}`: there is no file {missing}"), "not there");
        problems.push(problem.help(self.help_with_file(&named)));
    }
}
