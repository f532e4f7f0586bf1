//! Several stores as one: rows are concatenated, columns are joined by name.
//!
//! Invariant: a row of a collection is a row of one of its stores with its columns mapped; the map is computed once for each
//! distinct list of genes, and an identity map costs nothing.

pub mod column_map;
pub mod reader;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::collection::column_map::ColumnMap;
use crate::collection::reader::CollectionReader;
use crate::names::MissingName;
use crate::{AnnDataError, Annotation, ArrayStore, Form, H5adStore, Labels, ReadRows, RequestError, Resident};

/// Readers that a thread keeps open: most files are not read for a while, and a reader has buffers.
const MAX_READERS: usize = 256;
/// Bytes that these readers keep together: decoded row groups of parquet files are large.
const MAX_READER_BYTES: u64 = 1 << 30;

/// Several stores as one.
///
/// Rows are those of the first store, then those of the second, and so on. They are dense if those of all stores are dense,
/// else sparse.
#[derive(Debug)]
pub struct Collection {
    stores: Vec<Box<dyn ArrayStore>>,
    /// `[stores + 1]`: first row of each store, and the end of the last one.
    starts: Vec<u64>,
    genes: Vec<String>,
    /// `[stores]`: maps from the columns of a store to `genes`.
    maps: Vec<Arc<ColumnMap>>,
    form: Form,
}

impl Collection {
    /// Joins stores. `genes` selects columns by name, in this order; if it is empty, all columns of the join are there, in the
    /// order of `anndata.concat`.
    ///
    /// # Errors
    /// There is no store; a selected gene is missing in a store (inner) or in all stores (outer), or is selected twice; the
    /// number of rows or genes is too large.
    pub fn new(stores: Vec<Box<dyn ArrayStore>>, join: GeneJoin, genes: &[String]) -> Result<Self, AnnDataError> {
        if stores.is_empty() {
            return Err(RequestError::NoStores.into());
        }
        let lists = different_lists(&stores);
        let genes: Vec<String> = if genes.is_empty() {
            let lists: Vec<&[String]> = lists.iter().map(|(genes, _)| *genes).collect();
            join_genes(&lists, join).into_iter().map(str::to_owned).collect()
        } else {
            check_subset(&stores, join, genes)?;
            genes.to_vec()
        };
        if i32::try_from(genes.len()).is_err() {
            return Err(RequestError::TooManyGenes { genes: genes.len() }.into());
        }
        let mut numbers = HashMap::with_capacity(genes.len());
        for (number, gene) in genes.iter().enumerate() {
            if numbers.insert(gene.as_str(), number as i32).is_some() {
                return Err(RequestError::RepeatedGene { gene: gene.clone() }.into());
            }
        }
        let different: Vec<Arc<ColumnMap>> =
            lists.iter().map(|(list, _)| Arc::new(ColumnMap::new(list, &numbers, genes.len()))).collect();
        let mut maps: Vec<(usize, Arc<ColumnMap>)> = lists
            .iter()
            .zip(&different)
            .flat_map(|((_, stores), map)| stores.iter().map(move |store| (*store, Arc::clone(map))))
            .collect();
        maps.sort_by_key(|(store, _)| *store);
        let mut starts = vec![0_u64];
        for store in &stores {
            let end = starts[starts.len() - 1].checked_add(store.len());
            starts.push(end.ok_or(RequestError::TooManyRows)?);
        }
        let dense = stores.iter().all(|store| store.form() == Form::Dense);
        Ok(Self {
            maps: maps.into_iter().map(|(_, map)| map).collect(),
            starts,
            form: if dense { Form::Dense } else { Form::Sparse },
            genes,
            stores,
        })
    }

    /// Joins AnnData files; `layer` is that of [`H5adStore::open_all`].
    ///
    /// # Errors
    /// A file cannot be opened; as [`Collection::new`].
    pub fn open_h5ad(files: &[PathBuf], layer: &str, join: GeneJoin, genes: &[String]) -> Result<Self, AnnDataError> {
        let stores = H5adStore::open_all(files, layer)?.into_iter();
        Self::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), join, genes)
    }

    /// The stores, in order.
    pub fn stores(&self) -> &[Box<dyn ArrayStore>] {
        &self.stores
    }

    /// `[stores + 1]`: first row of each store, and the end of the last one.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// An empty column of obs with memory for exactly one value a row: growing would take up to as much again.
    fn empty_column<T>(&self, column: &str) -> Result<Vec<T>, AnnDataError> {
        let (mut values, rows) = (Vec::new(), usize::try_from(self.len()).unwrap_or(usize::MAX));
        let bytes = rows.saturating_mul(size_of::<T>());
        values.try_reserve_exact(rows).map_err(|_| AnnDataError::no_memory(bytes, format!("column {column:?}")))?;
        Ok(values)
    }

    pub(crate) fn map(&self, store: usize) -> &ColumnMap {
        &self.maps[store]
    }

    /// Whether the rows of a store's reader are rows of the collection without a change.
    pub(crate) fn keeps(&self, store: usize) -> bool {
        match (self.stores[store].form(), self.form) {
            (Form::Sparse, Form::Sparse) => self.maps[store].keeps_sparse(),
            (Form::Dense, Form::Dense) => self.maps[store].keeps_dense(),
            _ => false,
        }
    }
}

impl ArrayStore for Collection {
    fn len(&self) -> u64 {
        self.starts[self.stores.len()]
    }

    /// The starts of all stores, including those within a store.
    fn starts(&self) -> Vec<u64> {
        let of_stores = self.stores.iter().zip(&self.starts);
        of_stores.flat_map(|(store, start)| store.starts().into_iter().map(move |own| start + own)).collect()
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        self.form
    }

    fn run_rows(&self) -> u64 {
        self.stores.iter().map(|store| store.run_rows()).max().unwrap_or(1)
    }

    fn stored_bytes(&self) -> u64 {
        self.stores.iter().map(|store| store.stored_bytes()).sum()
    }

    fn max_values(&self) -> Option<u64> {
        self.stores.iter().map(|store| store.max_values()).sum()
    }

    fn min_values(&self) -> u64 {
        // The number of values in dropped columns is not known.
        self.stores.iter().enumerate().filter(|(i, _)| self.keeps(*i)).map(|(_, store)| store.min_values()).sum()
    }

    fn name(&self) -> String {
        match self.stores.as_slice() {
            [one] => one.name(),
            stores => format!("{} and {} more", stores[0].name(), stores.len() - 1),
        }
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        let mut all = Labels { codes: self.empty_column(column)?, ..Labels::default() };
        let mut numbers: HashMap<String, i32> = HashMap::new();
        let mut named: Option<&dyn ArrayStore> = None;
        for store in &self.stores {
            let labels = store.labels(column)?;
            match named {
                // A file without values does not determine the form.
                _ if labels.categories.is_empty() => {}
                None => (named, all.kind) = (Some(store.as_ref()), labels.kind),
                Some(first) if labels.kind != all.kind => {
                    return Err(AnnDataError::from(RequestError::MixedClasses {
                        column: column.to_owned(),
                        first: first.name(),
                        first_kind: all.kind,
                        second: store.name(),
                        second_kind: labels.kind,
                    }));
                }
                Some(_) => {}
            }
            let codes: Vec<i32> = labels
                .categories
                .into_iter()
                .map(|category| {
                    let next = all.categories.len() as i32;
                    *numbers.entry(category).or_insert_with_key(|category| {
                        all.categories.push(category.clone());
                        next
                    })
                })
                .collect();
            all.codes.extend(labels.codes.iter().map(|code| usize::try_from(*code).map_or(-1, |code| codes[code])));
        }
        Ok(all)
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        let mut all = self.empty_column(column)?;
        for store in &self.stores {
            all.extend(store.numbers(column)?);
        }
        Ok(all)
    }

    /// The columns that all stores have, in the order of the first.
    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        let (first, others) = self.stores.split_first().ok_or(RequestError::NoStores)?;
        let mut columns = first.columns()?;
        for store in others {
            let theirs: HashSet<String> = store.columns()?.into_iter().collect();
            columns.retain(|column| theirs.contains(column));
        }
        Ok(columns)
    }

    /// Numbers if they are numbers in all stores, else classes.
    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        let (mut all, mut all_integers) = (Vec::new(), true);
        for store in &self.stores {
            match store.annotation(column)? {
                Annotation::Numbers { values, integers } => {
                    all.extend(values);
                    all_integers &= integers;
                }
                classes if self.stores.len() == 1 => return Ok(classes),
                Annotation::Classes(_) => return self.labels(column).map(Annotation::Classes),
            }
        }
        Ok(Annotation::Numbers { values: all, integers: all_integers })
    }

    fn row_names(&self) -> Result<Option<Vec<String>>, AnnDataError> {
        let mut all = Vec::new();
        for store in &self.stores {
            match store.row_names()? {
                Some(names) => all.extend(names),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    fn resident(&self) -> Option<Resident<'_>> {
        match self.stores.as_slice() {
            [one] if self.keeps(0) => one.resident(),
            _ => None,
        }
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(CollectionReader::new(self, MAX_READERS, MAX_READER_BYTES)))
    }
}

/// The distinct lists of genes in the order of their first stores, and the stores of each.
fn different_lists(stores: &[Box<dyn ArrayStore>]) -> Vec<(&[String], Vec<usize>)> {
    let mut lists: Vec<(&[String], Vec<usize>)> = Vec::new();
    for (i, store) in stores.iter().enumerate() {
        let genes = store.genes();
        // Shared lists are the same slice, so this comparison is usually free.
        match lists.iter_mut().find(|(list, _)| std::ptr::eq(*list, genes) || *list == genes) {
            Some((_, stores)) => stores.push(i),
            None => lists.push((genes, vec![i])),
        }
    }
    lists
}

/// Fails if a selected gene is not available.
fn check_subset(stores: &[Box<dyn ArrayStore>], join: GeneJoin, genes: &[String]) -> Result<(), RequestError> {
    let mut missing: Vec<&String> = genes.iter().collect();
    for (list, with) in different_lists(stores) {
        let known: HashSet<&str> = list.iter().map(String::as_str).collect();
        match join {
            GeneJoin::Inner => {
                if let Some(gene) = genes.iter().find(|gene| !known.contains(gene.as_str())) {
                    let what = format!("{} has no gene {gene:?}", stores[with[0]].name());
                    let names = list.iter().map(String::as_str);
                    return Err(RequestError::UnknownGene(MissingName::new(what, "genes", gene, names)));
                }
                missing.clear();
            }
            GeneJoin::Outer => missing.retain(|gene| !known.contains(gene.as_str())),
        }
    }
    let Some(gene) = missing.first() else { return Ok(()) };
    let what = format!("no file has a gene {gene:?}");
    let names = stores[0].genes().iter().map(String::as_str);
    Err(RequestError::UnknownGene(MissingName::new(what, "genes of the first", gene, names)))
}

/// How the genes of several stores are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GeneJoin {
    /// Genes that all files have, in the order of the first.
    #[default]
    Inner,
    /// Genes that any file has; a missing value is 0.
    Outer,
}

/// Joins lists of genes in the order of `anndata.concat`; within a list, names are unique.
///
/// Inner: the genes of the first list that all others have, in its order. Outer: the order of `pandas.Index.union`, applied
/// from left to right: equal lists stay as they are, an empty list changes nothing, else all genes are sorted by code points.
pub(crate) fn join_genes<'a>(lists: &[&'a [String]], join: GeneJoin) -> Vec<&'a str> {
    let Some((first, others)) = lists.split_first() else { return Vec::new() };
    match join {
        GeneJoin::Inner => inner_join(first, others),
        GeneJoin::Outer => outer_join(first, others),
    }
}

fn inner_join<'a>(first: &'a [String], others: &[&'a [String]]) -> Vec<&'a str> {
    let mut genes: Vec<&str> = first.iter().map(String::as_str).collect();
    for other in others {
        let other: HashSet<&str> = other.iter().map(String::as_str).collect();
        genes.retain(|gene| other.contains(gene));
    }
    genes
}

fn outer_join<'a>(first: &'a [String], others: &[&'a [String]]) -> Vec<&'a str> {
    let mut genes: Vec<&str> = first.iter().map(String::as_str).collect();
    let mut seen: HashSet<&str> = genes.iter().copied().collect();
    let mut sorted = false;
    for other in others.iter().filter(|other| !other.is_empty()) {
        if genes.is_empty() {
            genes.extend(other.iter().map(String::as_str));
            seen.extend(&genes);
        } else if sorted || !genes.iter().eq(other.iter()) {
            // Once sorted, the list stays sorted: one sort at the end is enough.
            sorted = true;
            genes.extend(other.iter().map(String::as_str).filter(|gene| seen.insert(gene)));
        }
    }
    if sorted {
        genes.sort_unstable();
    }
    genes
}

#[cfg(test)]
mod join_tests {
    use super::*;

    fn join(lists: &[&str], join: GeneJoin) -> String {
        let lists: Vec<Vec<String>> = lists.iter().map(|list| list.chars().map(String::from).collect()).collect();
        let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
        join_genes(&lists, join).concat()
    }

    #[test]
    fn inner_keeps_the_order_of_the_first() {
        assert_eq!(join(&["dbca", "abcx", "cbd"], GeneJoin::Inner), "bc");
        assert_eq!(join(&["ba", "", "ab"], GeneJoin::Inner), "");
        assert_eq!(join(&["cab"], GeneJoin::Inner), "cab");
    }

    #[test]
    fn outer_sorts_what_differs() {
        assert_eq!(join(&["cab", "cab"], GeneJoin::Outer), "cab");
        assert_eq!(join(&["cab", "cab", "bac"], GeneJoin::Outer), "abc");
        assert_eq!(join(&["cab", ""], GeneJoin::Outer), "cab");
        assert_eq!(join(&["", "cab", "cab"], GeneJoin::Outer), "cab");
        assert_eq!(join(&["ca", "b", "äZ"], GeneJoin::Outer), "Zabcä");
        assert_eq!(join(&[], GeneJoin::Outer), "");
    }
}
