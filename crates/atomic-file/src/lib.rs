use std::io::Write;
use std::path::Path;

use crate::RecordError;

/// Write a file so that readers see either the old content or the whole new one.
///
/// The temporary file lies in the same folder, so the rename stays on one file system.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(RecordError::io("create", folder))?;
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .permissions(permissions())
        .tempfile_in(folder)
        .map_err(RecordError::io("write", path))?;
    file.write_all(content).map_err(RecordError::io("write", path))?;
    // On disk before the rename is: a node that loses power must not leave an empty file under the final name.
    file.as_file().sync_all().map_err(RecordError::io("write", path))?;
    file.persist(path).map_err(|e| RecordError::Io { action: "write", path: path.to_owned(), source: e.error })?;
    Ok(())
}

/// [`write_atomic`] of `value` as indented JSON.
pub fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), RecordError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|source| RecordError::Json { path: path.to_owned(), source })?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Readable by all before the umask: a ledger on a shared file system is read by colleagues.
fn permissions() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o666)
}
