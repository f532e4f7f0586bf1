/// Reactions and metabolites beside the genes: genes catalyse reactions (gpr), reactions turn metabolites (rmr).
///
/// Invariant: both edge lists ascend by reaction, so a reaction's edges are adjacent; every reaction with genes needs all of
/// them (alternatives are reactions of their own).
#[derive(Clone, Debug, PartialEq)]
pub struct Metabolism {
    /// Number of reactions.
    pub reactions: usize,
    /// Number of metabolites.
    pub metabolites: usize,
    /// int64 `[2, E]`, row major: genes, then reactions.
    pub gpr: Vec<i64>,
    /// int64 `[2, E]`, row major: reactions, then metabolites.
    pub rmr: Vec<i64>,
    /// float32 `[E]` of rmr: reactants negative, products positive.
    pub stoichiometry: Vec<f32>,
}

impl Metabolism {
    /// Edges gene to reaction.
    pub fn num_gpr(&self) -> usize {
        self.gpr.len() / 2
    }

    /// Edges reaction to metabolite.
    pub fn num_rmr(&self) -> usize {
        self.rmr.len() / 2
    }

    /// Gene of each gpr edge.
    pub fn gpr_genes(&self) -> &[i64] {
        &self.gpr[..self.num_gpr()]
    }

    /// Reaction of each gpr edge, ascending.
    pub fn gpr_reactions(&self) -> &[i64] {
        &self.gpr[self.num_gpr()..]
    }

    /// Reaction of each rmr edge, ascending.
    pub fn rmr_reactions(&self) -> &[i64] {
        &self.rmr[..self.num_rmr()]
    }

    /// Metabolite of each rmr edge.
    pub fn rmr_metabolites(&self) -> &[i64] {
        &self.rmr[self.num_rmr()..]
    }
}
