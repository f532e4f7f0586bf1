//! The input of `simulate`: `Pipeline`, how loading and steps are set up, and a `RankTrace` for each rank, the seconds of each stage and step.
//! `Pipeline::check` refuses what cannot be simulated, so the simulation itself never fails.

/// When a stage of a batch or step runs, and on which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// While the batch is built: on a loader thread, or on the step's where there are none.
    Load,
    /// In the step, before its ranks meet.
    BeforeReduce,
    /// In the step, after the reduction.
    AfterReduce,
}

/// A stage of all batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageModel {
    /// When it runs. Stages of a segment run one after another, in the order of [`Pipeline::stages`].
    pub segment: Segment,
    /// Processors that it keeps busy: 1 for a thread that computes, n for n threads together, 0 for a wait for a device or for storage.
    /// Between 0 and 1: the share of its time in which it computes.
    pub processors: f64,
}

impl StageModel {
    /// A stage of `segment` that keeps `processors` processors busy.
    pub const fn new(segment: Segment, processors: f64) -> Self {
        Self { segment, processors }
    }
}

/// How the pipeline of all ranks is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The stages, in the order in which a batch passes through those of its segment.
    pub stages: Vec<StageModel>,
    /// Loader threads of each rank; 0 builds a batch in the step.
    pub threads: usize,
    /// Claimed batches of a rank that are not delivered, at most; at least 1. Without effect where there are no threads.
    pub window: usize,
    /// Batches of a rank in memory, at most: in the making, ready and in the step. A step that waits always gets one. `None`: no limit.
    pub max_batches: Option<usize>,
    /// Processors of each node.
    pub processors: Vec<f64>,
    /// Seconds from the end of a batch until the step that waits for it goes on: the wake-up of a thread.
    pub wake_s: f64,
}

/// Costs of the batches and steps of one rank, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct RankTrace {
    node: usize,
    stages: usize,
    seconds: Vec<f64>,
}

impl RankTrace {
    /// A rank on `node` (an index of [`Pipeline::processors`]). `seconds` has, step after step, the time of each of `stages` stages on an
    /// idle machine, in seconds; an incomplete last row does not count.
    pub fn new(node: usize, stages: usize, seconds: Vec<f64>) -> Self {
        Self { node, stages, seconds }
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.seconds.len().checked_div(self.stages).unwrap_or(0)
    }

    /// Index of the node that the rank runs on.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Number of stages of a step.
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// Time of each stage of a step, seconds; empty behind the last one.
    pub fn step(&self, step: usize) -> &[f64] {
        self.seconds.get(step * self.stages..(step + 1) * self.stages).unwrap_or_default()
    }

    /// The same with `change` made to the stages of each step.
    #[must_use]
    pub fn map(mut self, mut change: impl FnMut(usize, &mut [f64])) -> Self {
        let stages = self.stages.max(1);
        self.seconds.chunks_exact_mut(stages).enumerate().for_each(|(step, seconds)| change(step, seconds));
        self
    }
}

/// Why a pipeline cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// There are no ranks, or no steps.
    #[error("there are no steps to replay")]
    NoSteps,
    /// Ranks of one pipeline have different numbers of steps.
    #[error("rank {rank} has {found} steps, and rank 0 has {expected}")]
    StepsDiffer {
        /// The rank.
        rank: usize,
        /// Its steps.
        found: usize,
        /// Steps of rank 0.
        expected: usize,
    },
    /// A trace has another number of stages than the pipeline.
    #[error("the steps of rank {rank} have {found} stages, and the pipeline has {expected}")]
    StagesDiffer {
        /// The rank.
        rank: usize,
        /// Stages of its trace.
        found: usize,
        /// Stages of the pipeline.
        expected: usize,
    },
    /// There is a time for some of the reductions only.
    #[error("there are times of {found} reductions for {expected} steps")]
    ReductionsDiffer {
        /// Reductions.
        found: usize,
        /// Steps.
        expected: usize,
    },
    /// A rank runs on a node that is not there.
    #[error("rank {rank} runs on node {node}, and there are {nodes}")]
    NoNode {
        /// The rank.
        rank: usize,
        /// Its node.
        node: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// A figure is negative, not finite, or 0 where that has no meaning.
    #[error("{what} is {value}")]
    BadFigure {
        /// The figure.
        what: &'static str,
        /// Its value.
        value: f64,
    },
}

impl Pipeline {
    /// Check that it can be simulated with these traces and reductions.
    pub(crate) fn check(&self, ranks: &[RankTrace], reductions: &[Option<f64>]) -> Result<(), ModelError> {
        let steps = ranks.first().map_or(0, RankTrace::steps);
        if steps == 0 {
            return Err(ModelError::NoSteps);
        }
        for (rank, trace) in ranks.iter().enumerate() {
            let (found, expected) = (trace.stages(), self.stages.len());
            if found != expected {
                return Err(ModelError::StagesDiffer { rank, found, expected });
            }
            if trace.steps() != steps {
                return Err(ModelError::StepsDiffer { rank, found: trace.steps(), expected: steps });
            }
            if trace.node >= self.processors.len() {
                return Err(ModelError::NoNode { rank, node: trace.node, nodes: self.processors.len() });
            }
            check_all("the time of a stage", trace.seconds.iter().copied())?;
        }
        if !reductions.is_empty() && reductions.len() != steps {
            return Err(ModelError::ReductionsDiffer { found: reductions.len(), expected: steps });
        }
        check_all("the time of a reduction", reductions.iter().flatten().copied())?;
        check_all("the processors of a stage", self.stages.iter().map(|stage| stage.processors))?;
        check_all("the time to wake a thread", [self.wake_s])?;
        match self.processors.iter().find(|count| !(count.is_finite() && **count > 0.0)) {
            Some(count) => Err(ModelError::BadFigure { what: "the number of processors of a node", value: *count }),
            None => Ok(()),
        }
    }
}

fn check_all(what: &'static str, values: impl IntoIterator<Item = f64>) -> Result<(), ModelError> {
    match values.into_iter().find(|value| !(value.is_finite() && *value >= 0.0)) {
        Some(value) => Err(ModelError::BadFigure { what, value }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline() -> Pipeline {
        let stages = vec![StageModel::new(Segment::Load, 1.0), StageModel::new(Segment::BeforeReduce, 1.0)];
        Pipeline { stages, threads: 1, window: 2, max_batches: None, processors: vec![2.0], wake_s: 0.0 }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let trace = |steps: usize| RankTrace::new(0, 2, vec![1.0; 2 * steps]);
        let check = |ranks: &[RankTrace], reductions: &[Option<f64>]| pipeline().check(ranks, reductions);
        assert_eq!(check(&[], &[]), Err(ModelError::NoSteps));
        assert_eq!(check(&[trace(0)], &[]), Err(ModelError::NoSteps));
        assert_eq!(check(&[trace(2), trace(3)], &[]), Err(ModelError::StepsDiffer { rank: 1, found: 3, expected: 2 }));
        let three = RankTrace::new(0, 3, vec![1.0; 3]);
        assert_eq!(check(&[three], &[]), Err(ModelError::StagesDiffer { rank: 0, found: 3, expected: 2 }));
        assert_eq!(
            check(&[RankTrace::new(1, 2, vec![1.0; 2])], &[]),
            Err(ModelError::NoNode { rank: 0, node: 1, nodes: 1 })
        );
        assert_eq!(check(&[trace(2)], &[None]), Err(ModelError::ReductionsDiffer { found: 1, expected: 2 }));
        let negative = RankTrace::new(0, 2, vec![1.0, -1.0]);
        assert_eq!(check(&[negative], &[]), Err(ModelError::BadFigure { what: "the time of a stage", value: -1.0 }));
        assert!(Pipeline { processors: vec![0.0], ..pipeline() }.check(&[trace(1)], &[]).is_err());
        assert_eq!(check(&[trace(2), trace(2)], &[None, Some(1.0)]), Ok(()));
    }

    #[test]
    fn a_trace_is_read_and_changed_step_by_step() {
        let trace = RankTrace::new(0, 2, vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!((trace.steps(), trace.step(1), trace.step(2)), (2, &[3.0, 4.0][..], &[][..]));
        let changed = trace.map(|step, seconds| seconds[1] *= step as f64);
        assert_eq!((changed.step(0), changed.step(1)), (&[1.0, 0.0][..], &[3.0, 4.0][..]));
    }
}
