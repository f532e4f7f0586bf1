//! Which model each variant of a plan computes.

use std::collections::BTreeMap;

use expctl_datasets::graph::Recipe;
use expctl_record::{Settings, Trial};
use expctl_text::format::thousands;

use super::plan_type::Plan;
use crate::project::Project;

/// The model of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantModel {
    /// Name of the variant.
    pub variant: String,
    /// Its model, or models where points of a sweep have several: `lazy, replicated, 1,781,187 parameters (derived)`. The number
    /// follows from the settings, and is left out where these do not tell it. Empty where no trial of the variant computes a model.
    pub words: String,
    /// Whether nothing said which model, so that it is the one by default.
    pub by_default: bool,
}

/// The model of each variant of a plan, in the order of the variants.
pub fn models(project: &Project, plan: &Plan) -> Vec<VariantModel> {
    let mut recipes = Recipes { project, read: BTreeMap::new() };
    plan.variants().into_iter().map(|variant| of_variant(plan, variant, &mut recipes)).collect()
}

fn of_variant(plan: &Plan, variant: String, recipes: &mut Recipes<'_>) -> VariantModel {
    // Repeats share their model.
    let computes = |trial: &&Trial| trial.variant == variant && trial.repeat == 1 && trial.settings.computes_model();
    let trials: Vec<&Trial> = plan.trials.iter().filter(computes).collect();
    let mut models: Vec<String> = Vec::new();
    for trial in &trials {
        let model = &trial.settings.model;
        let count = recipes.genes(&trial.settings).and_then(|genes| model.parameter_count(genes));
        let words = match count {
            Some(count) => format!("{}, {} parameters (derived)", model.words(), thousands(count)),
            None => model.words(),
        };
        if !models.contains(&words) {
            models.push(words);
        }
    }
    VariantModel { words: models.join("; "), by_default: trials.iter().any(|trial| trial.default_model), variant }
}

/// Recipes of data sets, each read once.
struct Recipes<'a> {
    project: &'a Project,
    /// None for one that cannot be read.
    read: BTreeMap<String, Option<Recipe>>,
}

impl Recipes<'_> {
    /// Genes of the graph; none of an array, and without a recipe.
    fn genes(&mut self, settings: &Settings) -> Option<u64> {
        if settings.reads_array() {
            return None;
        }
        let (project, set) = (self.project, &settings.data.set);
        let recipe = self.read.entry(set.clone()).or_insert_with(|| Recipe::load(&project.study(set)).ok());
        recipe.as_ref().map(|recipe| recipe.genes_at(settings.data.scale))
    }
}
