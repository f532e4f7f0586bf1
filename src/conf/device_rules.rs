use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;

/// Modes whose steps compute no layer of the model.
const WITHOUT_LAYERS: [&str; 2] = ["data", "zero_loss"];

impl Judge<'_> {
    /// What ranks compute on, and what of the other settings cannot be had there. Which GPUs there are is not known here.
    pub(super) fn device(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (device, backend) = (values.text("launch.device"), values.text("launch.backend"));
        let mut report = |key: &str, also: &str, message: &str, label: &str, help: &str| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            if let Some(at) = values.at(also) {
                problem = problem.also(at, format!("`{also}`"));
            }
            problems.push(problem.help(help));
        };
        if (device, backend) == (Some("cpu"), Some("nccl")) {
            let message =
                "`launch.backend` = \"nccl\" exchanges what is on GPUs, but `launch.device` = \"cpu\" uses none";
            let help = "set launch.backend to \"gloo\", or launch.device to \"cuda\"";
            report("launch.backend", "launch.device", message, "does not fit", help);
        }
        let shared = values.text("model.kind") == Some("lazy") && values.text("model.implementation") == Some("shared");
        let computes = values.text("train.mode").is_some_and(|mode| !WITHOUT_LAYERS.contains(&mode));
        if device == Some("cuda") && shared && computes {
            let message = "the shared lazy model computes on the host alone, but `launch.device` = \"cuda\"";
            let help =
                "set model.implementation to \"replicated\" (with the processor \"lazy\"), or launch.device to \"cpu\"";
            report("launch.device", "model.implementation", message, "its layers have no kernels for GPUs", help);
        }
    }
}
