//! `Dataset`: a built data set of a graph. It opens the graph, the stores and the decoders of their records; `DatasetRecords` hands them to a loader.
//! Invariant: graph and stores have the numbers of edges and records that the manifest says.

use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_settings::{Advice, Converted, Pipeline, StoreKind};
use graph_loader::{
    CellGraph, GraphError, LmdbReader, LmdbStore, MaskSizes, ReadRecord, RecordDecoder, Records, Sample, StoreDecoder,
};

use crate::build_folder::{DATA_FILE, GENES_FILE, STORE_FOLDER, STORES_FOLDER};
use crate::graph::graph_file;
use crate::graph::graph_file::GRAPH_FILE;
use crate::graph::manifest::{CONVERTED, Manifest, StoreManifest, base_blake3};
use crate::settings::record_format;
use crate::{Damage, DatasetError, SettingError};

/// A built data set.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
}

impl Dataset {
    /// Open the data set in `folder`; [`DatasetError::NotBuilt`] if there is none.
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        Ok(Self { folder: folder.to_owned(), manifest: Manifest::load(folder)? })
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of the genes, ascending; the index of a gene is its position.
    pub fn genes(&self) -> Result<Vec<String>, DatasetError> {
        let path = self.folder.join(GENES_FILE);
        let text = std::fs::read_to_string(&path).map_err(DatasetError::io("read", &path))?;
        let genes: Vec<String> = text.lines().map(str::to_owned).collect();
        if genes.len() as u64 != self.manifest.genes.count {
            let (found, expected) = (genes.len() as u64, self.manifest.genes.count);
            let damage = Damage::Count { found, things: "names", known_from: "the manifest says", expected };
            return Err(self.advise(DatasetError::damaged(&path, damage)));
        }
        Ok(genes)
    }

    /// The graph with these edge types, in this order, and with reactions and metabolites if they are asked for.
    ///
    /// # Errors
    /// An edge type is unknown (those that exist are named), the file is damaged, or it has other numbers of edges than the
    /// manifest says.
    pub fn graph(&self, edge_types: &[String], metabolism: bool) -> Result<CellGraph, DatasetError> {
        self.read_graph(edge_types, metabolism).map_err(|e| self.advise(e))
    }

    /// The graph that `pipeline` asks for: its networks, merged where it says so.
    ///
    /// # Errors
    /// As [`Dataset::graph`]; networks cannot be merged as it says.
    pub fn graph_of(&self, pipeline: &Pipeline) -> Result<CellGraph, DatasetError> {
        let types = pipeline.graph_types().map_err(|error| DatasetError::Setting {
            key: Pipeline::MERGE_EDGE_TYPES.name(),
            problem: SettingError::Merge(error),
        })?;
        let types = types.iter().map(|joined| (joined.name.as_str(), joined.members.as_slice()));
        Ok(self.graph(&pipeline.edge_types, pipeline.metabolism)?.with_edge_types(types)?)
    }

    fn read_graph(&self, edge_types: &[String], metabolism: bool) -> Result<CellGraph, DatasetError> {
        let path = self.folder.join(GRAPH_FILE);
        let genes = self.genes()?;
        let edge_types = graph_file::read(&path, edge_types, genes.len())?;
        let sizes = &self.manifest.bipartite;
        let metabolism = if metabolism { Some(graph_file::read_metabolism(&path, sizes, genes.len())?) } else { None };
        let graph = CellGraph { genes, edge_types, metabolism };
        self.check_edge_counts(&graph, &path)?;
        Ok(graph)
    }

    /// Check the graph of the file `path` against the manifest: records with masks are decoded by the manifest's numbers of edges.
    fn check_edge_counts(&self, graph: &CellGraph, path: &Path) -> Result<(), DatasetError> {
        let networks = graph.edge_types.iter().map(|edges| {
            let known = self.manifest.networks.iter().find(|network| network.name == edges.name);
            (format!("edge_index/{}", edges.name), edges.num_edges(), known.map(|network| network.edges))
        });
        let sizes = &self.manifest.bipartite;
        let bipartite = graph.metabolism.iter().flat_map(|metabolism| {
            [("gpr", metabolism.num_gpr(), sizes.gpr), ("rmr", metabolism.num_rmr(), sizes.rmr)]
                .map(|(name, found, known)| (format!("hyperedge_index/{name}"), found, Some(known)))
        });
        for (name, found, known) in networks.chain(bipartite) {
            match known {
                None => return Err(DatasetError::damaged(path, Damage::UnknownEdges(name))),
                Some(known) if known != found as u64 => {
                    let damage = Damage::EdgeCount { name, found: found as u64, expected: known };
                    return Err(DatasetError::damaged(path, damage));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The base store, open for reading.
    pub fn store(&self) -> Result<LmdbStore, DatasetError> {
        LmdbStore::open(&self.records_folder(StoreKind::Json)).map_err(|e| self.advise(e.into()))
    }

    /// A decoder of the store's records.
    pub fn decoder(&self) -> Result<RecordDecoder, DatasetError> {
        Ok(RecordDecoder::new(&self.records_folder(StoreKind::Json), self.genes()?))
    }

    /// Folder of the store that was made from the base store, or would be.
    pub fn store_folder(&self, kind: StoreKind) -> PathBuf {
        Self::store_folder_in(&self.folder, kind)
    }

    /// As [`Dataset::store_folder`], of a data set that need not exist.
    pub fn store_folder_in(dataset: &Path, kind: StoreKind) -> PathBuf {
        dataset.join(STORES_FOLDER).join(kind.name())
    }

    /// The file that the records of a store lie in, or would lie in.
    pub fn store_file(&self, kind: StoreKind) -> PathBuf {
        self.records_folder(kind).join(DATA_FILE)
    }

    /// The LMDB store of a kind.
    fn records_folder(&self, kind: StoreKind) -> PathBuf {
        match kind {
            StoreKind::Json => self.folder.join(STORE_FOLDER),
            made => self.store_folder(made).join(CONVERTED),
        }
    }

    /// Manifest of the store of this kind that was made from the base store; `None` if there is none.
    ///
    /// # Errors
    /// The manifest is damaged; the store was made from another base store; its file is missing or of another length than the
    /// manifest says.
    pub fn converted(&self, kind: StoreKind) -> Result<Option<StoreManifest>, DatasetError> {
        self.complete(kind).map_err(|e| self.advise(e))
    }

    fn complete(&self, kind: StoreKind) -> Result<Option<StoreManifest>, DatasetError> {
        let folder = self.store_folder(kind);
        let Some(manifest) = StoreManifest::load(&folder, kind)? else { return Ok(None) };
        if manifest.base_blake3 != base_blake3(&self.manifest) {
            return Err(DatasetError::damaged(&folder, Damage::OtherBaseStore));
        }
        let file = self.store_file(kind);
        let bytes = match file.metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(DatasetError::damaged(&file, Damage::Missing));
            }
            other => other.map_err(DatasetError::io("inspect", &file))?.len(),
        };
        if bytes != manifest.file.bytes {
            let (known_from, expected) = ("the manifest of the store says", manifest.file.bytes);
            let damage = Damage::Count { found: bytes, things: "bytes", known_from, expected };
            return Err(DatasetError::damaged(&file, damage));
        }
        Ok(Some(manifest))
    }

    /// Whether records of this kind can be read.
    pub fn has(&self, kind: StoreKind) -> bool {
        kind == StoreKind::Json || self.converted(kind).is_ok_and(|manifest| manifest.is_some())
    }

    /// Lengths of the masks of its networks and its metabolism.
    pub fn mask_sizes(&self) -> MaskSizes {
        let (genes, bipartite) = (self.manifest.genes.count, &self.manifest.bipartite);
        let nodes = [genes, bipartite.reactions, bipartite.metabolites].map(|n| n as usize);
        let networks: Vec<(String, usize)> =
            self.manifest.networks.iter().map(|network| (network.name.clone(), network.edges as usize)).collect();
        MaskSizes::new(nodes, &networks, bipartite.gpr as usize, bipartite.rmr as usize)
    }

    /// The store that `pipeline` reads, and the decoder of its records.
    ///
    /// # Errors
    /// [`DatasetError::NotConverted`] if the base store has not been converted to it; it holds masks of networks that `pipeline` merges.
    pub fn records(&self, pipeline: &Pipeline) -> Result<(LmdbStore, StoreDecoder), DatasetError> {
        self.open_records(pipeline).map_err(|e| self.advise(e))
    }

    fn open_records(&self, pipeline: &Pipeline) -> Result<(LmdbStore, StoreDecoder), DatasetError> {
        let kind = pipeline.store;
        if kind.has_masks() && !pipeline.merge_edge_types.is_empty() {
            let problem = SettingError::MergedMasks { store: kind.name() };
            return Err(DatasetError::Setting { key: Pipeline::MERGE_EDGE_TYPES.name(), problem });
        }
        if kind == StoreKind::Json {
            let decoder = StoreDecoder::json(&self.records_folder(kind), self.decoder()?);
            return Ok((self.store()?, decoder));
        }
        let Some(manifest) = self.converted(kind)? else {
            let advice = Advice::Convert(self.manifest.data.clone(), Converted::Store(kind));
            return Err(DatasetError::NotConverted { path: self.folder.clone(), store: kind.name() }.and(advice));
        };
        let folder = self.records_folder(kind);
        let (format, sizes) = (record_format(kind), self.mask_sizes());
        let decoder = StoreDecoder::converted(&folder, format, sizes, &pipeline.edge_types, pipeline.metabolism)?;
        let store = LmdbStore::open(&folder)?;
        if store.len() != manifest.store.records {
            let (found, expected) = (store.len(), manifest.store.records);
            let damage = Damage::Count { found, things: "records", known_from: "its manifest says", expected };
            return Err(DatasetError::damaged(&folder, damage));
        }
        Ok((store, decoder))
    }
}

/// The records of a built data set, for a [`graph_loader::GraphBatcher`]: one of its stores and the decoder.
pub struct DatasetRecords {
    dataset: Dataset,
    store: LmdbStore,
    decoder: StoreDecoder,
}

/// Reads records on one thread.
struct DatasetReader<'r> {
    reader: LmdbReader<'r>,
    dataset: &'r Dataset,
}

impl DatasetRecords {
    /// Open the store of `dataset` that `pipeline` reads.
    ///
    /// # Errors
    /// [`DatasetError::NotConverted`]; the store is damaged, or has no masks of an edge type.
    pub fn open(dataset: &Dataset, pipeline: &Pipeline) -> Result<Self, DatasetError> {
        let (store, decoder) = dataset.records(pipeline)?;
        Ok(Self { dataset: dataset.clone(), store, decoder })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.store.len()
    }

    /// No records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Records for DatasetRecords {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(DatasetReader { reader: self.store.reader()?, dataset: &self.dataset }))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        self.decoder.decode(index, bytes, range, sample).map_err(|e| self.dataset.advise(e.into()).into())
    }
}

impl ReadRecord for DatasetReader<'_> {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
        self.reader.read(index, out).map_err(|e| self.dataset.advise(e.into()).into())
    }

    fn unchanged(&self) -> Result<(), GraphError> {
        self.reader.unchanged()
    }
}
