//! `simulate` is the event loop: it jumps from the end of one stage to the next, and lets ranks and threads go on from there.
//! Invariant: virtual time never goes back, and each step's time is the sum of what the step waited for or worked on.

use crate::pipeline::{ModelError, Pipeline, RankTrace, Segment};
use crate::rank_state::{RankState, StepState};
use crate::running_stage::{RunningStage, Slowdowns, Thread};
use crate::simulated::{Simulated, Wait};

/// Ends that lie so close, relative to the jump of the clock, are one event: they differ by rounding.
const SAME_TIME: f64 = 1e-12;

/// Replay the steps of all ranks.
///
/// `reductions` has for each step the time of its reduction after the last rank arrived, seconds; `None` for a step without one, in which
/// ranks do not meet. It is empty where no step has one.
///
/// # Errors
/// The traces do not fit the pipeline, or a figure has no meaning.
pub fn simulate(pipeline: &Pipeline, ranks: &[RankTrace], reductions: &[Option<f64>]) -> Result<Simulated, ModelError> {
    pipeline.check(ranks, reductions)?;
    let mut simulation = Simulation::new(pipeline, ranks, reductions);
    while simulation.next_event() {}
    let ranks = simulation.ranks.into_iter().map(|rank| rank.simulated).collect();
    Ok(Simulated { ranks, batches: simulation.batches })
}

struct Simulation<'a> {
    pipeline: &'a Pipeline,
    reductions: &'a [Option<f64>],
    ranks: Vec<RankState<'a>>,
    /// Stages of a batch that loader threads build.
    load: Vec<usize>,
    /// Stages of a step before the reduction, with those of the batch where the step builds it.
    before: Vec<usize>,
    after: Vec<usize>,
    now: f64,
    running: Vec<RunningStage>,
    /// Time that is left of the reduction, if one goes on.
    reduction: Option<f64>,
    /// Ranks that wait for the others.
    arrived: usize,
    /// Ranks whose state may allow more than it did.
    dirty: Vec<usize>,
    batches: usize,
    slowdowns: Slowdowns,
}

impl<'a> Simulation<'a> {
    fn new(pipeline: &'a Pipeline, traces: &'a [RankTrace], reductions: &'a [Option<f64>]) -> Self {
        let of = |segment: Segment| -> Vec<usize> {
            (0..pipeline.stages.len()).filter(|stage| pipeline.stages[*stage].segment == segment).collect()
        };
        let (load, mut before) = (of(Segment::Load), of(Segment::BeforeReduce));
        if pipeline.threads == 0 {
            before.splice(0..0, load.iter().copied());
        }
        let mut simulation = Self {
            pipeline,
            reductions,
            ranks: traces.iter().map(|trace| RankState::new(trace, pipeline)).collect(),
            load,
            before,
            after: of(Segment::AfterReduce),
            now: 0.0,
            running: Vec::new(),
            reduction: None,
            arrived: 0,
            dirty: (0..traces.len()).collect(),
            batches: 0,
            slowdowns: Slowdowns::new(pipeline.processors.len()),
        };
        simulation.settle();
        simulation
    }

    /// Jump to the next end of a stage or of a reduction; false if there is none.
    fn next_event(&mut self) -> bool {
        self.slowdowns.update(&self.running, &self.pipeline.processors);
        let ends = self.running.iter().map(|running| running.left_s * self.slowdowns.of(running));
        let Some(jump) = ends.chain(self.reduction).reduce(f64::min) else { return false };
        self.now += jump;
        let is_now = |left_s: f64| left_s <= jump * (1.0 + SAME_TIME);
        self.ranks.iter_mut().for_each(|rank| rank.add_wait(jump));
        let mut ended = Vec::new();
        for (index, running) in self.running.iter_mut().enumerate() {
            let rank = &mut self.ranks[running.rank];
            let slowdown = self.slowdowns.of(running);
            if running.thread == Thread::Waking {
                rank.simulated.add_wait(running.batch, Wait::Wake, jump);
            } else {
                rank.simulated.add_busy(running.batch, running.stage, jump);
                let awaited = rank.state == StepState::Waiting && running.batch == rank.step;
                if running.thread == Thread::Step || awaited {
                    rank.simulated.add_exposed(running.batch, running.stage, jump);
                }
            }
            if is_now(running.left_s * slowdown) {
                ended.push(index);
            } else {
                running.left_s -= jump / slowdown;
            }
        }
        // One that begins in this event has all of its time left.
        let reduction = self.reduction;
        // From the back, so that the indices before stay true.
        for index in ended.into_iter().rev() {
            let running = self.running.swap_remove(index);
            self.end_stage(&running);
        }
        if let Some(left_s) = reduction {
            if is_now(left_s) {
                self.end_reduction();
            } else {
                self.reduction = Some(left_s - jump);
            }
        }
        self.settle();
        true
    }

    /// The stages of a segment.
    fn stages(&self, thread: Thread, state: StepState) -> &[usize] {
        match (thread, state) {
            (Thread::Loader, _) => &self.load,
            (_, StepState::After) => &self.after,
            _ => &self.before,
        }
    }

    /// Begin the first stage from `position` on that takes time; false if there is none.
    fn begin_stage(&mut self, rank: usize, thread: Thread, batch: usize, position: usize) -> bool {
        let of_rank = &self.ranks[rank];
        let seconds = of_rank.trace.step(batch);
        let stages = self.stages(thread, of_rank.state);
        let Some(position) = (position..stages.len()).find(|position| seconds[stages[*position]] > 0.0) else {
            return false;
        };
        let stage = stages[position];
        let (left_s, processors) = (seconds[stage], self.pipeline.stages[stage].processors);
        let node = of_rank.trace.node();
        self.running.push(RunningStage { rank, node, thread, batch, position, stage, left_s, processors });
        true
    }

    fn end_stage(&mut self, ended: &RunningStage) {
        let RunningStage { rank, thread, batch, position, .. } = *ended;
        match thread {
            Thread::Waking => self.deliver(rank),
            _ if self.begin_stage(rank, thread, batch, position + 1) => return,
            Thread::Loader => self.ranks[rank].finish_batch(batch),
            Thread::Step => self.end_segment(rank),
        }
        self.dirty.push(rank);
    }

    /// The step takes its batch, or builds it.
    fn deliver(&mut self, rank: usize) {
        let of_rank = &mut self.ranks[rank];
        of_rank.take_batch(self.pipeline.threads > 0);
        self.batches = self.batches.max(of_rank.batches());
        let step = of_rank.step;
        if !self.begin_stage(rank, Thread::Step, step, 0) {
            self.end_segment(rank);
        }
    }

    /// The step has worked on all stages of a segment.
    fn end_segment(&mut self, rank: usize) {
        let of_rank = &mut self.ranks[rank];
        if of_rank.state == StepState::After {
            return of_rank.end_step(self.now);
        }
        if self.reductions.get(of_rank.step).is_none_or(Option::is_none) {
            return self.begin_after(rank);
        }
        of_rank.state = StepState::Reducing;
        self.arrived += 1;
        if self.arrived == self.ranks.len() {
            // All ranks are in the same step: each waits for all others.
            self.reduction = self.reductions.get(self.ranks[rank].step).copied().flatten();
            if self.reduction.is_some_and(|seconds| seconds <= 0.0) {
                self.end_reduction();
            }
        }
    }

    fn end_reduction(&mut self) {
        self.reduction = None;
        self.arrived = 0;
        for rank in 0..self.ranks.len() {
            self.begin_after(rank);
            self.dirty.push(rank);
        }
    }

    fn begin_after(&mut self, rank: usize) {
        self.ranks[rank].state = StepState::After;
        let step = self.ranks[rank].step;
        if !self.begin_stage(rank, Thread::Step, step, 0) {
            self.ranks[rank].end_step(self.now);
        }
    }

    /// Let idle threads begin batches, and steps begin, until nothing more can happen now.
    fn settle(&mut self) {
        while let Some(rank) = self.dirty.pop() {
            while self.begin_batch(rank) || self.begin_step(rank) {}
        }
    }

    fn begin_batch(&mut self, rank: usize) -> bool {
        let of_rank = &mut self.ranks[rank];
        if !of_rank.may_begin(self.pipeline) {
            return false;
        }
        let batch = of_rank.claim_batch();
        self.batches = self.batches.max(of_rank.batches());
        if !self.begin_stage(rank, Thread::Loader, batch, 0) {
            self.ranks[rank].finish_batch(batch);
        }
        true
    }

    /// Begin the step of a rank as far as its batch allows; false if its state stays as it is.
    fn begin_step(&mut self, rank: usize) -> bool {
        let of_rank = &mut self.ranks[rank];
        let finished = self.pipeline.threads == 0 || of_rank.has_batch();
        match (of_rank.state, finished) {
            (StepState::Ready, true) => self.deliver(rank),
            (StepState::Ready, false) => of_rank.state = StepState::Waiting,
            (StepState::Waiting, true) if self.pipeline.wake_s > 0.0 => {
                of_rank.state = StepState::Waking;
                self.running.push(RunningStage {
                    rank,
                    node: of_rank.trace.node(),
                    thread: Thread::Waking,
                    batch: of_rank.step,
                    position: 0,
                    stage: 0,
                    left_s: self.pipeline.wake_s,
                    processors: 0.0,
                });
            }
            (StepState::Waiting, true) => self.deliver(rank),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::StageModel;

    /// Loading in two stages, a step in one before and one after the reduction.
    fn pipeline(threads: usize, window: usize, processors: f64) -> Pipeline {
        use Segment::{AfterReduce, BeforeReduce, Load};
        let stages = [Load, Load, BeforeReduce, AfterReduce].map(|segment| StageModel::new(segment, 1.0)).to_vec();
        Pipeline { stages, threads, window, max_batches: None, processors: vec![processors], wake_s: 0.0 }
    }

    /// A rank of equal steps.
    fn constant(steps: usize, read: f64, collate: f64, before: f64, after: f64) -> RankTrace {
        RankTrace::new(0, 4, [read, collate, before, after].repeat(steps))
    }

    fn walls(pipeline: &Pipeline, trace: &RankTrace) -> Vec<f64> {
        simulate(pipeline, std::slice::from_ref(trace), &[]).unwrap().ranks.remove(0).wall_s
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn without_threads_a_step_is_the_sum_of_all_stages() {
        assert_eq!(walls(&pipeline(0, 1, 4.0), &constant(5, 2.0, 1.0, 3.0, 0.5)), [6.5; 5]);
        // Alone on its node it never shares a processor.
        assert_eq!(walls(&pipeline(0, 1, 1.0), &constant(5, 2.0, 1.0, 3.0, 0.5)), [6.5; 5]);
    }

    #[test]
    fn threads_of_constant_time_deliver_at_the_rate_of_the_slower_side() {
        // In a steady state a step takes max(loading / threads, step).
        for (threads, load, step) in [(1, 6.0, 2.0), (2, 6.0, 2.0), (3, 6.0, 2.0), (6, 6.0, 2.0), (4, 1.0, 5.0)] {
            let walls = walls(&pipeline(threads, 2 * threads, 64.0), &constant(200, load / 2.0, load / 2.0, step, 0.0));
            let late: f64 = walls[100..100 + 60].iter().sum::<f64>() / 60.0;
            close(late, (load / threads as f64).max(step));
        }
    }

    #[test]
    fn the_first_batch_is_waited_for_and_the_window_fills_behind_slow_steps() {
        let walls = walls(&pipeline(1, 3, 8.0), &constant(6, 1.0, 1.0, 5.0, 0.0));
        assert_eq!(walls, [7.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
    }

    #[test]
    fn a_full_window_stops_the_threads() {
        // One slow step of 100 s: with a window of 2 only two batches are ready behind it, and the third is waited for.
        let trace = constant(10, 4.0, 0.0, 1.0, 0.0).map(|step, seconds| {
            if step == 2 {
                seconds[2] = 100.0;
            }
        });
        assert_eq!(walls(&pipeline(1, 2, 8.0), &trace)[2..8], [103.0, 1.0, 1.0, 3.0, 4.0, 4.0]);
        let deep = walls(&pipeline(1, 5, 8.0), &trace);
        assert_eq!(deep[3..8], [1.0; 5]);
    }

    #[test]
    fn a_slow_batch_delays_those_behind_it() {
        // Two threads of 2 s, steps of 1 s; batch 4 takes 10 s. Batches 5 to 7 are ready and wait for it.
        let trace = constant(12, 2.0, 0.0, 1.0, 0.0).map(|step, seconds| {
            if step == 4 {
                seconds[0] = 10.0;
            }
        });
        let simulated = simulate(&pipeline(2, 4, 8.0), &[trace], &[]).unwrap();
        let rank = &simulated.ranks[0];
        // Batches 2 and 3 are done at 4 s, batch 4 begins then and is done at 14 s.
        assert_eq!(rank.wall_s[..4], [3.0, 1.0, 1.0, 1.0]);
        assert_eq!(rank.wall_s[4..8], [15.0 - 6.0, 1.0, 1.0, 1.0]);
        assert_eq!((rank.exposed(4, 0), rank.exposed(4, 2), rank.exposed(5, 0)), (8.0, 1.0, 0.0));
    }

    #[test]
    fn threads_share_processors_equally() {
        // Four threads on two processors deliver as two do.
        let trace = constant(100, 4.0, 0.0, 0.0, 0.0);
        let late = |threads, processors| {
            let walls = walls(&pipeline(threads, 2 * threads, processors), &trace);
            walls[40..80].iter().sum::<f64>() / 40.0
        };
        close(late(2, 2.0), 2.0);
        close(late(4, 2.0), 2.0);
        close(late(8, 2.0), 2.0);
        close(late(4, 4.0), 1.0);
        // One processor for a thread and a step: the work of both is done one after the other.
        let both = walls(&pipeline(1, 2, 1.0), &constant(100, 4.0, 0.0, 4.0, 0.0));
        close(both[40..80].iter().sum::<f64>() / 40.0, 8.0);
    }

    #[test]
    fn waits_for_storage_share_no_processor_and_mixed_stages_share_in_part() {
        let mut four = pipeline(4, 8, 1.0);
        four.stages[0].processors = 0.0;
        let trace = constant(100, 4.0, 0.0, 0.0, 0.0);
        close(walls(&four, &trace)[40..80].iter().sum::<f64>() / 40.0, 1.0);
        // Half of the time on the processor: load 2 on one processor, a batch takes 0.5 + 0.5 × 2 as long.
        four.stages[0].processors = 0.5;
        close(walls(&four, &trace)[40..80].iter().sum::<f64>() / 40.0, 1.5);
    }

    #[test]
    fn a_stage_of_several_threads_takes_several_processors() {
        let mut wide = pipeline(1, 2, 2.0);
        wide.stages[2].processors = 2.0;
        // A step on both processors beside one loader thread: three threads on two processors while both run.
        let walls = walls(&wide, &constant(60, 1.0, 0.0, 4.0, 0.0));
        // The loader thread needs 1.5 s of the step, in which the step does 1 s of its work; 3 s are left.
        close(walls[30], 4.5);
    }

    #[test]
    fn ranks_meet_in_each_reduction() {
        let fast = constant(10, 0.0, 0.0, 1.0, 1.0);
        let slow = fast.clone().map(|step, seconds| seconds[2] = if step % 2 == 0 { 3.0 } else { 2.0 });
        let reductions = vec![Some(0.5); 10];
        let simulated = simulate(&pipeline(1, 2, 8.0), &[fast.clone(), slow.clone()], &reductions).unwrap();
        for rank in &simulated.ranks {
            assert_eq!(rank.wall_s[..4], [4.5, 3.5, 4.5, 3.5]);
        }
        let waited = |rank: usize, step| simulated.ranks[rank].waited(step, Wait::Reduce);
        assert_eq!((waited(0, 0), waited(1, 0), waited(0, 1)), (2.5, 0.5, 1.5));
        // Without one, each goes its own way.
        let apart = simulate(&pipeline(1, 2, 8.0), &[fast, slow], &[]).unwrap();
        assert_eq!((apart.ranks[0].wall_s[0], apart.ranks[1].wall_s[0]), (2.0, 4.0));
    }

    #[test]
    fn some_steps_meet_and_others_do_not() {
        let fast = constant(4, 0.0, 0.0, 1.0, 0.0);
        let slow = constant(4, 0.0, 0.0, 3.0, 0.0);
        let reductions = [None, Some(0.0), None, Some(0.0)];
        let simulated = simulate(&pipeline(1, 2, 8.0), &[fast, slow], &reductions).unwrap();
        assert_eq!(simulated.ranks[0].wall_s, [1.0, 5.0, 1.0, 5.0]);
        assert_eq!(simulated.ranks[1].wall_s, [3.0; 4]);
    }

    #[test]
    fn a_limit_of_memory_leaves_one_batch_to_a_step_that_waits() {
        let limited = Pipeline { max_batches: Some(1), ..pipeline(4, 8, 8.0) };
        let simulated = simulate(&limited, &[constant(10, 3.0, 0.0, 2.0, 0.0)], &[]).unwrap();
        // Nothing overlaps: the batch in the step is all that fits.
        assert_eq!(simulated.ranks[0].wall_s, [5.0; 10]);
        assert_eq!(simulated.batches, 1);
        let two = Pipeline { max_batches: Some(2), ..pipeline(1, 8, 8.0) };
        let simulated = simulate(&two, &[constant(10, 3.0, 0.0, 2.0, 0.0)], &[]).unwrap();
        assert_eq!((simulated.ranks[0].wall_s[5], simulated.batches), (3.0, 2));
    }

    #[test]
    fn a_waiting_step_takes_time_to_wake() {
        let slow = Pipeline { wake_s: 0.25, ..pipeline(1, 2, 8.0) };
        let simulated = simulate(&slow, &[constant(10, 3.0, 0.0, 1.0, 0.0)], &[]).unwrap();
        let rank = &simulated.ranks[0];
        // The thread goes on meanwhile: its batch is late by nothing, and the step by its wake-up.
        assert_eq!((rank.wall_s[0], rank.wall_s[5], rank.waited(5, Wait::Wake)), (4.25, 3.0, 0.25));
        // What is ready wakes nobody.
        assert_eq!(walls(&slow, &constant(5, 1.0, 0.0, 3.0, 0.0))[1..], [3.0; 4]);
    }

    #[test]
    fn steps_without_any_work_take_no_time() {
        assert_eq!(walls(&pipeline(2, 4, 2.0), &constant(5, 0.0, 0.0, 0.0, 0.0)), [0.0; 5]);
        assert_eq!(walls(&pipeline(0, 1, 2.0), &constant(5, 0.0, 0.0, 0.0, 0.0)), [0.0; 5]);
    }

    /// Steps with any costs.
    fn traces() -> impl Strategy<Value = Vec<RankTrace>> {
        let rank = |steps: usize| {
            proptest::collection::vec(0.0..4.0_f64, 4 * steps).prop_map(|seconds| RankTrace::new(0, 4, seconds))
        };
        (1..3_usize, 1..25_usize).prop_flat_map(move |(ranks, steps)| proptest::collection::vec(rank(steps), ranks))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_step_is_the_sum_of_what_it_waited_for(traces in traces(), threads in 0..4_usize, window in 1..6_usize,
            processors in 1..5_u32, meet in any::<bool>()) {
            let reductions = if meet { vec![Some(0.1); traces[0].steps()] } else { Vec::new() };
            let model = Pipeline { wake_s: 0.01, ..pipeline(threads, window, processors.into()) };
            let simulated = simulate(&model, &traces, &reductions).unwrap();
            for (rank, trace) in simulated.ranks.iter().zip(&traces) {
                prop_assert_eq!(rank.wall_s.len(), trace.steps());
                for step in 0..trace.steps() {
                    let stages: f64 = (0..4).map(|stage| rank.exposed(step, stage)).sum();
                    let waits = rank.waited(step, Wait::Reduce) + rank.waited(step, Wait::Wake);
                    prop_assert!((stages + waits - rank.wall_s[step]).abs() < 1e-6);
                    // Sharing processors makes no stage faster.
                    for stage in 0..4 {
                        prop_assert!(rank.busy(step, stage) >= trace.step(step)[stage] - 1e-9);
                    }
                }
            }
            prop_assert!(simulated.batches <= window + 1);
        }

        #[test]
        fn nothing_is_faster_than_its_parts_allow(traces in traces(), threads in 1..5_usize, window in 1..9_usize,
            processors in 1..5_u32) {
            let simulated = simulate(&pipeline(threads, window, processors.into()), &traces, &[]).unwrap();
            let work: f64 = traces.iter().flat_map(|trace| (0..trace.steps()).map(|step| trace.step(step).iter().sum::<f64>())).sum();
            let end = simulated.ranks.iter().map(|rank| rank.wall_s.iter().sum::<f64>()).fold(0.0, f64::max);
            prop_assert!(end >= work / f64::from(processors) - 1e-6);
            for (rank, trace) in simulated.ranks.iter().zip(&traces) {
                let sum = |stages: std::ops::Range<usize>| -> f64 {
                    (0..trace.steps()).map(|step| trace.step(step)[stages.clone()].iter().sum::<f64>()).sum()
                };
                let took: f64 = rank.wall_s.iter().sum();
                prop_assert!(took >= sum(2..4) - 1e-6);
                prop_assert!(took >= sum(0..2) / threads as f64 - 1e-6);
                // With processors for all, no more than one after the other.
                if f64::from(processors) >= (traces.len() * (threads + 1)) as f64 {
                    prop_assert!(took <= sum(0..4) + 1e-6);
                }
            }
        }

        #[test]
        fn with_a_processor_for_each_thread_more_threads_and_a_larger_window_never_harm(traces in traces(), threads in 1..4_usize,
            window in 1..6_usize) {
            let end = |threads, window| -> f64 {
                let simulated = simulate(&pipeline(threads, window, 64.0), &traces, &[]).unwrap();
                simulated.ranks.iter().map(|rank| rank.wall_s.iter().sum::<f64>()).fold(0.0, f64::max)
            };
            prop_assert!(end(threads, window + 1) <= end(threads, window) + 1e-6);
            prop_assert!(end(threads + 1, window) <= end(threads, window) + 1e-6);
        }
    }
}
