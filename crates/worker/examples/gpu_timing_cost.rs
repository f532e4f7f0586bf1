//! What a training step on a GPU pays for the times of its stages: an event at each boundary, recorded within the step and read at its end,
//! as `DeviceTimer` does (`src/device/stream.rs`). The stages are kernels as small as kernels can be, so that nothing hides the events.
//!
//!     cargo run --release -p expctl-worker --example gpu_timing_cost -- [REPEATS [STEPS]] [--record FILE]
#![allow(clippy::print_stdout, reason = "a tool for developers")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use expctl_ledger::{BenchFigure, BenchRecord};
use tch::{Device, Kind, TchError, Tensor};
use torch_dist::{Cuda, DeviceEvent, DeviceStream, DistError};

/// Stages of a step with clipping: transfer, forward, backward, clip, optimizer.
const STAGES: usize = 5;
const GPU: u32 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .take_while(|a| a != "--record")
        .map(|a| a.parse::<usize>())
        .collect::<Result<_, _>>()?;
    let (repeats, steps) = (numbers.first().copied().unwrap_or(15), numbers.get(1).copied().unwrap_or(5000));
    let cuda = Cuda::load()?;
    cuda.select(GPU)?;
    let mut work = Tensor::f_zeros([1], (Kind::Float, Device::Cuda(GPU as usize)))?;
    let (mut plain, mut timed) = (Vec::with_capacity(repeats), Vec::with_capacity(repeats));
    // The first repeat warms up.
    for repeat in 0..=repeats {
        let without = mean(steps, || without_times(&mut work))?;
        let with = mean(steps, || with_times(&mut work).map(drop))?;
        if repeat > 0 {
            plain.push(without);
            timed.push(with);
        }
    }
    let cost: Vec<f64> = timed.iter().zip(&plain).map(|(timed, plain)| timed - plain).collect();
    let figures: Vec<BenchFigure> = [("plain", &plain), ("timed", &timed), ("cost", &cost)]
        .into_iter()
        .filter_map(|(key, times)| BenchFigure::from_range(key, "ns", times))
        .collect();
    println!("ns a step of {STAGES} stages, median [least..most] of {repeats} repeats of {steps} steps");
    for (figure, name) in figures.iter().zip(["without times", "with times of the device", "the times themselves"]) {
        println!("{:>8.0} [{:.0}..{:.0}]  {name}", figure.median, figure.low, figure.high);
    }
    let program = "cargo run --release -p expctl-worker --example gpu_timing_cost --";
    // Not the folder that it was built in: it is carried to machines with a GPU, and started in the clone there.
    BenchRecord::write_if_asked(program, Path::new("."), figures)?;
    Ok(())
}

/// Mean ns of one step.
fn mean(steps: usize, mut step: impl FnMut() -> Result<(), DistError>) -> Result<f64, DistError> {
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / steps as f64)
}

/// The stages, and the wait for their result that ends a step.
fn without_times(work: &mut Tensor) -> Result<(), DistError> {
    for _ in 0..STAGES {
        kernel(work)?;
    }
    result(work)
}

/// The same, timed; ns of all stages by the device's clock.
fn with_times(work: &mut Tensor) -> Result<u64, DistError> {
    let stream = DeviceStream::current(GPU)?;
    let start = DeviceEvent::record(&stream)?;
    let mut ends = Vec::with_capacity(STAGES);
    for _ in 0..STAGES {
        kernel(work)?;
        ends.push(DeviceEvent::record(&stream)?);
    }
    result(work)?;
    let (mut since, mut ns) = (&start, 0);
    for end in &ends {
        ns += since.elapsed_ns(end)?;
        since = end;
    }
    Ok(ns)
}

fn kernel(work: &mut Tensor) -> Result<(), DistError> {
    work.f_add_scalar_(1.0).map(drop).map_err(refused)
}

fn result(work: &Tensor) -> Result<(), DistError> {
    work.f_double_value(&[0]).map(drop).map_err(refused)
}

fn refused(e: TchError) -> DistError {
    DistError::from_tch("compute on the device", &e)
}
