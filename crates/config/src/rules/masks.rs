//! What the ways to make masks, and the merging of edge types, go with. Invariant: a mask that is asked for is the one that is made, or the
//! config is refused.

use expctl_pipeline::dataset::Recipe;
use expctl_record::{GraphType, graph_types};
use serde_json::Value as Json;

use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;
use super::worker_rules::runs_command;

const FRACTION: &str = "pipeline.mask_fraction";
const MERGE: &str = "pipeline.merge_edge_types";
const OPERATIONS: &str = "profile.operations";
const PROCESSOR: &str = "pipeline.processor";
const SOURCE: &str = "pipeline.mask_source";
const STORE: &str = "pipeline.store";

/// Processors that make masks of edges from what is known of each gene.
const MASKED: [&str; 4] = ["lazy", "packed", "shared", "incidence_subgraph"];
/// Stores whose records hold masks.
const WITH_MASKS: [&str; 3] = ["compressed", "full_masks", "packed_masks"];

/// The edge types of the graph; a type for each network if the merges are wrong, which [`Judge::merges`] reports. `None` while another
/// value is wrong.
pub(super) fn types_of_graph(values: &Values) -> Option<Vec<GraphType>> {
    let (networks, merges) = (values.texts("pipeline.edge_types")?, values.texts(MERGE)?);
    graph_types(&networks, &merges).or_else(|_| graph_types(&networks, &[""; 0])).ok()
}

impl Judge<'_> {
    /// Settings of masks that contradict each other, or of which one would have no effect.
    pub(super) fn masks(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (Some(processor), Some(store)) = (values.text(PROCESSOR), values.text(STORE)) else { return };
        let mut report = |key: &str, message: String, label: &str, with: &str, help: &str| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            if let Some(at) = values.at(with) {
                problem = problem.also(at, format!("`{with}`"));
            }
            problems.push(problem.help(help));
        };
        let gene_masks = values.text(SOURCE) == Some("gene_masks");
        let approximate = values.get(FRACTION).and_then(Json::as_f64).is_some_and(|fraction| fraction < 1.0);
        if gene_masks && !MASKED.contains(&processor) {
            let message = format!("`{SOURCE}` = \"gene_masks\" cannot be had of processor `{processor}`");
            let help = "it takes the processor \"lazy\", \"packed\", \"shared\" or \"incidence_subgraph\"";
            report(SOURCE, message, "does not fit", PROCESSOR, help);
        }
        if approximate && processor != "lazy" {
            let message = format!("`{FRACTION}` below 1 cannot be had of processor `{processor}`");
            report(FRACTION, message, "does not fit", PROCESSOR, "it takes the processor \"lazy\"");
        }
        if approximate && gene_masks {
            let message = format!(
                "`{FRACTION}` draws among the edges of a gene, and `{SOURCE}` = \"gene_masks\" has no list of them"
            );
            report(FRACTION, message, "only one of them can", SOURCE, "leave one of them out");
        }
        if approximate && values.text("pipeline.device_masks").is_some_and(|masks| masks != "none") {
            let message =
                format!("`{FRACTION}` is of the loader's masks, and those of `pipeline.device_masks` are exact");
            report(FRACTION, message, "only one of them can", "pipeline.device_masks", "leave one of them out");
        }
        let merges = values.texts(MERGE).is_some_and(|merges| !merges.is_empty());
        for (key, asked, what) in [
            (SOURCE, gene_masks, "masks are read and not made"),
            (FRACTION, approximate, "masks are read and not made"),
            (MERGE, merges, "each network has its masks"),
        ] {
            if asked && WITH_MASKS.contains(&store) {
                let message = format!("`{key}` is set, but in the store `{store}` {what}");
                report(key, message, "does not fit", STORE, "set pipeline.store to \"json\" or \"ids\"");
            }
        }
        for (key, of, needs) in [
            ("pipeline.gene_masks_mib", SOURCE, "mask_source = \"gene_masks\""),
            ("pipeline.mask_seed", FRACTION, "a mask_fraction below 1"),
        ] {
            // Where a config says both, it knows why one of its trials does not need it.
            if values.at(key).is_some() && values.at(of).is_none() {
                let message = format!("`{key}` is set without {needs}");
                let help = "leave it out, or set it where it has a meaning, for example in a variant";
                report(key, message, "would have no effect", of, help);
            }
        }
    }

    /// Edge types can be merged as is asked; their names are not those of networks that the graph does not have.
    pub(super) fn merges(&self, values: &Values, recipe: &Recipe, problems: &mut Vec<Problem>) {
        let (Some(networks), Some(merges)) = (values.texts("pipeline.edge_types"), values.texts(MERGE)) else { return };
        let known = |name: &str| recipe.network.iter().any(|network| network.name == name);
        if !networks.iter().all(|name| known(name)) {
            // `edge_types` reports an unknown network.
            return;
        }
        let at = |i: usize| values.item_at(MERGE, i).unwrap_or_else(|| self.at(values, MERGE));
        match graph_types(&networks, &merges) {
            Err((i, reason)) => {
                let help = format!("for example [\"string=string12_0_*\"]; the graph has {}", networks.join(", "));
                problems.push(Problem::new(at(i), format!("`{MERGE}`: {reason}"), "this one").help(help));
            }
            Ok(types) => {
                let foreign =
                    types.iter().find(|of| of.members.len() > 1 && known(&of.name) && !of.members.contains(&of.name));
                if let Some(of) = foreign {
                    let message = format!("`{MERGE}`: `{}` is the name of a network that is not in it", of.name);
                    problems
                        .push(Problem::new(at(0), message, "another name").help("choose a name that no network has"));
                }
            }
        }
    }

    /// Operations are timed inside expctl's own worker.
    pub(super) fn operations(&self, values: &Values, problems: &mut Vec<Problem>) {
        if values.get(OPERATIONS) != Some(&Json::Bool(true)) || !runs_command(values) {
            return;
        }
        let message = format!("`{OPERATIONS}` is of expctl's own worker, but `worker.command` runs in its place");
        let problem = Problem::new(self.at(values, OPERATIONS), message, "not possible");
        problems.push(problem.help("leave it out"));
    }
}
