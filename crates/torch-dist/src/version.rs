use crate::DistError;
use crate::ffi::bridge;

/// Version of libtorch that this process runs with, for example `2.11.0`.
///
/// The library itself reports it: `LD_LIBRARY_PATH` may have chosen another one than this program was built against. `unknown` if the library
/// does not say.
pub fn libtorch_version() -> String {
    let version = bridge::loaded_version();
    if version.is_empty() { "unknown".to_owned() } else { version }
}

/// The file of libtorch that this process runs with; empty if the loader does not report it.
pub fn libtorch_file() -> String {
    bridge::loaded_file()
}

/// Check that the loaded libtorch has the version that this program was built against. Objects cross the bridge by their layout in memory,
/// which may differ between versions.
///
/// # Errors
/// [`DistError::WrongLibtorch`] with both versions and the file that was loaded.
pub fn check_libtorch() -> Result<(), DistError> {
    compare(&bridge::compiled_version(), &libtorch_version(), &bridge::loaded_file())
}

fn compare(built: &str, loaded: &str, file: &str) -> Result<(), DistError> {
    if release(built) == release(loaded) {
        return Ok(());
    }
    Err(DistError::WrongLibtorch { built: built.to_owned(), loaded: loaded.to_owned(), file: file.to_owned() })
}

/// `2.11.0` for `2.11.0+cu130`: the suffix names a build, not another interface.
pub(crate) fn release(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_library_names_its_version_and_its_file() {
        assert_eq!(check_libtorch(), Ok(()));
        assert_eq!(release(&libtorch_version()), release(&bridge::compiled_version()));
        assert!(bridge::loaded_file().ends_with("libtorch_cpu.so"), "{}", bridge::loaded_file());
    }

    #[test]
    fn another_version_is_refused_and_another_build_is_not() {
        assert_eq!(compare("2.11.0", "2.11.0+cu130", "x"), Ok(()));
        let error = compare("2.11.0", "2.12.0", "/site/lib/libtorch_cpu.so").unwrap_err();
        assert_eq!(
            error.to_string(),
            "built against libtorch 2.11.0, but 2.12.0 was loaded from /site/lib/libtorch_cpu.so \
             (does LD_LIBRARY_PATH name it?)"
        );
        assert!(compare("2.11.0", "unknown", "x").is_err());
    }
}
