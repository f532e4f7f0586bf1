use serde_json::Value as Json;

use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;

impl Judge<'_> {
    /// Settings of the learning rate that contradict each other, or of which one would have no effect.
    pub(super) fn schedule(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(schedule) = values.text("train.schedule") else { return };
        let mut report = |key: &str, with: &str, message: String, label: &str, help: &str| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            if let Some(at) = values.at(with).filter(|at| values.at(key) != Some(*at)) {
                problem = problem.also(at, format!("`{with}`"));
            }
            problems.push(problem.help(help));
        };
        let rate = |key: &str| values.get(key).and_then(Json::as_f64);
        if let (Some(least), Some(rate)) = (rate("train.schedule_min"), rate("train.learning_rate"))
            && schedule != "constant"
            && least > rate
        {
            let message = format!("`train.schedule_min` = {least} is above `train.learning_rate` = {rate}");
            let help = "set schedule_min to at most learning_rate";
            report("train.schedule_min", "train.learning_rate", message, "the rate could not fall", help);
        }
        if let (Some(rising), Some(cycle)) =
            (values.number("train.schedule_warmup"), values.number("train.schedule_epochs"))
            && schedule == "cosine_restarts"
            && rising >= cycle
        {
            let message = format!("`train.schedule_warmup` = {rising} leaves nothing of a cycle of {cycle} epochs");
            let help = "set schedule_warmup below schedule_epochs";
            report("train.schedule_warmup", "train.schedule_epochs", message, "the rate would only rise", help);
        }
        if schedule == "plateau" {
            let none = |key: &str| values.number(key) == Some(0);
            for (key, help) in
                [("train.epochs", "set train.epochs"), ("train.validate_every", "set train.validate_every")]
            {
                if none(key) {
                    let message = "`train.schedule` = \"plateau\" waits for validations, of which there are none";
                    report("train.schedule", key, message.to_owned(), "would have no effect", help);
                    break;
                }
            }
        } else if values.at("train.schedule_patience").is_some() {
            let message = format!("`train.schedule_patience` is set, but schedule `{schedule}` waits for nothing");
            let help = "set it where the schedule is \"plateau\", for example in a variant; train.patience ends training early";
            report("train.schedule_patience", "train.schedule", message, "would have no effect", help);
        }
    }
}
