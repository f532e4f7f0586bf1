//! What can go wrong with the files, the records and the options of batches.

use std::path::{Path, PathBuf};

use loader_core::LoaderError;

use crate::{OptionsError, RecordFormat};

/// What can go wrong between a record and its batch. Every variant names the file or record where there is one.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no store in a folder.
    #[error("there is no LMDB store in {}", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// A store is damaged, or LMDB refused to write to it.
    #[error("LMDB store {}: {problem}", path.display())]
    Lmdb {
        /// Folder of the store.
        path: PathBuf,
        /// What is wrong.
        problem: LmdbError,
    },
    /// The file of a store was written to, replaced or removed since it was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// Folder of the store.
        path: PathBuf,
    },
    /// A record does not have the documented content.
    #[error("record {index} of {}: {problem}", store.display())]
    Record {
        /// The store.
        store: PathBuf,
        /// Key of the record.
        index: u64,
        /// What is wrong with it.
        problem: RecordError,
    },
    /// The records of a store do not hold the masks that are asked for.
    #[error("{}: {problem}", store.display())]
    NoMasks {
        /// The store.
        store: PathBuf,
        /// Which masks are missing.
        problem: MissingMasks,
    },
    /// An edge type is to be merged that the graph does not have.
    #[error("the graph has no edge type `{name}` to merge")]
    UnknownEdgeType {
        /// The edge type.
        name: String,
    },
    /// Masks of single genes take more memory than they may.
    #[error(
        "a mask for each of {genes} genes over {edges} edges takes {:.1} MiB in each rank, and may take {:.1} MiB",
        mib(*needed),
        mib(*available)
    )]
    GeneMasksTooLarge {
        /// Genes of the graph.
        genes: usize,
        /// Edges of all types.
        edges: usize,
        /// Bytes that the masks take.
        needed: u64,
        /// Bytes that they may take.
        available: u64,
    },
    /// Options contradict each other.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The loader cannot deliver a batch.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// An error of a caller's own [`crate::Records`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The store has no record of this key.
    #[error("there is none; the store has {records}")]
    Missing {
        /// Records of the store.
        records: u64,
    },
    /// The pages that hold the record are not those of one value.
    #[error(transparent)]
    Pages(LmdbError),
    /// The text is not JSON of the documented layout.
    #[error(transparent)]
    Json(serde_json::Error),
    /// The text has a number that JSON does not have.
    #[error("a value is {number}, which is no JSON (Python writes it): {source}")]
    NotJson {
        /// `NaN` or `Infinity`.
        number: &'static str,
        /// The parser's message.
        source: serde_json::Error,
    },
    /// The label is not finite, or the p-value infinite.
    #[error("the label is {label}, the p-value {p_value}")]
    NotFinite {
        /// Gene interaction.
        label: f32,
        /// NaN if there is none.
        p_value: f32,
    },
    /// A record of gene ids has a length that no number of genes gives.
    #[error("{bytes} bytes, not 8 and 4 for each gene")]
    IdsLength {
        /// Bytes of the record.
        bytes: usize,
    },
    /// A gene is none of the graph's, or the genes do not ascend.
    #[error("gene {gene} is not one of {genes}, or not in order")]
    Gene {
        /// The gene.
        gene: i64,
        /// Genes of the graph.
        genes: usize,
    },
    /// An array of an NPZ record does not have the documented content.
    #[error("{array}: {problem}")]
    Array {
        /// Name of the array.
        array: String,
        /// What is wrong with it.
        problem: ArrayError,
    },
    /// The end of an NPZ record is not the directory of its arrays.
    #[error("the zip directory is not that of the arrays at byte {offset}")]
    Directory {
        /// Offset in the record.
        offset: usize,
    },
    /// Bytes follow the end of an NPZ record.
    #[error("{bytes} bytes behind the last array and the zip directory")]
    TrailingBytes {
        /// Number of bytes.
        bytes: usize,
    },
}

/// What is wrong with an array of an NPZ record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// The record is cut short.
    #[error("the record ends at {bytes} within the header")]
    HeaderCut {
        /// Bytes of the record.
        bytes: usize,
    },
    /// Another member of the archive, or one that is not stored as `numpy.savez` does.
    #[error("byte {offset} begins no stored zip member of this name")]
    NotThisMember {
        /// Offset in the record.
        offset: usize,
    },
    /// The member is longer than the record, or shorter than an npy header.
    #[error("{bytes} bytes, but the record has {available} from there on")]
    Truncated {
        /// Bytes of the member, by its zip header.
        bytes: u64,
        /// Bytes from the npy header to the end of the record.
        available: usize,
    },
    /// The npy header is of another type or shape.
    #[error("{bytes} bytes with no npy header of {dtype} of that length")]
    NpyHeader {
        /// Bytes behind the npy header.
        bytes: usize,
        /// The type that is expected, in numpy's notation.
        dtype: &'static str,
    },
    /// A number is not alone.
    #[error("{values} values instead of 1")]
    NotOneValue {
        /// Number of values.
        values: usize,
    },
    /// A coordinate that is always 0 has another value.
    #[error("not 0 alone")]
    NotZero,
    /// Lengths of masks are not those of the store's graph.
    #[error("not the lengths of the masks of this graph")]
    MaskLengths,
    /// A mask has another length than the entries that it is of.
    #[error("{bytes} bytes, not {expected}")]
    MaskBytes {
        /// Bytes of the mask.
        bytes: usize,
        /// Bytes that it should have.
        expected: usize,
    },
    /// A False position is none of the mask's, or positions do not ascend.
    #[error("position {position} is not one of {entries}, or not in order")]
    Position {
        /// The position.
        position: i64,
        /// Entries of the mask.
        entries: usize,
    },
    /// An entry of a mask of bytes is neither 0 nor 1.
    #[error("entry {entry} is {value}, not 0 or 1")]
    NotBool {
        /// The entry.
        entry: usize,
        /// Its value.
        value: u8,
    },
    /// Bits behind the last entry of a mask are set.
    #[error("bits behind the last of {entries} entries are set")]
    BitsBehindEnd {
        /// Entries of the mask.
        entries: usize,
    },
}

/// Masks that the records of a store do not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingMasks {
    /// Records of this format hold no masks.
    #[error("records of format {format:?} hold no masks")]
    Format {
        /// The format.
        format: RecordFormat,
    },
    /// The store was made without this edge type.
    #[error("the store has no masks of edge type `{name}`")]
    EdgeType {
        /// The edge type.
        name: String,
    },
    /// An edge type is asked for twice.
    #[error("edge type `{name}` is listed twice")]
    RepeatedEdgeType {
        /// The edge type.
        name: String,
    },
}

/// What is wrong with an LMDB file.
#[derive(Debug, thiserror::Error)]
pub enum LmdbError {
    /// A meta page cannot be used.
    #[error("meta page {page}: {problem}")]
    MetaPage {
        /// 0 or 1.
        page: u64,
        /// What is wrong with it.
        problem: MetaPageError,
    },
    /// The two meta pages contradict each other.
    #[error("the meta pages speak of pages of {first} and {second} bytes")]
    PageSizesDiffer {
        /// Bytes of a page by the first.
        first: u32,
        /// Bytes of a page by the second.
        second: u32,
    },
    /// The root of the tree does not fit its depth.
    #[error("a tree of {levels} levels with root {root}")]
    Root {
        /// Levels of the tree.
        levels: u16,
        /// Page of its root.
        root: u64,
    },
    /// A page number is not within the file, or stands in two nodes.
    #[error("page {page} of {pages} is pointed to, but cannot be or was met before")]
    PagePointer {
        /// The page.
        page: u64,
        /// Pages of the file.
        pages: u64,
    },
    /// A page of the tree is damaged.
    #[error("page {page} {problem}")]
    Page {
        /// The page.
        page: u64,
        /// What is wrong with it.
        problem: PageError,
    },
    /// A key is no decimal number.
    #[error("key `{key}` is no decimal number")]
    Key {
        /// The key, with what is no ASCII escaped.
        key: String,
    },
    /// The overflow pages of a value are not within the file, or belong to another value, too.
    #[error("the value of key {key}, {bytes} bytes at page {page}, is not within the file or overlaps another")]
    OverflowPages {
        /// The key.
        key: u64,
        /// Bytes of the value.
        bytes: u32,
        /// First of its pages.
        page: u64,
    },
    /// The tree has another number of keys than its meta page says.
    #[error("{found} keys, but its meta page says {expected}")]
    KeyCount {
        /// Keys of the tree.
        found: u64,
        /// Keys by the meta page.
        expected: u64,
    },
    /// Keys are not the numbers from 0 on.
    #[error("there is key {key}, but no key {missing}")]
    MissingKey {
        /// The next key.
        key: u64,
        /// The first number that is no key.
        missing: u64,
    },
    /// The file ends before a value does.
    #[error(transparent)]
    Read(std::io::Error),
    /// LMDB refused to write.
    #[error(transparent)]
    Write(heed::Error),
    /// LMDB did not create the database.
    #[error("the database was not created")]
    NotCreated,
}

/// What is wrong with a meta page of an LMDB file.
#[derive(Debug, thiserror::Error)]
pub enum MetaPageError {
    /// It cannot be read.
    #[error(transparent)]
    Read(std::io::Error),
    /// The file is of another kind.
    #[error("this is no LMDB file")]
    NotLmdb,
    /// The file is of another version of LMDB.
    #[error("LMDB format {found}, but only {supported} can be read")]
    Version {
        /// Version of the file.
        found: u32,
        /// The version that can be read.
        supported: u32,
    },
    /// Pages have a size that LMDB does not make.
    #[error("{bytes} is no size of a page")]
    PageSize {
        /// Bytes of a page.
        bytes: u32,
    },
    /// The database has sorted duplicates, or keys of another order.
    #[error("a database with flags {flags:#x} (sorted duplicates, integer or reverse keys) is no store")]
    DatabaseFlags {
        /// LMDB's flags.
        flags: u16,
    },
}

/// What is wrong with a page of an LMDB tree, as the end of a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page has the number of another one.
    #[error("says that it is page {found}")]
    Number {
        /// The number in its header.
        found: u64,
    },
    /// The page is of another kind.
    #[error("has flags {found:#x} instead of {expected:#x}")]
    Flags {
        /// Flags in its header.
        found: u16,
        /// Flags of the kind that belongs there.
        expected: u16,
    },
    /// The free space of the page is not within it.
    #[error("is free from {lower} to {upper}")]
    FreeSpace {
        /// Where it starts.
        lower: usize,
        /// Where it ends.
        upper: usize,
    },
    /// The page has no node.
    #[error("is empty")]
    Empty,
    /// A node is not within the page.
    #[error("has node {node} at {offset}, which is not within it")]
    Node {
        /// Index of the node.
        node: usize,
        /// Its offset in the page.
        offset: usize,
    },
    /// A value is not within the page.
    #[error("has the value of key {key}, which is not within it")]
    Value {
        /// The key.
        key: u64,
    },
    /// A node is no plain value.
    #[error("has key {key} with flags {flags:#x} (duplicates or a database), not a value")]
    NodeFlags {
        /// The key.
        key: u64,
        /// Flags of the node.
        flags: u16,
    },
    /// A page of a value's own is not the first of its pages.
    #[error("is not the first of a value")]
    NotFirst,
    /// A value does not fit into its pages.
    #[error("has a value of {bytes} bytes in {pages} page(s)")]
    ShortValue {
        /// Bytes of the value.
        bytes: u32,
        /// Pages that it has.
        pages: u32,
    },
}

impl LmdbError {
    /// The error of a store.
    #[cold]
    pub(crate) fn of_store(self, folder: &Path) -> GraphError {
        GraphError::Lmdb { path: folder.to_owned(), problem: self }
    }
}

impl GraphError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
