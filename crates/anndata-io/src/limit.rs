use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::AnnDataError;

/// Descriptors that are left for everything else.
const OTHERS: u64 = 256;

/// Let this process hold `files` files open. What it may hold is often 1,024, far below what it may ask for.
///
/// # Errors
/// The system does not let it hold as many.
pub(crate) fn allow_open_files(files: usize) -> Result<(), AnnDataError> {
    let needed = files as u64 + OTHERS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if needed <= soft || (needed <= hard && setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_ok()) {
        return Ok(());
    }
    Err(AnnDataError::Invalid(format!(
        "{files} files need {needed} descriptors, and this process may have {hard}; raise the limit (`ulimit -n`), or convert \
         them to fewer files"
    )))
}
