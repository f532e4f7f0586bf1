//! Published breakdowns: where a source says that the time of a step goes, component by component.
//!
//! Invariant: every figure keeps the class that its source gives it. An estimate may contradict what was measured; that is shown, and
//! no mistake of the file.

use serde::{Deserialize, Serialize};

use super::published_row::job_name;
use super::{ComponentKind, Source};

/// How the source of a figure came by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureClass {
    /// It timed it.
    Measured,
    /// It computed it from what it timed.
    Derived,
    /// It estimated it.
    Estimated,
}

impl FigureClass {
    /// The word used in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Estimated => "estimated",
        }
    }
}

/// What the times of a breakdown are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds of one iteration.
    SecondsPerIteration,
    /// Seconds of all iterations that the source looked at.
    SecondsPerRun,
    /// Milliseconds of one sample.
    MillisecondsPerSample,
}

impl TimeUnit {
    /// The key of a file that has a time in this unit.
    pub const fn key(self) -> &'static str {
        match self {
            Self::SecondsPerIteration => "s_per_iteration",
            Self::SecondsPerRun => "s_per_run",
            Self::MillisecondsPerSample => "ms_per_sample",
        }
    }

    /// The unit as tables write it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SecondsPerIteration => "s/iteration",
            Self::SecondsPerRun => "s/run",
            Self::MillisecondsPerSample => "ms/sample",
        }
    }
}

/// A published figure: one number, or the ends of a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amount {
    /// Lower end, 0 or more.
    pub low: f64,
    /// Upper end; infinite where the source gives only a lower one.
    pub high: f64,
}

impl Amount {
    /// The number, where it is one.
    pub fn single(&self) -> Option<f64> {
        (self.low == self.high).then_some(self.low)
    }
}

/// One component of a published breakdown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedComponent {
    /// What the source calls it.
    pub name: String,
    /// What it is. `None` for a detail of another component, which no stage times.
    pub kind: Option<ComponentKind>,
    /// The component that a detail without a kind belongs to; else `None`.
    pub within: Option<ComponentKind>,
    /// How the source came by its figures.
    pub class: FigureClass,
    /// Its time, in the unit of the breakdown.
    pub time: Option<Amount>,
    /// Its share of the whole, percent.
    pub percent: Option<Amount>,
}

impl PublishedComponent {
    /// The next larger component of the same breakdown that contains it. `None` at the top.
    pub fn parent(&self, all: &[Self]) -> Option<ComponentKind> {
        if self.within.is_some() {
            return self.within;
        }
        let mut parent = self.kind?.parent();
        while let Some(kind) = parent {
            if all.iter().any(|other| other.kind == Some(kind)) {
                return parent;
            }
            parent = kind.parent();
        }
        None
    }

    /// Whether its share is one of those that make up a whole.
    pub fn is_addend(&self) -> bool {
        self.kind.is_none_or(|kind| kind != ComponentKind::Total && !kind.is_resource())
    }
}

/// Where a source says that the time of a step goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedBreakdown {
    /// Job numbers; several where the source gives one breakdown for them together.
    pub jobs: Vec<u64>,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Name of the row within its job; empty where the job has one.
    pub variant: String,
    /// What the source calls it.
    pub method: String,
    /// What a step did.
    pub mode: String,
    /// True if a profiler ran along.
    pub profiler: bool,
    /// Samples per rank and iteration. `None` if the source does not give it.
    pub batch_size: Option<u64>,
    /// Section or table of the source.
    pub from: String,
    /// What its times are of. `None` if the source gives shares alone.
    pub unit: Option<TimeUnit>,
    /// Its components, in the order of the source.
    pub components: Vec<PublishedComponent>,
    /// Variants here that repeat the row, as `config.variant`.
    pub repeated_by: Vec<String>,
    /// What is known to be wrong or open.
    pub notes: Vec<String>,
    /// Where it comes from.
    pub source: Source,
}

impl PublishedBreakdown {
    /// The job as tables name it: `525`, `428/430`.
    pub fn job_name(&self) -> String {
        job_name(&self.jobs)
    }

    /// What it is called in a sentence: `525 086b Lazy Hetero`.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.job_name(), self.config, self.method)
    }

    /// The unit of its times; of one with shares alone that of a step.
    pub fn time_unit(&self) -> TimeUnit {
        self.unit.unwrap_or(TimeUnit::SecondsPerIteration)
    }

    /// The time of the whole. `None` if the source does not give it.
    pub fn total(&self) -> Option<Amount> {
        self.components.iter().find(|one| one.kind == Some(ComponentKind::Total))?.time
    }

    /// Whether both are of the same row and from the same table of the source.
    pub(super) fn is_same_table(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.jobs.clone(), one.config.clone(), one.variant.clone(), one.from.clone());
        of(self) == of(other)
    }
}
