//! `MetricsRecorder` samples on a thread of its own, and appends each sample to a journal, which `read_sample_journal` reads.
//! Invariant: each sample is one line that a single write hands to the kernel, so a kill loses no earlier sample.
//! The clock of the steps may become known late: reading puts all samples on it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::nvml::GpuMetrics;
use crate::process::WatchedProcesses;
use crate::reader::{MetricsReader, monotonic_ns_at};
use crate::sample::HardwareSample;

/// Time limit of the last sample: a broken driver may never answer.
const LAST_SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);
/// A last sample so soon after another has no information: processor time is counted in hundredths of a second.
const MIN_SPACING: Duration = Duration::from_millis(100);
/// Stands for a step clock that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Options of a [`MetricsRecorder`].
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// The journal, which must not exist yet.
    pub journal: PathBuf,
    /// Rank whose processes are watched, for log messages.
    pub rank: u32,
    /// Rank on this node, which decides on the GPU.
    pub local_rank: u32,
    /// Processes that are watched.
    pub processes: WatchedProcesses,
    /// Time between two samples, seconds; 0 for no samples.
    pub interval_s: f64,
}

/// Takes samples from its start until it is dropped: one at once, one at every interval, one at the end.
///
/// Each sample is handed to the kernel when it is taken, so a rank that is killed keeps the samples that it has.
#[derive(Debug)]
pub struct MetricsRecorder {
    /// Monotonic clock at time 0 of the step clock, ns.
    step_origin_ns: Arc<AtomicU64>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    /// Closed when the thread has stopped.
    stopped: Receiver<()>,
}

impl MetricsRecorder {
    /// Start recording. `None`: the interval is 0, or no journal can be written, which is logged.
    pub fn start(options: MetricsOptions) -> Option<Self> {
        let MetricsOptions { journal, rank, local_rank, processes, interval_s } = options;
        let interval = Duration::try_from_secs_f64(interval_s).ok().filter(|interval| !interval.is_zero())?;
        let journal = match File::create_new(&journal) {
            Ok(file) => SampleJournal { file, path: journal },
            Err(e) => {
                tracing::warn!("rank {rank}: no hardware samples: {}: {e}", journal.display());
                return None;
            }
        };
        let step_origin_ns = Arc::new(AtomicU64::new(UNKNOWN));
        let (stop, stop_asked) = channel();
        let (running, stopped) = channel();
        let origin = Arc::clone(&step_origin_ns);
        let run = move || {
            let reader = MetricsReader::new(processes, gpu_of_rank(rank, local_rank));
            record(reader, journal, interval, &origin, &stop_asked);
            drop(running);
        };
        match std::thread::Builder::new().name("samples".to_owned()).spawn(run) {
            Ok(_) => Some(Self { step_origin_ns, stop: Some(stop), stopped }),
            Err(e) => {
                tracing::warn!("rank {rank}: no hardware samples: {e}");
                None
            }
        }
    }

    /// Tell that the step clock was 0 at this moment.
    pub fn loop_began(&self, at: Instant) {
        self.step_origin_ns.store(monotonic_ns_at(at), Ordering::Relaxed);
    }

    /// Tell that a message about a step that ended at `end_ns` on the step clock arrived at this moment. Messages take some time, so the
    /// one with the smallest delay says best how the clocks are related.
    pub fn heard_of_step(&self, at: Instant, end_ns: u64) {
        self.step_origin_ns.fetch_min(monotonic_ns_at(at).saturating_sub(end_ns), Ordering::Relaxed);
    }
}

impl Drop for MetricsRecorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Nothing is ever sent: this returns when the thread has stopped, or after the timeout.
        let _ = self.stopped.recv_timeout(LAST_SAMPLE_TIMEOUT);
    }
}

/// The rank's GPU, if it has one.
fn gpu_of_rank(rank: u32, local_rank: u32) -> Option<GpuMetrics> {
    match GpuMetrics::open(local_rank) {
        Ok(gpu) => Some(gpu),
        Err(why) => {
            // A node without a driver has no GPU to miss; env.json says so.
            if Path::new("/proc/driver/nvidia/version").exists() {
                tracing::warn!("rank {rank}: no samples of a GPU: {why}");
            } else {
                tracing::debug!("rank {rank}: no samples of a GPU: {why}");
            }
            None
        }
    }
}

/// Journal of samples: JSON, one object a line.
struct SampleJournal {
    file: File,
    path: PathBuf,
}

impl SampleJournal {
    /// Append a sample. False: it cannot be written, which is logged.
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

/// Take samples until a stop is asked for, or the journal cannot be written.
fn record(
    mut reader: MetricsReader,
    mut journal: SampleJournal,
    interval: Duration,
    step_origin_ns: &AtomicU64,
    stop_asked: &Receiver<()>,
) {
    let mut due = Instant::now();
    loop {
        let taken = Instant::now();
        if !journal.append(&on_step_clock(reader.sample(), step_origin_ns)) {
            return;
        }
        // Samples that were missed, on a node that was suspended, are not made up for.
        due = (due + interval).max(Instant::now());
        if stop_asked.recv_timeout(due.saturating_duration_since(Instant::now())) != Err(RecvTimeoutError::Timeout) {
            if taken.elapsed() >= MIN_SPACING {
                journal.append(&on_step_clock(reader.sample(), step_origin_ns));
            }
            return;
        }
    }
}

/// Set the time of a sample on the step clock, if that is known.
fn on_step_clock(mut sample: HardwareSample, step_origin_ns: &AtomicU64) -> HardwareSample {
    let origin = step_origin_ns.load(Ordering::Relaxed);
    if origin != UNKNOWN {
        sample.at_ns = Some(sample.clock_ns as i64 - origin as i64);
    }
    sample
}

/// Read the samples of a journal up to the first damaged line; a file that does not exist has none. All samples are put on the step clock as
/// the last one knows it.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_sample_journal(path: &Path) -> std::io::Result<Vec<HardwareSample>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    // Content behind the last line end was cut off by a kill.
    let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..whole].split(|byte| *byte == b'\n');
    let mut samples: Vec<HardwareSample> = lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    let origin = samples.iter().rev().find_map(|sample| Some(sample.clock_ns as i64 - sample.at_ns?));
    for sample in &mut samples {
        sample.at_ns = origin.map(|origin| sample.clock_ns as i64 - origin);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(journal: &Path, processes: WatchedProcesses, interval_s: f64) -> Option<MetricsRecorder> {
        let journal = journal.to_owned();
        MetricsRecorder::start(MetricsOptions { journal, rank: 0, local_rank: 0, processes, interval_s })
    }

    fn journal(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("rank-0.samples.jsonl")
    }

    #[test]
    fn a_process_that_works_and_takes_memory_is_seen_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = journal(&dir);
        let recorder = start(&path, WatchedProcesses::Itself, 0.1).unwrap();
        let taken = || read_sample_journal(&path).unwrap().len();
        while taken() < 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let begin = Instant::now();
        recorder.loop_began(begin);
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let mut sum = 0u64;
        while taken() < 6 {
            sum =
                (0..20).flat_map(|_| memory.iter().step_by(64)).fold(sum, |sum, byte| sum.wrapping_add((*byte).into()));
        }
        let last_ns = begin.elapsed().as_nanos() as i64;
        drop(recorder);
        assert!(sum > 0);
        let samples = read_sample_journal(&path).unwrap();
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
        assert!(start(&path, WatchedProcesses::Itself, 0.1).is_none());
        assert_eq!(read_sample_journal(&path).unwrap(), samples);
    }

    #[test]
    fn none_are_taken_where_none_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = journal(&dir);
        assert!(start(&path, WatchedProcesses::Itself, 0.0).is_none());
        assert!(!path.exists() && read_sample_journal(&path).unwrap().is_empty());
    }

    #[test]
    fn the_news_that_came_fastest_sets_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let path = journal(&dir);
        let recorder = start(&path, WatchedProcesses::Descendants, 60.0).unwrap();
        let zero = Instant::now();
        let ms = |n: u64| Duration::from_millis(n);
        std::thread::sleep(ms(350));
        for (heard, end) in [(130, 100), (205, 200), (330, 300)] {
            recorder.heard_of_step(zero + ms(heard), end * 1_000_000);
        }
        let now = zero.elapsed().as_nanos() as i64;
        drop(recorder);
        let samples = read_sample_journal(&path).unwrap();
        // Of 30, 5 and 30 ms; some microseconds between two looks at the clock.
        let last = samples.last().unwrap().at_ns.unwrap();
        assert!(last >= now - 6_000_000, "{last} {now}");
    }

    #[test]
    fn a_journal_is_read_up_to_where_it_was_cut_off_and_put_on_the_clock_of_the_steps() {
        let sample = |clock_ns: u64, at_ns: Option<i64>| HardwareSample {
            clock_ns,
            at_ns,
            rss_bytes: Some(clock_ns * 2),
            ..HardwareSample::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.samples.jsonl");
        assert_eq!(read_sample_journal(&path).unwrap(), []);
        let rows = [sample(100, None), sample(200, Some(30)), sample(300, Some(120))];
        let mut text: String = rows.iter().map(|s| serde_json::to_string(s).unwrap() + "\n").collect();
        text += "{\"clock_ns\": 40";
        std::fs::write(&path, &text).unwrap();
        let at: Vec<_> = read_sample_journal(&path).unwrap().iter().map(|s| (s.clock_ns, s.at_ns)).collect();
        assert_eq!(at, [(100, Some(-80)), (200, Some(20)), (300, Some(120))]);
        std::fs::write(&path, "no line\n").unwrap();
        assert_eq!(read_sample_journal(&path).unwrap(), []);
    }
}
