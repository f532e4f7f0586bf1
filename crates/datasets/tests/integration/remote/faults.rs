use std::time::{Duration, Instant};

use anndata_io::remote::{CacheOptions, remote_counts};
use expctl_settings::ArrayFormat;

use super::server::Fault;
use super::{everything, impatient, open, world};

const ALL: [Fault; 9] = [
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
            *bucket.faults.every.lock().unwrap() = (3, ALL.to_vec());
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
