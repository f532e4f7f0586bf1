//! An accelerator that is not there: batches reach its device, their steps take the time that was asked for, and the ranks meet behind each.
//!
//! The emulated time is the stage *forward*: it ends when it was to end, by the clock. The thread of the step sleeps meanwhile, so loader threads have its processor, as they do beside
//! a real accelerator. What it wakes up late is *other*.

use std::time::{Duration, Instant};

use expctl_ledger::Stage;
use expctl_settings::{EmulatedStepTimes, Settings};
use tch::{Device, Kind, Tensor};
use torch_dist::{ProcessGroup, ProfilerRange};

use crate::activity::Phase;
use crate::device::{DeviceTimer, Gpu};
use crate::models::{Network, StepContext};
use crate::trainer::{StepResult, TrainError};

/// Bytes of a value of the payload.
const VALUE_BYTES: u64 = 4;

/// Steps of an emulated accelerator, one of which belongs to each rank.
#[derive(Debug)]
pub struct EmulatedAccelerator {
    times: EmulatedStepTimes,
    rank: u32,
    has_peers: bool,
    /// float32 `[values]`, zeros, on `device`: what the ranks sum up. `None`: they only wait for each other.
    payload: Option<Tensor>,
    reads_graphs: bool,
    device: Device,
    /// `None` where the device is the host.
    gpu: Option<Gpu>,
}

/// An emulated step that has begun.
#[derive(Debug)]
pub struct StartedStep {
    /// Transfer, and what was timed before it on the GPU.
    result: StepResult,
    began: Instant,
    /// When the accelerator is done.
    end: Instant,
}

impl EmulatedAccelerator {
    /// An accelerator whose steps take `times`, for batches that are transferred to `device`. To be made on the thread that steps.
    ///
    /// # Errors
    /// There is no memory for `train.allreduce_bytes`.
    pub fn new(
        times: EmulatedStepTimes,
        settings: &Settings,
        group: &ProcessGroup,
        device: Device,
    ) -> Result<Self, TrainError> {
        let (has_peers, bytes) = (group.world() > 1, settings.train.allreduce_bytes);
        let values = i64::try_from(bytes.div_ceil(VALUE_BYTES)).unwrap_or(i64::MAX);
        let payload = (has_peers && bytes > 0).then(|| Tensor::f_zeros([values], (Kind::Float, device))).transpose()?;
        wake_on_time();
        Ok(Self {
            times,
            rank: group.rank(),
            has_peers,
            payload,
            reads_graphs: Network::reads_graphs(settings),
            device,
            gpu: Gpu::from_device(device),
        })
    }

    /// Begin `step`: transfer the batch, and wait for the transfer. `timer` times the GPU, where there is one; it may have timed other work on the batch before.
    ///
    /// # Errors
    /// The batch cannot be transferred.
    pub fn start(
        &self,
        step: u64,
        context: &StepContext<'_>,
        timer: Option<DeviceTimer>,
    ) -> Result<StartedStep, TrainError> {
        let mut result = StepResult::default();
        context.activity.set_phase(Phase::Transfer);
        let from = Instant::now();
        let range = ProfilerRange::open(Stage::Transfer.name());
        let inputs = context.batch.inputs(context.masks, self.reads_graphs, self.device)?;
        let launched_ns = from.elapsed().as_nanos() as u64;
        if let Some(mut timer) = timer {
            timer.end_stage(Stage::Transfer)?;
            timer.synchronize()?;
            let times = timer.times()?;
            times.iter().for_each(|(stage, ns)| result.exposed[stage] += ns);
            result.device = Some(times);
        }
        result.add(Stage::Transfer, launched_ns, self.gpu.is_none());
        drop(inputs);
        drop(range);
        let began = Instant::now();
        let end = began + Duration::from_nanos(self.times.ns(self.rank, step));
        Ok(StartedStep { result, began, end })
    }

    /// End the step: wait for the end of its time, then for the other ranks.
    ///
    /// # Errors
    /// A peer is gone.
    pub fn finish(&mut self, started: StartedStep, context: &StepContext<'_>) -> Result<StepResult, TrainError> {
        let StartedStep { mut result, began, end } = started;
        context.activity.set_phase(Phase::Forward);
        let range = ProfilerRange::open(Stage::Forward.name());
        sleep_until(end);
        drop(range);
        let woken = Instant::now();
        result.add(Stage::Forward, end.duration_since(began).as_nanos() as u64, true);
        result.add(Stage::Other, woken.duration_since(end).as_nanos() as u64, true);
        if self.has_peers {
            context.activity.set_phase(Phase::Gather);
            let range = ProfilerRange::open(Stage::Allreduce.name());
            self.meet(context.group)?;
            drop(range);
            result.add(Stage::Allreduce, woken.elapsed().as_nanos() as u64, true);
        }
        Ok(result)
    }

    /// Wait for the other ranks, and sum the payload up.
    fn meet(&mut self, group: &ProcessGroup) -> Result<(), TrainError> {
        group.barrier()?;
        let Some(payload) = &mut self.payload else { return Ok(()) };
        let timer = self.gpu.map(DeviceTimer::start).transpose()?;
        group.all_reduce_sum(payload)?;
        if let Some(mut timer) = timer {
            // The host waits for the sum, as the optimizer would.
            timer.end_stage(Stage::Allreduce)?;
            timer.synchronize()?;
        }
        Ok(())
    }
}

/// Sleep until `end`; never shorter.
fn sleep_until(end: Instant) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

/// Have the kernel wake this thread on time. By default it may do so 50 µs later, to wake several threads at once.
fn wake_on_time() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a property of this thread; no memory is handed over.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph_loader::{Batch, CellGraph, Processor, Sample};
    use serde_json::json;
    use torch_dist::Store;

    use super::*;
    use crate::activity::Activity;
    use crate::tests::collate;

    const LIMIT: Duration = Duration::from_secs(60);

    fn settings(allreduce_bytes: u64) -> Settings {
        let all = json!({
            "experiment": {"study": "", "title": "", "description": "", "measures": [], "does_not_measure": []},
            "data": {"set": "", "samples": 64, "scale": 1.0, "networks": "real", "seed": 1},
            "pipeline": {"processor": "ids", "edge_types": []},
            "loader": {"batch_size": 2, "workers": 0, "prefetch_factor": 1, "pin_memory": false, "shuffle": false,
                       "drop_last": false, "seed": 0},
            "model": {"kind": "dango", "hidden": 16, "heads": 4, "layers": 2, "edge_types": [], "seed": 17},
            "train": {"mode": "emulate", "allreduce_bytes": allreduce_bytes, "optimizer": "adamw", "learning_rate": 0.01,
                      "weight_decay": 0.0, "clip_norm": 0.0, "reconstruction": "off"},
            "measure": {"warmup": 0, "steps": 1, "repeats": 1},
            "launch": {"ranks": 1, "threads": 1, "rendezvous_timeout_s": 60, "heartbeat_timeout_s": 60},
            "slurm": {"partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0},
        });
        serde_json::from_value(all).unwrap()
    }

    fn batch() -> Batch {
        let graph =
            CellGraph { genes: vec!["G0".to_owned(), "G1".to_owned()], edge_types: Vec::new(), metabolism: None };
        let samples = [0, 1].map(|gene| Sample { genes: vec![gene], ..Sample::default() });
        collate(Processor::Ids, &Arc::new(graph), &samples)
    }

    fn accelerator(ms: &[f64], allreduce_bytes: u64, group: &ProcessGroup) -> EmulatedAccelerator {
        let times = EmulatedStepTimes::InTurn(ms.to_vec());
        EmulatedAccelerator::new(times, &settings(allreduce_bytes), group, Device::Cpu).unwrap()
    }

    #[test]
    fn the_emulated_time_is_exact_and_the_thread_never_goes_on_earlier() {
        let store = Store::in_process(LIMIT).unwrap();
        let group = ProcessGroup::gloo(&store, 0, 1, LIMIT).unwrap();
        let mut accelerator = accelerator(&[20.0, 0.0], 1 << 20, &group);
        // Alone, a rank has nobody to sum up with.
        assert!(accelerator.payload.is_none());
        let (activity, batch) = (Activity::default(), batch());
        let context = StepContext { batch: &batch, masks: &[], epoch: 0, group: &group, activity: &activity };
        for (step, ns) in [(0, 20_000_000), (1, 0), (2, 20_000_000)] {
            let from = Instant::now();
            let started = accelerator.start(step, &context, None).unwrap();
            let result = accelerator.finish(started, &context).unwrap();
            let took = from.elapsed().as_nanos() as u64;
            assert_eq!((result.busy[Stage::Forward], result.exposed[Stage::Forward]), (ns, ns), "step {step}");
            assert_eq!(result.exposed[Stage::Allreduce], 0);
            assert!(result.exposed[Stage::Transfer] > 0 && result.busy == result.exposed);
            // No time is counted twice.
            assert!((ns..=took).contains(&result.exposed.total()), "step {step}: {result:?} in {took} ns");
            assert!(result.loss.is_none() && result.device.is_none());
        }
    }

    #[test]
    fn ranks_meet_behind_the_slowest_and_sum_their_payload_up() {
        let server = Store::serve("127.0.0.1", 0, LIMIT).unwrap();
        let port = server.port();
        let ranks = std::thread::scope(|scope| {
            let rank = |rank: u32| {
                move || {
                    let store = Store::connect("127.0.0.1", port, LIMIT).unwrap();
                    let group = ProcessGroup::gloo(&store, rank, 2, LIMIT).unwrap();
                    // Ten bytes are three values.
                    let mut accelerator = accelerator(&[if rank == 0 { 1.0 } else { 50.0 }], 10, &group);
                    let _ = accelerator.payload.as_mut().unwrap().fill_(f64::from(rank + 1));
                    let (activity, batch) = (Activity::default(), batch());
                    let context =
                        StepContext { batch: &batch, masks: &[], epoch: 0, group: &group, activity: &activity };
                    let started = accelerator.start(0, &context, None).unwrap();
                    let end = started.end;
                    let result = accelerator.finish(started, &context).unwrap();
                    let sums = Vec::<f32>::try_from(accelerator.payload.as_ref().unwrap()).unwrap();
                    (end, Instant::now(), result, sums)
                }
            };
            [0, 1].map(|number| scope.spawn(rank(number))).map(|thread| thread.join().unwrap())
        });
        for (number, (_, done, result, sums)) in ranks.iter().enumerate() {
            assert!(ranks.iter().all(|(end, ..)| end <= done), "rank {number} did not wait");
            assert_eq!(sums, &[3.0; 3]);
            assert_eq!(result.exposed[Stage::Forward], [1_000_000, 50_000_000][number]);
            assert!(result.exposed[Stage::Allreduce] > 0);
        }
    }
}
