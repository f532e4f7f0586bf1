//! `Driver` asks the CUDA driver (libcuda) directly: which GPUs are there, their properties, and the CUDA version that it supports. libtorch is not
//! needed for that, so a problem of the driver is named before libtorch's CUDA library is loaded.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::Library;

use crate::cuda::CudaError;

/// Name of the driver's library.
const LIBRARY: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];
/// `CUDA_ERROR_NO_DEVICE`: the driver has no GPU, or none is visible.
const NO_DEVICE: c_int = 100;

/// Properties of a GPU, as the driver reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuProperties {
    /// Index among the GPUs that this process sees.
    pub index: u32,
    /// Model.
    pub name: String,
    /// Identity, `GPU-…`.
    pub uuid: String,
    /// Address on the PCI bus.
    pub bus: String,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Compute capability, `9.0`.
    pub capability: String,
}

/// The driver, initialised. Source of names and signatures: `cuda.h` of CUDA 13.
///
/// The library is never unloaded: its threads run on.
#[derive(Debug)]
pub struct Driver {
    library: &'static Library,
    /// `1000 · major + 10 · minor`.
    version: c_int,
}

type Query<T> = unsafe extern "C" fn(*mut T, c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

impl Driver {
    /// Load and initialise it.
    pub fn open() -> Result<Self, CudaError> {
        // SAFETY: the driver's library may be loaded into any process.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|e| CudaError::NoDriver(e.to_string()))?;
        let mut driver = Self { library: Box::leak(Box::new(library)), version: 0 };
        // SAFETY: the signature is that of cuda.h.
        let init: libloading::Symbol<'_, unsafe extern "C" fn(c_uint) -> c_int> =
            unsafe { driver.symbol(b"cuInit\0") }?;
        // SAFETY: takes no pointer.
        let code = unsafe { init(0) };
        driver.check(code, "cuInit")?;
        let mut version = 0;
        // SAFETY: the signature is that of cuda.h, and the number lives for the call.
        let code = unsafe {
            let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
                driver.symbol(b"cuDriverGetVersion\0")?;
            ask(&raw mut version)
        };
        driver.check(code, "cuDriverGetVersion")?;
        driver.version = version;
        Ok(driver)
    }

    /// CUDA version that the driver supports.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// The GPUs that this process sees, in their order.
    pub fn gpus(&self) -> Result<Vec<GpuProperties>, CudaError> {
        let mut count = 0;
        // SAFETY: the signature is that of cuda.h, and the number lives for the call.
        let code = unsafe {
            let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
                self.symbol(b"cuDeviceGetCount\0")?;
            ask(&raw mut count)
        };
        self.check(code, "cuDeviceGetCount")?;
        (0..count).map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: c_int) -> Result<GpuProperties, CudaError> {
        let (mut device, mut memory, mut uuid) = (0 as c_int, 0usize, [0u8; 16]);
        let (mut name, mut bus) = ([0 as c_char; 256], [0 as c_char; 32]);
        let mut capability = [0 as c_int; 2];
        // SAFETY: the signatures are those of cuda.h; each buffer is as large as its function is told, a UUID is 16 bytes.
        unsafe {
            self.check(self.symbol::<Query<c_int>>(b"cuDeviceGet\0")?(&raw mut device, index), "cuDeviceGet")?;
            let bytes = self.symbol::<Query<usize>>(b"cuDeviceTotalMem_v2\0")?;
            self.check(bytes(&raw mut memory, device), "cuDeviceTotalMem")?;
            let identity = self.symbol::<Query<[u8; 16]>>(b"cuDeviceGetUuid_v2\0")?;
            self.check(identity(&raw mut uuid, device), "cuDeviceGetUuid")?;
            let called = self.symbol::<Text>(b"cuDeviceGetName\0")?;
            self.check(called(name.as_mut_ptr(), name.len() as c_int, device), "cuDeviceGetName")?;
            let address = self.symbol::<Text>(b"cuDeviceGetPCIBusId\0")?;
            self.check(address(bus.as_mut_ptr(), bus.len() as c_int, device), "cuDeviceGetPCIBusId")?;
            let ask =
                self.symbol::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(b"cuDeviceGetAttribute\0")?;
            for (to, attribute) in capability.iter_mut().zip(CAPABILITY) {
                self.check(ask(&raw mut *to, attribute, device), "cuDeviceGetAttribute")?;
            }
        }
        Ok(GpuProperties {
            index: index.cast_unsigned(),
            name: text(&name),
            uuid: uuid_text(&uuid),
            bus: text(&bus),
            memory_bytes: memory as u64,
            capability: format!("{}.{}", capability[0], capability[1]),
        })
    }

    /// # Safety
    /// `T` is the signature of the function.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Result<libloading::Symbol<'_, T>, CudaError> {
        // SAFETY: as the caller says.
        unsafe { self.library.get(name) }.map_err(|e| CudaError::Driver(e.to_string()))
    }

    fn check(&self, code: c_int, call: &str) -> Result<(), CudaError> {
        match code {
            0 => return Ok(()),
            NO_DEVICE => return Err(CudaError::no_device()),
            _ => {}
        }
        let mut message: *const c_char = std::ptr::null();
        // SAFETY: the signature is that of cuda.h; the text, if there is one, is a constant of the driver.
        let text = unsafe {
            let ask: libloading::Symbol<'_, unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int> =
                self.symbol(b"cuGetErrorString\0")?;
            ask(code, &raw mut message);
            if message.is_null() { None } else { Some(CStr::from_ptr(message).to_string_lossy().into_owned()) }
        };
        Err(CudaError::Driver(format!("{call}: {}", text.unwrap_or_else(|| format!("error {code}")))))
    }
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A UUID in the format of nvidia-smi.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// `13.0` for 13000.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_drivers_tools() {
        let mut bytes = [0u8; 16];
        bytes[0] = 0xab;
        bytes[15] = 1;
        assert_eq!(uuid_text(&bytes), "GPU-ab000000-0000-0000-0000-000000000001");
        assert_eq!((version_text(13000), version_text(12040)), ("13.0".to_owned(), "12.4".to_owned()));
        assert_eq!(text(&[72, 50, 0, 9]), "H2");
    }

    #[test]
    fn a_driver_shows_its_gpus_and_its_absence_is_told() {
        match Driver::open() {
            Ok(driver) => {
                let gpus = driver.gpus().unwrap();
                assert!(driver.version() >= 11000 && gpus.iter().all(|gpu| gpu.memory_bytes > 1 << 28), "{gpus:?}");
            }
            Err(CudaError::NoDriver(why)) => assert!(why.contains(LIBRARY), "{why}"),
            // A driver whose GPU is not there, as in some containers.
            Err(other) => assert!(matches!(other, CudaError::Driver(_) | CudaError::NoDevice(_)), "{other}"),
        }
    }
}
