use std::path::Path;

use super::TimingsError;

/// Unit of the time column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Unit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl Unit {
    /// How many of it are a second.
    pub const fn per_second(self) -> f64 {
        match self {
            Self::S => 1.0,
            Self::Ms => 1e3,
            Self::Us => 1e6,
            Self::Ns => 1e9,
        }
    }
}

/// Which columns hold what; none for those that the defaults find.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// What is compared.
    pub method: Option<String>,
    /// Pass over the data.
    pub epoch: Option<String>,
    /// Number of the batch in its epoch.
    pub batch: Option<String>,
    /// How long the batch took.
    pub time: Option<String>,
    /// Unit of the time.
    pub unit: Unit,
}

/// Names that are tried in this order where none is given. pandas calls an index without a name the last of `BATCH`.
const METHOD: [&str; 1] = ["method"];
const EPOCH: [&str; 1] = ["epoch"];
const BATCH: [&str; 2] = ["batch", "__index_level_0__"];
const TIME: [&str; 4] = ["batch_times", "batch_time", "time", "seconds"];

/// Columns of a file by their place in it. Without a method all rows are of one, without an epoch of one, and without a
/// batch the order of rows counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub method: Option<usize>,
    pub epoch: Option<usize>,
    pub batch: Option<usize>,
    pub time: usize,
}

impl Columns {
    /// The columns among those that a file has.
    pub(super) fn find(&self, path: &Path, have: &[String]) -> Result<Places, TimingsError> {
        let place = |name: &str| have.iter().position(|h| h == name);
        let missing = |column: &str, meaning| TimingsError::NoColumn {
            path: path.to_owned(),
            column: column.to_owned(),
            meaning,
            have: have.to_vec(),
        };
        let find = |named: &Option<String>, known: &[&str], meaning| match named {
            Some(name) => place(name).map(Some).ok_or_else(|| missing(name, meaning)),
            None => Ok(known.iter().find_map(|name| place(name))),
        };
        Ok(Places {
            method: find(&self.method, &METHOD, "method")?,
            epoch: find(&self.epoch, &EPOCH, "epoch")?,
            batch: find(&self.batch, &BATCH, "batch")?,
            time: find(&self.time, &TIME, "time")?.ok_or_else(|| missing(TIME[0], "time"))?,
        })
    }
}

/// A time in seconds, or what is wrong with it.
pub(super) fn seconds(value: f64, unit: Unit) -> Result<f64, String> {
    if value.is_nan() {
        Err("not a number".to_owned())
    } else if value.is_infinite() || value < 0.0 {
        Err(format!("{value} is no time"))
    } else {
        // -0 would sort below 0.
        Ok(value.abs() / unit.per_second())
    }
}

/// A batch number, or what is wrong with it. Those above 2⁵³ are hashes or overflows, and not all of them survive pandas.
pub(super) fn batch_in_range(number: u64) -> Result<u64, String> {
    if number <= 1 << 53 { Ok(number) } else { Err(format!("{number} is too large for a batch number (above 2^53)")) }
}
