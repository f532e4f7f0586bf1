use std::path::{Path, PathBuf};

use expctl_pipeline::array::MDS_INDEX_FILE;
use expctl_pipeline::array::remote::check_url;
use expctl_pipeline::array::zarr::is_zarr;
use expctl_record::is_url;

/// The files that `named` stands for, below `root`: itself, or, where there is no such file and it has `*`, `?` or `[…]`, all
/// that fit, sorted by name. A folder in zarr, or with MDS shards, is one, too. A URL is itself: whether there is such an object
/// is seen when it is read.
///
/// # Errors
/// There is none, or it is no pattern; the message says which.
pub fn matching(root: &Path, named: &str) -> Result<Vec<PathBuf>, String> {
    if is_url(named) {
        return url(named).map(|()| vec![PathBuf::from(named)]);
    }
    let path = root.join(named);
    if is_file(&path) {
        return Ok(vec![path]);
    }
    if !named.contains(['*', '?', '[']) {
        return Err(format!("there is no file {named}"));
    }
    // What the root is called is no pattern.
    let pattern = if Path::new(named).is_absolute() {
        named.to_owned()
    } else {
        format!("{}/{named}", glob::Pattern::escape(&root.to_string_lossy()))
    };
    let found = glob::glob(&pattern).map_err(|e| format!("`{named}` is no pattern: {e}"))?;
    let files: Result<Vec<PathBuf>, _> = found.collect();
    let mut files = files.map_err(|e| e.to_string())?;
    files.retain(|file| is_file(file));
    files.sort();
    if files.is_empty() { Err(format!("no file is like {named}")) } else { Ok(files) }
}

/// A file, or a folder that is read as one.
fn is_file(path: &Path) -> bool {
    path.is_file() || is_zarr(path) || path.join(MDS_INDEX_FILE).is_file()
}

/// A URL that can be read without looking at it: one object, and no secret in it.
fn url(named: &str) -> Result<(), String> {
    check_url(named).map_err(|e| e.to_string())?;
    match named.contains(['*', '?', '[']) {
        true => Err(format!("{named}: patterns are for local files; objects are named one by one")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a[b]");
        std::fs::create_dir_all(root.join("data/c.h5ad")).unwrap();
        for name in ["data/b.h5ad", "data/a.h5ad", "data/a.txt", "data/[x].h5ad"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::create_dir_all(root.join("shards/b")).unwrap();
        std::fs::create_dir_all(root.join("shards/a/raw")).unwrap();
        std::fs::write(root.join("shards/b/index.json"), "").unwrap();
        let names = |named: &str| {
            let files = matching(&root, named)?;
            Ok(files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("data/*.h5ad"), Ok(vec!["[x].h5ad".to_owned(), "a.h5ad".to_owned(), "b.h5ad".to_owned()]));
        assert_eq!(names("data/[x].h5ad").unwrap(), ["[x].h5ad"]);
        assert_eq!(
            (names("shards/*").unwrap(), names("shards/b").unwrap()),
            (vec!["b".to_owned()], vec!["b".to_owned()])
        );
        let missing: Result<_, String> = names("data/d.h5ad");
        assert!(missing.unwrap_err().contains("there is no file"));
        assert!(names("data/*.zarr").unwrap_err().contains("no file is like"));
        for (folder, name) in
            [("x.zarr", "zarr.json"), ("x.zarr/dataset_0", "zarr.json"), ("y.zarr", ".zgroup"), ("z.zarr", "z")]
        {
            std::fs::create_dir_all(root.join("data").join(folder)).unwrap();
            std::fs::write(root.join("data").join(folder).join(name), "").unwrap();
        }
        assert_eq!(names("data/*.zarr").unwrap(), ["x.zarr", "y.zarr"]);
        assert_eq!(names("data/x.zarr/dataset_*").unwrap(), ["dataset_0"]);
        assert_eq!(names("data/y.zarr").unwrap(), ["y.zarr"]);
        assert!(names("data/[.h5ad").unwrap_err().contains("is no pattern"));
        assert_eq!(matching(&root, "s3://b/c.h5ad"), Ok(vec![PathBuf::from("s3://b/c.h5ad")]));
        assert!(matching(&root, "s3://b/*.h5ad").unwrap_err().contains("one by one"));
        assert!(!matching(&root, "https://u:hunter2@h/c.h5ad").unwrap_err().contains("hunter2"));
    }
}
