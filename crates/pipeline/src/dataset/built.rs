use std::path::{Path, PathBuf};

use super::Manifest;
use super::files::{GENES_FILE, STORE_FOLDER};
use super::graph_file::{self, GRAPH_FILE};
use crate::PipelineError;
use crate::graph::CellGraph;
use crate::store::{LmdbStore, RecordDecoder};

/// A built data set.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
}

impl Dataset {
    /// Open the data set in `folder`; [`PipelineError::NotBuilt`] if there is none.
    pub fn open(folder: &Path) -> Result<Self, PipelineError> {
        Ok(Self { folder: folder.to_owned(), manifest: Manifest::load(folder)? })
    }

    /// What was built.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of the genes, ascending; the index of a gene is its position.
    pub fn genes(&self) -> Result<Vec<String>, PipelineError> {
        let path = self.folder.join(GENES_FILE);
        let text = std::fs::read_to_string(&path).map_err(PipelineError::io("read", &path))?;
        let genes: Vec<String> = text.lines().map(str::to_owned).collect();
        if genes.len() as u64 != self.manifest.genes.count {
            let reason = format!("{} names, but the manifest says {}", genes.len(), self.manifest.genes.count);
            return Err(PipelineError::damaged(&path, reason));
        }
        Ok(genes)
    }

    /// The graph with these edge types, in this order, and with reactions and metabolites if they are asked for. An unknown
    /// edge type is an error that names those that exist.
    pub fn graph(&self, edge_types: &[String], metabolism: bool) -> Result<CellGraph, PipelineError> {
        let path = self.folder.join(GRAPH_FILE);
        let edge_types = graph_file::read(&path, edge_types)?;
        let sizes = &self.manifest.bipartite;
        let metabolism = if metabolism { Some(graph_file::read_metabolism(&path, sizes)?) } else { None };
        Ok(CellGraph { genes: self.genes()?, edge_types, metabolism })
    }

    /// The base store, open for reading.
    pub fn store(&self) -> Result<LmdbStore, PipelineError> {
        LmdbStore::open(&self.folder.join(STORE_FOLDER))
    }

    /// A decoder of the store's records.
    pub fn decoder(&self) -> Result<RecordDecoder, PipelineError> {
        Ok(RecordDecoder::new(&self.folder.join(STORE_FOLDER), self.genes()?))
    }
}
