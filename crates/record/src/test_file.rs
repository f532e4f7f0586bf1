use std::path::Path;

/// Write `text` to a file of a test, with its folders.
pub(crate) fn file(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
