//! Streams, events and the timing of all-reduces on a GPU without hardware.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use expctl_fake_gpu::{Bucket, DEFAULT_STREAM, DeviceFailure, FakeGpu, Totals};
use tch::{Device, Kind, Tensor};
use torch_dist::{DeviceEvent, DeviceStream, GpuBackend, ProcessGroup, Store};

/// Id of the first stream that a test opens.
const FIRST: i64 = 1;
const FAILURE: &str = "CUDA error: an illegal memory access was encountered";

#[test]
fn a_stream_that_is_held_up_goes_on_where_the_other_one_has_come() {
    let gpu = FakeGpu::install();
    let (work, copies) = (DeviceStream::current(0).unwrap(), DeviceStream::new(0).unwrap());
    let start = DeviceEvent::record(&work).unwrap();
    gpu.add_work(FIRST, 500);
    let copied = DeviceEvent::record(&copies).unwrap();
    gpu.add_work(DEFAULT_STREAM, 125);
    copied.block(&work).unwrap();
    gpu.add_work(DEFAULT_STREAM, 250);
    let end = DeviceEvent::record(&work).unwrap();
    // The host has not waited.
    let early = start.elapsed_ns(&end).unwrap_err().to_string();
    assert!(early.contains("must be completed"), "{early}");
    end.synchronize().unwrap();
    assert_eq!((start.elapsed_ns(&copied), start.elapsed_ns(&end)), (Ok(500_000), Ok(750_000)));
    let orders: Vec<String> =
        gpu.calls().into_iter().filter(|call| !call.starts_with("query") && !call.starts_with("time")).collect();
    assert_eq!(orders, ["open", "record on 0", "record on 1", "block 0 until 2", "record on 0", "wait for 3"]);
}

#[test]
fn work_goes_to_the_stream_that_was_entered_until_it_is_left() {
    let gpu = FakeGpu::install();
    let copies = DeviceStream::new(0).unwrap();
    let recorded = || DeviceEvent::record(&DeviceStream::current(0).unwrap()).unwrap();
    {
        let _there = copies.enter().unwrap();
        recorded();
    }
    recorded();
    assert_eq!(gpu.calls(), ["open", "record on 1", "record on 0"]);
}

#[test]
fn another_gpu_and_memory_of_the_host_are_errors() {
    let _gpu = FakeGpu::install();
    let other = DeviceStream::new(1).unwrap_err().to_string();
    assert!(other.contains("there is one GPU"), "{other}");
    let host = Tensor::zeros([3], (Kind::Float, Device::Cpu));
    assert!(DeviceStream::current(0).unwrap().record_tensor(&host).is_err());
}

#[test]
fn what_a_device_says_when_it_has_failed_arrives() {
    let gpu = FakeGpu::install();
    let stream = DeviceStream::new(0).unwrap();
    let before = DeviceEvent::record(&stream).unwrap();
    gpu.fail(FAILURE);
    let errors = [
        DeviceStream::new(0).map(|_| ()).unwrap_err(),
        DeviceEvent::record(&stream).map(|_| ()).unwrap_err(),
        before.block(&stream).unwrap_err(),
        before.synchronize().unwrap_err(),
        before.elapsed_ns(&before).map(|_| ()).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.to_string().ends_with(FAILURE)), "{errors:?}");
}

/// NCCL: the thread that completes a bucket has a stream as its current one that waits for the reduction alone.
#[test]
fn buckets_that_the_device_reduces_take_from_the_last_gradient_to_their_end() {
    let gpu = FakeGpu::install();
    let reductions = DeviceStream::new(0).unwrap();
    let timeline = gpu.timeline();
    let reduced = |bucket: Bucket<'_>| {
        let _there = reductions.enter().unwrap();
        bucket.reduced().unwrap();
    };
    // Full at 125, 375 and 500 µs, reduced at 250, 625 and 1,125 µs.
    gpu.add_work(DEFAULT_STREAM, 125);
    let first = timeline.launch_nccl().unwrap();
    gpu.add_work(DEFAULT_STREAM, 250);
    let second = timeline.launch_nccl().unwrap();
    gpu.add_work(FIRST, 250);
    reduced(first);
    gpu.add_work(FIRST, 375);
    reduced(second);
    gpu.add_work(DEFAULT_STREAM, 125);
    let third = timeline.launch_nccl().unwrap();
    gpu.add_work(FIRST, 500);
    reduced(third);
    // 125 to 250 and 375 to 1,125 µs; 500 to 1,125 µs.
    assert_eq!(timeline.totals(), Ok(Totals { busy: 875_000, exposed: 625_000, buckets: 3 }));
    assert!(!timeline.in_flight());
}

/// Gloo: what its copy waits for is behind all that the backward pass has queued meanwhile, if the default stream is asked.
#[test]
fn buckets_that_the_host_reduces_end_with_their_copy_and_not_with_the_backward_pass() {
    let gpu = FakeGpu::install();
    let _copies = DeviceStream::new(0).unwrap();
    let timeline = gpu.timeline();
    gpu.add_work(DEFAULT_STREAM, 125);
    let first = timeline.launch_gloo().unwrap();
    gpu.add_work(DEFAULT_STREAM, 2000);
    gpu.add_work(FIRST, 375);
    first.copied_back(FIRST).unwrap();
    let second = timeline.launch_gloo().unwrap();
    gpu.add_work(FIRST, 2000);
    second.copied_back(FIRST).unwrap();
    // 125 to 375 and 2,125 to 2,375 µs.
    assert_eq!(timeline.totals(), Ok(Totals { busy: 500_000, exposed: 250_000, buckets: 2 }));
    let calls = gpu.calls();
    // One more stream for all buckets, and the one that computes waits for nothing.
    assert_eq!(calls.iter().filter(|call| *call == "open").count(), 2, "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("block 0")), "{calls:?}");
}

#[test]
fn the_next_pass_begins_without_buckets_and_a_late_completion_is_dropped() {
    let gpu = FakeGpu::install();
    let timeline = gpu.timeline();
    let abandoned = timeline.launch_gloo().unwrap();
    assert!(timeline.in_flight());
    timeline.begin();
    assert!(!timeline.in_flight());
    abandoned.copied_back(DEFAULT_STREAM).unwrap();
    assert!(!timeline.in_flight());
    assert_eq!(timeline.totals(), Ok(Totals::default()));
    let _next = timeline.launch_gloo().unwrap();
    assert!(timeline.in_flight());
}

/// The thread of the heartbeat asks, and an error of the device would end the process there.
#[test]
fn whether_a_bucket_is_under_way_is_known_without_the_device() {
    let gpu = FakeGpu::install();
    let timeline = gpu.timeline();
    let bucket = timeline.launch_nccl().unwrap();
    gpu.fail(FAILURE);
    let calls = gpu.calls();
    assert!(timeline.in_flight());
    assert_eq!(gpu.calls(), calls);
    // The host has seen it, though the device does not say where it is.
    assert_eq!(bucket.reduced(), Err(DeviceFailure { message: FAILURE.to_owned() }));
    assert!(!timeline.in_flight());
    assert_eq!(timeline.totals(), Err(DeviceFailure { message: FAILURE.to_owned() }));
}

#[test]
fn the_host_reduces_gradients_of_the_default_stream_only() {
    let gpu = FakeGpu::install();
    let timeline = gpu.timeline();
    let own = DeviceStream::new(0).unwrap();
    let _there = own.enter().unwrap();
    let refused = timeline.launch_gloo().map(drop).unwrap_err();
    assert!(refused.message.contains("default stream only"), "{refused}");
    assert!(!timeline.in_flight());
    // NCCL orders itself behind whichever stream is current.
    assert!(timeline.launch_nccl().is_ok());
}

#[test]
fn nccl_is_shut_down_in_peace_and_aborted_otherwise() {
    let gpu = FakeGpu::install();
    let limit = Duration::from_secs(30);
    let store = Store::serve("127.0.0.1", 0, limit).unwrap();
    let group = || ProcessGroup::with_gpus(&store, 0, 1, limit, GpuBackend::Nccl(gpu.nccl())).unwrap();
    let done = group();
    done.shutdown().unwrap();
    drop(done);
    assert_eq!(gpu.calls(), ["shutdown"]);
    drop(group());
    assert_eq!(gpu.calls(), ["shutdown", "abort"]);
}

#[test]
fn no_rank_shuts_nccl_down_while_another_one_is_in_its_last_step() {
    let gpu = FakeGpu::install();
    let limit = Duration::from_secs(30);
    let store = Store::serve("127.0.0.1", 0, limit).unwrap();
    let peer = Store::connect("127.0.0.1", store.port(), limit).unwrap();
    let nccl = GpuBackend::Nccl(gpu.nccl());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let late = ProcessGroup::with_gpus(&peer, 1, 2, limit, nccl).unwrap();
            std::thread::sleep(Duration::from_millis(500));
            assert!(gpu.calls().is_empty(), "{:?}", gpu.calls());
            late.shutdown().unwrap();
        });
        let early = ProcessGroup::with_gpus(&store, 0, 2, limit, nccl).unwrap();
        early.shutdown().unwrap();
    });
    assert_eq!(gpu.calls(), ["shutdown", "shutdown"]);
}
