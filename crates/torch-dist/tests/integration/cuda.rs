//! What needs libtorch's CUDA libraries, and what needs a GPU. Where they are missing, each test says that it is skipped. On a GPU these tests
//! run in a process without the others (`scripts/gpu.sh test`): libraries must be loaded before the first tensor.

use std::sync::OnceLock;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use test_support::{Requirement, skip_test};
use torch_dist::{
    AdamwOptions, AdamwParameter, Cuda, CudaError, DeviceEvent, DeviceStream, GpuBackend, GradientDtype, Nccl,
    PinnedMemory, ProcessGroup, ProfileOptions, ProfilerRange, Reducer, ReducerOptions, RunningProfile, Store,
    fused_adamw,
};

/// CUDA, loaded once.
fn loaded() -> &'static Result<Cuda, CudaError> {
    static CUDA: OnceLock<Result<Cuda, CudaError>> = OnceLock::new();
    CUDA.get_or_init(Cuda::load)
}

/// CUDA, or `None` and a skipped test.
fn cuda(test: &str) -> Option<&'static Cuda> {
    match loaded() {
        Ok(cuda) => Some(cuda),
        Err(why) => {
            skip_test(test, Requirement::Gpu, why);
            None
        }
    }
}

/// Without a driver as well: symbols that libtorch lacks are missed when the library is loaded.
#[test]
fn the_group_over_nccl_fits_libtorch() {
    if loaded().is_err()
        && let Err(why) = Cuda::load_libraries()
    {
        return skip_test("the_group_over_nccl_fits_libtorch", Requirement::Other, why);
    }
    assert!(Nccl::load().unwrap().version().starts_with("2."));
}

/// This program allocates a process group, and libtorch_cuda frees it with the size that it assumes. That size is in its code: the destructor
/// passes it to `operator delete` (`mov $0x458,%esi`).
#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_group_has_the_size_that_libtorch_takes_it_for() {
    if loaded().is_err()
        && let Err(why) = Cuda::load_libraries()
    {
        return skip_test("a_process_group_has_the_size_that_libtorch_takes_it_for", Requirement::Other, why);
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
    let mut memory = PinnedMemory::new(64 << 20).unwrap();
    memory.bytes_mut().fill(7);
    let (copies, work) = (DeviceStream::new(0).unwrap(), DeviceStream::current(0).unwrap());
    let begin = DeviceEvent::record(&copies).unwrap();
    let arrived = {
        let _there = copies.enter().unwrap();
        memory.tensor().to_device_(Device::Cuda(0), Kind::Uint8, true, true)
    };
    let end = DeviceEvent::record(&copies).unwrap();
    end.block(&work).unwrap();
    work.record_tensor(&arrived).unwrap();
    assert_eq!(arrived.to_kind(Kind::Int64).sum(Kind::Int64).int64_value(&[]), 7 << 26);
    end.synchronize().unwrap();
    let ns = begin.elapsed_ns(&end).unwrap();
    assert!(ns > 100_000 && ns < 1_000_000_000, "64 MiB in {ns} ns");
}

#[test]
fn a_step_is_left_out_on_the_device_where_gradients_overflow() {
    let Some(_) = cuda("a_step_is_left_out_on_the_device_where_gradients_overflow") else { return };
    let gpu = (Kind::Float, Device::Cuda(0));
    let (parameter, gradient) = (Tensor::ones([50], gpu), Tensor::ones([50], gpu));
    let (mean, square, steps) =
        (Tensor::zeros([50], gpu), Tensor::zeros([50], gpu), Tensor::zeros([] as [i64; 0], gpu));
    let part =
        AdamwParameter { parameter: &parameter, gradient: &gradient, mean: &mean, square: &square, steps: &steps };
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
    for (gradient_dtype, exact) in
        [(GradientDtype::Unchanged, 0.0), (GradientDtype::Float16, 1e-3), (GradientDtype::Bfloat16, 1e-2)]
    {
        let weight = Tensor::randn([300, 400], (Kind::Float, Device::Cuda(0))).set_requires_grad(true);
        let options = ReducerOptions { gradient_dtype, ..ReducerOptions::default() };
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
            assert!(far <= exact + 1e-5, "{gradient_dtype:?}: {far}");
        }
    }
    group.shutdown().unwrap();
}

#[test]
fn the_profiler_records_kernels_and_our_ranges() {
    let Some(_) = cuda("the_profiler_records_kernels_and_our_ranges") else { return };
    let options = ProfileOptions { cuda: true, ..ProfileOptions::default() };
    RunningProfile::prepare(options).unwrap();
    let profile = RunningProfile::start(options).unwrap();
    {
        let _range = ProfilerRange::open("our range");
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
