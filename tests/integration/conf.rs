//! Configs as a user meets them: the messages of `expctl check`, the trials of `expctl plan`, and the reference.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use expctl::data::ProjectData;
use expctl::project::Project;
use expctl_config::{ConfErrors, expand, load};
use expctl_ledger::Stage;
use expctl_settings::{self as keys, DeviceChoice, Fetch, Loss, Mode, SampleSet, Settings, Split, Trial, ValueType};
use serde_json::Value as Json;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn expctl(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("expctl").unwrap();
    command.current_dir(root()).env("NO_COLOR", "1").env("XDG_CONFIG_HOME", "/nonexistent");
    for variable in ["EXPCTL_ROOT", "EXPCTL_DATA", "EXPCTL_RUNS", "EXPCTL_LOG"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn tomls(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|e| Path::new(folder).join(e.unwrap().file_name())).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    files
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("tests/conf/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The trials of a config written to a folder of its own, or the messages of its problems.
fn trials(text: &str, overrides: &[&str]) -> Result<Vec<Trial>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.toml");
    std::fs::write(&path, text).unwrap();
    trials_of(&path, overrides)
}

fn trials_of(path: &Path, overrides: &[&str]) -> Result<Vec<Trial>, Vec<String>> {
    let project = Project::find(Some(root()), None).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|&s| s.to_owned()).collect();
    let messages = |e: ConfErrors| e.problems().iter().map(|p| p.message.clone()).collect::<Vec<_>>();
    let files = ProjectData(&project);
    let config = load(&files, path, &overrides).map_err(messages)?;
    Ok(expand(&files, &config).map_err(messages)?.trials)
}

const SMALL: &str = "pipeline.processor = \"ids\"\nloader.batch_size = 28\nmeasure.repeats = 1\n";

const ROWS: &str = "loader.batch_size = 28\nmeasure.repeats = 1\n";

fn points(text: &str, keys: &[&str]) -> Vec<Vec<Json>> {
    let trials = trials(&format!("{SMALL}{text}"), &[]).unwrap();
    trials.iter().map(|t| keys.iter().map(|k| t.point.get(*k).cloned().unwrap_or(Json::Null)).collect()).collect()
}

#[test]
fn broken_configs_are_explained() {
    let files = tomls("tests/conf/broken");
    assert!(files.len() >= 15);
    for path in files {
        let output = expctl(&["check", path.to_str().unwrap()]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{}: {message}", path.display());
        assert!(output.stdout.is_empty(), "{}: data goes to stdout, messages do not", path.display());
        assert!(!message.contains('\u{1b}'), "{}: escape codes in a pipe", path.display());
        snapshot(path.file_stem().unwrap().to_str().unwrap(), &message);
    }
}

#[test]
fn broken_arguments_are_explained() {
    let cases = [
        ("set_unknown_key", vec!["loader.worker=4"]),
        ("set_wrong_type", vec!["loader.workers=many", "data.scale=0"]),
        ("set_without_value", vec!["loader.workers"]),
        ("set_bad_toml", vec!["pipeline.edge_types=[physical]"]),
        ("set_unknown_variant", vec!["variant.lasy.loader.workers=1"]),
        ("set_extends", vec!["extends=086_base.toml"]),
        ("set_scale", vec!["data.scale=0.0001"]),
        ("set_samples", vec!["data.samples=10"]),
    ];
    for (name, arguments) in cases {
        let mut line = vec!["check", "conf/demo.toml"];
        line.extend(arguments.iter().flat_map(|a| ["--set", a]));
        let output = expctl(&line);
        assert_eq!(output.status.code(), Some(3), "{name}");
        snapshot(name, &String::from_utf8(output.stderr).unwrap());
    }
}

/// Names of torchcell, Lightning and the loaders of others, each with what its message says.
#[test]
fn names_of_other_systems_are_known() {
    let cases = [
        ("num_workers=4", "help: it is `loader.workers` here (Loader threads per rank"),
        ("loader.num_workers=4", "help: it is `loader.workers` here ("),
        ("data_module.num_workers=4", "help: it is `loader.workers` here ("),
        ("data_module.batch_size=28", "help: it is `loader.batch_size` here ("),
        ("data_module.use_full_masks=true", "help: it is `pipeline.store = \"full_masks\"` here ("),
        ("use_preprocessed=true", "help: it is `pipeline.store = \"compressed\"` here ("),
        ("batch_size=28", "help: did you mean `loader.batch_size`? settings belong to a section: [loader]"),
        ("prefetch_factor=4", "help: did you mean `loader.prefetch_factor`? settings belong to a section: [loader]"),
        ("pin_memory=true", "help: did you mean `loader.pin_memory`? settings belong to a section: [loader]"),
        ("persistent_workers=true", "help: loader threads live as long as the run"),
        ("strategy=ddp", "help: it is `launch.ranks` here ("),
        ("train.strategy=ddp", "set it to the number of GPUs"),
        ("trainer.devices=4", "help: it is `launch.ranks` here (Processes of a trial)"),
        ("devices=4", "help: it is `launch.ranks` here ("),
        ("wandb.project=cells", "help: no tracker is written to"),
        ("pipeline.processor=LazySubgraphRepresentation", "help: it is \"lazy\" here"),
        ("pipeline.processor=SubgraphRepresentation", "help: it is \"subgraph\" here"),
        ("pipeline.processor=IncidenceSubgraphRepresentation", "help: it is \"incidence_subgraph\" here"),
        ("pipeline.processor=Perturbation", "help: it is \"perturbation\" here"),
        ("pipeline.processor=DANGO", "help: that is `model.kind = \"dango\"` here"),
        (
            "model.kind=HeteroCellBipartiteDangoGI",
            "help: it is \"lazy\" here; this is the model; the graph processor is",
        ),
        ("model.kind=DANGO", "help: it is \"dango\" here"),
        ("train.precision=bf16-mixed", "help: it is \"bf16_mixed\" here"),
        ("train.precision=32", "help: it is \"float32\" here"),
        ("array.format=hdf5", "help: it is \"h5ad\" here"),
        ("array.format=tiledbsoma", "help: TileDB is not read"),
        ("array.format=MappedCollection", "help: it is \"h5ad\" here; with sampler.draw"),
        ("array.format=merlin", "help: that is `sampler.preset = \"merlin\"` here"),
        ("sampler.preset=cellxgene_census", "help: it is \"census\" here"),
        ("sweep.grid.loader.num_workers=[1, 2]", "help: it is `loader.workers` here ("),
        ("trainer={}", "help: its keys are in [train], [measure], [launch] here"),
    ];
    for (argument, said) in cases {
        let output = expctl(&["check", "conf/demo.toml", "--set", argument]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{argument}: {message}");
        assert!(message.contains(said), "{argument}: {message}");
    }
}

/// A Hydra config gets one message, with the TOML that stands for it; and that TOML is a config.
#[test]
fn yaml_is_not_read_but_translated() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = folder.path().join("hetero_086.yaml");
    let text = "defaults:\n  - base\ndata_module:\n  batch_size: 28 # 32 works\n  num_workers: 4\ntrainer:\n  strategy: ddp\n  \
                devices: 2\nregression_task:\n  execution_mode: dataloader_profiling\ngraph_processor:\n  type: Perturbation\n";
    std::fs::write(&yaml, text).unwrap();
    let shown = yaml.to_str().unwrap();
    for verb in ["check", "plan", "submit"] {
        let output = expctl(&[verb, shown]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{verb}: {message}");
        assert!(output.stdout.is_empty(), "{verb}");
        assert!(message.contains("YAML is not read") && message.contains("1 problem"), "{verb}: {message}");
        assert!(message.contains("workers = 4  # data_module.num_workers"), "{verb}: {message}");
    }
    let output = expctl(&["import", shown]);
    let toml = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trial = &trials(&toml, &[]).unwrap()[0];
    let Settings { loader, pipeline, launch, train, .. } = &trial.settings;
    let found = (loader.batch_size, loader.workers, pipeline.processor.name(), launch.ranks, train.mode.name());
    assert_eq!(found, (28, 4, "perturbation", 2, "data"), "{toml}");
    let missing = expctl(&["import", "nowhere.yaml"]);
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn a_missing_config_is_explained() {
    let output = expctl(&["check", "conf/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(3));
    snapshot("no_such_config", &String::from_utf8(output.stderr).unwrap());
}

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

#[test]
fn the_plan_is_data() {
    let table = expctl(&["plan", "conf/demo.toml", "--set", "sweep.grid.loader.prefetch_factor=[1, 2]"]);
    snapshot("plan_markdown", &String::from_utf8(table.stdout).unwrap());
    let table = expctl(&["plan", "conf/086_dataloader.toml", "--set", "variant.lazy.pipeline.store=compressed"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("| Repeat | Store | Processor | Mode | Batch |"), "{table}");
    assert!(table.contains("| 1 | compressed | lazy | data |") && table.contains("| 1 | json | ids |"), "{table}");
    let json = expctl(&["plan", "conf/086_dataloader.toml", "--json", "--only", "ids"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["cost"]["trials"].as_u64(), Some(3), "{}", json["cost"]);
    let trials: Vec<Trial> = serde_json::from_value(json["trials"].clone()).unwrap();
    assert_eq!(
        trials.iter().map(|t| (t.variant.as_str(), t.repeat)).collect::<Vec<_>>(),
        [("ids", 1), ("ids", 2), ("ids", 3)]
    );
    assert!(trials[0].data_dir.is_absolute());
    let unknown = expctl(&["plan", "conf/demo.toml", "--only", "lasy"]);
    assert_eq!(unknown.status.code(), Some(2));
    snapshot("only_unknown", &String::from_utf8(unknown.stderr).unwrap());
}

#[test]
fn points_are_grid_times_zip_times_list_minus_exclude_plus_include() {
    let keys = ["loader.workers", "loader.batch_size", "model.hidden", "loader.seed"];
    let text = r#"
        [sweep]
        grid.loader.workers = [0, 4]
        zip.loader.batch_size = [28, 64]
        zip.model.hidden = [16, 32]
        list = [{ loader.seed = 1 }, { loader.seed = 2 }]
        exclude = [{ loader.workers = 4, loader.batch_size = 64 }, { loader.workers = 0, loader.seed = 2 }]
        include = [{ loader.workers = 8 }]
    "#;
    let expected: Vec<Vec<Json>> = vec![
        vec![0.into(), 28.into(), 16.into(), 1.into()],
        vec![0.into(), 64.into(), 32.into(), 1.into()],
        vec![4.into(), 28.into(), 16.into(), 1.into()],
        vec![4.into(), 28.into(), 16.into(), 2.into()],
        vec![8.into(), Json::Null, Json::Null, Json::Null],
    ];
    assert_eq!(points(text, &keys), expected);
    assert_eq!(points("[[sweep.include]]\nloader.workers = 3", &keys[..1]), [[Json::from(3)]]);
    assert_eq!(points("", &keys[..1]), [[Json::Null]]);
}

#[test]
fn the_grid_has_every_combination_once() {
    let axis = |n: usize| (1..=n).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    for (a, b, c) in [(1, 1, 1), (2, 3, 1), (3, 2, 4), (5, 1, 2)] {
        let text = format!(
            "[sweep.grid]\nloader.workers = [{}]\nloader.batch_size = [{}]\n\"loader.seed\" = [{}]",
            axis(a),
            axis(b),
            axis(c)
        );
        let mut found = points(&text, &["loader.workers", "loader.batch_size", "loader.seed"]);
        assert_eq!(found.len(), a * b * c);
        found.sort_by_key(|row| row.iter().map(Json::as_u64).collect::<Vec<_>>());
        found.dedup();
        assert_eq!(found.len(), a * b * c, "{a} {b} {c}");
    }
}

#[test]
fn keys_that_stand_in_the_sweep_itself_are_swept_as_in_its_grid() {
    let ids = |text: &str, set: &[&str]| -> Vec<String> {
        trials(&format!("{SMALL}{text}"), set).unwrap().iter().map(|t| t.id.clone()).collect()
    };
    let grid = ids("[sweep.grid]\nlaunch.ranks = [1, 2, 4]\nloader.workers = [0, 1]\n", &[]);
    assert_eq!(grid.len(), 6);
    assert_eq!(ids("[sweep]\nranks = [1, 2, 4]\nloader.workers = [0, 1]\n", &[]), grid);
    assert_eq!(ids("[sweep]\nlaunch.ranks = [1, 2, 4]\ngrid.loader.workers = [0, 1]\n", &[]), grid);
    // The upper layer's values take the place of the lower one's, however they are written.
    assert_eq!(ids("[sweep]\nranks = [1, 2, 4]\n", &["sweep.grid.launch.ranks=[2]"]).len(), 1);
    assert_eq!(ids("[sweep.grid]\nlaunch.ranks = [1, 2, 4]\n", &["sweep.ranks=[2]"]).len(), 1);
    let wrong = |text: &str| trials(&format!("{SMALL}{text}"), &[]).unwrap_err();
    assert_eq!(wrong("[sweep]\nranks = [1]\ngrid.launch.ranks = [2]\n"), ["`launch.ranks` is swept twice"]);
    for (text, said) in [
        ("rank = [1]", "unknown key `sweep.rank`"),
        ("launch.rank = [1]", "unknown key `launch.rank`"),
        ("ranks = 2", "a sweep takes an array of values for `launch.ranks`, not the number 2"),
    ] {
        // An axis that cannot be read leaves the sweep without one.
        assert!(wrong(&format!("[sweep]\n{text}\n")).contains(&said.to_owned()), "{text}");
    }
}

#[test]
fn a_sweep_overrules_variants_where_it_says_so() {
    let text = |sweep: &str| {
        format!(
            "loader.batch_size = 8\npipeline.processor = \"ids\"\nmeasure.repeats = 1\n[sweep]\n{sweep}\n\
             loader.batch_size = [28, 56]\n[variant.a]\nloader.seed = 1\n[variant.b]\nloader.seed = 2\nloader.batch_size = 64\n"
        )
    };
    let sizes = |sweep: &str, set: &[&str]| {
        let trials = trials(&text(sweep), set);
        trials
            .map(|trials| trials.iter().map(|t| (t.variant.clone(), t.settings.loader.batch_size)).collect::<Vec<_>>())
    };
    let of = |all: [(&str, u64); 4]| Ok(all.map(|(variant, size)| (variant.to_owned(), size)).to_vec());
    let refused = vec!["variant `b` sets `loader.batch_size`, which the sweep varies".to_owned()];
    let swept = of([("a", 28), ("a", 56), ("b", 28), ("b", 56)]);
    assert_eq!(sizes("", &[]), Err(refused.clone()));
    assert_eq!(sizes("overrules_variants = false", &[]), Err(refused.clone()));
    assert_eq!(sizes("overrules_variants = true", &[]), swept);
    assert_eq!(sizes("", &["sweep.overrules_variants=true"]), swept);
    assert_eq!(sizes("overrules_variants = true", &["sweep.overrules_variants=false"]), Err(refused));
    // A point that leaves the key open has the variant's own value.
    let open = trials(
        &text(
            "overrules_variants = true\nexclude = [{ loader.batch_size = 28 }, { loader.batch_size = 56 }]\ninclude = [{ loader.workers = 1 }]",
        ),
        &[],
    );
    let open: Vec<u64> = open.unwrap().iter().map(|t| t.settings.loader.batch_size).collect();
    assert_eq!(open, [8, 64]);
    // What is typed for one variant would still be lost.
    let typed = sizes("overrules_variants = true", &["variant.b.loader.batch_size=7"]);
    assert_eq!(typed, Err(vec!["`--set` gives `loader.batch_size` one value, but the sweep varies it".to_owned()]));
    let wrong = sizes("overrules_variants = 1", &[]).unwrap_err();
    assert!(
        wrong.contains(&"`sweep.overrules_variants` takes true or false, not the number 1".to_owned()),
        "{wrong:?}"
    );
}

#[test]
fn points_are_excluded_for_one_variant() {
    let text = |exclude: &str| {
        format!(
            "{SMALL}[sweep]\ngrid.loader.workers = [0, 1]\ngrid.loader.seed = [1, 2]\nexclude = [{exclude}]\n\
             [variant.a]\nmodel.seed = 1\n[variant.b]\nmodel.seed = 2\n"
        )
    };
    let points = |exclude: &str| {
        let of = |t: &Trial| (t.variant.clone(), t.settings.loader.workers, t.settings.loader.seed);
        trials(&text(exclude), &[]).map(|trials| trials.iter().map(of).collect::<Vec<_>>())
    };
    let all = points("").unwrap();
    assert_eq!(all.len(), 8);
    let but = |dropped: &[(&str, u32, u64)]| {
        let dropped = |of: &(String, u32, u64)| dropped.iter().any(|d| (d.0, d.1, d.2) == (of.0.as_str(), of.1, of.2));
        Ok(all.iter().filter(|of| !dropped(of)).cloned().collect::<Vec<_>>())
    };
    assert_eq!(
        points("{ variant = \"b\", loader.workers = 1 }, { loader.workers = 0, loader.seed = 2 }"),
        but(&[("b", 1, 1), ("b", 1, 2), ("a", 0, 2), ("b", 0, 2)])
    );
    for (exclude, said) in [
        ("{ variant = \"c\", loader.workers = 1 }", "`exclude` names `c`, which is not a variant"),
        ("{ variant = \"b\" }", "`exclude` names variant `b`, but no swept key"),
        ("{ variant = \"b\", model.seed = 2 }", "`exclude` names `model.seed`, which is not swept"),
        (
            "{ variant = \"b\", loader.workers = 0 }, { variant = \"b\", loader.workers = 1 }",
            "`exclude` leaves no point of variant `b`",
        ),
    ] {
        assert_eq!(points(exclude), Err(vec![said.to_owned()]), "{exclude}");
    }
}

/// Above the other config, and below all that its own config says.
#[test]
fn a_variant_builds_on_one_of_another_config() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("base.toml", "loader.batch_size = 28\nloader.seed = 1\nmodel.seed = 1\nexperiment.title = \"Other\"\n");
    write(
        "other.toml",
        "extends = \"base.toml\"\nloader.workers = 4\nmodel.hidden = 16\n[variant.lazy]\nmethod = \"Lazy\"\n\
         pipeline.processor = \"lazy\"\n[variant.ids]\npipeline.processor = \"ids\"\nloader.workers = 2\n\
         [sweep.grid]\nmodel.layers = [1, 2]\n[compare]\nbaseline = \"ids\"\n",
    );
    write("one.toml", "extends = \"base.toml\"\n[variant.single]\npipeline.processor = \"shared\"\n");
    let config = |variants: &str| {
        write(
            "test.toml",
            &format!("measure.repeats = 1\nloader.seed = 3\nmodel.hidden = 8\nmodel.heads = 2\n{variants}"),
        );
        trials_of(&folder.path().join("test.toml"), &["model.layers=1"])
    };
    let found = config(
        "[variant.a]\nextends = \"other.toml#ids\"\nmodel.hidden = 32\n[variant.b]\nextends = \"other.toml#lazy\"\n\
         [variant.c]\nextends = \"one.toml\"\nmethod = \"Own\"\n",
    )
    .unwrap();
    let of = |t: &Trial| {
        let Settings { loader, model, pipeline, experiment, .. } = &t.settings;
        let seeds = (loader.seed, model.seed);
        let text = (t.variant.clone(), t.method.clone(), experiment.title.clone(), pipeline.processor.name());
        (text, loader.batch_size, loader.workers, model.hidden, seeds)
    };
    let named =
        |variant: &str, method: &str, processor| (variant.to_owned(), method.to_owned(), String::new(), processor);
    let expected = [
        (named("a", "a", "ids"), 28, 2, 32, (3, 1)),
        (named("b", "Lazy", "lazy"), 28, 4, 8, (3, 1)),
        (named("c", "Own", "shared"), 28, 0, 8, (3, 1)),
    ];
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    for (extends, said) in [
        ("other.toml", "other.toml has several variants"),
        ("other.toml#idz", "other.toml has no variant `idz`"),
        ("base.toml#lazy", "base.toml has no variant `lazy`"),
    ] {
        let refused = config(&format!("[variant.a]\nextends = \"{extends}\"\npipeline.processor = \"ids\"\n"));
        assert!(refused.unwrap_err().contains(&said.to_owned()), "{extends}");
    }
    assert!(config("[variant.a]\nextends = \"test.toml\"\n").unwrap_err()[0].starts_with("`extends` goes in a circle"));
    assert!(config("[variant.a]\nextends = \"none.toml\"\n").unwrap_err()[0].starts_with("cannot read the config"));
    write("own.toml", "extends = \"one.toml\"\n");
    let typed = trials_of(&folder.path().join("own.toml"), &["variant.single.extends=\"other.toml\""]);
    assert_eq!(typed.unwrap_err(), ["`extends` cannot be set on the command line"]);
}

#[test]
fn the_lazy_model_takes_the_batches_of_its_implementation_on_any_device() {
    const PROCESSORS: [&str; 8] =
        ["lazy", "subgraph", "incidence_subgraph", "neighborhood", "shared", "ids", "perturbation", "packed"];
    for (implementation, reads, said) in [
        ("replicated", &PROCESSORS[..4], "the replicated lazy model needs the graph of each sample in the batch"),
        (
            "shared",
            &PROCESSORS[4..6],
            "the lazy model with the implementation \"shared\" reads the removed edges of each",
        ),
        (
            "operations",
            &PROCESSORS[4..6],
            "the lazy model with the implementation \"operations\" reads the removed edges",
        ),
    ] {
        for processor in PROCESSORS {
            for device in ["launch.device=cpu", "launch.device=cuda"] {
                let text = format!(
                    "pipeline.processor = \"{processor}\"\ntrain.mode = \"train\"\nmodel.kind = \"lazy\"\n\
                     model.implementation = \"{implementation}\"\n{ROWS}"
                );
                match trials(&text, &[device]) {
                    Ok(planned) => assert!(reads.contains(&processor) && planned.len() == 1, "{processor}"),
                    Err(messages) => {
                        assert!(!reads.contains(&processor), "{processor}: {messages:?}");
                        assert!(messages.iter().any(|message| message.starts_with(said)), "{messages:?}");
                    }
                }
            }
        }
    }
    // Masks alone, without the edges of each sample.
    let text = format!("pipeline.processor = \"lazy\"\ntrain.mode = \"train\"\nmodel.kind = \"lazy\"\n{ROWS}");
    assert!(trials(&text, &["pipeline.collation=shared_index"]).is_err());
}

#[test]
fn a_plan_says_where_the_lazy_model_is_another_function() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.toml");
    let said = |text: &str| {
        std::fs::write(&path, format!("train.mode = \"train\"\nmodel.kind = \"lazy\"\n{ROWS}{text}")).unwrap();
        let output = expctl(&["plan", path.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    let two = said(
        "[variant.a]\npipeline.processor = \"subgraph\"\n[variant.b]\npipeline.processor = \"incidence_subgraph\"\n\
         [variant.c]\npipeline.processor = \"lazy\"\n",
    );
    assert!(two.contains("note: a, b: norms over all nodes of the batch are taken without the removed genes"), "{two}");
    let near = said("[variant.a]\npipeline = { processor = \"neighborhood\", hops = 1 }\n");
    assert!(near.contains("note: a: the encoder sees the genes within 1 hop of the perturbed ones"), "{near}");
    let norms = "model.norm = \"node\"\nmodel.preprocessor_norm = \"node\"\n";
    let equal = said(&format!("{norms}[variant.a]\npipeline.processor = \"subgraph\"\n"));
    assert!(!equal.contains("note:"), "{equal}");
}

#[test]
fn samples_are_taken_at_an_interval_that_they_can_say_something_about() {
    let every = |set: &str| trials(SMALL, &[set]).map(|t| (t[0].settings.measure.sample_every_s, t[0].id.clone()));
    let usual = trials(SMALL, &[]).unwrap()[0].clone();
    assert_eq!(usual.settings.measure.sample_every_s, 1.0);
    assert_eq!(every("measure.sample_every_s=1").unwrap(), (1.0, usual.id.clone()));
    for (set, seconds) in [("measure.sample_every_s=0", 0.0), ("measure.sample_every_s=0.1", 0.1)] {
        let (found, id) = every(set).unwrap();
        assert!(found == seconds && id != usual.id, "{set}");
    }
    let message = "`measure.sample_every_s` is 0.05: processor time is counted in hundredths of a second";
    assert_eq!(every("measure.sample_every_s=0.05").unwrap_err(), [message]);
}

#[test]
fn a_cold_page_cache_is_asked_for_where_files_are_read() {
    let usual = trials(SMALL, &[]).unwrap()[0].clone();
    assert!(!usual.settings.measure.cold_cache);
    assert_eq!(trials(SMALL, &["measure.cold_cache=false"]).unwrap()[0].id, usual.id);
    let cold = trials(SMALL, &["measure.cold_cache=true"]).unwrap()[0].clone();
    assert!(cold.settings.measure.cold_cache && cold.id != usual.id);
    let rows = format!("{ROWS}array.format = \"h5ad\"\nmeasure.cold_cache = true\n");
    assert_eq!(trials(&rows, &[]).unwrap().len(), 1);
    let refused = |text: &str, set: &[&str]| trials(text, set).unwrap_err();
    assert_eq!(
        refused(&rows, &["array.memory=true"]),
        ["`measure.cold_cache` is set, but all rows are read into memory before the first step"]
    );
    let remote = ["array.files=[\"s3://bucket/a.h5ad\"]", "data.samples=1000"];
    let in_none = "`measure.cold_cache` is set, but objects of servers are in no page cache";
    assert_eq!(refused(&rows, &remote), [in_none]);
    // Folders of shards and of chunks may be remote as files are.
    for format in ["mds", "zarr"] {
        let format = format!("array.format=\"{format}\"");
        let folder = ["array.files=[\"s3://bucket/folder\"]", "data.samples=1000", "measure.cold_cache=false", &format];
        assert_eq!(trials(&rows, &folder).unwrap().len(), 1);
    }
    let program = "loader.batch_size = 28\nexperiment.study = \"arrayloader\"\nworker.command = [\"true\"]\n";
    let unknown = "`measure.cold_cache` is set, but which files the program reads is not known";
    assert_eq!(refused(program, &["measure.cold_cache=true"]), [unknown]);
}

#[test]
fn the_upper_layer_wins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("child.toml");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "grand.toml",
        "loader.seed = 1\nmodel.seed = 1\ndata.seed = 1\nmodel.layers = 1\nmodel.heads = 1\n[variant.v]\n",
    );
    write("other.toml", "model.seed = 2\n[variant.v.loader]\nprefetch_factor = 9\n");
    write(
        "child.toml",
        "extends = [\"grand.toml\", \"other.toml\"]\npipeline.processor = \"ids\"\nloader.batch_size = 8\nmeasure.repeats = 1\n\
         data.seed = 3\nmodel.layers = 3\nmodel.heads = 2\nloader.workers = 3\n[variant.v]\nmodel.layers = 4\n\
         loader.workers = 4\n[sweep.grid]\nmodel.heads = [8]\n",
    );
    let one = |set: &[&str]| trials_of(&path, set).unwrap()[0].settings.clone();
    let s = one(&[]);
    assert_eq!((s.loader.seed, s.model.seed, s.data.seed), (1, 2, 3), "extends in order, then the file");
    assert_eq!((s.model.layers, s.model.heads), (4, 8), "variant, then sweep");
    assert_eq!((s.loader.prefetch_factor, s.loader.workers), (9, 4), "variants are merged over files");
    assert_eq!(s.launch.ranks, 1, "default");
    assert_eq!(one(&["loader.workers=7"]).loader.workers, 7, "--set wins over the variant");
    let both = ["variant.v.loader.workers=9", "loader.workers=7"];
    assert_eq!(one(&both).loader.workers, 9, "--set variant wins over --set");
    assert_eq!(one(&["loader.workers=1", "loader.workers=2"]).loader.workers, 2, "the last --set wins");
    assert_eq!(one(&["sweep.grid.model.heads=[4]"]).model.heads, 4);
    let refused = trials_of(&path, &["model.heads=4"]).unwrap_err();
    assert_eq!(refused, ["`--set` gives `model.heads` one value, but the sweep varies it"]);
}

#[test]
fn set_takes_toml_and_bare_words() {
    let one = |set: &str| trials(SMALL, &[set]).unwrap()[0].settings.clone();
    assert_eq!(one("train.mode=training").train.mode.name(), "train");
    assert_eq!(one("train.mode = \"model_profiling\"").train.mode.name(), "forward_backward");
    assert_eq!(one("train.learning_rate=1e-3").train.learning_rate, 1e-3);
    assert_eq!(one("pipeline.edge_types=[\"physical\"]").pipeline.edge_types, ["physical"]);
    assert_eq!(one("slurm.partition=").slurm.partition, "");
    assert_eq!(one("experiment.title=a = b").experiment.title, "a = b");
}

#[test]
fn edge_types_come_from_the_recipe() {
    let s = trials(SMALL, &[]).unwrap()[0].settings.clone();
    assert_eq!(s.pipeline.edge_types.len(), 9);
    assert_eq!(s.pipeline.edge_types[0], "physical");
    assert_eq!(s.model.edge_types.len(), 6);
    let s = trials(SMALL, &["pipeline.edge_types=[\"string12_0_fusion\", \"physical\"]"]).unwrap()[0].settings.clone();
    assert_eq!(s.model.edge_types, ["string12_0_fusion"]);
}

#[test]
fn merged_edge_types_are_read_by_their_name() {
    let one = |set: &[&str]| trials(SMALL, set).map(|trials| trials[0].settings.clone());
    let merge = "pipeline.merge_edge_types=[\"string=string12_0_*\"]";
    let merged = one(&[merge]).unwrap();
    let types = merged.pipeline.graph_types().unwrap();
    let names: Vec<&str> = types.iter().map(|of| of.name.as_str()).collect();
    assert_eq!((names, types[3].members.len()), (vec!["physical", "regulatory", "tflink", "string"], 6));
    // DANGO reads STRING, as one or as six; any other model reads all that there is.
    assert_eq!(merged.model.edge_types, ["string"]);
    let lazy = ["model.kind=lazy", "model.implementation=shared"];
    assert_eq!(one(&[&lazy[..], &[merge]].concat()).unwrap().model.edge_types.len(), 4);
    let named = one(&[merge, "model.edge_types=[\"string\"]"]).unwrap();
    assert_eq!(named.model.edge_types, ["string"]);
    let mixed = "pipeline.merge_edge_types=[\"mixed=tflink+string12_0_fusion\"]";
    let of_five = ["neighborhood", "cooccurence", "coexpression", "experimental", "database"];
    assert_eq!(one(&[mixed]).unwrap().model.edge_types, of_five.map(|name| format!("string12_0_{name}")));
    let refused = |set: &[&str]| one(set).unwrap_err();
    let gone = refused(&[merge, "model.edge_types=[\"string12_0_fusion\"]"]);
    assert_eq!(gone, ["the model reads edge type `string12_0_fusion`, which is not in `pipeline.edge_types`"]);
    let alone = refused(&["pipeline.merge_edge_types=[\"string=string12_0_fusion\"]"]);
    assert_eq!(alone, ["`pipeline.merge_edge_types`: `string=string12_0_fusion` merges one edge type alone"]);
    let few = "pipeline.edge_types=[\"tflink\", \"string12_0_fusion\"]";
    let foreign = refused(&[few, "pipeline.merge_edge_types=[\"physical=tflink+string12_0_fusion\"]"]);
    let taken = "`pipeline.merge_edge_types`: `physical` is the name of a network that is not in it";
    assert!(foreign.contains(&taken.to_owned()), "{foreign:?}");
    let stored = refused(&[merge, "pipeline.store=full_masks", "pipeline.processor=lazy"]);
    let each = "`pipeline.merge_edge_types` is set, but in the store `full_masks` each network has its masks";
    assert_eq!(stored, [each]);
}

#[test]
fn ways_to_make_masks_go_with_what_makes_them() {
    let of = |set: &[&str]| trials(SMALL, set).map(|trials| trials[0].clone());
    let usual = of(&["pipeline.processor=lazy"]).unwrap();
    let pipeline = &usual.settings.pipeline;
    assert_eq!((pipeline.mask_source.name(), pipeline.mask_fraction, pipeline.mask_seed), ("incidence", 1.0, 42));
    assert!(!pipeline.is_approximate() && !usual.settings.profile.operations);
    // Each is another run than the usual one.
    let (half, genes) = ("pipeline.mask_fraction=0.5", "pipeline.mask_source=gene_masks");
    for set in [half, genes, "profile.operations=true", "pipeline.merge_edge_types=[\"string=string12_0_*\"]"] {
        assert_ne!(of(&["pipeline.processor=lazy", set]).unwrap().id, usual.id, "{set}");
    }
    for processor in ["packed", "shared", "incidence_subgraph"] {
        assert!(of(&[&format!("pipeline.processor={processor}"), genes, "pipeline.gene_masks_mib=100"]).is_ok());
    }
    let lazy = "pipeline.processor=lazy";
    for (set, said) in [
        (
            &["pipeline.processor=subgraph", genes][..],
            "`pipeline.mask_source` = \"gene_masks\" cannot be had of processor `subgraph`",
        ),
        (&["pipeline.processor=packed", half], "`pipeline.mask_fraction` below 1 cannot be had of processor `packed`"),
        (&[lazy, half, genes], "`pipeline.mask_fraction` draws among the edges of a gene, and"),
        (&[lazy, half, "pipeline.device_masks=looped"], "`pipeline.mask_fraction` is of the loader's masks, and"),
        (
            &[lazy, half, "pipeline.store=compressed"],
            "`pipeline.mask_fraction` is set, but in the store `compressed` masks are read",
        ),
        (
            &[lazy, genes, "pipeline.store=packed_masks"],
            "`pipeline.mask_source` is set, but in the store `packed_masks` masks are",
        ),
        (&[lazy, "pipeline.mask_seed=1"], "`pipeline.mask_seed` is set without a mask_fraction below 1"),
        (
            &[lazy, "pipeline.gene_masks_mib=100"],
            "`pipeline.gene_masks_mib` is set without mask_source = \"gene_masks\"",
        ),
        (&[lazy, "pipeline.mask_fraction=0"], "`pipeline.mask_fraction` is out of range"),
    ] {
        let problems = of(set).unwrap_err();
        assert!(problems.len() == 1 && problems[0].starts_with(said), "{set:?}: {problems:?}");
    }
    let command = ["experiment.study=006-kuzmin-tmi", "worker.command=[\"true\"]", "profile.operations=true"];
    let command = trials(SMALL, &command).unwrap_err();
    assert_eq!(command, ["`profile.operations` is of expctl's own worker, but `worker.command` runs in its place"]);
    let rows = trials(&format!("{ROWS}array.format = \"h5ad\"\n"), &["profile.operations=true"]).unwrap_err();
    assert_eq!(rows, ["`profile.operations` is of graphs, but rows of an array are read"]);
}

#[test]
fn repeats_go_round_all_variants() {
    let text = "loader.batch_size = 8\n[variant.z]\npipeline.processor = \"ids\"\nmeasure.repeats = 1\n\
                [variant.a]\npipeline.processor = \"ids\"\nmeasure.repeats = 2\n";
    let order: Vec<_> = trials(text, &[]).unwrap().iter().map(|t| (t.variant.clone(), t.repeat)).collect();
    assert_eq!(order, [("z".into(), 1), ("a".into(), 1), ("a".into(), 2)], "as in the file, repeat by repeat");
}

#[test]
fn ids_depend_on_what_is_run_alone() {
    let id = |text: &str, set: &[&str]| trials(text, set).unwrap()[0].id.clone();
    let first = id(SMALL, &[]);
    assert_eq!(first, PINNED);
    let same = "# a comment\nmeasure.repeats = 4\nexperiment.title = \"Other\"\nslurm.partition = \"gpu\"\n\
                [loader]\nworkers = 0\nbatch_size = 0x1c\n[pipeline]\nprocessor = \"ids\"\n\
                [variant.default]\n[variant.other]\nloader.workers = 4\n";
    assert_eq!(id(same, &[]), first);
    assert_ne!(id(SMALL, &["loader.workers=1"]), first);
    assert_ne!(id(SMALL, &["data.seed=1"]), first);
    // Ids are older than these keys; only what they ask for beyond the default is another run.
    for key in ["launch.device", "launch.backend", "train.gradient_compression"] {
        let word = |at: usize| match keys::find(key).unwrap().value {
            ValueType::Choice { words, .. } => format!("{key}={}", words[at]),
            _ => unreachable!("{key} is a choice"),
        };
        assert_eq!(id(SMALL, &[&word(0)]), first, "{key}");
        assert_ne!(id(SMALL, &[&word(1)]), first, "{key}");
    }
    let all = trials(same, &["measure.repeats=2"]).unwrap();
    let mut ids: Vec<&str> = all.iter().map(|t| t.id.as_str()).collect();
    assert!(ids.iter().all(|id| id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn repeats_of_a_training_run_have_seeds_of_their_own() {
    let text = "pipeline.processor = \"ids\"\nloader.batch_size = 28\nmeasure.repeats = 3\nmodel.seed = 7\n\
                select.split = \"train\"\ntrain.mode = \"train\"\n";
    let seeds = |set: &[&str]| {
        let trials = trials(text, set).unwrap();
        trials.iter().map(|t| (t.settings.model.seed, t.settings.loader.seed, t.settings.data.seed)).collect::<Vec<_>>()
    };
    assert_eq!(seeds(&["train.epochs=2"]), [(7, 42, 42), (8, 43, 42), (9, 44, 42)]);
    // Runs that measure time are the same run.
    assert_eq!(seeds(&[]), [(7, 42, 42); 3]);
    // The id has the config's seeds: another first repeat is another trial, its own repeats are not.
    let id = |set: &[&str], i: usize| trials(text, set).unwrap()[i].id.clone();
    let hash = |id: String| id.rsplit_once('-').unwrap().1.to_owned();
    assert_eq!(hash(id(&["train.epochs=2"], 0)), hash(id(&["train.epochs=2"], 2)));
    assert_ne!(hash(id(&["train.epochs=2"], 0)), hash(id(&["train.epochs=2", "model.seed=8"], 0)));
}

#[test]
fn typed_epochs_take_the_place_of_a_files_steps() {
    let text =
        format!("{SMALL}measure.steps = 6\ndata.samples = 2_800\nselect.split = \"train\"\ntrain.mode = \"train\"\n");
    let steps = |set: &[&str]| trials(&text, set).map(|trials| trials[0].settings.measure.steps);
    assert_eq!(steps(&[]), Ok(6));
    // 2,240 samples in 80 batches, twice, less the warm-up of 10.
    assert_eq!(steps(&["train.epochs=2"]), Ok(150));
    assert_eq!(steps(&["train.epochs=0"]), Ok(6));
    let both = "`measure.steps` and `train.epochs` both say how long the run is".to_owned();
    assert_eq!(steps(&["train.epochs=2", "measure.steps=7"]), Err(vec![both.clone()]));
    let in_file = trials(&format!("{text}train.epochs = 2\n"), &[]).map(|trials| trials.len());
    assert_eq!(in_file, Err(vec![both]));
}

/// Changing it cuts the ledgers of users off from their next jobs.
const PINNED: &str = "default-r1-b8170434";

#[test]
fn the_key_table_and_the_settings_have_the_same_keys() {
    let settings = serde_json::to_value(&trials(SMALL, &[]).unwrap()[0].settings).unwrap();
    let mut typed = Vec::new();
    for (section, keys) in settings.as_object().unwrap() {
        typed.extend(keys.as_object().unwrap().keys().map(|key| format!("{section}.{key}")));
    }
    let mut table: Vec<String> = keys::KEYS.iter().map(|spec| spec.key.to_owned()).collect();
    typed.sort();
    table.sort();
    assert_eq!(table, typed);
    for spec in keys::KEYS.iter() {
        assert!(keys::SECTIONS.contains(&spec.section()), "{}", spec.key);
    }
}

#[test]
fn every_choice_makes_settings() {
    for spec in keys::KEYS.iter() {
        if let ValueType::Choice { words, aliases } = spec.value {
            for word in words.iter().chain(aliases.iter().map(|(alias, _)| alias)) {
                let mut set = vec![format!("{}={word}", spec.key)];
                // What one processor alone takes.
                match spec.key {
                    "pipeline.collation" | "pipeline.mask_source" => set.push("pipeline.processor=lazy".to_owned()),
                    "pipeline.walk" => set.push("pipeline.processor=neighborhood".to_owned()),
                    "train.schedule" => {
                        let trains = ["train.epochs=2", "train.mode=train", "select.split=train"];
                        set.extend(trains.map(str::to_owned));
                    }
                    _ => {}
                }
                let of_arrays = matches!(spec.section(), "array" | "sampler") && spec.key != "array.format";
                if of_arrays {
                    set.push("array.format=h5ad".to_owned());
                }
                match (spec.key, *word) {
                    ("sampler.draw", "weighted" | "balanced") => set.push("sampler.by=cell_type".to_owned()),
                    ("sampler.preset", _) => {
                        set.extend(["sampler.draw=chunked", "array.format=parquet"].map(str::to_owned))
                    }
                    _ => {}
                }
                let rows = of_arrays || *word == "rows" || (spec.key == "array.format" && *word != "none");
                let text = if rows { ROWS } else { SMALL };
                if *word == "rows" {
                    set.push("array.format=h5ad".to_owned());
                }
                let set: Vec<&str> = set.iter().map(String::as_str).collect();
                assert!(trials(text, &set).is_ok(), "{} = {word}", spec.key);
            }
        }
    }
}

#[test]
fn rows_of_an_array_have_their_own_defaults() {
    let of = |text: &str| trials(&format!("{ROWS}{text}"), &[]).unwrap()[0].settings.clone();
    let rows = of("array.format = \"h5ad\"\n");
    let derived = (rows.data.set.as_str(), rows.pipeline.processor.name(), rows.model.kind.name(), rows.train.loss);
    assert_eq!(derived, ("arrayloader", "rows", "mlp", Loss::CrossEntropy));
    assert_eq!((rows.model.hidden, rows.model.heads, rows.model.layers), (1024, 1, 5));
    assert_eq!((rows.sampler.chunk_rows, rows.sampler.chunks, rows.data.files), (512, 32, 1));
    let chunked = "array.format = \"parquet\"\nsampler.draw = \"chunked\"\nsampler.preset = \"census\"\n";
    assert_eq!((of(chunked).sampler.chunk_rows, of(chunked).sampler.chunks), (64, 1024));
    assert_eq!(of(&format!("{chunked}sampler.chunks = 7\n")).sampler.chunks, 7);
    // 1,000 rows on two ranks are 18 batches of 28 on each; three epochs less the warm-up of 10.
    let epochs = "array.format = \"h5ad\"\ndata.samples = 1_000\nlaunch.ranks = 2\nmeasure.epochs = 3\n";
    assert_eq!(of(epochs).measure.steps, 3 * 18 - 10);
    let weighted = format!("{epochs}sampler.draw = \"weighted\"\nsampler.by = \"weight\"\nsampler.rows = 560\n");
    assert_eq!(of(&weighted).measure.steps, 3 * 10 - 10);
    assert_eq!(trials(&format!("{ROWS}{epochs}"), &["measure.steps=7"]).unwrap()[0].settings.measure.steps, 7);
}

#[test]
fn genes_and_files_of_an_array_are_asked_for_by_number() {
    let text = format!("{ROWS}array.format = \"parquet\"\ndata.samples = 1_000\ndata.files = 4\n");
    let of = |set: &[&str]| trials(&text, set).map(|trials| trials[0].clone());
    let usual = of(&[]).unwrap();
    assert_eq!((usual.settings.data.genes, usual.settings.array.file_count), (0, 0));
    assert!(usual.data_dir.ends_with("scale-1_samples-1000_seed-42_files-4"), "{}", usual.data_dir.display());
    // Ids are older than these keys.
    assert_eq!(of(&["data.genes=0", "array.file_count=0"]).unwrap().id, usual.id);
    let asked = of(&["data.genes=60000", "array.file_count=7"]).unwrap();
    assert_eq!((asked.settings.data.genes, asked.settings.array.file_count), (60_000, 7));
    assert!(asked.data_dir.ends_with("genes-60000_samples-1000_seed-42_files-4"), "{}", asked.data_dir.display());
    assert_ne!(asked.id, usual.id);
    for (set, message) in [
        (["data.genes=60000", "data.scale=0.5"], "60000 genes and a share of 0.5 of them are asked for"),
        (["array.file_count=7", "array.format=h5ad"], "`array.file_count` is of parquet files, but `h5ad` is read"),
        (["array.file_count=1001", "data.files=1"], "1000 rows cannot be in 1001 files"),
    ] {
        assert_eq!(of(&set).map(|_| ()), Err(vec![message.to_owned()]), "{set:?}");
    }
    let graph = trials(&format!("{SMALL}data.genes = 60_000\n"), &[]).map(|_| ());
    assert_eq!(graph, Err(vec!["`data.genes` is of arrays, but samples of a graph are read".to_owned()]));
}

#[test]
fn rows_are_fetched_singly_where_they_are_drawn_singly() {
    let text = format!("{ROWS}array.format = \"h5ad\"\n");
    let of = |set: &[&str]| trials(&text, set).map(|trials| trials[0].settings.array.fetch);
    assert_eq!((of(&[]), of(&["array.fetch=row"])), (Ok(Fetch::Batch), Ok(Fetch::Row)));
    let chunks = "`array.fetch` = \"row\", but chunks are read whole".to_owned();
    assert_eq!(of(&["array.fetch=row", "sampler.draw=chunked"]), Err(vec![chunks.clone()]));
    assert_eq!(of(&["array.fetch=row", "sampler.draw=sequential"]), Err(vec![chunks]));
    let memory = "`array.fetch` = \"row\", but rows are in memory".to_owned();
    assert_eq!(of(&["array.fetch=row", "array.memory=true"]), Err(vec![memory]));
}

#[test]
fn own_files_are_found_and_counted() {
    let file = root().join("experiments/arrayloader/real/pbmc68k_reduced.h5ad");
    let named = "experiments/arrayloader/real/*.h5ad";
    let text = format!("{ROWS}array.format = \"h5ad\"\narray.files = [\"{named}\"]\n");
    let trial = &trials(&text, &[]).unwrap()[0];
    assert_eq!(trial.settings.array.files, [file.to_string_lossy()]);
    assert_eq!(trial.settings.data.samples, 700);
}

#[test]
fn a_selection_that_fills_a_step_is_fine() {
    let of = |set: &[&str]| trials(&format!("{SMALL}data.samples = 1_000\n"), set).map(|trials| trials.len());
    assert_eq!(of(&["select.subset=280", "select.split=val"]), Ok(1));
    assert_eq!(of(&["select.split=train", "select.samples=metabolic", "select.subset=5000"]), Ok(1));
    let refused = of(&["select.subset=280", "select.split=test", "launch.ranks=2"]).unwrap_err();
    assert_eq!(
        refused,
        ["one step takes 28 samples on each of 2 ranks, 56 in all, but the selection leaves 28 of 1000"]
    );
}

/// The document with `part` between its `<!-- NAME: … -->` and `<!-- /NAME -->`; with UPDATE_DOCS it is written, too.
fn generated_part_is_current(document: &str, name: &str, part: &str) {
    let path = root().join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.find(&format!("<!-- {name}:")).unwrap();
    let start = start + text[start..].find('\n').unwrap() + 1;
    let end = text.find(&format!("<!-- /{name} -->")).unwrap();
    let current = format!("{}\n{part}\n\n{}", &text[..start], &text[end..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    } else {
        assert!(current == text, "{document} is not current: UPDATE_DOCS=1 cargo test --release --test integration");
    }
}

#[test]
fn the_reference_is_current() {
    generated_part_is_current("docs/reference/config.md", "keys", &keys::reference());
    generated_part_is_current("docs/guide/their-names.md", "names", &expctl_config::their_names());
}

/// What stands in the column "Here" of docs/guide/their-names.md is ours: keys with words that they take, stages, commands, configs.
#[test]
fn the_page_of_their_names_leads_to_what_there_is() {
    let page = std::fs::read_to_string(root().join("docs/guide/their-names.md")).unwrap();
    let help = String::from_utf8(expctl(&["--help"]).stdout).unwrap();
    let verbs: Vec<&str> = help.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let takes = |key: &str, value: &str| match keys::find(key).map(|spec| spec.value) {
        Some(ValueType::Choice { words, .. }) => words.contains(&value.trim_matches('"')),
        found => found.is_some(),
    };
    let is_ours = |name: &str| match name.split_once(" = ") {
        Some((key, value)) => takes(key, value),
        None => {
            let verb = name.strip_prefix("expctl ").and_then(|rest| rest.split(' ').next());
            keys::find(name).is_some()
                || Stage::ALL.iter().any(|stage| stage.name() == name)
                || verb.is_some_and(|verb| verbs.contains(&verb))
                || (name.starts_with("conf/") && root().join(name).is_file())
                || ["expctl-worker", "[variant.NAME]", "compare.baseline", "compare.estimators"].contains(&name)
        }
    };
    let mut looked_at = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| There |")) {
        let here = line.trim_matches('|').split(" | ").nth(1).unwrap_or_else(|| panic!("{line}"));
        for name in here.split('`').skip(1).step_by(2) {
            assert!(is_ours(name), "{name} is nothing of ours: {line}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 150, "{looked_at}");
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
