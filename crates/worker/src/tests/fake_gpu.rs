//! The stages of a step on a GPU without hardware, which takes the time that a test says. The case is in a process of its own: libtorch keeps
//! one device of a kind for all of a process, and other tests ask for a real one.

use std::process::{Command, Stdio};

use expctl_fake_gpu::{DEFAULT_STREAM, FakeGpu};
use expctl_record::Stage;

use super::{DeviceLaps, Gpu};

#[test]
fn stages_on_a_device_take_the_time_between_their_events() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["device::fake_gpu_cases::stages_on_the_fake_gpu", "--exact", "--ignored"])
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
    // What the stream had before the step is of no stage.
    gpu.works(DEFAULT_STREAM, 125);
    let mut laps = DeviceLaps::start(Gpu::Cuda(0)).unwrap();
    // A stage may come twice, and one may leave the device nothing to do.
    for (stage, microseconds) in
        [(Stage::Transfer, 250), (Stage::Forward, 1000), (Stage::Mask, 0), (Stage::Transfer, 500)]
    {
        gpu.works(DEFAULT_STREAM, microseconds);
        laps.lap(stage).unwrap();
    }
    // Times are there when the device is, and nothing but `wait` waits for it.
    assert!(laps.times().unwrap_err().to_string().contains("must be completed"));
    laps.wait().unwrap();
    let times = laps.times().unwrap();
    let stages = [Stage::Transfer, Stage::Forward, Stage::Mask, Stage::Backward];
    assert_eq!(stages.map(|stage| times[stage]), [750_000, 1_000_000, 0, 0]);
    let calls = gpu.calls();
    let count = |kind: &str| calls.iter().filter(|call| call.starts_with(kind)).count();
    assert_eq!((count("record on 0"), count("wait for"), count("block")), (5, 1, 0), "{calls:?}");

    gpu.fail("CUDA error: an illegal memory access was encountered");
    for error in [laps.lap(Stage::Backward).unwrap_err(), laps.wait().unwrap_err(), laps.times().unwrap_err()] {
        assert!(error.to_string().contains("illegal memory access"), "{error}");
    }
}
