use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anndata_io::remote::{CacheOptions, remote_counts};
use cell_loader::{CellBatchOptions, CellBatcher, CellValues, RowSampler, Sharding};
use expctl_datasets::row_draw;
use expctl_settings::{ArrayFormat, Draw, Sampler};
use loader_core::{Loader, LoaderOptions};

use super::server::Fault;
use super::{FORMATS, everything, impatient, open, world};

#[test]
fn rows_are_those_of_the_local_files_over_s3_gs_and_http_direct_and_from_a_cache() {
    let world = world();
    let folder = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let local = everything(&*open(format, &world.files(format), impatient(8, None)).unwrap()).unwrap();
        assert!(local.2.len() > 1000 && local.2.iter().any(|bits| *bits != 0));
        let bucket = world.bucket(&format!("rows-{}", format.name().replace('_', "-")), format);
        for urls in [
            world.urls(format, |name| bucket.s3(name)),
            world.urls(format, |name| bucket.gs(name)),
            world.urls(format, |name| bucket.http(name)),
        ] {
            let cache = CacheOptions { folder: folder.path().to_owned(), bytes: 64 << 20 };
            for cache in [None, Some(cache.clone()), Some(cache)] {
                let remote = open(format, &urls, impatient(8, cache)).unwrap();
                assert!(everything(&*remote).unwrap() == local, "{} of {urls:?}", format.name());
            }
        }
        let counts = remote_counts();
        assert!(counts.hits > 0 && counts.cache_bytes > 0 && counts.retries == 0, "{counts:?}");
    }
}

/// Batches of three epochs.
fn batches(format: ArrayFormat, files: &[PathBuf], draw: Draw, requests: usize) -> Vec<(Vec<u64>, CellValues)> {
    let store = open(format, files, impatient(requests, None)).unwrap();
    let sharding = Sharding { seed: 3, rank: 0, world_size: 1, batch_size: 32, drop_last: false };
    let settings = Sampler { draw, chunk_rows: 48, chunks: 6, ..Sampler::default() };
    let sampler = Arc::new(RowSampler::new(&row_draw(&settings).unwrap(), &*store, sharding, None).unwrap());
    let steps = 3 * sampler.batches_per_epoch();
    let batcher = CellBatcher::new(store, sampler, &CellBatchOptions::default(), Arc::default()).unwrap();
    let options = LoaderOptions { workers: 2, steps, ..LoaderOptions::default() };
    let mut loader = Loader::start(batcher, options).unwrap();
    let mut all = Vec::new();
    while let Some(loaded) = loader.next_batch() {
        let loaded = loaded.unwrap();
        all.push((loaded.batch.rows.clone(), loaded.batch.values.clone()));
        loader.recycle(loaded.batch);
    }
    all
}

#[test]
fn batches_are_the_same_and_chunks_are_asked_for_ahead() {
    let world = world();
    for format in [ArrayFormat::H5ad, ArrayFormat::H5adGzip, ArrayFormat::ParquetSparse, ArrayFormat::H5adDense] {
        let bucket = world.bucket(&format!("loading-{}", format.name().replace('_', "-")), format);
        *bucket.faults.latency.lock().unwrap() = Duration::from_millis(5);
        *bucket.faults.every.lock().unwrap() = (11, vec![Fault::Status(503), Fault::Reset, Fault::Short]);
        let urls = world.urls(format, |name| bucket.http(name));
        for draw in [Draw::Chunked, Draw::Uniform, Draw::Sequential] {
            let local = batches(format, &world.files(format), draw, 12);
            bucket.faults.most.store(0, Ordering::SeqCst);
            assert!(batches(format, &urls, draw, 12) == local, "{} {draw:?}", format.name());
            let most = bucket.faults.most.load(Ordering::SeqCst);
            // Two threads alone would have 4 under way: indices and values of a part each.
            let ahead = draw == Draw::Chunked && format == ArrayFormat::H5ad;
            assert!(most <= 12 && (!ahead || most > 4), "{} {draw:?}: {most}", format.name());
        }
    }
}

fn open_error(url: PathBuf) -> String {
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
        let error = open_error(url.clone());
        assert!(error.contains(said) && !error.contains("hunter2"), "{}: {error}", url.display());
    }
}

#[test]
fn a_cache_that_cannot_be_is_an_error() {
    let world = world();
    let bucket = world.bucket("no-cache", ArrayFormat::H5ad);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let cache = |folder: PathBuf, bytes| CacheOptions { folder, bytes };
    for (cache, said) in [
        (cache(folder.path().join("file/below"), 64 << 20), "cannot create"),
        (cache(folder.path().to_owned(), 1 << 20), "has no room for blocks"),
    ] {
        let error = open(ArrayFormat::H5ad, &[bucket.s3("part-0000.h5ad")], impatient(4, Some(cache))).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

const PASSING_FAULTS: [Fault; 9] = [
    Fault::Status(500),
    Fault::Short,
    Fault::Status(503),
    Fault::Reset,
    Fault::Stall,
    Fault::Status(429),
    Fault::Late(Duration::from_millis(100)),
    Fault::Silence,
    Fault::Status(502),
];

#[test]
fn what_passes_leaves_the_same_rows() {
    let world = world();
    for (number, format) in [ArrayFormat::H5ad, ArrayFormat::ParquetSparse].into_iter().enumerate() {
        let local = everything(&*open(format, &world.files(format), impatient(8, None)).unwrap()).unwrap();
        let bucket = world.bucket(&format!("faults-{number}"), format);
        // How requests are grouped depends on when answers come, so one pass may meet nothing but late answers.
        let mut retries = 0;
        for urls in [world.urls(format, |name| bucket.s3(name)), world.urls(format, |name| bucket.http(name))] {
            *bucket.faults.every.lock().unwrap() = (3, PASSING_FAULTS.to_vec());
            let folder = tempfile::tempdir().unwrap();
            let cache = CacheOptions { folder: folder.path().to_owned(), bytes: 16 << 20 };
            for cache in [None, Some(cache)] {
                let remote = open(format, &urls, impatient(8, cache)).unwrap();
                assert!(everything(&*remote).unwrap() == local);
                retries += remote_counts().retries;
            }
        }
        assert!(retries > 0, "{}", format.name());
        // One burst after another on the same parts.
        *bucket.faults.every.lock().unwrap() = (0, Vec::new());
        bucket.faults.next.lock().unwrap().extend([Fault::Status(503); 4]);
        let urls = world.urls(format, |name| bucket.s3(name));
        assert!(everything(&*open(format, &urls, impatient(1, None)).unwrap()).unwrap() == local);
    }
}

#[test]
fn what_lasts_is_one_error_that_says_what_the_server_does() {
    let world = world();
    let format = ArrayFormat::H5ad;
    let bucket = world.bucket("lasting", format);
    let urls = world.urls(format, |name| bucket.s3(name));
    let cases: [(Fault, &[&str]); 6] = [
        (Fault::Status(503), &["503", "told to fail", "asked for 6 times"]),
        (Fault::Silence, &["an answer has not come for 500ms", "asked for 6 times"]),
        (Fault::Stall, &["the rest of an answer has not come for 500ms"]),
        (Fault::Short, &["where", "were asked for"]),
        (Fault::Status(403), &["access is denied", "403", "AWS_SESSION_TOKEN"]),
        (Fault::Status(400), &["400"]),
    ];
    for (fault, said) in cases {
        let store = open(format, &urls, impatient(8, None)).unwrap();
        *bucket.faults.every.lock().unwrap() = (1, vec![fault]);
        let before = Instant::now();
        let error = everything(&*store).unwrap_err().to_string();
        assert!(before.elapsed() < Duration::from_secs(30), "{fault:?}");
        *bucket.faults.every.lock().unwrap() = (0, Vec::new());
        for said in said.iter().chain(&["s3://lasting/part-000"]) {
            assert!(error.contains(said), "{fault:?}: {error}");
        }
        assert!(!error.contains(super::server::SECRET_KEY) && error.lines().count() == 1, "{error}");
        // The same store goes on where the server does.
        everything(&*store).unwrap();
        // And a file that is opened while it lasts tells the same, whoever reads it then.
        *bucket.faults.every.lock().unwrap() = (1, vec![fault]);
        let error = open(format, &world.urls(format, |name| bucket.http(name)), impatient(8, None)).unwrap_err();
        assert!(error.to_string().contains("/plain/lasting/part-0000.h5ad"), "{error}");
        *bucket.faults.every.lock().unwrap() = (0, Vec::new());
    }
}

#[test]
fn an_object_that_changes_is_an_error_and_never_other_numbers() {
    let world = world();
    for format in [ArrayFormat::H5ad, ArrayFormat::Parquet] {
        let files = world.files(format);
        let bucket = world.bucket(&format!("changes-{}", format.extension()), format);
        let name = files[1].file_name().unwrap().to_str().unwrap();
        for url in [bucket.s3(name), bucket.http(name)] {
            let local = everything(&*open(format, &files[1..], impatient(8, None)).unwrap()).unwrap();
            let store = open(format, std::slice::from_ref(&url), impatient(8, None)).unwrap();
            assert!(everything(&*store).unwrap() == local);
            let mut other = std::fs::read(&files[1]).unwrap();
            *other.last_mut().unwrap() ^= 1;
            bucket.put(name, &other);
            let error = everything(&*store).unwrap_err().to_string();
            assert!(
                error.contains("was rewritten while it was read") && error.contains(url.to_str().unwrap()),
                "{error}"
            );
            // Removed is changed, too; and a file that is opened now is another.
            std::fs::remove_file(bucket.path(name)).unwrap();
            let error = everything(&*store).unwrap_err().to_string();
            assert!(error.contains("was rewritten while it was read"), "{error}");
            bucket.put(name, &std::fs::read(&files[1]).unwrap());
            drop(store);
        }
    }
}
