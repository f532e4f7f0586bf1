//! The stages of a step on a GPU without hardware, which takes the time that a test says. The test runs in a process of its own: libtorch has
//! one device of a kind in a process, and other tests ask for a real one.

use std::process::{Command, Stdio};

use expctl_fake_gpu::{DEFAULT_STREAM, FakeGpu};
use expctl_ledger::Stage;

use crate::device::{DeviceTimer, Gpu};

#[test]
fn stages_on_a_device_take_the_time_between_their_events() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["tests::fake_gpu::stages_on_the_fake_gpu", "--exact", "--ignored"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
}

#[test]
#[ignore = "entry of the process that stages_on_a_device_take_the_time_between_their_events starts"]
fn stages_on_the_fake_gpu() {
    let gpu = FakeGpu::install();
    // Work from before the step belongs to no stage.
    gpu.add_work(DEFAULT_STREAM, 125);
    let mut timer = DeviceTimer::start(Gpu::Cuda(0)).unwrap();
    // A stage may come twice, and one may leave the device nothing to do.
    for (stage, microseconds) in
        [(Stage::Transfer, 250), (Stage::Forward, 1000), (Stage::Mask, 0), (Stage::Transfer, 500)]
    {
        gpu.add_work(DEFAULT_STREAM, microseconds);
        timer.end_stage(stage).unwrap();
    }
    // Times are there when the device is, and nothing but `synchronize` waits for it.
    assert!(timer.times().unwrap_err().to_string().contains("must be completed"));
    timer.synchronize().unwrap();
    let times = timer.times().unwrap();
    let stages = [Stage::Transfer, Stage::Forward, Stage::Mask, Stage::Backward];
    assert_eq!(stages.map(|stage| times[stage]), [750_000, 1_000_000, 0, 0]);
    let calls = gpu.calls();
    let count = |kind: &str| calls.iter().filter(|call| call.starts_with(kind)).count();
    assert_eq!((count("record on 0"), count("wait for"), count("block")), (5, 1, 0), "{calls:?}");

    gpu.fail("CUDA error: an illegal memory access was encountered");
    for error in
        [timer.end_stage(Stage::Backward).unwrap_err(), timer.synchronize().unwrap_err(), timer.times().unwrap_err()]
    {
        assert!(error.to_string().contains("illegal memory access"), "{error}");
    }
}
