//! What a masked graph is, by its definition, and random graphs and samples to compare batches on.

pub mod described;
pub mod random;

use std::collections::BTreeSet;

use graph_loader::{CellGraph, EdgeType, MaskForm, Sample, StoredMasks, Walk};

/// An edge between nodes in the numbers of the whole graph.
pub type Edge = (i64, i64);

/// What is left of one sample's graph. Lists are sorted, so that parallel edges count and order does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Masked {
    /// Genes kept.
    pub genes: BTreeSet<i64>,
    /// Edges kept, by type.
    pub edges: Vec<Vec<Edge>>,
    /// Reactions kept.
    pub reactions: BTreeSet<i64>,
    /// gpr edges kept.
    pub gpr: Vec<Edge>,
    /// rmr edges kept, with their stoichiometry.
    pub rmr: Vec<(Edge, f32)>,
}

/// Sorted copies.
fn sorted<T: PartialOrd>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort_by(|a, b| a.partial_cmp(b).unwrap());
    items
}

fn pairs<'a>(sources: &'a [i64], targets: &'a [i64]) -> impl Iterator<Item = Edge> + 'a {
    sources.iter().copied().zip(targets.iter().copied())
}

/// The definition: an edge is kept if neither gene is perturbed, a reaction if none of its genes is, a gpr edge if its
/// gene is (or, where `gpr_with_reaction`, its reaction), an rmr edge if its reaction is.
pub fn naive(graph: &CellGraph, perturbed: &[i64], gpr_with_reaction: bool) -> Masked {
    let kept = |gene: i64| !perturbed.contains(&gene);
    let mut masked = Masked {
        genes: (0..graph.num_genes() as i64).filter(|gene| kept(*gene)).collect(),
        edges: graph
            .edge_types
            .iter()
            .map(|e| sorted(pairs(e.sources(), e.targets()).filter(|(s, t)| kept(*s) && kept(*t))))
            .collect(),
        ..Masked::default()
    };
    if let Some(m) = &graph.metabolism {
        let gpr: Vec<Edge> = pairs(m.gpr_genes(), m.gpr_reactions()).collect();
        let lost = |reaction: i64| gpr.iter().any(|(gene, of)| *of == reaction && !kept(*gene));
        masked.reactions = (0..m.reactions as i64).filter(|reaction| !lost(*reaction)).collect();
        let stays = |(gene, reaction): &Edge| if gpr_with_reaction { !lost(*reaction) } else { kept(*gene) };
        masked.gpr = sorted(gpr.iter().copied().filter(stays));
        let rmr = pairs(m.rmr_reactions(), m.rmr_metabolites()).zip(m.stoichiometry.iter().copied());
        masked.rmr = sorted(rmr.filter(|((reaction, _), _)| !lost(*reaction)));
    }
    masked
}

/// Genes within some steps of others, themselves included.
pub fn within(graph: &CellGraph, perturbed: &[i64], walk: Walk, hops: u32) -> BTreeSet<i64> {
    // Types that a step may take together, and whether it may go along an edge as well as against it.
    let (together, both_ways): (Vec<&[EdgeType]>, bool) = match walk {
        Walk::Union => (vec![&graph.edge_types], true),
        Walk::PerType => (graph.edge_types.chunks(1).collect(), false),
        Walk::Incoming => (vec![&graph.edge_types], false),
    };
    let start: BTreeSet<i64> = perturbed.iter().copied().collect();
    let mut all = start.clone();
    for types in together {
        let mut found = start.clone();
        for _ in 0..hops {
            let before = found.clone();
            for (source, target) in types.iter().flat_map(|edges| pairs(edges.sources(), edges.targets())) {
                if before.contains(&target) {
                    found.insert(source);
                }
                if both_ways && before.contains(&source) {
                    found.insert(target);
                }
            }
        }
        all.extend(found);
    }
    all
}

/// All edges from `sources` to `targets`, kept or not, by type.
pub fn edges_between(graph: &CellGraph, sources: &BTreeSet<i64>, targets: &BTreeSet<i64>) -> Vec<Vec<Edge>> {
    let inside = |(s, t): &Edge| sources.contains(s) && targets.contains(t);
    graph.edge_types.iter().map(|e| sorted(pairs(e.sources(), e.targets()).filter(inside))).collect()
}

/// All forms of masks in records; the first holds nothing.
pub const FORMS: [MaskForm; 4] = [MaskForm::None, MaskForm::FalsePositions, MaskForm::Bytes, MaskForm::Bits];

/// Whether each entry is kept, for each mask of the sample's graph: types, then reactions, gpr, rmr.
fn masks(graph: &CellGraph, perturbed: &[i64]) -> Vec<Vec<bool>> {
    let kept = |gene: &i64| !perturbed.contains(gene);
    let ends = graph.edge_types.iter().map(|e| (e.sources(), e.targets()));
    let mut masks: Vec<Vec<bool>> =
        ends.map(|(s, t)| s.iter().zip(t).map(|(s, t)| kept(s) && kept(t)).collect()).collect();
    if let Some(m) = &graph.metabolism {
        let mut reactions = vec![true; m.reactions];
        for (gene, reaction) in m.gpr_genes().iter().zip(m.gpr_reactions()) {
            reactions[*reaction as usize] &= kept(gene);
        }
        let rmr = m.rmr_reactions().iter().map(|reaction| reactions[*reaction as usize]).collect();
        masks.extend([reactions, m.gpr_genes().iter().map(kept).collect(), rmr]);
    }
    masks
}

/// Append the sample's record to `bytes` and let the sample refer to it.
pub fn encode_masks(graph: &CellGraph, form: MaskForm, sample: &mut Sample, bytes: &mut Vec<u8>) {
    sample.masks = StoredMasks { form, spans: Vec::new() };
    if form == MaskForm::None {
        return;
    }
    // Records have no alignment.
    bytes.push(0xa5);
    for mask in masks(graph, &sample.genes) {
        let start = bytes.len();
        match form {
            MaskForm::None => {}
            MaskForm::FalsePositions => {
                let gone = (0..mask.len()).filter(|i| !mask[*i]);
                gone.for_each(|i| bytes.extend_from_slice(&(i as i64).to_le_bytes()));
            }
            MaskForm::Bytes => bytes.extend(mask.iter().map(|kept| u8::from(*kept))),
            MaskForm::Bits => {
                let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << i);
                bytes.extend(mask.chunks(8).map(byte));
            }
        }
        sample.masks.spans.push(start..bytes.len());
    }
}
