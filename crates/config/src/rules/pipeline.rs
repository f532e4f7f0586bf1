//! Pipelines of graphs: processor, collation, and masks. Invariant: a mask that a config asks for is the one that is made, or the config is
//! refused.

use expctl_settings::{Collation, DeviceMasks, GraphType, MaskSource, Pipeline, Processor, graph_types};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;
use crate::project_files::GraphDataSet;
use crate::suggest::closest;

/// Fields that a batch can name the sample of.
const FOLLOWED: [&str; 3] = ["x", "x_pert", "perturbation_indices"];

/// Whether samples of the processor have edges of their own, which the published collater copies.
pub const fn has_edges(processor: Processor) -> bool {
    matches!(processor, Processor::Lazy | Processor::Subgraph | Processor::IncidenceSubgraph | Processor::Neighborhood)
}

/// Whether the processor makes masks of edges from what is known of each gene.
const fn makes_masks(processor: Processor) -> bool {
    matches!(processor, Processor::Lazy | Processor::Packed | Processor::Shared | Processor::IncidenceSubgraph)
}

/// The edge types of the graph; a type for each network if the merges are wrong, which [`Judge::merges`] reports. `None` while another
/// value is wrong.
pub fn types_of_graph(values: &Values) -> Option<Vec<GraphType>> {
    let (networks, merges) = (values.get(Pipeline::EDGE_TYPES)?, values.get(Pipeline::MERGE_EDGE_TYPES)?);
    graph_types(&networks, &merges).or_else(|_| graph_types(&networks, &[""; 0])).ok()
}

impl Judge<'_> {
    /// Settings of the pipeline that contradict each other, or of which one would have no effect.
    pub fn pipeline(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(processor) = values.get(Pipeline::PROCESSOR) else { return };
        let mut report = |key: &str, message: String, label: &str, other: &str, help: String| {
            problems.push(self.conflict(values, key, other, message, label).help(help));
        };
        let name = processor.name();
        for key in [Pipeline::HOPS.name(), Pipeline::WALK.name()] {
            if values.at(key).is_some() && processor != Processor::Neighborhood {
                let message = format!("`{key}` is set, but processor `{name}` walks nowhere");
                let help = "set it where the processor is \"neighborhood\", for example in a variant".to_owned();
                report(key, message, "would have no effect", &Pipeline::PROCESSOR, help);
            }
        }
        if let Some(collation) = values.get(Pipeline::COLLATION) {
            let fits: fn(Processor) -> bool = match collation {
                Collation::Pyg => |_| true,
                Collation::LazyCollater => has_edges,
                Collation::SharedIndex => |processor| processor == Processor::Lazy,
            };
            let collation_name = collation.name();
            if !fits(processor) {
                let message = format!("collation `{collation_name}` cannot be had of processor `{name}`");
                let fitting = Processor::ALL.into_iter().filter(|processor| fits(*processor));
                let fitting: Vec<&str> = fitting.map(Processor::name).collect();
                let help = format!("it takes the processor {}; any other has \"pyg\"", choices(&fitting));
                report(&Pipeline::COLLATION, message, "does not fit", &Pipeline::PROCESSOR, help);
            }
            if values.at(&Pipeline::FOLLOW_BATCH).is_some() && collation != Collation::Pyg {
                let key = Pipeline::FOLLOW_BATCH;
                let message = format!("`{key}` is set, but collation `{collation_name}` follows no field");
                let help = "set it where the collation is \"pyg\", or leave it out".to_owned();
                report(&key, message, "would have no effect", &Pipeline::COLLATION, help);
            }
        }
        if let Some(masks) = values.get(Pipeline::DEVICE_MASKS).filter(|masks| *masks != DeviceMasks::None)
            && !matches!(processor, Processor::Lazy | Processor::Ids)
        {
            let key = Pipeline::DEVICE_MASKS;
            let message = format!("`{key}` = \"{}\" cannot be had of processor `{name}`", masks.name());
            let help = "as they ran, they take \"lazy\", which makes the masks once more and ships the edge index; as they \
                        were meant, \"ids\"";
            report(&key, message, "does not fit", &Pipeline::PROCESSOR, help.to_owned());
        }
    }

    /// Only fields that a batch has can be followed.
    pub fn followed(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Pipeline::FOLLOW_BATCH;
        for (i, field) in values.get(key).unwrap_or_default().iter().enumerate() {
            if !FOLLOWED.contains(&field.as_str()) {
                let help = match closest(field, FOLLOWED) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("fields are {}", choices(&FOLLOWED)),
                };
                let message = format!("batches have no field `{field}` that could be followed");
                problems.push(Problem::new(self.item_at(values, &key, i), message, "no such field").help(help));
            }
        }
    }

    /// Settings of masks that contradict each other, or of which one would have no effect.
    pub fn masks(&self, values: &Values, problems: &mut Vec<Problem>) {
        const FRACTION: &str = Pipeline::MASK_FRACTION.name();
        const SOURCE: &str = Pipeline::MASK_SOURCE.name();
        let (Some(processor), Some(store)) = (values.get(Pipeline::PROCESSOR), values.get(Pipeline::STORE)) else {
            return;
        };
        let mut report = |key: &str, message: String, label: &str, other: &str, help: &str| {
            problems.push(self.conflict(values, key, other, message, label).help(help));
        };
        let gene_masks = values.get(Pipeline::MASK_SOURCE) == Some(MaskSource::GeneMasks);
        let approximate = values.get(Pipeline::MASK_FRACTION).is_some_and(|fraction| fraction < 1.0);
        if gene_masks && !makes_masks(processor) {
            let message = format!("`{SOURCE}` = \"gene_masks\" cannot be had of processor `{}`", processor.name());
            let help = "it takes the processor \"lazy\", \"packed\", \"shared\" or \"incidence_subgraph\"";
            report(SOURCE, message, "does not fit", &Pipeline::PROCESSOR, help);
        }
        if approximate && processor != Processor::Lazy {
            let message = format!("`{FRACTION}` below 1 cannot be had of processor `{}`", processor.name());
            report(FRACTION, message, "does not fit", &Pipeline::PROCESSOR, "it takes the processor \"lazy\"");
        }
        if approximate && gene_masks {
            let message = format!(
                "`{FRACTION}` draws among the edges of a gene, and `{SOURCE}` = \"gene_masks\" has no list of them"
            );
            report(FRACTION, message, "only one of them can", SOURCE, "leave one of them out");
        }
        if approximate && values.get(Pipeline::DEVICE_MASKS).is_some_and(|masks| masks != DeviceMasks::None) {
            let device_masks = Pipeline::DEVICE_MASKS;
            let message = format!("`{FRACTION}` is of the loader's masks, and those of `{device_masks}` are exact");
            report(FRACTION, message, "only one of them can", &device_masks, "leave one of them out");
        }
        let merges = values.get(Pipeline::MERGE_EDGE_TYPES).is_some_and(|merges| !merges.is_empty());
        for (key, asked, reason) in [
            (SOURCE, gene_masks, "masks are read and not made"),
            (FRACTION, approximate, "masks are read and not made"),
            (Pipeline::MERGE_EDGE_TYPES.name(), merges, "each network has its masks"),
        ] {
            if asked && store.has_masks() {
                let message = format!("`{key}` is set, but in the store `{}` {reason}", store.name());
                let help = "set pipeline.store to \"json\" or \"ids\"";
                report(key, message, "does not fit", &Pipeline::STORE, help);
            }
        }
        for (key, needed, needs) in [
            (Pipeline::GENE_MASKS_MIB.name(), SOURCE, "mask_source = \"gene_masks\""),
            (Pipeline::MASK_SEED.name(), FRACTION, "a mask_fraction below 1"),
        ] {
            // A config that sets both has some trials that use the key.
            if values.at(key).is_some() && values.at(needed).is_none() {
                let message = format!("`{key}` is set without {needs}");
                let help = "leave it out, or set it where it has a meaning, for example in a variant";
                report(key, message, "would have no effect", needed, help);
            }
        }
    }

    /// Edge types can be merged as a config asks; their names are not those of networks that the graph does not have.
    pub fn merges(&self, values: &Values, data_set: &GraphDataSet, problems: &mut Vec<Problem>) {
        let key = Pipeline::MERGE_EDGE_TYPES;
        let (Some(networks), Some(merges)) = (values.get(Pipeline::EDGE_TYPES), values.get(key)) else { return };
        let known = |name: &String| data_set.networks.contains(name);
        if !networks.iter().all(known) {
            // `edge_types` reports an unknown network.
            return;
        }
        match graph_types(&networks, &merges) {
            Err(error) => {
                let help = format!("for example [\"string=string12_0_*\"]; the graph has {}", networks.join(", "));
                let at = self.item_at(values, &key, error.position);
                let problem = Problem::new(at, format!("`{key}`: {error}"), "this one");
                problems.push(problem.help(help));
            }
            Ok(types) => {
                let foreign = types.iter().find(|merged| {
                    merged.members.len() > 1 && known(&merged.name) && !merged.members.contains(&merged.name)
                });
                if let Some(merged) = foreign {
                    let message = format!("`{key}`: `{}` is the name of a network that is not in it", merged.name);
                    let problem = Problem::new(self.item_at(values, &key, 0), message, "another name");
                    problems.push(problem.help("choose a name that no network has"));
                }
            }
        }
    }
}

/// `"a", "b" or "c"`.
fn choices(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
