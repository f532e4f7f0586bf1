//! The C++ side as cxx sees it. Everything here is private to the crate; the safe types wrap it.
//!
//! Tensors cross as the address of the `at::Tensor` that tch owns: the callee borrows it for the call, or takes a
//! reference count of its own.

#[allow(missing_docs, reason = "private, and the attribute macro drops the comments")]
#[cxx::bridge(namespace = "torch_dist")]
pub(crate) mod bridge {
    struct BucketTimes {
        busy_ns: u64,
        exposed_ns: u64,
        buckets: u64,
    }

    /// A tensor, or where its address is 0 a number.
    struct ScriptArgument {
        tensor: usize,
        number: i64,
    }

    struct ProfileSettings {
        cuda: bool,
        record_shapes: bool,
        memory: bool,
        stack: bool,
    }

    struct AdamwSettings {
        learning_rate: f64,
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        weight_decay: f64,
    }

    /// When a bucket was handed over and reduced, nanoseconds of the steady clock.
    struct BucketInterval {
        start: i64,
        end: i64,
    }

    unsafe extern "C++" {
        include!("torch-dist/cpp/store.h");
        include!("torch-dist/cpp/group.h");
        include!("torch-dist/cpp/reducer.h");
        include!("torch-dist/cpp/quiet.h");
        include!("torch-dist/cpp/script.h");
        include!("torch-dist/cpp/sparse.h");
        include!("torch-dist/cpp/shared_layer.h");
        include!("torch-dist/cpp/pairwise_join.h");
        include!("torch-dist/cpp/autocast.h");
        include!("torch-dist/cpp/version.h");
        include!("torch-dist/cpp/profile.h");
        include!("torch-dist/cpp/adamw.h");
        include!("torch-dist/cpp/device.h");
        include!("torch-dist/cpp/foreach.h");

        fn quiet();
        fn set_autocast(cuda: bool, enabled: bool) -> bool;
        fn enter_autocast();
        fn leave_autocast();
        fn compiled_version() -> String;
        fn loaded_version() -> String;
        fn loaded_file() -> String;
        fn sparse_matmul(matrix: usize, transposed: usize, dense: usize) -> Result<usize>;

        fn fused_adamw(
            parameters: &[usize],
            gradients: &[usize],
            means: &[usize],
            squares: &[usize],
            steps: &[usize],
            settings: &AdamwSettings,
            overflow: usize,
        ) -> Result<()>;
        fn norms(tensors: &[usize]) -> Result<usize>;
        fn scale(tensors: &[usize], factor: usize) -> Result<()>;

        type NeighboursHandle;
        fn neighbours(rows: i64) -> Result<UniquePtr<NeighboursHandle>>;
        fn add_type(self: &NeighboursHandle, sources: &[i64], targets: &[i64]) -> Result<()>;
        fn sum_neighbours(
            neighbours: &NeighboursHandle,
            x: usize,
            eps: usize,
            into: usize,
            from: usize,
        ) -> Result<usize>;
        fn sums_of_differing(sums: usize, x: usize, copied: usize, into: usize, from: usize) -> Result<usize>;
        fn layer_rows(sums: usize, parameters: &[usize], weights: usize, shape: &[i64], eps: f64) -> Result<usize>;
        fn row_instructions() -> String;
        fn pairwise_join(
            types: usize,
            mean: usize,
            mean_score: usize,
            parameters: &[usize],
            rows_at_once: i64,
        ) -> Result<usize>;

        type ScriptHandle;
        fn load_script(path: &str) -> Result<UniquePtr<ScriptHandle>>;
        fn define_script(names: &[String], parameters: &[usize], source: &str) -> Result<UniquePtr<ScriptHandle>>;
        fn parameter_names(self: &ScriptHandle) -> Result<Vec<String>>;
        fn buffer_names(self: &ScriptHandle) -> Result<Vec<String>>;
        fn tensors(self: &ScriptHandle) -> Result<Vec<usize>>;
        fn argument_names(self: &ScriptHandle) -> Result<Vec<String>>;
        fn argument_types(self: &ScriptHandle) -> Result<Vec<String>>;
        fn required_arguments(self: &ScriptHandle) -> Result<usize>;
        fn set_training(self: Pin<&mut ScriptHandle>, training: bool) -> Result<()>;
        fn to_gpu(self: Pin<&mut ScriptHandle>, index: i32) -> Result<()>;
        fn forward(self: Pin<&mut ScriptHandle>, arguments: &[ScriptArgument]) -> Result<usize>;
        fn save(self: &ScriptHandle, path: &str) -> Result<()>;

        type StoreHandle;
        fn open_store(
            host: &str,
            port: u16,
            serve: bool,
            listen_fd: i32,
            timeout_ms: i64,
        ) -> Result<UniquePtr<StoreHandle>>;
        fn open_lone_store(timeout_ms: i64) -> Result<UniquePtr<StoreHandle>>;
        fn another(self: &StoreHandle) -> UniquePtr<StoreHandle>;
        fn port(self: &StoreHandle) -> u16;
        fn set_timeout(self: &StoreHandle, timeout_ms: i64);
        fn set(self: &StoreHandle, key: &str, value: &[u8]) -> Result<()>;
        fn get(self: &StoreHandle, key: &str) -> Result<Vec<u8>>;
        fn add(self: &StoreHandle, key: &str, amount: i64) -> Result<i64>;
        fn check(self: &StoreHandle, keys: &[String]) -> Result<bool>;
        fn wait(self: &StoreHandle, keys: &[String], timeout_ms: i64) -> Result<()>;

        type GroupHandle;
        fn open_gloo_group(
            store: &StoreHandle,
            prefix: &str,
            rank: i32,
            world: i32,
            timeout_ms: i64,
            interface: &str,
            address: &str,
        ) -> Result<UniquePtr<GroupHandle>>;
        fn serve_gpus(self: &GroupHandle) -> Result<()>;
        fn add_nccl(self: &GroupHandle, store: &StoreHandle, prefix: &str, open: usize, timeout_ms: i64) -> Result<()>;
        fn shutdown(self: &GroupHandle) -> Result<()>;
        fn barrier(self: &GroupHandle) -> Result<()>;
        fn all_reduce_sum(self: &GroupHandle, tensor: usize) -> Result<()>;
        fn broadcast(self: &GroupHandle, tensor: usize, root: i32) -> Result<()>;
        fn all_gather(self: &GroupHandle, outputs: &[usize], input: usize) -> Result<()>;

        type ReducerHandle;
        fn open_reducer(
            group: &GroupHandle,
            parameters: &[usize],
            names: &[String],
            bucket_cap: u64,
            first_bucket: u64,
            find_unused: bool,
            sent: &str,
        ) -> Result<UniquePtr<ReducerHandle>>;
        fn prepare_forward(self: &ReducerHandle) -> Result<bool>;
        fn prepare_backward(self: &ReducerHandle, outputs: &[usize]) -> Result<()>;
        fn times(self: &ReducerHandle) -> Result<BucketTimes>;
        fn buckets(self: &ReducerHandle) -> Vec<BucketInterval>;

        type TimelineHandle;
        fn timeline(self: &ReducerHandle) -> UniquePtr<TimelineHandle>;
        fn under_way(self: &TimelineHandle) -> bool;

        fn visible_gpus() -> i32;
        fn choose_gpu(device: i32) -> Result<()>;
        fn annotate_ranges();
        type StreamHandle;
        fn open_stream(device: i32) -> Result<UniquePtr<StreamHandle>>;
        fn current_stream(device: i32) -> Result<UniquePtr<StreamHandle>>;
        type StreamScopeHandle;
        fn enter_stream(stream: &StreamHandle) -> Result<UniquePtr<StreamScopeHandle>>;
        type EventHandle;
        fn new_event() -> Result<UniquePtr<EventHandle>>;
        fn record(self: Pin<&mut EventHandle>, stream: &StreamHandle) -> Result<()>;
        fn hold_up(self: &EventHandle, stream: &StreamHandle) -> Result<()>;
        fn wait(self: &EventHandle) -> Result<()>;
        fn ms_until(self: &EventHandle, later: &EventHandle) -> Result<f64>;
        fn pinned(bytes: i64) -> Result<usize>;
        fn used_on(tensor: usize, stream: &StreamHandle) -> Result<()>;

        type RecordedHandle;
        fn prepare_profile(settings: &ProfileSettings) -> Result<()>;
        fn start_profile(settings: &ProfileSettings) -> Result<()>;
        fn stop_profile() -> Result<UniquePtr<RecordedHandle>>;
        fn save(self: &RecordedHandle, path: &str) -> Result<()>;
        type RangeHandle;
        fn open_range(name: &str) -> UniquePtr<RangeHandle>;
    }
}

// SAFETY: a TCPStore guards its connection with a mutex, and its server runs on a thread of its own.
unsafe impl Send for bridge::StoreHandle {}
// SAFETY: as above.
unsafe impl Sync for bridge::StoreHandle {}
// SAFETY: a timeline guards its intervals with a mutex, and is freed by its last owner.
unsafe impl Send for bridge::TimelineHandle {}
// SAFETY: as above.
unsafe impl Sync for bridge::TimelineHandle {}
// SAFETY: a module is not bound to the thread that loaded it. Its forward pass changes its buffers, so it is not Sync.
unsafe impl Send for bridge::ScriptHandle {}
// SAFETY: a process group is not bound to the thread that made it. Calls from two threads at once could be ordered
// differently on two ranks, so it is not Sync.
unsafe impl Send for bridge::GroupHandle {}
// SAFETY: an event is not bound to the thread that made it.
unsafe impl Send for bridge::EventHandle {}

#[cfg(test)]
mod tests {
    /// The C++ side of the bridge, as cxx generated it.
    const SHIMS: &str = include_str!(concat!(env!("OUT_DIR"), "/cxxbridge/sources/torch-dist/src/ffi.rs.cc"));

    /// Names of the functions in which an exception ends the process: they return no `Result`, so nothing is caught.
    fn unguarded(shims: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut lines = shims.lines();
        while let Some(line) = lines.next() {
            // `bool torch_dist$cxxbridge1$205$TimelineHandle$under_way(... const &self) noexcept {`
            let Some((_, function)) = line.split_once("torch_dist$cxxbridge1$") else { continue };
            if !line.ends_with(" noexcept {") {
                continue;
            }
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
            let name = function.split('(').next().unwrap_or_default();
            let name = name.split_once('$').map_or(name, |(_version, name)| name);
            if !body.iter().any(|line| line.contains("trycatch")) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        names
    }

    /// A device that has failed once fails in every call, and its error has to reach the caller: a function that is added here must not ask
    /// the device, or must return a `Result`.
    #[test]
    fn no_function_that_asks_a_device_ends_the_process_where_the_device_fails() {
        let reviewed = [
            // On the host alone: constants, versions, the store and its copy, ports and time limits.
            "StoreHandle$another",
            "StoreHandle$port",
            "StoreHandle$set_timeout",
            "compiled_version",
            "loaded_file",
            "loaded_version",
            "quiet",
            "row_instructions",
            // Recorded times, and a counter.
            "ReducerHandle$buckets",
            "ReducerHandle$timeline",
            "TimelineHandle$under_way",
            // Flags of this thread or process. The cache that `leave_autocast` empties gives its memory back to libtorch's pool.
            "annotate_ranges",
            "enter_autocast",
            "leave_autocast",
            "set_autocast",
            // NVTX, which knows no device.
            "open_range",
            // `deviceCount` of libtorch's interface may not throw.
            "visible_gpus",
        ];
        let mut reviewed = reviewed.map(str::to_owned);
        reviewed.sort_unstable();
        assert_eq!(unguarded(SHIMS), reviewed);
    }

    #[test]
    fn a_shim_that_catches_is_told_from_one_that_does_not() {
        let shims = "\
void torch_dist$cxxbridge1$205$quiet() noexcept {\n  quiet$();\n}\n\n\
::rust::repr::PtrLen torch_dist$cxxbridge1$205$EventHandle$wait(::A const &self) noexcept {\n  ::rust::behavior::trycatch(\n}\n\
bool torch_dist$cxxbridge1$205$TimelineHandle$under_way(::A const &self) noexcept {\n  return (self.*under_way$)();\n}\n";
        assert_eq!(unguarded(shims), ["TimelineHandle$under_way", "quiet"]);
    }
}
