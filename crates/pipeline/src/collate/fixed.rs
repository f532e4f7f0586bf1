use expctl_record::Processor;

use super::Assembler;

impl Assembler {
    /// Bytes of a batch of `samples` samples with `perturbed` perturbed genes in all, where they do not depend on which
    /// genes these are; `None` where they do. What [`super::Batch::bytes`] counts, without making the batch.
    pub fn fixed_bytes(&self, samples: usize, perturbed: usize) -> Option<u64> {
        let (plan, graph) = (self.plan, &self.shared.graph);
        let ptr = 8 * (samples + 1);
        let nodes = |count: usize| samples * count * (1 + 1 + 8) + if plan.with_ptr { ptr } else { 0 };
        let edges = |count: usize| samples * (count * if plan.with_index { 16 + 1 } else { 1 } + 8);
        let phenotype = 4 * 8 * samples;
        let common = 2 * 8 * perturbed + ptr + 2 * 4 * samples;
        let genes = graph.num_genes();
        let rest = match plan.processor {
            Processor::Lazy => {
                let types: usize = graph.edge_types.iter().map(|e| edges(e.num_edges())).sum();
                let followed = if plan.follow_x { 8 * samples * genes + ptr } else { 0 };
                let metabolism = graph.metabolism.as_ref().map_or(0, |m| {
                    let stoichiometry = if plan.with_index { 4 * samples * m.num_rmr() } else { 0 };
                    let w_growth = 4 * samples * m.reactions;
                    let ends = edges(m.num_gpr()) + edges(m.num_rmr());
                    nodes(m.reactions) + w_growth + nodes(m.metabolites) + ends + stoichiometry
                });
                nodes(genes) + followed + phenotype + types + metabolism
            }
            Processor::Perturbation => nodes(genes) + phenotype,
            Processor::Packed => {
                let entries = self.shared.sources.iter().flat_map(|sources| sources.entries());
                entries.map(|entries| 8 * samples * entries.div_ceil(64)).sum()
            }
            Processor::Ids | Processor::Rows => 0,
            Processor::Subgraph | Processor::IncidenceSubgraph | Processor::Neighborhood | Processor::Shared => {
                return None;
            }
        };
        Some((common + rest) as u64)
    }
}
