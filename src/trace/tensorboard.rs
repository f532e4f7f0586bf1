use std::io::Write;
use std::path::{Path, PathBuf};

use expctl_record::trace_rows::LOAD;
use expctl_record::{RecordError, write_atomic};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::RankTrace;
use super::stages::step_number;

/// What TensorBoard's plugin takes for the range in which a step waits for its batch: `enumerate(DataLoader)#….__next__`.
const DATA_LOADER: &str = "enumerate(DataLoader)#expctl.__next__";

/// Write the trace of a rank into `folder` as PyTorch's plugin of TensorBoard (`torch-tb-profiler`) reads it, and return the file.
///
/// The plugin goes by names. A file is `<worker>.<span>.pt.trace.json.gz`, here the host and the rank, and the first moment of the trace in ns
/// since 1970, as `torch.profiler.tensorboard_trace_handler` names it. A step is a range `ProfilerStep#N`, and the wait for a batch a range
/// of PyTorch's `DataLoader`; both are called otherwise in the traces of the ledger. All else stays as it is.
///
/// Source: `consts.py` and `profiler/event_parser.py` of `torch_tb_profiler` 0.4.3.
///
/// # Errors
/// The folder or the file cannot be written; nothing half-written stays.
pub fn write_for_tensorboard(trace: &RankTrace, folder: &Path) -> Result<PathBuf, RecordError> {
    let start = trace.slices().iter().map(|slice| slice.start).min().unwrap_or(trace.base);
    let path = folder.join(format!("{}_{}.{start}.pt.trace.json.gz", trace.meta.host, trace.meta.rank));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RecordError::Io { action: "write", path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut root = trace.head.clone();
    root.insert("traceEvents".to_owned(), Json::Array(trace.events.iter().map(renamed).collect()));
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let packed = serde_json::to_writer(&mut packed, &root)
        .map_err(std::io::Error::from)
        .and_then(|()| packed.flush())
        .and_then(|()| packed.finish());
    write_atomic(&path, &packed.map_err(failed(&path))?)?;
    Ok(path)
}

fn renamed(event: &Json) -> Json {
    let mut event = event.clone();
    if event["ph"] == "X" && event["cat"] == "user_annotation" {
        let name = event["name"].as_str().unwrap_or_default();
        let of_plugin = match step_number(name) {
            Some(step) => Some(format!("ProfilerStep#{step}")),
            None => (name == LOAD).then(|| DATA_LOADER.to_owned()),
        };
        if let Some(name) = of_plugin {
            event["name"] = json!(name);
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_host_get_the_names_of_the_plugin() {
        let name = |category: &str, name: &str| {
            let event = renamed(&json!({"ph": "X", "cat": category, "name": name, "ts": 1.5}));
            assert_eq!(event["ts"], 1.5);
            event["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(name("user_annotation", "step 12"), "ProfilerStep#12");
        assert_eq!(name("user_annotation", "load"), DATA_LOADER);
        // Those of a GPU's streams would be steps twice over.
        assert_eq!(name("gpu_user_annotation", "step 12"), "step 12");
        assert_eq!((name("cpu_op", "load"), name("user_annotation", "forward")), ("load".into(), "forward".into()));
    }
}
