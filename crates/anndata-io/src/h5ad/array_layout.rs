//! `OpenFile` asks libhdf5 for the dtype, shape, filters and fill value of a data set, and for the address of each chunk. The answer is a
//! `StoredArray`, which is read without libhdf5 from then on.
//! Invariant: all addresses lie inside the file; a layout that other bytes are needed for (external, virtual) is an error.

use hdf5_metno::dataset::Layout;
use hdf5_metno::sync::sync;
use hdf5_metno::{Dataset, File, Group, LocationType};
use hdf5_metno_sys::h5d;
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::{
    H5Pfill_value_defined, H5Pget_chunk_opts, H5Pget_external_count, H5Pget_fill_value, H5Pget_filter2, H5Pget_nfilters,
};
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_order_t, H5T_sign_t, H5Tclose, H5Tget_class, H5Tget_ebias, H5Tget_fields, H5Tget_offset,
    H5Tget_order, H5Tget_precision, H5Tget_sign, H5Tget_size, H5Tget_super, H5Tis_variable_str,
};

use crate::AnnDataError;
use crate::codec::CodecError;
use crate::codec::filter_chain::FilterChain;
use crate::error::DamageKind;
use crate::h5ad::file_driver::open_with_library;
use crate::matrix::dtype::{Dtype, DtypeKind};
use crate::matrix::stored_array::{
    ArrayLayout, ChunkGrid, ChunkTable, ChunkedLayout, ContiguousRun, LayoutError, StoredArray, StoredChunk,
    check_inside,
};
use crate::source::byte_source::ByteSource;

/// Bytes that an entry of a chunk index takes at least. With the size of the file it bounds the number of entries.
const MIN_INDEX_ENTRY_BYTES: u64 = 8;

/// Numbers of 64 bits in the reference to a string: its length, the address of a collection of the global heap, and the number of an object.
pub(crate) const REFERENCE_WORDS: u64 = 2;

/// Why libhdf5 cannot say what a node of a file is or where an array lies. Most texts are predicates of the node.
#[derive(Debug, thiserror::Error)]
pub enum Hdf5Error {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// libhdf5's own message.
    #[error("{message}")]
    Library { message: String },
    #[error("HDF5 cannot read it")]
    Unreadable,
    #[error("the HDF5 library cannot open it: {reason}")]
    NotOpened { reason: String },
    #[error("is not an HDF5 file: it has no HDF5 signature")]
    NoSignature,
    #[error("has sizes of {bytes} bytes; 8 are supported")]
    SizeBytes { bytes: u8 },
    #[error("has a damaged root group: {message}")]
    RootGroup { message: String },
    #[error("is neither a group nor a data set")]
    NodeType,
    #[error("cannot be opened: {message}")]
    Node { message: String },
    #[error("its attributes are damaged: {message}")]
    Attributes { message: String },
    #[error("its attribute {name} is damaged: {message}")]
    Attribute { name: String, message: String },
    #[error("its attribute {name} is no text, or damaged")]
    TextAttribute { name: String },
    #[error("its attribute {name} has no {count} whole numbers, or is damaged")]
    IntegerAttribute { name: String, count: usize },
    #[error("lies in another file (an external link): open that file")]
    ExternalLink,
    #[error("lies in another file (external storage), which is not supported")]
    ExternalStorage,
    #[error("is a virtual data set, which is not supported")]
    Virtual,
    #[error("has chunks without a size")]
    NoChunkSize,
    #[error("has more chunks than its file has place for")]
    EndlessIndex,
    #[error("has a chunk at {offset:?} of {bytes} bytes")]
    Chunk { offset: Vec<u64>, bytes: u64 },
    #[error("has a damaged index of chunks: {message}")]
    ChunkIndex { message: String },
    #[error("has a damaged fill value")]
    FillValue,
    #[error("has a damaged list of filters")]
    Filters,
    #[error("has more bytes than a compact data set can have")]
    CompactBytes,
    #[error("is of a damaged type")]
    Type,
    #[error("holds {content}")]
    NotNumbers { content: &'static str },
    #[error("has its bytes in an order that is not supported")]
    ByteOrder,
    #[error("has integers of {bits} bits in {bytes} bytes, which are not supported")]
    Integer { bits: usize, bytes: usize },
    #[error("has numbers of floating point of {bytes} bytes that are not IEEE half, single or double")]
    Float { bytes: usize },
}

impl From<hdf5_metno::Error> for Hdf5Error {
    #[cold]
    fn from(error: hdf5_metno::Error) -> Self {
        Self::Library { message: error.to_string() }
    }
}

/// An open file of libhdf5, which says where arrays lie.
pub(crate) struct OpenFile<'a> {
    pub source: &'a ByteSource,
    file: File,
    /// Number of the file in libhdf5, to detect links to other files.
    fileno: u64,
}

/// A node of the file.
pub(crate) enum NamedObject {
    Dataset(Dataset),
    Group(Group),
}

impl<'a> OpenFile<'a> {
    /// Opens the file of `source`.
    pub fn new(source: &'a ByteSource) -> Result<Self, AnnDataError> {
        Self::of(source, open_with_library(source.path())?)
    }

    /// The file of `source`, which libhdf5 has open.
    pub fn of(source: &'a ByteSource, file: File) -> Result<Self, AnnDataError> {
        let about = file.loc_info();
        let fileno = about.map_err(|e| source.damaged(Hdf5Error::RootGroup { message: e.to_string() }))?.fileno;
        Ok(Self { source, file, fileno })
    }

    /// The group of this name, if there is one.
    pub fn group(&self, name: &str) -> Option<Group> {
        self.file.group(name).ok()
    }

    /// Names of the nodes in the root group.
    pub fn names(&self) -> Result<Vec<String>, AnnDataError> {
        self.file.member_names().map_err(|e| self.source.damaged(Hdf5Error::RootGroup { message: e.to_string() }))
    }

    /// Whether there is a node at this path.
    pub fn has(&self, name: &str) -> bool {
        self.file.link_exists(name)
    }

    /// The data set or group at this path.
    pub fn object(&self, name: &str) -> Result<NamedObject, AnnDataError> {
        let found = match self.file.loc_type_by_name(name) {
            Ok(LocationType::Dataset) => self.file.dataset(name).map(NamedObject::Dataset),
            Ok(LocationType::Group) => self.file.group(name).map(NamedObject::Group),
            Ok(_) => return Err(self.wrong(name, Hdf5Error::NodeType)),
            Err(e) => Err(e),
        };
        found.map_err(|e| self.wrong(name, Hdf5Error::Node { message: e.to_string() }))
    }

    /// Shape of a data set with one or two dimensions.
    pub fn shape(&self, name: &str, dataset: &Dataset) -> Result<Vec<u64>, AnnDataError> {
        let shape = dataset.get_shape().map_err(|e| self.wrong(name, Hdf5Error::from(e)))?;
        Ok(shape.into_iter().map(|length| length as u64).collect())
    }

    /// Dtype, shape, fill value, filters and chunk table of a data set.
    pub fn describe(&self, name: &str, dataset: &Dataset) -> Result<StoredArray, AnnDataError> {
        // Several calls depend on each other, so the lock is held for all of them.
        sync(|| self.describe_locked(name, dataset)).map_err(|error| self.wrong(name, error))
    }

    /// The references of a data set of strings of variable length with one dimension, [`REFERENCE_WORDS`] words for each string. `None` if the
    /// data set is another one, or if only libhdf5 can find them.
    pub fn string_references(&self, dataset: &Dataset) -> Option<StoredArray> {
        sync(|| self.string_references_locked(dataset)).ok().flatten()
    }

    /// An error for a node of the file.
    pub fn wrong(&self, name: &str, damage: impl Into<DamageKind>) -> AnnDataError {
        self.source.damaged(DamageKind::inside(name, damage))
    }

    fn describe_locked(&self, name: &str, dataset: &Dataset) -> Result<StoredArray, Hdf5Error> {
        if dataset.loc_info()?.fileno != self.fileno {
            return Err(Hdf5Error::ExternalLink);
        }
        let shape: Vec<u64> = dataset.get_shape()?.into_iter().map(|length| length as u64).collect();
        let dtype = numeric_dtype(dataset.dtype()?.id())?;
        let size = dtype.size() as u64;
        let len = shape.iter().try_fold(1u64, |len, length| len.checked_mul(*length));
        let bytes = len.and_then(|len| len.checked_mul(size)).filter(|bytes| *bytes <= i64::MAX as u64);
        let (Some(len), Some(bytes)) = (len, bytes) else { return Err(LayoutError::Shape { shape }.into()) };
        if shape.is_empty() || shape.len() > 2 {
            return Err(LayoutError::Dimensions { dimensions: shape.len() }.into());
        }
        let plist = dataset.dcpl()?;
        // SAFETY: the list is open, here and below.
        if unsafe { H5Pget_external_count(plist.id()) } != 0 {
            return Err(Hdf5Error::ExternalStorage);
        }
        let fill_value = fill_value(plist.id(), dataset.dtype()?.id(), dtype)?;
        let (layout, stored_bytes) = match plist.layout() {
            Layout::Compact => (ArrayLayout::Inline(read_compact(dataset, len, dtype)?), bytes),
            Layout::Contiguous => self.contiguous(dataset, len, bytes)?,
            Layout::Chunked => self.chunked(dataset, plist.id(), &shape, dtype, 1)?,
            Layout::Virtual => return Err(Hdf5Error::Virtual),
        };
        Ok(StoredArray { name: name.to_owned(), dtype, len, fill_value, may_be_unwritten: false, stored_bytes, layout })
    }

    fn string_references_locked(&self, dataset: &Dataset) -> Result<Option<StoredArray>, Hdf5Error> {
        let shape = dataset.get_shape()?;
        let [count] = shape[..] else { return Ok(None) };
        let plist = dataset.dcpl()?;
        // SAFETY: type and list are open.
        let is_usual =
            unsafe { H5Tis_variable_str(dataset.dtype()?.id()) > 0 && H5Pget_external_count(plist.id()) == 0 };
        if !is_usual || dataset.loc_info()?.fileno != self.fileno {
            return Ok(None);
        }
        let dtype = Dtype { kind: DtypeKind::U64, big_endian: false };
        let len = (count as u64).checked_mul(REFERENCE_WORDS);
        let bytes = len.and_then(|len| len.checked_mul(dtype.size() as u64)).filter(|bytes| *bytes <= i64::MAX as u64);
        let (Some(len), Some(bytes)) = (len, bytes) else { return Ok(None) };
        let (layout, stored_bytes) = match plist.layout() {
            Layout::Contiguous => self.contiguous(dataset, len, bytes)?,
            Layout::Chunked => self.chunked(dataset, plist.id(), &[count as u64], dtype, REFERENCE_WORDS)?,
            Layout::Compact | Layout::Virtual => return Ok(None),
        };
        let (name, fill_value) = ("references".to_owned(), vec![0; dtype.size()]);
        let stored = StoredArray { name, dtype, len, fill_value, may_be_unwritten: false, stored_bytes, layout };
        Ok(Some(stored).filter(|stored| !stored.is_unfinished()))
    }

    fn contiguous(&self, dataset: &Dataset, len: u64, bytes: u64) -> Result<(ArrayLayout, u64), LayoutError> {
        if bytes == 0 {
            return Ok((ArrayLayout::Contiguous(Vec::new()), 0));
        }
        let Some(offset) = dataset.offset() else {
            return Ok((ArrayLayout::Contiguous(vec![ContiguousRun { end: len, base_offset: None }]), 0));
        };
        check_inside(offset, bytes, self.source.bytes())?;
        Ok((ArrayLayout::Contiguous(vec![ContiguousRun { end: len, base_offset: Some(offset as i64) }]), bytes))
    }

    /// The chunks of a data set of this shape. An element of it is read as `numbers` numbers of `dtype`.
    fn chunked(
        &self,
        dataset: &Dataset,
        plist: hid_t,
        shape: &[u64],
        dtype: Dtype,
        numbers: u64,
    ) -> Result<(ArrayLayout, u64), Hdf5Error> {
        let lengths = dataset.chunk().ok_or(Hdf5Error::NoChunkSize)?;
        let lengths: Vec<u64> = lengths.into_iter().map(|length| length as u64).collect();
        let size = dtype.size() as u64;
        let mut grid = ChunkGrid::new(shape, &lengths, size * numbers)?;
        grid.columns *= numbers;
        grid.chunk_columns *= numbers;
        if shape.contains(&0) {
            return Ok((ArrayLayout::Contiguous(Vec::new()), 0));
        }
        let filters = filter_chain(plist, dtype)?;
        let table = self.chunk_table(dataset, &lengths, &grid, shape)?;
        let mut options = 0;
        // SAFETY: the list is open; `options` is written to.
        let known = unsafe { H5Pget_chunk_opts(plist, &raw mut options) } >= 0;
        let plain_edge = known && options & h5d::H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS != 0;
        Ok(ChunkedLayout { grid, table, filters, plain_edge }.checked(size, self.source.bytes())?)
    }

    fn chunk_table(
        &self,
        dataset: &Dataset,
        lengths: &[u64],
        grid: &ChunkGrid,
        shape: &[u64],
    ) -> Result<ChunkTable, Hdf5Error> {
        let all = grid.chunks()?;
        let most = self.source.bytes() / MIN_INDEX_ENTRY_BYTES;
        // A matrix is read as one long row, so its chunks are counted along the first dimension.
        let split = matches!((shape, lengths), (&[_, columns], &[_, chunk_columns]) if columns != chunk_columns);
        let across = grid.across();
        let mut found = Vec::new();
        let mut wrong = None;
        let visited = dataset.chunks_visit(|info| {
            // A cyclic chunk index would never end.
            if found.len() as u64 >= most {
                wrong = Some(Hdf5Error::EndlessIndex);
                return -1;
            }
            let place = |i: usize| info.offset.get(i).copied().unwrap_or(0) / lengths.get(i).copied().unwrap_or(1);
            let number = if split {
                place(0).checked_mul(across).and_then(|first| first.checked_add(place(1)))
            } else {
                Some(place(0))
            };
            let chunk =
                u32::try_from(info.size).map(|bytes| StoredChunk { offset: info.addr, bytes, mask: info.filter_mask });
            match (number, chunk) {
                (Some(number), Ok(chunk)) => {
                    found.push((number, chunk));
                    0
                }
                _ => {
                    wrong = Some(Hdf5Error::Chunk { offset: info.offset.to_vec(), bytes: info.size });
                    -1
                }
            }
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        visited.map_err(|e| Hdf5Error::ChunkIndex { message: e.to_string() })?;
        Ok(ChunkTable::new(found, all)?)
    }
}

/// The fill value as bytes.
fn fill_value(plist: hid_t, type_id: hid_t, dtype: Dtype) -> Result<Vec<u8>, Hdf5Error> {
    let mut value = vec![0; dtype.size()];
    let mut status = h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
    // SAFETY: list and type are open; `status` and `value`, which has the size of the type, are written to.
    let read = unsafe {
        H5Pfill_value_defined(plist, &raw mut status) >= 0
            && (status == h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED
                || H5Pget_fill_value(plist, type_id, value.as_mut_ptr().cast()) >= 0)
    };
    if read { Ok(value) } else { Err(Hdf5Error::FillValue) }
}

/// The filters of a data set.
fn filter_chain(plist: hid_t, dtype: Dtype) -> Result<FilterChain, Hdf5Error> {
    /// Upper bound of the parameters of a filter.
    const VALUES: usize = 32;
    // SAFETY: the list is open.
    let count = unsafe { H5Pget_nfilters(plist) };
    let count = u32::try_from(count).map_err(|_| Hdf5Error::Filters)?;
    let mut filters = Vec::new();
    for i in 0..count {
        let (mut flags, mut config, mut values, mut len) = (0, 0, [0u32; VALUES], VALUES);
        // SAFETY: the list is open; `values` has space for `len` values; no name is requested.
        let id = unsafe {
            H5Pget_filter2(
                plist,
                i,
                &raw mut flags,
                &raw mut len,
                values.as_mut_ptr(),
                0,
                std::ptr::null_mut(),
                &raw mut config,
            )
        };
        if id < 0 {
            return Err(Hdf5Error::Filters);
        }
        filters.push((id, values[..len.min(VALUES)].to_vec()));
    }
    Ok(FilterChain::new(&filters, dtype.size())?)
}

/// All bytes of a compact data set, which lie in its object header and are at most 64 KiB.
fn read_compact(dataset: &Dataset, len: u64, dtype: Dtype) -> Result<Vec<u8>, Hdf5Error> {
    let bytes = len as usize * dtype.size();
    if bytes > 1 << 16 {
        return Err(Hdf5Error::CompactBytes);
    }
    let mut data = vec![0; bytes];
    let file_type = dataset.dtype()?;
    // SAFETY: the data set is open, has `bytes` bytes in its own type, and is read completely in that type.
    let read = unsafe {
        h5d::H5Dread(
            dataset.id(),
            file_type.id(),
            hdf5_metno_sys::h5s::H5S_ALL,
            hdf5_metno_sys::h5s::H5S_ALL,
            hdf5_metno_sys::h5p::H5P_DEFAULT,
            data.as_mut_ptr().cast(),
        )
    };
    if read < 0 { Err(Hdf5Error::Unreadable) } else { Ok(data) }
}

/// The dtype of an HDF5 type.
fn numeric_dtype(id: hid_t) -> Result<Dtype, Hdf5Error> {
    let not_numbers = |content| Err(Hdf5Error::NotNumbers { content });
    // SAFETY: the type is open, and these calls only inspect it; `base` is closed again.
    unsafe {
        match H5Tget_class(id) {
            H5T_class_t::H5T_INTEGER => integer_dtype(id),
            H5T_class_t::H5T_FLOAT => float_dtype(id),
            H5T_class_t::H5T_ENUM => {
                let base = H5Tget_super(id);
                let number = if base < 0 { Err(Hdf5Error::Type) } else { integer_dtype(base) };
                H5Tclose(base);
                number
            }
            H5T_class_t::H5T_STRING | H5T_class_t::H5T_VLEN => not_numbers("text, not numbers"),
            H5T_class_t::H5T_COMPOUND => not_numbers("records or complex numbers, not real numbers"),
            _ => not_numbers("no numbers"),
        }
    }
}

/// # Safety
/// `id` is an open type of a class that has a byte order.
unsafe fn big_endian(id: hid_t) -> Result<bool, Hdf5Error> {
    // SAFETY: promised by the caller.
    match unsafe { H5Tget_order(id) } {
        H5T_order_t::H5T_ORDER_LE => Ok(false),
        H5T_order_t::H5T_ORDER_BE => Ok(true),
        _ => Err(Hdf5Error::ByteOrder),
    }
}

/// # Safety
/// `id` is an open integer type.
unsafe fn integer_dtype(id: hid_t) -> Result<Dtype, Hdf5Error> {
    // SAFETY: promised by the caller.
    let (size, precision, offset, sign) =
        unsafe { (H5Tget_size(id), H5Tget_precision(id), H5Tget_offset(id), H5Tget_sign(id)) };
    let signed = sign == H5T_sign_t::H5T_SGN_2;
    let kind = match (size, signed) {
        (1, true) => DtypeKind::I8,
        (1, false) => DtypeKind::U8,
        (2, true) => DtypeKind::I16,
        (2, false) => DtypeKind::U16,
        (4, true) => DtypeKind::I32,
        (4, false) => DtypeKind::U32,
        (8, true) => DtypeKind::I64,
        (8, false) => DtypeKind::U64,
        _ => return Err(Hdf5Error::Integer { bits: precision, bytes: size }),
    };
    if precision != size * 8 || offset != 0 {
        return Err(Hdf5Error::Integer { bits: precision, bytes: size });
    }
    // SAFETY: promised by the caller.
    let big_endian = if size == 1 { false } else { unsafe { big_endian(id) }? };
    Ok(Dtype { kind, big_endian })
}

/// # Safety
/// `id` is an open floating-point type.
unsafe fn float_dtype(id: hid_t) -> Result<Dtype, Hdf5Error> {
    let [mut sign, mut exponent, mut exponent_bits, mut mantissa, mut mantissa_bits] = [0usize; 5];
    // SAFETY: promised by the caller; the five outputs are written to.
    let (size, bias, known) = unsafe {
        let known = H5Tget_fields(
            id,
            &raw mut sign,
            &raw mut exponent,
            &raw mut exponent_bits,
            &raw mut mantissa,
            &raw mut mantissa_bits,
        );
        (H5Tget_size(id), H5Tget_ebias(id), known >= 0)
    };
    let kind = match (size, sign, exponent, exponent_bits, mantissa, mantissa_bits, bias) {
        (2, 15, 10, 5, 0, 10, 15) if known => DtypeKind::F16,
        (4, 31, 23, 8, 0, 23, 127) if known => DtypeKind::F32,
        (8, 63, 52, 11, 0, 52, 1023) if known => DtypeKind::F64,
        _ => return Err(Hdf5Error::Float { bytes: size }),
    };
    // SAFETY: promised by the caller.
    Ok(Dtype { kind, big_endian: unsafe { big_endian(id) }? })
}
