//! What needs libtorch's CUDA libraries, and what needs a GPU. Where they are not there, each test says what it left out.
//! Their own process: loading them changes what the profiler does in it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use expctl_dist::{
    AdamwOptions, AdamwPart, Cuda, CudaError, DeviceEvent, DeviceStream, GpuBackend, Nccl, Pinned, ProcessGroup,
    Profile, ProfileOptions, Range, Reducer, ReducerOptions, SentAs, Store, fused_adamw,
};
use tch::{Device, Kind, Tensor};

/// CUDA, loaded once.
fn loaded() -> &'static Result<Cuda, CudaError> {
    static CUDA: OnceLock<Result<Cuda, CudaError>> = OnceLock::new();
    CUDA.get_or_init(Cuda::load)
}

/// The same; says why there is none.
fn cuda(test: &str) -> Option<&'static Cuda> {
    match loaded() {
        Ok(cuda) => Some(cuda),
        Err(why) => {
            skipped(test, why);
            None
        }
    }
}

/// Written past the harness, which would keep it to itself: skips are counted.
fn skipped(test: &str, why: &CudaError) {
    std::io::stderr().write_all(format!("SKIPPED {test}: {why}\n").as_bytes()).unwrap();
}

/// Without a driver as well: whether all that it takes from libtorch is there shows when it is loaded.
#[test]
fn the_group_over_nccl_fits_libtorch() {
    if loaded().is_err()
        && let Err(why) = Cuda::load_libraries()
    {
        return skipped("the_group_over_nccl_fits_libtorch", &why);
    }
    assert!(Nccl::load().unwrap().version().starts_with("2."));
}

/// What this program allocates libtorch_cuda frees, with the size that it takes a process group for. That size is in its code: the
/// destructor that frees hands it on to `operator delete` (`mov $0x458,%esi`).
#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_group_has_the_size_that_libtorch_takes_it_for() {
    if loaded().is_err()
        && let Err(why) = Cuda::load_libraries()
    {
        return skipped("a_process_group_has_the_size_that_libtorch_takes_it_for", &why);
    }
    let here = Nccl::load().unwrap().group_bytes();
    let all = libloading::os::unix::Library::this();
    // SAFETY: `ProcessGroupNCCL::~ProcessGroupNCCL`, the variant that frees; it is read as far as a function of its kind is long.
    let code = unsafe {
        let start = all.get::<*const u8>(b"_ZN4c10d16ProcessGroupNCCLD0Ev\0").unwrap();
        std::slice::from_raw_parts(*start, 48)
    };
    let sizes: Vec<usize> = code
        .windows(5)
        .filter(|bytes| bytes[0] == 0xbe)
        .map(|bytes| u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize)
        .collect();
    assert!(sizes.contains(&here), "{here} here; libtorch_cuda: {sizes:x?} in {code:02x?}");
}

#[test]
fn a_gpu_computes_what_the_host_computes() {
    let Some(cuda) = cuda("a_gpu_computes_what_the_host_computes") else { return };
    assert!(!cuda.gpus()[0].name.is_empty() && cuda.gpus()[0].uuid.starts_with("GPU-"), "{cuda:?}");
    let a = Tensor::randn([200, 300], (Kind::Float, Device::Cpu));
    let there = a.to_device(Device::Cuda(0));
    let far = (there.matmul(&there.tr()).to_device(Device::Cpu) - a.matmul(&a.tr())).abs().max();
    assert!(far.double_value(&[]) < 1e-2);
}

#[test]
fn a_copy_from_pinned_memory_goes_beside_the_work_and_events_order_both() {
    let Some(_) = cuda("a_copy_from_pinned_memory_goes_beside_the_work_and_events_order_both") else { return };
    let mut memory = Pinned::new(64 << 20).unwrap();
    memory.bytes_mut().fill(7);
    let (copies, work) = (DeviceStream::new(0).unwrap(), DeviceStream::current(0).unwrap());
    let begin = DeviceEvent::record(&copies).unwrap();
    let arrived = {
        let _there = copies.enter().unwrap();
        memory.tensor().to_device_(Device::Cuda(0), Kind::Uint8, true, true)
    };
    let end = DeviceEvent::record(&copies).unwrap();
    end.hold_up(&work).unwrap();
    work.uses(&arrived).unwrap();
    assert_eq!(arrived.to_kind(Kind::Int64).sum(Kind::Int64).int64_value(&[]), 7 << 26);
    end.wait().unwrap();
    let ns = begin.ns_until(&end).unwrap();
    assert!(ns > 100_000 && ns < 1_000_000_000, "64 MiB in {ns} ns");
}

#[test]
fn a_step_is_left_out_on_the_device_where_gradients_overflow() {
    let Some(_) = cuda("a_step_is_left_out_on_the_device_where_gradients_overflow") else { return };
    let gpu = (Kind::Float, Device::Cuda(0));
    let (parameter, gradient) = (Tensor::ones([50], gpu), Tensor::ones([50], gpu));
    let (mean, square, steps) =
        (Tensor::zeros([50], gpu), Tensor::zeros([50], gpu), Tensor::zeros([] as [i64; 0], gpu));
    let part = AdamwPart { parameter: &parameter, gradient: &gradient, mean: &mean, square: &square, steps: &steps };
    let options = AdamwOptions { learning_rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    fused_adamw(&[part], options, Some(&Tensor::ones([] as [i64; 0], gpu))).unwrap();
    assert_eq!((parameter.double_value(&[3]), steps.double_value(&[])), (1.0, 0.0));
    fused_adamw(&[part], options, Some(&Tensor::zeros([] as [i64; 0], gpu))).unwrap();
    assert!((parameter.double_value(&[3]) - 0.9).abs() < 1e-6 && steps.double_value(&[]) == 1.0);
}

/// The mean over one rank is its own gradient: what is shown is that NCCL and the reducer work together, in each type.
#[test]
fn gradients_are_reduced_over_nccl_and_timed_by_the_device() {
    let Some(_) = cuda("gradients_are_reduced_over_nccl_and_timed_by_the_device") else { return };
    let limit = Duration::from_secs(60);
    let store = Store::serve("127.0.0.1", 0, limit).unwrap();
    let nccl = GpuBackend::Nccl(Nccl::load().unwrap());
    let group = ProcessGroup::with_gpus(&store, 0, 1, limit, nccl).unwrap();
    for (sent, exact) in [(SentAs::Own, 0.0), (SentAs::Float16, 1e-3), (SentAs::Bfloat16, 1e-2)] {
        let weight = Tensor::randn([300, 400], (Kind::Float, Device::Cuda(0))).set_requires_grad(true);
        let options = ReducerOptions { sent, ..ReducerOptions::default() };
        let mut reducer = Reducer::new(&[("weight".to_owned(), weight.shallow_clone())], &group, options).unwrap();
        let x = Tensor::randn([20, 300], (Kind::Float, Device::Cuda(0)));
        for _ in 0..3 {
            let mut gradient = weight.grad();
            if gradient.defined() {
                let _ = gradient.zero_();
            }
            reducer.prepare_forward().unwrap();
            let loss = x.matmul(&weight).square().mean(Kind::Float);
            reducer.prepare_backward(&[&loss]).unwrap();
            reducer.backward(&loss).unwrap();
            tch::Cuda::synchronize(0);
            let times = reducer.take_allreduce_times().unwrap();
            assert!(times.buckets == 1 && times.busy_ns > 0 && times.exposed_ns <= times.busy_ns, "{times:?}");
            let expected = x.tr().matmul(&x.matmul(&weight.detach())) * (2.0 / (20.0 * 400.0));
            let far = ((weight.grad() - &expected).abs().max() / expected.abs().max()).double_value(&[]);
            assert!(far <= exact + 1e-5, "{sent:?}: {far}");
        }
    }
    group.shutdown().unwrap();
}

#[test]
fn the_profiler_records_kernels_and_our_ranges() {
    let Some(_) = cuda("the_profiler_records_kernels_and_our_ranges") else { return };
    let options = ProfileOptions { cuda: true, ..ProfileOptions::default() };
    Profile::prepare(options).unwrap();
    let profile = Profile::start(options).unwrap();
    {
        let _range = Range::open("our range");
        let a = Tensor::ones([500, 500], (Kind::Float, Device::Cuda(0)));
        let _ = a.matmul(&a).sum(Kind::Float).double_value(&[]);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    profile.stop().unwrap().save(&path).unwrap();
    let trace = std::fs::read_to_string(path).unwrap();
    for part in ["\"our range\"", "\"kernel\"", "\"gpu_memcpy\"", "cudaLaunchKernel"] {
        assert!(trace.contains(part), "{part}");
    }
}
