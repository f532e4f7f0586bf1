//! A discrete-event model of a training pipeline, in virtual time: how long steps take when loader threads build batches ahead of them.
//!
//! The input is what each batch and each step cost, stage by stage ([`RankTrace`]), and how the pipeline is set up ([`Pipeline`]).
//! [`simulate`] replays the costs in their recorded order, so slow batches stay beside the batches that they delayed. Changing a figure
//! and simulating again answers what the change would bring.
//!
//! # What is modelled
//!
//! * **Ranks.** Each has a step thread and `threads` loader threads. Ranks of one node share its processors.
//! * **Ordered loading.** Loader threads claim batches in order, each as soon as it is idle, and build them stage by stage. Batches are
//!   delivered in order: a finished batch waits for a slow one before it.
//! * **Prefetch.** A batch may be begun while fewer than `window` claimed batches are undelivered; so threads stop when the step does
//!   not keep up (back-pressure). `max_batches` limits the batches in memory, that of the step among them.
//! * **Without threads** (`threads` = 0) the step builds its batch itself.
//! * **Steps.** A step waits for its batch, works on the stages before the reduction, meets the other ranks (the step of all ends when
//!   the last one arrives), lets the reduction pass, and works on the stages after it. Steps without a reduction meet nobody.
//! * **Processors.** While a stage runs it keeps [`StageModel::processors`] processors busy. Where the running stages of a node ask for
//!   more than the node has, each gets its share (egalitarian processor sharing), as fair schedulers of operating systems give it. More
//!   threads than processors therefore bring nothing but overlap with work that uses no processor.
//!
//! # Algorithm
//!
//! State changes only when a stage ends, so the clock jumps from one end to the next. Between two ends all rates are constant: on a node
//! with load `L` = Σ processors of its running stages and `C` processors, work slows down by `s` = max(1, L/C), and a stage that uses a
//! processor for the share `d` of its time by `(1 − d) + d·s`. An event costs time proportional to the running stages.
//!
//! # Limits
//!
//! Memory bandwidth, caches and storage are not shared resources here; a stage takes as long however many threads work on the same. Time
//! that a thread waits for another thread's work is not modelled.
//!
//! # Sources
//!
//! * A. M. Law, *Simulation Modeling and Analysis* (5th ed., 2015), chapter 1: next-event time advance.
//! * L. Kleinrock, *Time-shared systems: a theoretical treatment*, Journal of the ACM 14 (1967) 242–261: processor sharing.
//! * M. Kuchnik et al., *Plumber: diagnosing and removing performance bottlenecks in machine learning data pipelines*, MLSys 2022, and
//!   J. Mohan et al., *Analyzing and mitigating data stalls in DNN training*, VLDB 14 (2021) 771–784: predictions of input pipelines from
//!   their traces.
//! * H. Zhu et al., *Daydream: accurately estimating the efficacy of optimizations for DNN training*, USENIX ATC 2020: replaying a
//!   recorded trace with a change.
//!
//! # Example
//!
//! Four batches of 3 s on one loader thread, steps of 1 s: the loader is the limit. With three threads the step is.
//!
//! ```
//! use pipeline_model::{Pipeline, RankTrace, Segment, StageModel, simulate};
//!
//! let stages = vec![StageModel::new(Segment::Load, 1.0), StageModel::new(Segment::BeforeReduce, 1.0)];
//! let trace = RankTrace::new(0, 2, [3.0, 1.0].repeat(30));
//! let mut pipeline = Pipeline { stages, threads: 1, window: 2, max_batches: None, processors: vec![8.0], wake_s: 0.0 };
//! let one = simulate(&pipeline, std::slice::from_ref(&trace), &[])?;
//! assert_eq!(one.ranks[0].wall_s[20], 3.0);
//! (pipeline.threads, pipeline.window) = (3, 6);
//! let three = simulate(&pipeline, &[trace], &[])?;
//! assert_eq!(three.ranks[0].wall_s[10..].iter().sum::<f64>(), 20.0);
//! # Ok::<(), pipeline_model::ModelError>(())
//! ```

mod pipeline;
mod rank_state;
mod running_stage;
mod simulated;
mod simulation;

pub use pipeline::{ModelError, Pipeline, RankTrace, Segment, StageModel};
pub use simulated::{Simulated, SimulatedRank, Wait};
pub use simulation::simulate;
