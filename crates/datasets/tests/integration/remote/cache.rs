use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anndata_io::remote::{CacheOptions, remote_counts};
use expctl_settings::ArrayFormat;

use super::{everything, impatient, open, world};

const FORMAT: ArrayFormat = ArrayFormat::H5adDense;

fn options(folder: &Path, mib: u64) -> CacheOptions {
    CacheOptions { folder: folder.to_owned(), bytes: mib << 20 }
}

/// Bytes that a folder's files have, and that they take on the disk.
fn size(folder: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    files.fold((0, 0), |(bytes, disk), about| (bytes + about.len(), disk + about.blocks() * 512))
}

/// Says that something has ended, however it did.
struct End<'d>(&'d AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Run `work` and look all the time how large a folder is; returns the most that it was.
fn watched(folder: &Path, work: impl FnOnce()) -> (u64, u64) {
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watch = threads.spawn(|| {
            let mut most = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let now = size(folder);
                most = (most.0.max(now.0), most.1.max(now.1));
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let end = End(&done);
        work();
        drop(end);
        watch.join().unwrap()
    })
}

#[test]
fn a_warm_cache_needs_no_server_and_one_that_is_too_small_stays_small() {
    let world = world();
    let bucket = world.bucket("cached", FORMAT);
    let urls = world.urls(FORMAT, |name| bucket.s3(name));
    let local = everything(&*open(FORMAT, &world.files(FORMAT), impatient(8, None)).unwrap()).unwrap();
    for (mib, warm) in [(64, true), (3, false)] {
        // A cache of another size goes when nobody has it open, which may be a while after the last read.
        let folder = tempfile::tempdir().unwrap();
        let most = watched(folder.path(), || {
            for again in [false, true] {
                // Another cache in between: the process knows nothing of the first run any more.
                open(FORMAT, &world.files(FORMAT), impatient(7, None)).unwrap();
                let store = open(FORMAT, &urls, impatient(8, Some(options(folder.path(), mib)))).unwrap();
                let before = bucket.requests();
                assert!(everything(&*store).unwrap() == local);
                if again {
                    assert_eq!(bucket.requests() == before, warm, "{:?}", remote_counts());
                }
            }
        });
        assert!(most.0 <= mib << 20 && most.1 <= mib << 20 && most.1 > 1 << 20, "{most:?}");
    }
}

/// What a process of its own does: read all, three times.
#[test]
fn child() {
    let Ok(folder) = std::env::var("EXPCTL_TEST_CACHE") else { return };
    let urls: Vec<PathBuf> = std::env::var("EXPCTL_TEST_URLS").unwrap().split(' ').map(PathBuf::from).collect();
    let mut all = Vec::new();
    for _ in 0..3 {
        let store = open(FORMAT, &urls, impatient(4, Some(options(Path::new(&folder), 4)))).unwrap();
        all.push(everything(&*store).unwrap());
    }
    assert!(all.iter().all(|one| *one == all[0]));
    let bytes: Vec<u8> = all[0].2.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    std::fs::write(std::env::var("EXPCTL_TEST_SUM").unwrap(), crc32fast::hash(&bytes).to_string()).unwrap();
}

#[test]
fn processes_share_a_cache_and_one_that_is_killed_harms_nobody() {
    let world = world();
    let bucket = world.bucket("shared", FORMAT);
    *bucket.faults.latency.lock().unwrap() = Duration::from_millis(2);
    let urls = world.urls(FORMAT, |name| bucket.http(name));
    let (_, _, rows) = everything(&*open(FORMAT, &world.files(FORMAT), impatient(8, None)).unwrap()).unwrap();
    let bytes: Vec<u8> = rows.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let expected = crc32fast::hash(&bytes).to_string();
    let (folder, sums) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |number: usize| -> Child {
        let urls: Vec<&str> = urls.iter().map(|url| url.to_str().unwrap()).collect();
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "remote::cache::child", "--test-threads=1"])
            .env("EXPCTL_TEST_CACHE", folder.path())
            .env("EXPCTL_TEST_URLS", urls.join(" "))
            .env("EXPCTL_TEST_SUM", sums.path().join(number.to_string()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let most = watched(folder.path(), || {
        let mut killed = start(9);
        let children: Vec<Child> = (0..3).map(start).collect();
        std::thread::sleep(Duration::from_millis(300));
        killed.kill().unwrap();
        killed.wait().unwrap();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    });
    for number in 0..3 {
        assert_eq!(std::fs::read_to_string(sums.path().join(number.to_string())).unwrap(), expected);
    }
    assert!(most.0 <= 4 << 20 && most.1 <= 4 << 20, "{most:?}");
    assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 2, "nothing is left but the cache and its lock");
}
