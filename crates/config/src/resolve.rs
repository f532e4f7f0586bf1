//! Lays the layers of a config on top of each other and has each result judged.

use std::collections::BTreeMap;

use expctl_settings::{Estimator, KEYS, KeyDefault, KeySpec, Measure, Train, find};

use crate::config::{Run, Values};
use crate::document::{Document, Variant};
use crate::layer::{DEFAULTS, Layer};
use crate::node::ValueOrigin;
use crate::problem::Problem;
use crate::project_files::ProjectFiles;
use crate::rules::{Judge, derive_command, derive_workload, refuse_own_worker_keys};
use crate::search::{SearchSpace, SearchTable, VariantPoints, lengthen_warm_up, whole_point};
use crate::suggest::closest;
use crate::sweep::{Sweep, SweepRow};

/// The runs of a config.
pub struct Resolved {
    pub runs: Vec<Run>,
    pub baseline: Option<String>,
    pub estimators: Vec<Estimator>,
    pub variants: usize,
    pub points: usize,
    pub search: Option<SearchSpace>,
}

/// Lay the layers on top of each other and judge each result: defaults, user and cluster profile (`base_settings`), the config that a
/// variant extends, files (parents first), variant, point of the sweep, `--set`, `--set variant.NAME`.
///
/// Of the runs only those of the variants that `only` names are judged, all if it names none: what does not run need not fit `--set`.
pub fn resolve(
    project: &dyn ProjectFiles,
    base_settings: &Layer,
    files: Document,
    (set, only): (&Document, &[String]),
    problems: &mut Vec<Problem>,
) -> Resolved {
    let Document { settings, sections, mut variants, baseline, estimators, mut sweep, mut search, .. } = files;
    sweep.extend(set.sweep.clone());
    search.extend(set.search.clone());
    set_variants(&mut variants, &set.variants, problems);
    if variants.is_empty() {
        variants.push(Variant::named("default", None));
    }
    let names: Vec<String> = variants.iter().map(|v| v.name.clone()).collect();
    let baseline = check_baseline(set.baseline.clone().or(baseline), &names, problems);
    let estimators = set.estimators.clone().or(estimators).unwrap_or_default();
    check_swept(&sweep, &variants, set, problems);
    check_excluding(&sweep, &names, problems);
    let too_many = sweep.too_many(variants.len());
    let mut points = if too_many.is_none() { sweep.points(problems) } else { Vec::new() };
    problems.extend(too_many);
    if points.is_empty() {
        // The sweep is refused; what is wrong beside it is reported all the same.
        points.push(sweep.unknown_point());
    }
    let searched = searched_rows(&search, &sweep, &names, problems);
    let mut spaces = Vec::new();
    let is_chosen = |variant: &Variant| only.iter().any(|name| chooses(name, &variant.name));
    let all_are_chosen = !variants.iter().any(is_chosen);

    let fallback = FallbackOrigins { sections, file: ValueOrigin::start_of(0) };
    let mut judge = Judge::new(project, &fallback);
    let mut missing: BTreeMap<&'static str, Vec<&Variant>> = BTreeMap::new();
    let mut runs = Vec::new();
    for variant in &variants {
        let over = set.variants.iter().find(|v| v.name == variant.name);
        let mut excluded = None;
        let before = runs.len();
        let mut unused = Vec::new();
        let is_judged = all_are_chosen || is_chosen(variant);
        let problems = if is_judged { &mut *problems } else { &mut unused };
        let layers = Layers { below: base_settings, settings: &settings, variant, set, over };
        for point in &points {
            if let Some(at) = sweep.excluded(&variant.name, point) {
                excluded = Some(at);
                continue;
            }
            let mut values = layers.values(point, &Layer::new());
            for spec in required().filter(|spec| is_judged && !values.has(spec.key)) {
                let lacking = missing.entry(spec.key).or_default();
                if lacking.last().is_none_or(|v| v.name != variant.name) {
                    lacking.push(variant);
                }
            }
            let own = [Some(&variant.settings), over.map(|v| &v.settings), Some(&point.settings)];
            refuse_own_worker_keys(&values, own.into_iter().flatten(), problems);
            judge.judge(&mut values, problems);
            runs.push(run(variant, over, point, values));
        }
        if let (true, Some(rows), Some(own)) = (is_judged, &searched, runs.get(before)) {
            search.refuse(&own.values, problems);
            // Points of settings that are wrong would only repeat what is wrong.
            if problems.is_empty() {
                spaces.push(points_of_variant(&layers, &search, rows, own, &mut judge));
                refuse_one_point(spaces.last(), &search, problems);
            }
        }
        if let Some(at) = excluded.filter(|_| runs.len() == before) {
            let message = format!("`exclude` leaves no point of variant `{}`", variant.name);
            let problem = Problem::new(at, message, "with this one, it makes no trial");
            problems.push(problem.help("leave the variant out with --only, or exclude less"));
        }
    }
    report_missing(&missing, &variants, &fallback, problems);
    let options = search.options().filter(|_| searched.is_some());
    let search = options.map(|options| SearchSpace { options, variants: spaces });
    Resolved { runs, baseline, estimators, variants: variants.len(), points: points.len(), search }
}

/// The layers of a variant, the lowest first.
struct Layers<'a> {
    /// The user's and the cluster profile's.
    below: &'a Layer,
    /// The files'.
    settings: &'a Layer,
    variant: &'a Variant,
    set: &'a Document,
    /// What `--set variant.NAME` says of the variant.
    over: Option<&'a Variant>,
}

impl Layers<'_> {
    /// The settings of the variant at a point of the sweep, not judged yet. `top` wins over everything: a point of a search.
    fn values(&self, point: &SweepRow, top: &Layer) -> Values {
        let mut values = Values(DEFAULTS.clone());
        let Self { below, settings, variant, set, over } = *self;
        let base = variant.base.as_ref();
        for layer in [Some(below), base, Some(settings), Some(&variant.settings), Some(&point.settings)] {
            values.0.extend(layer.cloned().unwrap_or_default());
        }
        values.0.extend(set.settings.clone());
        values.0.extend(over.map(|v| v.settings.clone()).unwrap_or_default());
        values.0.extend(top.clone());
        let typed = [Some(&set.settings), over.map(|v| &v.settings)].into_iter().flatten();
        epochs_for_steps(&mut values, typed, point);
        derive_command(&mut values);
        derive_workload(&mut values);
        values
    }
}

/// The points of `[search]`; none without one. A config has points that all run, or points that race.
fn searched_rows(
    search: &SearchTable,
    sweep: &Sweep,
    names: &[String],
    problems: &mut Vec<Problem>,
) -> Option<Vec<SweepRow>> {
    let at = search.points.at?;
    if let Some(swept) = sweep.at {
        let problem = Problem::new(at, "a config has [sweep] or [search], not both", "the search");
        problems.push(
            problem
                .also(swept, "the sweep")
                .help("put the swept settings into [search], or the search into a config of its own"),
        );
    }
    check_excluding(&search.points, names, problems);
    if let Some(too_many) = search.points.too_many(names.len()) {
        problems.push(too_many);
        return None;
    }
    Some(search.points.points(problems))
}

/// The points of the search of a variant. `own` is the run of its own settings.
fn points_of_variant(
    layers: &Layers<'_>,
    search: &SearchTable,
    rows: &[SweepRow],
    own: &Run,
    judge: &mut Judge<'_>,
) -> VariantPoints {
    let baseline_point = search.baseline_point(&own.values);
    let mut found = VariantPoints::new(Run { point: baseline_point.clone(), ..own.clone() });
    let no_point = SweepRow { at: None, settings: Layer::new() };
    for row in rows.iter().filter(|row| search.points.excluded(&own.variant, row).is_none()) {
        let point = whole_point(row, &baseline_point);
        let mut values = layers.values(&no_point, &point);
        lengthen_warm_up(&mut values);
        let mut refused = Vec::new();
        refuse_own_worker_keys(&values, std::iter::once(&point), &mut refused);
        judge.judge(&mut values, &mut refused);
        found.add(Run { point, at: row.at, values, ..own.clone() }, refused);
    }
    found
}

/// A search among one point is none.
fn refuse_one_point(points: Option<&VariantPoints>, search: &SearchTable, problems: &mut Vec<Problem>) {
    let (Some(VariantPoints { variant, points, refused }), Some(at)) = (points, search.points.at) else { return };
    if points.len() > 1 || !problems.is_empty() {
        return;
    }
    let problem = Problem::new(at, format!("variant `{variant}` has nothing to search"), "one point, its own settings");
    problems.push(match refused.first() {
        Some(first) => problem.help(format!("every other point is refused; the first: {}", first.reason)),
        None => problem.help("give a setting several values, for example loader.workers = [0, 2, 4]"),
    });
}

/// Whether a name of `--only` is that of the variant, or the id of one of its trials.
fn chooses(name: &str, variant: &str) -> bool {
    let of_trial = || name.rsplit_once('-').and_then(|(trial, _)| trial.rsplit_once("-r"));
    name == variant || of_trial().is_some_and(|(of, _)| of == variant)
}

/// Epochs that `--set` gives (in `typed`) replace the steps of a file: both say how long the run is, and someone who types a value means
/// it. Steps that `--set` or the sweep gives stay, and are reported.
fn epochs_for_steps<'a>(values: &mut Values, typed: impl Iterator<Item = &'a Layer> + Clone, point: &SweepRow) {
    let is_typed = |key: &str| typed.clone().any(|layer| layer.contains_key(key));
    let is_swept = |key: &str| point.settings.contains_key(key);
    let epochs = is_typed(&Train::EPOCHS) && values.get(Train::EPOCHS).is_some_and(|epochs| epochs > 0);
    if epochs && !is_typed(&Measure::STEPS) && !is_swept(&Measure::STEPS) {
        values.0.remove(Measure::STEPS.name());
    }
    // And the other way round: whoever types steps does not mean the epochs of a file.
    if is_typed(&Measure::STEPS) && !is_typed(&Measure::EPOCHS) && !is_swept(&Measure::EPOCHS) {
        let default = DEFAULTS.get_key_value(Measure::EPOCHS.name());
        values.0.extend(default.map(|(key, setting)| (*key, setting.clone())));
    }
}

fn run(variant: &Variant, over: Option<&Variant>, point: &SweepRow, values: Values) -> Run {
    let method = over.and_then(|v| v.method.as_ref()).or(variant.method.as_ref()).unwrap_or(&variant.name);
    Run { variant: variant.name.clone(), method: method.clone(), point: point.settings.clone(), at: point.at, values }
}

/// Places of problems with keys that no text sets: the section, else the start of the file.
pub struct FallbackOrigins {
    sections: BTreeMap<&'static str, ValueOrigin>,
    file: ValueOrigin,
}

impl FallbackOrigins {
    /// The place for a key that no text sets.
    pub fn of(&self, key: &str) -> ValueOrigin {
        let section = key.split_once('.').map_or(key, |(section, _)| section);
        self.sections.get(section).copied().unwrap_or(self.file)
    }
}

fn required() -> impl Iterator<Item = &'static KeySpec> {
    KEYS.iter().filter(|spec| matches!(spec.default, KeyDefault::Required))
}

fn report_missing(
    missing: &BTreeMap<&'static str, Vec<&Variant>>,
    variants: &[Variant],
    fallback: &FallbackOrigins,
    problems: &mut Vec<Problem>,
) {
    for (key, lacking) in missing {
        let Some(spec) = find(key) else { continue };
        let (section, leaf) = (spec.section(), spec.leaf());
        let add = format!("add `{leaf} = …` to [{section}] ({}: {})", spec.help, spec.value.describe());
        if lacking.len() == variants.len() {
            let problem = Problem::new(fallback.of(key), format!("`{key}` is not set"), format!("needs `{leaf}`"));
            problems.push(problem.help(add));
            continue;
        }
        for variant in lacking {
            let at = variant.at.unwrap_or_else(|| fallback.of(key));
            let problem = Problem::new(at, format!("variant `{}` does not set `{key}`", variant.name), "needs it");
            problems.push(problem.help(format!("{add}, for all variants or below [variant.{}]", variant.name)));
        }
    }
}

/// `--set variant.NAME` changes variants, it does not make any.
fn set_variants(variants: &mut [Variant], set: &[Variant], problems: &mut Vec<Problem>) {
    for over in set {
        if variants.iter().any(|v| v.name == over.name) {
            continue;
        }
        let Some(at) = over.at else { continue };
        let problem = Problem::new(at, format!("there is no variant `{}` to set", over.name), "no such variant");
        let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
        problems.push(match closest(&over.name, names.iter().copied()) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => problem.help("the config has no variants"),
            None => problem.help(format!("variants are {}", names.join(", "))),
        });
    }
}

/// `exclude` names variants of the config.
fn check_excluding(sweep: &Sweep, names: &[String], problems: &mut Vec<Problem>) {
    for (name, at) in sweep.excluding_variants().filter(|(name, _)| !names.contains(name)) {
        let problem = Problem::new(*at, format!("`exclude` names `{name}`, which is not a variant"), "no such variant");
        problems.push(match closest(name, names.iter().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean \"{near}\"?")),
            None => problem.help(format!("variants are {}", names.join(", "))),
        });
    }
}

/// A swept key has its values from the sweep alone. A variant or `--set` with another one would silently lose it, or
/// make all points the same. `overrules_variants` says that a variant is meant to lose it.
fn check_swept(sweep: &Sweep, variants: &[Variant], set: &Document, problems: &mut Vec<Problem>) {
    let mut seen = Vec::new();
    for (key, swept) in sweep.keys() {
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let overruled = sweep.overrules_variants == Some(true);
        for variant in variants.iter().filter(|_| !overruled) {
            if let Some(at) = variant.settings.get(key).and_then(|s| s.at) {
                let message = format!("variant `{}` sets `{key}`, which the sweep varies", variant.name);
                let problem = Problem::new(at, message, "would have no effect").also(swept, "swept here");
                problems.push(problem.help(
                    "sweep it or set it, not both; with overrules_variants = true in [sweep], the sweep's values win",
                ));
            }
        }
        let of_variants = set.variants.iter().filter_map(|v| v.settings.get(key));
        for at in set.settings.get(key).into_iter().chain(of_variants).filter_map(|s| s.at) {
            let message = format!("`--set` gives `{key}` one value, but the sweep varies it");
            let problem = Problem::new(at, message, "would make all points the same").also(swept, "swept");
            problems.push(problem.help(format!("narrow the sweep instead: --set 'sweep.grid.{key}=[…]'")));
        }
    }
}

/// The baseline, if there is such a variant.
fn check_baseline(
    baseline: Option<(String, ValueOrigin)>,
    names: &[String],
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let (name, at) = baseline?;
    if names.contains(&name) {
        return Some(name);
    }
    let problem = Problem::new(at, format!("the baseline `{name}` is not a variant"), "no such variant");
    problems.push(match closest(&name, names.iter().map(String::as_str)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help(format!("variants are {}", names.join(", "))),
    });
    None
}
