use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;

impl Judge<'_> {
    /// What ranks compute on, and what of the other settings cannot be had there. Which GPUs there are is not known here.
    pub(super) fn device(&self, values: &Values, problems: &mut Vec<Problem>) {
        if (values.text("launch.device"), values.text("launch.backend")) != (Some("cpu"), Some("nccl")) {
            return;
        }
        let message = "`launch.backend` = \"nccl\" exchanges what is on GPUs, but `launch.device` = \"cpu\" uses none";
        let mut problem = Problem::new(self.at(values, "launch.backend"), message, "does not fit");
        if let Some(at) = values.at("launch.device") {
            problem = problem.also(at, "`launch.device`".to_owned());
        }
        problems.push(problem.help("set launch.backend to \"gloo\", or launch.device to \"cuda\""));
    }
}
