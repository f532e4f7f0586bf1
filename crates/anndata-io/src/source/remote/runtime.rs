use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

use super::failure::Failure;

/// Threads that move bytes: one does a few GB/s, two keep going while one writes to a cache.
const THREADS: usize = 2;

/// The runtime of the process. It has no end: what is under way when the process ends is of no use to anybody.
pub(super) fn runtime(url: &str) -> Result<&'static Runtime, Failure> {
    static RUNTIME: LazyLock<Result<Runtime, String>> = LazyLock::new(|| {
        // Fails if it was done before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("anndata-remote").enable_all().build();
        built.map_err(|e| e.to_string())
    });
    RUNTIME.as_ref().map_err(|e| Failure::refused(url, &format!("there are no threads for requests: {e}")))
}
