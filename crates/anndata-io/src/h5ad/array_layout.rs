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
    H5Tget_order, H5Tget_precision, H5Tget_sign, H5Tget_size, H5Tget_super,
};

use crate::AnnDataError;
use crate::codec::filter_chain::FilterChain;
use crate::h5ad::file_driver::open_with_library;
use crate::matrix::dtype::{Dtype, DtypeKind};
use crate::matrix::stored_array::{
    ArrayLayout, ChunkGrid, ChunkTable, ChunkedLayout, ContiguousRun, MAX_CHUNK_BYTES, StoredArray, StoredChunk,
    contiguous_runs,
};
use crate::source::byte_source::ByteSource;

/// Upper bound of the entries of a chunk index.
const MIN_INDEX_ENTRY_BYTES: u64 = 8;

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
        let file = open_with_library(source.path())?;
        let fileno = file.loc_info().map_err(|e| source.damaged(format!("has a damaged root group: {e}")))?.fileno;
        Ok(Self { source, file, fileno })
    }

    /// The group of this name, if there is one.
    pub fn group(&self, name: &str) -> Option<Group> {
        self.file.group(name).ok()
    }

    /// Names of the nodes in the root group.
    pub fn names(&self) -> Result<Vec<String>, AnnDataError> {
        self.file.member_names().map_err(|e| self.source.damaged(format!("has a damaged root group: {e}")))
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
            Ok(_) => return Err(self.wrong(name, "is neither a group nor a data set")),
            Err(e) => Err(e),
        };
        found.map_err(|e| self.wrong(name, format!("cannot be opened: {e}")))
    }

    /// Shape of a data set with one or two dimensions.
    pub fn shape(&self, name: &str, dataset: &Dataset) -> Result<Vec<u64>, AnnDataError> {
        let shape = dataset.get_shape().map_err(|e| self.wrong(name, e))?;
        Ok(shape.into_iter().map(|length| length as u64).collect())
    }

    /// Dtype, shape, fill value, filters and chunk table of a data set.
    pub fn describe(&self, name: &str, dataset: &Dataset) -> Result<StoredArray, AnnDataError> {
        // Several calls depend on each other, so the lock is held for all of them.
        sync(|| self.describe_locked(name, dataset)).map_err(|reason| self.wrong(name, reason))
    }

    /// An error for a node of the file.
    pub fn wrong(&self, name: &str, reason: impl ToString) -> AnnDataError {
        self.source.damaged(format!("{name}: {}", reason.to_string()))
    }

    fn describe_locked(&self, name: &str, dataset: &Dataset) -> Result<StoredArray, String> {
        if dataset.loc_info().map_err(error_text)?.fileno != self.fileno {
            return Err("lies in another file (an external link): open that file".to_owned());
        }
        let shape: Vec<u64> =
            dataset.get_shape().map_err(error_text)?.into_iter().map(|length| length as u64).collect();
        let dtype = numeric_dtype(dataset.dtype().map_err(error_text)?.id())?;
        let size = dtype.size() as u64;
        let len = shape.iter().try_fold(1u64, |len, length| len.checked_mul(*length));
        let Some((len, bytes)) = len.and_then(|len| Some((len, len.checked_mul(size)?))) else {
            return Err(format!("has a shape of {shape:?}, which no file can hold"));
        };
        if bytes > i64::MAX as u64 {
            return Err(format!("has a shape of {shape:?}, which no file can hold"));
        }
        if shape.is_empty() || shape.len() > 2 {
            return Err(format!("has {} dimensions instead of one or two", shape.len()));
        }
        let plist = dataset.dcpl().map_err(error_text)?;
        // SAFETY: the list is open, here and below.
        if unsafe { H5Pget_external_count(plist.id()) } != 0 {
            return Err("lies in another file (external storage), which is not supported".to_owned());
        }
        let fill_value = fill_value(plist.id(), dataset.dtype().map_err(error_text)?.id(), dtype)?;
        let (layout, stored_bytes) = match plist.layout() {
            Layout::Compact => (ArrayLayout::Inline(read_compact(dataset, len, dtype)?), bytes),
            Layout::Contiguous => self.contiguous(dataset, len, bytes)?,
            Layout::Chunked => self.chunked(dataset, plist.id(), &shape, dtype)?,
            Layout::Virtual => return Err("is a virtual data set, which is not supported".to_owned()),
        };
        Ok(StoredArray { name: name.to_owned(), dtype, len, fill_value, may_be_unwritten: false, stored_bytes, layout })
    }

    fn contiguous(&self, dataset: &Dataset, len: u64, bytes: u64) -> Result<(ArrayLayout, u64), String> {
        if bytes == 0 {
            return Ok((ArrayLayout::Contiguous(Vec::new()), 0));
        }
        let Some(offset) = dataset.offset() else {
            return Ok((ArrayLayout::Contiguous(vec![ContiguousRun { end: len, base_offset: None }]), 0));
        };
        self.inside(offset, bytes)?;
        Ok((ArrayLayout::Contiguous(vec![ContiguousRun { end: len, base_offset: Some(offset as i64) }]), bytes))
    }

    fn inside(&self, offset: u64, bytes: u64) -> Result<(), String> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.source.bytes() => Ok(()),
            _ => Err(format!(
                "reaches beyond the end of the file: {bytes} bytes at {offset} of {} (is it cut short?)",
                self.source.bytes()
            )),
        }
    }

    fn chunked(
        &self,
        dataset: &Dataset,
        plist: hid_t,
        shape: &[u64],
        dtype: Dtype,
    ) -> Result<(ArrayLayout, u64), String> {
        let lengths = dataset.chunk().ok_or("has chunks without a size")?;
        let lengths: Vec<u64> = lengths.into_iter().map(|length| length as u64).collect();
        let size = dtype.size() as u64;
        let bytes = lengths.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
        let bytes = match bytes {
            Some(bytes) if bytes > 0 && bytes <= MAX_CHUNK_BYTES && lengths.len() == shape.len() => bytes,
            _ => return Err(format!("has chunks of {lengths:?}: more than {MAX_CHUNK_BYTES} bytes are not supported")),
        };
        let grid = ChunkGrid::new(shape, &lengths).ok_or("has chunks of other dimensions")?;
        if shape.contains(&0) {
            return Ok((ArrayLayout::Contiguous(Vec::new()), 0));
        }
        let all = grid.chunks().ok_or("has more chunks than can be counted")?;
        let filters = filter_chain(plist, dtype)?;
        let table = self.chunk_table(dataset, &lengths, &grid, all, shape)?;
        let mut options = 0;
        // SAFETY: the list is open; `options` is written to.
        let known = unsafe { H5Pget_chunk_opts(plist, &raw mut options) } >= 0;
        let plain_edge = known && options & h5d::H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS != 0;
        let mut total = 0u64;
        for (number, chunk) in table.iter() {
            let stored = u64::from(chunk.bytes);
            self.inside(chunk.offset, stored).map_err(|reason| format!("chunk {number} {reason}"))?;
            let plain = filters.is_empty() || plain_edge && grid.is_edge(number);
            if plain && stored != bytes || filters.max_decoded_bytes(stored) < bytes {
                return Err(format!("chunk {number} has {stored} bytes in the file and cannot be of {bytes}"));
            }
            total += stored;
        }
        if total > self.source.bytes() {
            return Err(format!("has chunks of {total} bytes in a file of {}", self.source.bytes()));
        }
        if filters.is_empty() && grid.rows == 1 {
            return Ok((ArrayLayout::Contiguous(contiguous_runs(&table, &grid, size)), total));
        }
        Ok((ArrayLayout::Chunked(ChunkedLayout { grid, table, filters, plain_edge }), total))
    }

    fn chunk_table(
        &self,
        dataset: &Dataset,
        lengths: &[u64],
        grid: &ChunkGrid,
        all: u64,
        shape: &[u64],
    ) -> Result<ChunkTable, String> {
        let most = self.source.bytes() / MIN_INDEX_ENTRY_BYTES;
        // A matrix is read as one long row, so its chunks are counted along the first dimension.
        let split = matches!((shape, lengths), (&[_, columns], &[_, chunk_columns]) if columns != chunk_columns);
        let across = grid.across();
        let mut found = Vec::new();
        let mut wrong = None;
        let visited = dataset.chunks_visit(|info| {
            // A cyclic chunk index would never end.
            if found.len() as u64 >= most {
                wrong = Some("has more chunks than its file has place for".to_owned());
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
                    wrong = Some(format!("has a chunk at {:?} of {} bytes", info.offset, info.size));
                    -1
                }
            }
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        visited.map_err(|e| format!("has a damaged index of chunks: {e}"))?;
        ChunkTable::new(found, all)
    }
}

/// The fill value as bytes.
fn fill_value(plist: hid_t, type_id: hid_t, dtype: Dtype) -> Result<Vec<u8>, String> {
    let mut value = vec![0; dtype.size()];
    let mut status = h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
    // SAFETY: list and type are open; `status` and `value`, which has the size of the type, are written to.
    let read = unsafe {
        H5Pfill_value_defined(plist, &raw mut status) >= 0
            && (status == h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED
                || H5Pget_fill_value(plist, type_id, value.as_mut_ptr().cast()) >= 0)
    };
    if read { Ok(value) } else { Err("has a damaged fill value".to_owned()) }
}

/// The filters of a data set.
fn filter_chain(plist: hid_t, dtype: Dtype) -> Result<FilterChain, String> {
    /// Upper bound of the parameters of a filter.
    const VALUES: usize = 32;
    // SAFETY: the list is open.
    let count = unsafe { H5Pget_nfilters(plist) };
    let count = u32::try_from(count).map_err(|_| "has a damaged list of filters")?;
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
            return Err("has a damaged list of filters".to_owned());
        }
        filters.push((id, values[..len.min(VALUES)].to_vec()));
    }
    FilterChain::new(&filters, dtype.size())
}

/// All bytes of a compact data set, which lie in its object header and are at most 64 KiB.
fn read_compact(dataset: &Dataset, len: u64, dtype: Dtype) -> Result<Vec<u8>, String> {
    let bytes = len as usize * dtype.size();
    if bytes > 1 << 16 {
        return Err("has more bytes than a compact data set can have".to_owned());
    }
    let mut data = vec![0; bytes];
    let file_type = dataset.dtype().map_err(error_text)?;
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
    if read < 0 { Err("cannot be read".to_owned()) } else { Ok(data) }
}

fn error_text(e: hdf5_metno::Error) -> String {
    e.to_string()
}

/// The dtype of an HDF5 type; `Err` describes a type that is not supported.
fn numeric_dtype(id: hid_t) -> Result<Dtype, String> {
    // SAFETY: the type is open, and these calls only inspect it; `base` is closed again.
    unsafe {
        match H5Tget_class(id) {
            H5T_class_t::H5T_INTEGER => integer_dtype(id),
            H5T_class_t::H5T_FLOAT => float_dtype(id),
            H5T_class_t::H5T_ENUM => {
                let base = H5Tget_super(id);
                let number = if base < 0 { Err("is of a damaged type".to_owned()) } else { integer_dtype(base) };
                H5Tclose(base);
                number
            }
            H5T_class_t::H5T_STRING | H5T_class_t::H5T_VLEN => Err("holds text, not numbers".to_owned()),
            H5T_class_t::H5T_COMPOUND => Err("holds records or complex numbers, not real numbers".to_owned()),
            _ => Err("holds no numbers".to_owned()),
        }
    }
}

/// # Safety
/// `id` is an open type of a class that has a byte order.
unsafe fn big_endian(id: hid_t) -> Result<bool, String> {
    // SAFETY: promised by the caller.
    match unsafe { H5Tget_order(id) } {
        H5T_order_t::H5T_ORDER_LE => Ok(false),
        H5T_order_t::H5T_ORDER_BE => Ok(true),
        _ => Err("has its bytes in an order that is not supported".to_owned()),
    }
}

/// # Safety
/// `id` is an open integer type.
unsafe fn integer_dtype(id: hid_t) -> Result<Dtype, String> {
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
        _ => return Err(format!("has integers of {size} bytes, which are not supported")),
    };
    if precision != size * 8 || offset != 0 {
        return Err(format!("has integers of {precision} bits in {size} bytes, which are not supported"));
    }
    // SAFETY: promised by the caller.
    let big_endian = if size == 1 { false } else { unsafe { big_endian(id) }? };
    Ok(Dtype { kind, big_endian })
}

/// # Safety
/// `id` is an open floating-point type.
unsafe fn float_dtype(id: hid_t) -> Result<Dtype, String> {
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
        _ => {
            return Err(format!(
                "has numbers of floating point of {size} bytes that are not IEEE half, single or double"
            ));
        }
    };
    // SAFETY: promised by the caller.
    Ok(Dtype { kind, big_endian: unsafe { big_endian(id) }? })
}
