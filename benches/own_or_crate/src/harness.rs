//! Measures the sides of a case in turn, each in a separate process, and prints what came out.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expctl_stats::{median, paired_ratio};
use serde_json::{Value, json};

/// Any failure ends the program with its text.
pub type Failure = Box<dyn std::error::Error>;

/// Result of everything here.
pub type Outcome<T> = Result<T, Failure>;

/// Rate from which on code of our own may stay.
const FASTER: f64 = 1.3;
/// Ratio of peak memory from which on code of our own may stay.
const SMALLER: f64 = 2.0;
/// Peaks below this are those of the process, not of what it reads.
const NEGLIGIBLE_BYTES: f64 = 4e6;

/// What both sides are given.
pub struct Context {
    /// Folder of the files.
    pub folder: PathBuf,
    /// 1, or less for a quick run: number of rows, records, weights and so on.
    pub scale: f64,
}

impl Context {
    /// `count`, scaled.
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(1)
    }
}

/// What both sides must agree on.
#[derive(Clone, Debug)]
pub enum Check {
    /// The same bits: hash of everything that was read.
    Same(u64),
    /// Counts of draws by class, which may differ by chance.
    Alike(Vec<u64>),
}

/// One pass over the work of a case.
pub struct Pass {
    /// Rows, records, draws and so on.
    pub units: u64,
    /// Time of the work alone, without checks.
    pub time: Duration,
    /// What was found. Only the first pass of a process is checked.
    pub check: Check,
}

/// Runs a pass; the argument says whether to hash what is read.
pub type RunPass = Box<dyn FnMut(bool) -> Outcome<Pass>>;

/// One side of a case.
pub struct Side {
    /// Name in the table.
    pub name: &'static str,
    /// Opens the files; what it returns runs one pass.
    pub open: Box<dyn Fn(&Context) -> Outcome<RunPass>>,
}

/// How often a process runs its work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// A pass to warm up, then passes until the time is over.
    Warm,
    /// One pass: a second one would find the files in the page cache, or takes too long.
    Once,
}

/// A question: the first side is ours.
pub struct Case {
    /// `parquet`, `zarr`, …
    pub question: &'static str,
    /// What is read, and how.
    pub name: &'static str,
    /// What the rate counts.
    pub unit: &'static str,
    /// How often a process runs its work.
    pub repeat: Repeat,
    /// Ours, then the crate's.
    pub sides: Vec<Side>,
}

impl Case {
    /// A case without sides.
    pub fn new(question: &'static str, name: &'static str, unit: &'static str) -> Self {
        Self { question, name, unit, repeat: Repeat::Warm, sides: Vec::new() }
    }

    /// One pass a process.
    pub fn once(mut self) -> Self {
        self.repeat = Repeat::Once;
        self
    }

    /// Adds a side.
    pub fn side(mut self, name: &'static str, open: impl Fn(&Context) -> Outcome<RunPass> + 'static) -> Self {
        self.sides.push(Side { name, open: Box::new(open) });
        self
    }
}

/// FNV over words of 8 bytes: quick, and differs with the order.
#[derive(Clone, Copy)]
pub struct Hash(pub u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds a word.
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.word(u64::from(*byte)));
    }

    /// Adds CSR rows.
    pub fn csr(&mut self, indptr: &[u64], indices: &[i32], data: &[f32]) {
        indptr.iter().for_each(|start| self.word(*start));
        indices.iter().for_each(|column| self.word(*column as u64));
        self.floats(data);
    }

    /// Adds floats, by their bits.
    pub fn floats(&mut self, data: &[f32]) {
        data.iter().for_each(|value| self.word(u64::from(value.to_bits())));
    }
}

/// Adds up the time of the work of a pass.
#[derive(Default)]
pub struct Clock(pub Duration);

impl Clock {
    /// Times `work`.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = black_box(work());
        self.0 += begin.elapsed();
        result
    }
}

/// A line of /proc/self/status in bytes.
fn status_bytes(name: &str) -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line in /proc/self/status")?;
    Ok(line.split_whitespace().next().ok_or("an empty line")?.parse::<f64>()? * 1024.0)
}

/// The work of a child: one side, until `seconds` have passed.
pub fn run_child(case: &Case, side: &Side, context: &Context, seconds: f64) -> Outcome<Value> {
    // VmHWM starts again from the present.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let base = status_bytes("VmRSS:")?;
    let begin = Instant::now();
    let mut pass = (side.open)(context)?;
    let opened = begin.elapsed();
    let first = pass(true)?;
    let (mut units, mut time) = (0, Duration::ZERO);
    match case.repeat {
        Repeat::Once => (units, time) = (first.units, first.time),
        Repeat::Warm => {
            let begin = Instant::now();
            while time.is_zero() || begin.elapsed().as_secs_f64() < seconds {
                let next = pass(false)?;
                units += next.units;
                time += next.time;
            }
        }
    }
    let check = match first.check {
        Check::Same(hash) => json!(format!("{hash:016x}")),
        Check::Alike(counts) => json!(counts),
    };
    let peak = (status_bytes("VmHWM:")? - base).max(0.0);
    Ok(json!({
        "rate": units as f64 / time.as_secs_f64(),
        "peak": peak,
        "open": opened.as_secs_f64(),
        "check": check,
    }))
}

/// What the processes of one side said.
#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    peaks: Vec<f64>,
    check: Value,
}

/// How to run the cases.
pub struct Plan {
    /// Processes of each side.
    pub n: usize,
    /// Time of each process.
    pub seconds: f64,
    /// Folder and scale.
    pub context: Context,
}

/// Ours against one way to use the crate.
pub struct Compared {
    /// Line of the table.
    pub line: String,
    /// Line of the summary.
    pub summary: String,
    /// Median rate of the crate.
    pub rate: f64,
}

/// Head of [`Compared::line`].
pub const HEAD: &str = "| question | case | crate | ours | crate's | ours / crate's: median (95 % interval) | ours, MB | crate's, MB | crate's / ours | ours is |\n\
    |---|---|---|---|---|---|---|---|---|---|";

/// Head of [`Compared::summary`].
pub const SUMMARY_HEAD: &str = "| Case | Crate, used the fastest way | Ours is so many times as fast | Crate's peak memory / ours | |\n\
    |---|---|---|---|---|";

/// Runs each side of a case `n` times in turn and compares ours with each side of the crate.
pub fn run_case(case: &Case, plan: &Plan) -> Outcome<Vec<Compared>> {
    let mut all: Vec<Measured> = case.sides.iter().map(|_| Measured::default()).collect();
    for round in 0..plan.n {
        // Every other round backwards, so that no side always follows the same other one.
        let order: Vec<usize> = match round % 2 {
            0 => (0..case.sides.len()).collect(),
            _ => (0..case.sides.len()).rev().collect(),
        };
        for side in order {
            let said = spawn(case, case.sides[side].name, plan)?;
            let number = |name: &str| said[name].as_f64().ok_or_else(|| format!("no {name} in {said}"));
            all[side].rates.push(number("rate")?);
            all[side].peaks.push(number("peak")?);
            all[side].check = said["check"].clone();
        }
    }
    let (ours, others) = all.split_first().ok_or("a case without sides")?;
    case.sides[1..].iter().zip(others).map(|(side, other)| compare(case, side, ours, other)).collect()
}

fn compare(case: &Case, side: &Side, ours: &Measured, other: &Measured) -> Outcome<Compared> {
    let pairs: Vec<(f64, f64)> = ours.rates.iter().copied().zip(other.rates.iter().copied()).collect();
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let middle = median(&ratios).ok_or("no rates")?;
    let interval = paired_ratio(&pairs).and_then(|ratio| ratio.interval);
    let range = interval.map_or("no interval".to_owned(), |i| format!("{:.2} to {:.2}", i.low, i.high));
    let (our_rate, rate) = (median(&ours.rates).ok_or("no rates")?, median(&other.rates).ok_or("no rates")?);
    let (our_peak, peak) = (median(&ours.peaks).ok_or("no peaks")?, median(&other.peaks).ok_or("no peaks")?);
    let counts = our_peak.max(peak) >= NEGLIGIBLE_BYTES;
    let memory = peak / our_peak.max(NEGLIGIBLE_BYTES / 4.0);
    let verdict = match (agree(&ours.check, &other.check), middle >= FASTER, counts && memory >= SMALLER) {
        (false, _, _) => "DIFFERENT RESULTS",
        (true, true, true) => "faster, smaller",
        (true, true, false) => "faster",
        (true, false, true) => "smaller",
        (true, false, false) => "NEITHER",
    };
    let memory = if counts { format!("{memory:.2}") } else { "–".to_owned() };
    let (question, name, crate_name, unit) = (case.question, case.name, side.name, case.unit);
    let (ours_mb, mb) = (our_peak / 1e6, peak / 1e6);
    let (our_rounded, rounded) = (rounded(our_rate), rounded(rate));
    Ok(Compared {
        line: format!(
            "| {question} | {name} | {crate_name} | {our_rounded} {unit} | {rounded} | {middle:.2} ({range}) | {ours_mb:.1} | {mb:.1} | \
             {memory} | {verdict} |"
        ),
        summary: format!("| {question}: {name} | {crate_name} | {middle:.2} ({range}) | {memory} | {verdict} |"),
        rate,
    })
}

/// Three digits, with a suffix.
fn rounded(rate: f64) -> String {
    let (value, suffix) = match rate {
        1e9.. => (rate / 1e9, " G"),
        1e6.. => (rate / 1e6, " M"),
        1e3.. => (rate / 1e3, " k"),
        _ => (rate, " "),
    };
    let digits = (2 - value.abs().max(1.0).log10() as i32).max(0) as usize;
    format!("{value:.digits$}{suffix}").trim_end().to_owned()
}

/// Whether two sides found the same.
fn agree(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else { return a == b };
    // Both counts are Poisson about the same mean; 6 standard deviations.
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(f64::MAX));
            (a - b).abs() <= 6.0 * (a + b).sqrt()
        })
}

/// Runs one side in a separate process.
fn spawn(case: &Case, side: &str, plan: &Plan) -> Outcome<Value> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--child", case.question, case.name, side])
        .args([plan.seconds.to_string(), plan.context.scale.to_string()])
        .arg(&plan.context.folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{}, {}, {side}: {}", case.question, case.name, output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Lines of code of Rust files, without tests, comments and empty lines.
pub fn lines_of_code(paths: &[PathBuf]) -> Outcome<usize> {
    let mut all = 0;
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
        all += code.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count();
    }
    Ok(all)
}

/// Rust files directly in a folder whose name is accepted.
pub fn rust_files(folder: &Path, accept: impl Fn(&str) -> bool) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == "rs") && accept(name) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
