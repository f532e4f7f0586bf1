use std::collections::HashMap;

use crate::PipelineError;

/// Which genes of a store a batch has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneMap {
    /// Column of the batch for each column of the store; -1 is none.
    to_batch: Vec<i32>,
    /// Column of the store for each column of the batch.
    to_store: Vec<u32>,
    ascending: bool,
}

impl GeneMap {
    /// The genes `wanted`, in their order, out of `genes`. None where all are wanted, which an empty list says.
    ///
    /// # Errors
    /// A gene is not there, is wanted twice, or stands twice in the store.
    pub fn new(genes: &[String], wanted: &[String]) -> Result<Option<Self>, PipelineError> {
        if wanted.is_empty() || wanted == genes {
            return Ok(None);
        }
        let mut places: HashMap<&str, (usize, bool)> = HashMap::with_capacity(genes.len());
        for (place, gene) in genes.iter().enumerate() {
            places.entry(gene).and_modify(|(_, twice)| *twice = true).or_insert((place, false));
        }
        let mut to_batch = vec![-1; genes.len()];
        let mut to_store = Vec::with_capacity(wanted.len());
        for (column, gene) in wanted.iter().enumerate() {
            let invalid = |what: String| Err(PipelineError::Invalid(format!("array.genes: {gene:?} {what}")));
            match places.get(gene.as_str()) {
                None => {
                    let some: Vec<&str> = genes.iter().take(3).map(String::as_str).collect();
                    return invalid(format!(
                        "is none of the {} genes of the data ({} …)",
                        genes.len(),
                        some.join(", ")
                    ));
                }
                Some((_, true)) => return invalid("stands more than once in the data, so it names no column".into()),
                Some((place, false)) if to_batch[*place] >= 0 => return invalid("is listed twice".into()),
                Some((place, false)) => {
                    to_batch[*place] = column as i32;
                    to_store.push(*place as u32);
                }
            }
        }
        let ascending = to_store.is_sorted();
        Ok(Some(Self { to_batch, to_store, ascending }))
    }

    /// Genes of a batch.
    pub fn len(&self) -> usize {
        self.to_store.len()
    }

    /// No genes.
    pub fn is_empty(&self) -> bool {
        self.to_store.is_empty()
    }

    /// Column of the batch for each column of the store; -1 is none.
    pub fn to_batch(&self) -> &[i32] {
        &self.to_batch
    }

    /// Column of the store for each column of the batch.
    pub fn to_store(&self) -> &[u32] {
        &self.to_store
    }

    /// Whether the genes come in the order of the store, so that ascending columns stay ascending.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn both_ways_and_whether_in_order() {
        let genes = names("a b c d");
        assert_eq!(GeneMap::new(&genes, &[]).unwrap(), None);
        assert_eq!(GeneMap::new(&genes, &genes).unwrap(), None);
        let map = GeneMap::new(&genes, &names("d b")).unwrap().unwrap();
        assert_eq!((map.to_batch(), map.to_store(), map.is_ascending()), (&[-1, 1, -1, 0][..], &[3, 1][..], false));
        assert!(GeneMap::new(&genes, &names("b d")).unwrap().unwrap().is_ascending());
    }

    #[test]
    fn genes_that_name_no_column_are_errors() {
        for (wanted, expected) in [
            ("x", "array.genes: \"x\" is none of the 4 genes of the data (a, b, c …)"),
            ("a a", "array.genes: \"a\" is listed twice"),
            ("c", "array.genes: \"c\" stands more than once in the data, so it names no column"),
        ] {
            assert_eq!(GeneMap::new(&names("a b c c"), &names(wanted)).unwrap_err().to_string(), expected);
        }
    }
}
