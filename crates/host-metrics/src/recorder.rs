use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, HardwareSample, RankEnv};

use crate::clock;
use crate::gpu::Gpu;
use crate::reader::Reader;
use crate::tree::Watched;

/// How long the last sample may take: a driver that is broken can take for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// A last sample so soon after another says nothing: processor time is counted in hundredths of a second.
const TOO_SOON: Duration = Duration::from_millis(100);
/// Stands for a clock that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Takes samples of a rank from its start to when this is dropped: one at once, one at every interval, one at the end.
///
/// Each is handed to the kernel when it is taken, so a rank that is killed keeps those that it has.
#[derive(Debug)]
pub struct Sampler {
    /// What the monotonic clock said when the clock of the steps was 0.
    origin: Arc<AtomicU64>,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    /// Closed when it has ended.
    ended: Receiver<()>,
}

impl Sampler {
    /// Sample a rank of `attempt` every `every_s` seconds. None where that is 0, or where no journal can be written.
    pub fn start(attempt: &AttemptDir, env: RankEnv, watched: Watched, every_s: f64) -> Option<Self> {
        let every = Duration::try_from_secs_f64(every_s).ok().filter(|every| !every.is_zero())?;
        let path = attempt.sample_journal_path(env.rank);
        let journal = match File::create_new(&path) {
            Ok(file) => Journal { file, path },
            Err(e) => {
                tracing::warn!("rank {}: no hardware samples: {}: {e}", env.rank, path.display());
                return None;
            }
        };
        let origin = Arc::new(AtomicU64::new(UNKNOWN));
        let (end, asked) = channel();
        let (running, ended) = channel();
        let known = Arc::clone(&origin);
        let run = move || {
            let reader = Reader::new(watched, gpu(env));
            take(reader, journal, every, &known, &asked);
            drop(running);
        };
        match std::thread::Builder::new().name("samples".to_owned()).spawn(run) {
            Ok(_) => Some(Self { origin, end: Some(end), ended }),
            Err(e) => {
                tracing::warn!("rank {}: no hardware samples: {e}", env.rank);
                None
            }
        }
    }

    /// The clock of the steps was 0 at this moment.
    pub fn loop_began(&self, at: Instant) {
        self.origin.store(clock::at(at), Ordering::Relaxed);
    }

    /// A step that ended at `end_ns` on the clock of the steps was heard of at this moment. News takes some time, so the shortest
    /// way that any took says best how the clocks stand to each other.
    pub fn heard_of_step(&self, at: Instant, end_ns: u64) {
        self.origin.fetch_min(clock::at(at).saturating_sub(end_ns), Ordering::Relaxed);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.end.take());
        // It says nothing before it ends.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// The rank's GPU, if it has one.
fn gpu(env: RankEnv) -> Option<Gpu> {
    match Gpu::open(env.local_rank) {
        Ok(gpu) => Some(gpu),
        Err(why) => {
            // A node without a driver has no GPU to miss; env.json says so.
            if Path::new("/proc/driver/nvidia/version").exists() {
                tracing::warn!("rank {}: no samples of a GPU: {why}", env.rank);
            } else {
                tracing::debug!("rank {}: no samples of a GPU: {why}", env.rank);
            }
            None
        }
    }
}

/// Samples are appended here, a line each.
struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// False where the sample cannot be written; that is said.
    fn append(&mut self, sample: &HardwareSample) -> bool {
        let mut line = serde_json::to_vec(sample).unwrap_or_default();
        line.push(b'\n');
        let written = self.file.write_all(&line);
        if let Err(e) = &written {
            tracing::warn!("no more hardware samples: {}: {e}", self.path.display());
        }
        written.is_ok()
    }
}

/// Sample until that is asked to end.
fn take(mut reader: Reader, mut journal: Journal, every: Duration, origin: &AtomicU64, asked: &Receiver<()>) {
    let mut due = Instant::now();
    loop {
        let taken = Instant::now();
        if !journal.append(&placed(reader.sample(), origin)) {
            return;
        }
        // Moments that were missed, on a node that was suspended, are not made up for.
        due = (due + every).max(Instant::now());
        if asked.recv_timeout(due.saturating_duration_since(Instant::now())) != Err(RecvTimeoutError::Timeout) {
            if taken.elapsed() >= TOO_SOON {
                journal.append(&placed(reader.sample(), origin));
            }
            return;
        }
    }
}

/// A sample on the clock of the steps, where that is known.
fn placed(mut sample: HardwareSample, origin: &AtomicU64) -> HardwareSample {
    let origin = origin.load(Ordering::Relaxed);
    if origin != UNKNOWN {
        sample.at_ns = Some(sample.clock_ns as i64 - origin as i64);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: RankEnv = RankEnv { rank: 0, local_rank: 0, world_size: 1 };

    fn attempt(folder: &Path) -> AttemptDir {
        AttemptDir::open(&folder.join("attempt-1"))
    }

    #[test]
    fn a_process_that_works_and_takes_memory_is_seen_to() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(dir.path());
        std::fs::create_dir(attempt.path()).unwrap();
        let sampler = Sampler::start(&attempt, ALONE, Watched::Itself, 0.1).unwrap();
        let taken = || attempt.samples(0).unwrap().len();
        while taken() < 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let begin = Instant::now();
        sampler.loop_began(begin);
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let mut sum = 0u64;
        while taken() < 6 {
            sum =
                (0..20).flat_map(|_| memory.iter().step_by(64)).fold(sum, |sum, byte| sum.wrapping_add((*byte).into()));
        }
        let last_ns = begin.elapsed().as_nanos() as i64;
        drop(sampler);
        assert!(sum > 0);
        let samples = attempt.samples(0).unwrap();
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        assert_eq!((first.cpu_percent, first.disk_read_bytes, first.processes), (None, None, Some(1)));
        // All rows lie on the clock of the loop, the one before it, too.
        assert!(first.at_ns.unwrap() < 0, "{first:?}");
        assert!(last.at_ns.unwrap() > last_ns - 100_000_000, "{last:?} {last_ns}");
        let most = |of: fn(&HardwareSample) -> Option<u64>| samples.iter().filter_map(of).max().unwrap();
        assert!(most(|s| s.rss_anon_bytes) >= first.rss_anon_bytes.unwrap() + (60 << 20));
        assert!(most(|s| s.pss_bytes) > 0 && last.cgroup_memory_bytes != Some(0));
        // On a busy machine it gets less than a processor, but some.
        let busy: f64 = samples.iter().filter(|s| s.at_ns > Some(0)).filter_map(|s| s.cpu_percent).fold(0.0, f64::max);
        assert!(busy > 5.0, "{busy}");
        drop(memory);
        // A second start in the folder leaves the first one's alone.
        assert!(Sampler::start(&attempt, ALONE, Watched::Itself, 0.1).is_none());
        assert_eq!(attempt.samples(0).unwrap(), samples);
    }

    #[test]
    fn none_are_taken_where_none_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(dir.path());
        std::fs::create_dir(attempt.path()).unwrap();
        assert!(Sampler::start(&attempt, ALONE, Watched::Itself, 0.0).is_none());
        assert!(!attempt.sample_journal_path(0).exists() && attempt.samples(0).unwrap().is_empty());
    }

    #[test]
    fn the_news_that_came_fastest_sets_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(dir.path());
        std::fs::create_dir(attempt.path()).unwrap();
        let sampler = Sampler::start(&attempt, ALONE, Watched::Below, 60.0).unwrap();
        let zero = Instant::now();
        let ms = |n: u64| Duration::from_millis(n);
        std::thread::sleep(ms(350));
        for (heard, end) in [(130, 100), (205, 200), (330, 300)] {
            sampler.heard_of_step(zero + ms(heard), end * 1_000_000);
        }
        let now = zero.elapsed().as_nanos() as i64;
        drop(sampler);
        let samples = attempt.samples(0).unwrap();
        // Of 30, 5 and 30 ms; some microseconds between two looks at the clock.
        let last = samples.last().unwrap().at_ns.unwrap();
        assert!(last >= now - 6_000_000, "{last} {now}");
    }
}
