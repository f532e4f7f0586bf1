use std::path::PathBuf;

use expctl_settings::ArrayFormat;

use super::{impatient, open, world};

fn error(url: PathBuf) -> String {
    match open(ArrayFormat::H5ad, &[url], impatient(4, None)) {
        Ok(_) => panic!("it was opened"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let world = world();
    let bucket = world.bucket("errors", ArrayFormat::H5ad);
    bucket.put("text.h5ad", b"this is no HDF5 file");
    for (url, said) in [
        (bucket.s3("absent.h5ad"), "there is no such object"),
        (bucket.http("absent.h5ad"), "there is no such object"),
        (PathBuf::from("s3://no-such-bucket/a.h5ad"), "there is no such object"),
        (bucket.s3("text.h5ad"), "is not an HDF5 file"),
        (bucket.http("text.h5ad"), "is not an HDF5 file"),
        (PathBuf::from("s3://errors"), "is not s3://BUCKET/KEY"),
        (bucket.gs("absent.h5ad"), "there is no such object"),
        (PathBuf::from("gs://errors"), "is not gs://BUCKET/KEY"),
        (PathBuf::from("https://me:hunter2@127.0.0.1/a.h5ad"), "holds a user or a password"),
        (PathBuf::from("http://127.0.0.1:1/a.h5ad"), "asked for 5 times"),
    ] {
        let error = error(url.clone());
        assert!(error.contains(said) && !error.contains("hunter2"), "{}: {error}", url.display());
    }
}

#[test]
fn a_cache_that_cannot_be_is_an_error() {
    let world = world();
    let bucket = world.bucket("no-cache", ArrayFormat::H5ad);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let cache = |folder: PathBuf, bytes| anndata_io::remote::CacheOptions { folder, bytes };
    for (cache, said) in [
        (cache(folder.path().join("file/below"), 64 << 20), "cannot create"),
        (cache(folder.path().to_owned(), 1 << 20), "has no room for blocks"),
    ] {
        let error = open(ArrayFormat::H5ad, &[bucket.s3("part-0000.h5ad")], impatient(4, Some(cache))).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}
