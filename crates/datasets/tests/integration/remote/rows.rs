use anndata_io::remote::{CacheOptions, remote_counts};

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
