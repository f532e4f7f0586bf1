use super::Recipe;
use super::rng::Stream;
use crate::PipelineError;

/// The genes of a data set. Invariant: `names` ascends bytewise without duplicates.
pub(crate) struct Genes {
    /// All names, ascending.
    pub names: Vec<String>,
    /// How many of them are real.
    pub real: u64,
    /// For each 0-based row of the recipe's file of gene names: position in `names`, if the gene is in this subset.
    pub position_of_row: Vec<Option<u32>>,
    /// Positions of the real genes.
    pub real_positions: Vec<u32>,
}

/// Prefix of generated names. No systematic yeast name begins like this.
const GENERATED: &str = "GEN";

impl Genes {
    /// The recipe's genes, or a random share `scale` of them.
    pub(crate) fn new(recipe: &Recipe, seed: u64, scale: f64) -> Result<Self, PipelineError> {
        let path = recipe.folder.join(&recipe.gene_names);
        let text = std::fs::read_to_string(&path).map_err(PipelineError::io("read", &path))?;
        let rows: Vec<&str> = text.lines().map(str::trim).collect();
        let total = recipe.genes;
        if rows.len() as u64 > total {
            let reason = format!("{} gene names, but the recipe has {total} genes", rows.len());
            return Err(PipelineError::damaged(&path, reason));
        }
        if let Some(name) = rows.iter().find(|name| name.is_empty() || name.starts_with(GENERATED)) {
            return Err(PipelineError::damaged(&path, format!("`{name}` cannot be a gene name")));
        }

        let mut all: Vec<(String, Option<usize>)> =
            rows.iter().enumerate().map(|(row, name)| ((*name).to_owned(), Some(row))).collect();
        all.extend((rows.len() as u64..total).map(|k| (format!("{GENERATED}{:04}", k - rows.len() as u64 + 1), None)));
        all.sort();
        if let Some(pair) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(PipelineError::damaged(&path, format!("`{}` is listed twice", pair[0].0)));
        }

        let kept = kept(total, seed, scale);
        let mut genes = Self {
            names: Vec::with_capacity(kept.len()),
            real: 0,
            position_of_row: vec![None; rows.len()],
            real_positions: Vec::new(),
        };
        for index in kept {
            let (name, row) = std::mem::take(&mut all[index as usize]);
            let position = genes.names.len() as u32;
            if let Some(row) = row {
                genes.position_of_row[row] = Some(position);
                genes.real_positions.push(position);
                genes.real += 1;
            }
            genes.names.push(name);
        }
        Ok(genes)
    }

    /// Number of genes.
    pub(crate) fn len(&self) -> u64 {
        self.names.len() as u64
    }
}

/// How many of `total` genes a data set of this scale has, at least one.
pub(crate) fn genes_at(total: u64, scale: f64) -> u64 {
    ((total as f64 * scale).round() as u64).clamp(1, total.max(1))
}

/// Which of `total` genes a data set of this scale has, ascending.
fn kept(total: u64, seed: u64, scale: f64) -> Vec<u64> {
    let n = genes_at(total, scale);
    if n == total {
        return (0..total).collect();
    }
    let mut kept = Stream::new(seed, scale, "genes").permutation(total);
    kept.truncate(n as usize);
    kept.sort_unstable();
    kept
}
