use crate::ffi::bridge;

/// Version of libtorch, for example `2.11.0`.
pub fn libtorch_version() -> String {
    bridge::version()
}
