//! Arrays as DLPack capsules, which NumPy, PyTorch, JAX and CuPy take without a copy.
//!
//! Source: `dlpack.h` 1.0, <https://dmlc.github.io/dlpack/latest/c_api.html>, and its Python specification. The buffer protocol is
//! not part of the stable ABI of Python 3.10, and knows no devices.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::prelude::*;

use crate::error::BindingError;

/// What keeps the memory of an array alive.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Type of the values of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    Float32,
    Float64,
    Int32,
    Int64,
    UInt8,
}

impl ElementType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
        }
    }

    fn dlpack(self) -> DataType {
        let (code, bits) = match self {
            Self::Float32 => (2, 32),
            Self::Float64 => (2, 64),
            Self::Int32 => (0, 32),
            Self::Int64 => (0, 64),
            Self::UInt8 => (1, 8),
        };
        DataType { code, bits, lanes: 1 }
    }
}

/// A type that an array can have.
pub trait Element: Copy {
    const TYPE: ElementType;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::Float32;
}
impl Element for f64 {
    const TYPE: ElementType = ElementType::Float64;
}
impl Element for i32 {
    const TYPE: ElementType = ElementType::Int32;
}
impl Element for i64 {
    const TYPE: ElementType = ElementType::Int64;
}
/// Masks, too: DLPack has truth values, but not for every library that takes these arrays.
impl Element for u8 {
    const TYPE: ElementType = ElementType::UInt8;
}
/// Row numbers: below 2⁶³, and int64 is the type of indices everywhere.
impl Element for u64 {
    const TYPE: ElementType = ElementType::Int64;
}

/// An array of one or two dimensions in C order, without its memory.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView {
    data: *mut c_void,
    shape: [i64; 2],
    dimensions: usize,
    dtype: ElementType,
}

// SAFETY: the view is an address; who reads or writes there is the business of the Python program that the array is lent to.
unsafe impl Send for ArrayView {}
// SAFETY: as above.
unsafe impl Sync for ArrayView {}

impl ArrayView {
    /// All values of a vector, whose memory must neither move nor be freed while its owner lives.
    pub fn of<T: Element>(values: &mut Vec<T>) -> Self {
        let shape = [values.len() as i64, 1];
        Self { data: values.as_mut_ptr().cast(), shape, dimensions: 1, dtype: T::TYPE }
    }

    /// As [`ArrayView::of`], as a matrix of `rows` rows.
    pub fn matrix<T: Element>(values: &mut Vec<T>, rows: usize, columns: usize) -> Self {
        debug_assert_eq!(values.len(), rows * columns);
        Self { shape: [rows as i64, columns as i64], dimensions: 2, ..Self::of(values) }
    }

    /// Words of bits, `[rows, words]`, as a matrix of bytes `[rows, 8 · words]`: bit i of byte j is bit 8·j + i of the row.
    pub fn bytes_of_words(words: &mut Vec<u64>, rows: usize, row_words: usize) -> Self {
        debug_assert_eq!(words.len(), rows * row_words);
        // The bytes of a word are in this order on every processor that the loaders run on.
        const { assert!(cfg!(target_endian = "little")) }
        let shape = [rows as i64, 8 * row_words as i64];
        Self { data: words.as_mut_ptr().cast(), shape, dimensions: 2, dtype: ElementType::UInt8 }
    }

    pub fn len(&self) -> i64 {
        self.shape[0]
    }

    /// The values, if they are int64 of one dimension.
    ///
    /// # Safety
    /// The owner of the memory lives as long as the slice, and nobody writes to it meanwhile.
    pub unsafe fn int64<'a>(&self) -> Option<&'a [i64]> {
        let is_list = self.dtype == ElementType::Int64 && self.dimensions == 1;
        // SAFETY: the view is that of a vector of so many values of this type.
        is_list.then(|| unsafe { std::slice::from_raw_parts(self.data.cast(), self.shape[0] as usize) })
    }

    /// A capsule, which keeps `owner` alive until whoever takes the array has freed it.
    pub fn capsule<'py>(&self, py: Python<'py>, owner: Owner, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
        if versioned {
            let head = ManagedTensorVersioned {
                version: DlpackVersion { major: 1, minor: 0 },
                context: std::ptr::null_mut(),
                deleter: Some(delete::<ManagedTensorVersioned>),
                flags: 0,
                tensor: self.tensor(),
            };
            new_capsule(py, head, self, owner)
        } else {
            let head = ManagedTensor {
                tensor: self.tensor(),
                context: std::ptr::null_mut(),
                deleter: Some(delete::<ManagedTensor>),
            };
            new_capsule(py, head, self, owner)
        }
    }

    /// The array without its shape, which lies in the [`Export`].
    fn tensor(&self) -> Tensor {
        Tensor {
            data: self.data,
            device: CPU,
            dimensions: self.dimensions as i32,
            dtype: self.dtype.dlpack(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    number: i32,
}

const CPU: Device = Device { kind: 1, number: 0 };

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

#[repr(C)]
struct DlpackVersion {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct ManagedTensorVersioned {
    version: DlpackVersion,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// One of the two structs that a capsule can hold.
trait Managed: 'static {
    /// Name of a capsule that nobody has taken yet.
    const NAME: &'static CStr;
    fn tensor(&mut self) -> &mut Tensor;
}

impl Managed for ManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

impl Managed for ManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

/// What a capsule points to: the struct of DLPack first, so that its address is that of the whole.
#[repr(C)]
struct Export<M> {
    head: M,
    shape: [i64; 2],
    strides: [i64; 2],
    owner: Owner,
}

fn new_capsule<'py, M: Managed>(
    py: Python<'py>,
    head: M,
    view: &ArrayView,
    owner: Owner,
) -> PyResult<Bound<'py, PyAny>> {
    // In C order; of one dimension the second entries do not count.
    let strides = [if view.dimensions == 1 { 1 } else { view.shape[1] }, 1];
    let export = Box::into_raw(Box::new(Export { head, shape: view.shape, strides, owner }));
    // SAFETY: `export` is valid and ours; shape and strides lie in it and live as long. The name is static, and the destructor
    // frees `export` unless the capsule was taken and renamed.
    unsafe {
        let (shape, strides) = (&raw mut (*export).shape, &raw mut (*export).strides);
        let tensor = (*export).head.tensor();
        tensor.shape = shape.cast();
        tensor.strides = strides.cast();
        let capsule = pyo3::ffi::PyCapsule_New(export.cast(), M::NAME.as_ptr(), Some(destroy_capsule::<M>));
        if capsule.is_null() {
            drop(Box::from_raw(export));
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Free an export: the array was freed by who took it.
///
/// # Safety
/// `head` is that of an [`Export`] of [`new_capsule`], and not used afterwards.
unsafe extern "C" fn delete<M: Managed>(head: *mut M) {
    // SAFETY: as the caller promises; `head` is the first field.
    drop(unsafe { Box::from_raw(head.cast::<Export<M>>()) });
}

/// Free the export of a capsule that nobody has taken.
///
/// # Safety
/// Python calls it once, for a capsule of [`new_capsule`].
unsafe extern "C" fn destroy_capsule<M: Managed>(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: a capsule with its first name still holds its export.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            let head = pyo3::ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr());
            delete::<M>(head.cast());
        }
    }
}

/// An array in memory of the loaders, for whoever speaks DLPack: `numpy.from_dlpack(array)`, `torch.from_dlpack(array)`.
#[pyclass(name = "Tensor", module = "expctl._native", frozen)]
pub struct NativeTensor {
    view: ArrayView,
    owner: Owner,
}

impl NativeTensor {
    pub fn new(view: ArrayView, owner: Owner) -> Self {
        Self { view, owner }
    }

    /// An array that owns its memory.
    pub fn owned<T: Element + Send + Sync + 'static>(mut values: Vec<T>) -> Self {
        let view = ArrayView::of(&mut values);
        Self { view, owner: Arc::new(values) }
    }

    /// As [`NativeTensor::owned`], as a matrix of `rows` rows.
    pub fn owned_matrix<T: Element + Send + Sync + 'static>(mut values: Vec<T>, rows: usize) -> Self {
        let columns = values.len() / rows;
        let view = ArrayView::matrix(&mut values, rows, columns);
        Self { view, owner: Arc::new(values) }
    }
}

#[pymethods]
impl NativeTensor {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|device| device != (CPU.kind, CPU.number)) || copy == Some(true) {
            return Err(BindingError::OtherDevice.into());
        }
        self.view.capsule(py, Arc::clone(&self.owner), max_version.is_some_and(|(major, _)| major >= 1))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU.kind, CPU.number)
    }

    /// Length of each dimension.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.view.shape[..self.view.dimensions].to_vec()
    }

    /// Type of the values.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.view.dtype.name()
    }

    fn __len__(&self) -> usize {
        self.view.shape[0] as usize
    }

    fn __repr__(&self) -> String {
        format!("Tensor(shape={:?}, dtype={})", self.shape(), self.view.dtype.name())
    }
}
