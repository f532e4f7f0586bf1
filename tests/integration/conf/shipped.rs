//! The configs of this repository: valid, and what their comments and the documents say of them.

use super::*;

#[test]
fn shipped_configs_are_valid() {
    let files = tomls("conf");
    assert!(files.len() >= 4);
    let mut arguments = vec!["check"];
    arguments.extend(files.iter().map(|path| path.to_str().unwrap()));
    let output = expctl(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    snapshot("shipped", &String::from_utf8(output.stderr).unwrap());
}

/// What the published configs say of their data path (batch, workers, prefetch factor, store, processor, masks on the device,
/// collation, processors of a rank), and who was followed; `run` is the variant that did what was run.
#[test]
fn published_configs_are_what_was_run_and_what_was_documented() {
    let both = |file: &'static str, batch, workers, prefetch, store, masks, cpus| {
        [
            (file, "as_run", batch, workers, prefetch, store, "lazy", masks, "pyg", cpus),
            (file, "as_documented", batch, workers, prefetch, store, "lazy", masks, "lazy_collater", cpus),
        ]
    };
    let mut expected: Vec<_> = [
        both("065_incidence", 28, 4, 4, "json", "none", 8),
        both("073_profiler", 28, 4, 4, "json", "none", 4),
        both("074_compressed", 28, 6, 3, "compressed", "none", 4),
        both("075_full_masks", 28, 8, 3, "full_masks", "none", 4),
        both("077_full_masks", 24, 4, 4, "full_masks", "none", 4),
        both("080_sum", 32, 4, 4, "json", "none", 4),
        both("081_device_masks_looped", 24, 4, 4, "json", "looped", 4),
        both("082_device_masks_vectorised", 18, 4, 4, "json", "vectorised", 4),
    ]
    .concat();
    for row in &mut expected {
        match (row.0, row.1) {
            // The note has perturbed genes stored, and twelve workers; the plans of 081 and 082 ship no edges.
            ("074_compressed", "as_documented") => row.5 = "ids",
            ("075_full_masks", "as_documented") => row.3 = 12,
            ("081_device_masks_looped" | "082_device_masks_vectorised", "as_documented") => {
                (row.5, row.6, row.8) = ("ids", "ids", "pyg");
            }
            _ => {}
        }
    }
    expected.extend([
        ("086_as_run", "lazy", 28, 4, 2, "json", "lazy", "none", "pyg", 9),
        ("086_as_run", "dango", 64, 8, 2, "json", "perturbation", "none", "pyg", 9),
        ("087_neighborhood", "lazy", 28, 4, 2, "json", "lazy", "none", "pyg", 16),
        ("087_neighborhood", "hops_3", 28, 4, 2, "json", "neighborhood", "none", "pyg", 16),
        ("087_neighborhood", "dango", 64, 4, 2, "json", "perturbation", "none", "pyg", 16),
    ]);
    for row in expected {
        let trials = trials_of(&root().join(format!("conf/{}.toml", row.0)), &[]).unwrap();
        let trial = trials.iter().find(|trial| trial.variant == row.1).unwrap();
        let Settings { loader, pipeline, select, data, slurm, .. } = &trial.settings;
        let found = (
            row.0,
            row.1,
            loader.batch_size,
            loader.workers,
            loader.prefetch_factor,
            pipeline.store.name(),
            pipeline.processor.name(),
            pipeline.device_masks.name(),
            pipeline.collation.name(),
            slurm.cpus_per_rank,
        );
        assert_eq!(found, row);
        assert_eq!((data.samples, select.split), (332_313, Split::Train), "{row:?}");
        // 083 to 086 left the metabolism out.
        assert_eq!(pipeline.metabolism, !row.0.starts_with("086"), "{row:?}");
        let dango = row.1 == "dango";
        let subset = if row.0.starts_with("086") { 10_000 } else { 0 };
        let samples = if subset > 0 && !dango { SampleSet::Metabolic } else { SampleSet::All };
        assert_eq!((select.subset, select.samples), (subset, samples), "{row:?}");
        // As the note has it, and DANGO's config.
        let unpinned = matches!(row, ("074_compressed", "as_documented", ..)) || (dango && subset > 0);
        assert_eq!(loader.pin_memory, !unpinned, "{row:?}");
    }
}

/// Trials of a variant of a shipped config, in the order of repeats.
fn of_shipped(config: &str, variant: &str, set: &[&str]) -> Vec<Trial> {
    let mut trials = trials_of(&root().join(format!("conf/{config}.toml")), set).unwrap();
    trials.retain(|trial| trial.variant == variant);
    trials
}

/// The published comparison: each variant is what its own config runs, in training on four ranks, and what the note's table says of it.
#[test]
fn the_training_config_compares_the_published_jobs() {
    let all = trials_of(&root().join("conf/006_training.toml"), &[]).unwrap();
    for (variant, config, of, batch, workers, prefetch, pinned, store) in [
        ("job_392", "065_incidence", "as_run", 28, 4, 4, true, "json"),
        ("job_428_430", "073_profiler", "profiled", 28, 4, 4, true, "json"),
        ("job_447", "074_compressed", "as_run", 28, 6, 3, false, "compressed"),
        ("job_456", "075_full_masks", "as_run", 28, 12, 3, true, "full_masks"),
        ("run_077", "077_full_masks", "as_run", 24, 4, 4, true, "full_masks"),
        ("job_480", "080_sum", "as_run", 32, 4, 4, true, "json"),
        ("run_081", "081_device_masks_looped", "as_run", 24, 4, 4, true, "json"),
        ("run_082", "082_device_masks_vectorised", "as_run", 18, 4, 4, true, "json"),
    ] {
        let trial = all.iter().find(|trial| trial.variant == variant).unwrap();
        let Settings { loader, pipeline, .. } = &trial.settings;
        let found =
            (loader.batch_size, loader.workers, loader.prefetch_factor, loader.pin_memory, pipeline.store.name());
        assert_eq!(found, (batch, workers, prefetch, pinned, store), "{variant}");
        assert_eq!(trial.settings.profiles(), variant == "job_428_430", "{variant}");
        // Nothing else is not as there but the scale, the mode and the ranks.
        let mut expected = of_shipped(config, of, &[])[0].settings.clone();
        expected.experiment = trial.settings.experiment.clone();
        (expected.data.samples, expected.data.scale) = (10_000, 0.05);
        expected.model.hidden = 8;
        expected.train.mode = Mode::Train;
        expected.measure = trial.settings.measure.clone();
        (expected.launch.ranks, expected.launch.heartbeat_timeout_s) = (4, 60);
        (expected.loader.workers, expected.loader.pin_memory) = (workers, pinned);
        expected.slurm.memory_mib = trial.settings.slurm.memory_mib;
        expected.profile = trial.settings.profile.clone();
        assert_eq!(trial.settings, expected, "{variant}");
    }
    assert!(all.iter().all(|trial| trial.settings.launch.device == DeviceChoice::Auto));
    // At full scale, the published models.
    let full = ["data.scale=1.0", "data.samples=332313", "model.hidden=64"];
    for (variant, parameters) in [("job_392", 1_780_803), ("job_447", 1_781_187)] {
        let model = &of_shipped("006_training", variant, &full)[0].settings.model;
        assert_eq!(model.parameter_count(6607), Some(parameters), "{variant}");
    }
}

/// As Lazy of 086, but for what masks are read from.
#[test]
fn the_planned_087_differs_from_086_in_the_store_alone() {
    let lazy = &of_shipped("086_dataloader", "lazy", &[])[0].settings;
    for (variant, store) in [("lazy", "json"), ("full_masks", "full_masks"), ("compressed", "compressed")] {
        let mut settings = of_shipped("087_preprocessed", variant, &[])[0].settings.clone();
        assert_eq!(settings.pipeline.store.name(), store);
        settings.pipeline.store = lazy.pipeline.store;
        settings.experiment = lazy.experiment.clone();
        assert_eq!(settings, *lazy, "{variant}");
    }
    assert_eq!((lazy.launch.ranks, lazy.train.mode), (1, Mode::Data));
}

#[test]
fn the_batch_sizes_of_086_are_those_of_the_sweep() {
    for variant in ["lazy", "dango", "shared", "ids"] {
        let once = of_shipped("086_batch", variant, &["measure.repeats=1"]);
        let sizes: Vec<u64> = once.iter().map(|trial| trial.settings.loader.batch_size).collect();
        assert_eq!(sizes, [28, 56, 112], "{variant}");
    }
}

/// Two variants that come to the same settings compare a thing with itself, whatever their names promise.
#[test]
fn variants_of_a_shipped_config_differ_in_what_they_run() {
    for path in tomls("conf") {
        let trials = trials_of(&root().join(&path), &[]).unwrap();
        for (i, a) in trials.iter().enumerate() {
            for b in trials[i + 1..].iter().filter(|b| (b.repeat, &b.point) == (a.repeat, &a.point)) {
                assert!(a.settings != b.settings, "{}: {} and {} are the same", path.display(), a.variant, b.variant);
            }
        }
    }
}

/// In `006_fair` nothing but the data path and the number of steps differs.
#[test]
fn the_fair_config_holds_everything_else() {
    let trials = trials_of(&root().join("conf/006_fair.toml"), &[]).unwrap();
    assert_eq!(trials.len(), 100);
    let same = |trial: &Trial| {
        let mut settings = trial.settings.clone();
        settings.pipeline = trials[0].settings.pipeline.clone();
        (settings.measure.warmup, settings.measure.steps) = (0, 0);
        settings
    };
    for trial in &trials {
        assert_eq!(same(trial), same(&trials[0]), "{}", trial.id);
        assert!(trial.settings.measure.warmup >= 36, "a warm-up of less than an epoch: {}", trial.id);
    }
}

/// `benches/predictions.py` measures what is predicted of every shipped config, or says why not of one; what it measures can be submitted and
/// predicted.
#[test]
fn predictions_are_measured_of_every_shipped_config_or_a_reason_is_given() {
    let mut list = std::process::Command::new("python3");
    list.arg(root().join("benches/predictions.py")).arg("--list").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = list.output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let listed: Json = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = listed["left_out"].as_object().unwrap();
    assert!(reasons.values().all(|reason| reason.as_str().is_some_and(|reason| reason.len() > 8)), "{reasons:?}");
    let mut named: Vec<String> = reasons.keys().map(|name| format!("conf/{name}.toml")).collect();
    for (name, arguments) in listed["measured"].as_object().unwrap() {
        let arguments: Vec<&str> = arguments.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        let [path, options @ ..] = arguments.as_slice() else { panic!("{name} has no config") };
        let of = |option: &str| -> Vec<&str> {
            options.chunks(2).filter(|pair| pair[0] == option).map(|pair| pair[1]).collect()
        };
        let (only, set) = (of("--only"), of("--set"));
        assert_eq!(2 * (only.len() + set.len()), options.len(), "{name}: {options:?}");
        let trials = trials_of(&root().join(path), &set).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        let is_chosen = |trial: &&Trial| only.is_empty() || only.contains(&trial.variant.as_str());
        let chosen: Vec<&Trial> = trials.iter().filter(is_chosen).collect();
        assert!(!chosen.is_empty(), "{name}: {path} has no variant {only:?}");
        for settings in chosen.iter().map(|trial| &trial.settings) {
            assert!(settings.measure.steps >= 20 && settings.measure.epochs == 0, "{name}: {:?}", settings.measure);
            assert!(settings.train.epochs == 0 && settings.slurm.pack == 1 && !settings.profiles(), "{name}");
            assert!(!settings.runs_command(), "{name}");
        }
        named.push((*path).to_owned());
    }
    named.sort();
    named.dedup();
    let shipped: Vec<String> = tomls("conf").iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(named, shipped);
}
