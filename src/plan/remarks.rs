use super::plan_type::Plan;
use crate::conf::model_remarks;

/// What a reader must know of the models of a plan, a line each: the variants, and a sentence about them.
pub fn remarks(plan: &Plan) -> Vec<String> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for trial in &plan.trials {
        for said in model_remarks(&trial.settings) {
            let known = found.iter().position(|(sentence, _)| *sentence == said);
            let known = known.unwrap_or_else(|| {
                found.push((said, Vec::new()));
                found.len() - 1
            });
            let variants = &mut found[known].1;
            if !variants.contains(&trial.variant.as_str()) {
                variants.push(&trial.variant);
            }
        }
    }
    found.into_iter().map(|(said, variants)| format!("{}: {said}", variants.join(", "))).collect()
}
