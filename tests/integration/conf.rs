//! Configs as a user meets them: the messages of `expctl check`, the trials of `expctl plan`, and the reference.

mod shipped;
mod side_by_side;
mod sweep;
mod workloads;

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

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
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
    let text = text.replace(root().to_str().unwrap(), "ROOT");
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
fn a_root_that_does_not_exist_is_refused() {
    let output = expctl(&["--root", "/nonexistent", "status"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert_eq!(message, "error: --root: there is no folder /nonexistent\n");
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

/// `--set` is judged with what runs: a variant that `--only` leaves out need not fit it.
#[test]
fn what_does_not_run_need_not_fit_a_setting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.toml");
    let text = format!(
        "{SMALL}experiment.study = \"006-kuzmin-tmi\"\n[variant.ahead]\nloader.workers = 8\nloader.prefetch_factor = 4\n\
         [variant.one]\nloader.workers = 1\nloader.prefetch_factor = 2\n"
    );
    std::fs::write(&path, text).unwrap();
    let plan = |more: &[&str]| {
        let line = [&["plan", path.to_str().unwrap(), "--set", "measure.warmup=4"], more].concat();
        let output = expctl(&line);
        (output.status.code(), text_of(&output.stdout), text_of(&output.stderr))
    };
    let (code, _, stderr) = plan(&[]);
    assert!(code == Some(3) && stderr.contains("only 4 steps are warm-up"), "{stderr}");
    let (code, _, stderr) = plan(&["--only", "ahead"]);
    assert!(code == Some(3) && stderr.contains("only 4 steps are warm-up"), "{stderr}");
    let (code, table, stderr) = plan(&["--only", "one", "--json"]);
    assert_eq!(code, Some(0), "{stderr}");
    // So does the id of a trial.
    let planned: Json = serde_json::from_str(&table).unwrap();
    let id = planned["trials"][0]["id"].as_str().unwrap();
    assert_eq!(plan(&["--only", id]).0, Some(0));
    // What is no setting at all is a mistake of any variant.
    let (code, _, stderr) = plan(&["--only", "one", "--set", "variant.ahead.loader.worker=1"]);
    assert!(code == Some(3) && stderr.contains("loader.worker"), "{stderr}");
    // A name that is none is still said to be none, and nothing is left out then.
    let (_, _, stderr) = plan(&["--only", "ahed"]);
    assert!(stderr.contains("only 4 steps are warm-up"), "{stderr}");
}

/// Outside of a project, jobs have one ledger: beside their config.
#[test]
fn without_a_project_the_folder_of_the_config_is_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let nested = folder.path().join("sub");
    std::fs::create_dir(&nested).unwrap();
    std::fs::write(folder.path().join("x.toml"), "pipeline.processor = \"ids\"\nloader.batch_size = 8\n").unwrap();
    let run = |line: &[&str]| {
        let mut command = Command::cargo_bin("expctl").unwrap();
        command.current_dir(&nested).env("XDG_CONFIG_HOME", "/nonexistent").env_remove("EXPCTL_ROOT");
        command.env_remove("EXPCTL_RUNS").env_remove("EXPCTL_DATA").args(line).output().unwrap()
    };
    let root = folder.path().canonicalize().unwrap();
    let stderr = text_of(&run(&["check", "../x.toml"]).stderr);
    assert!(stderr.contains(&format!("no experiments/ folder in {} or above", root.display())), "{stderr}");
    // An empty ledger where no project is says so.
    let status = run(&["status"]);
    let stderr = text_of(&status.stderr);
    assert!(
        status.status.success() && stderr.contains("note: no project here: no experiments/ folder in "),
        "{stderr}"
    );
    assert!(!text_of(&expctl(&["status"]).stderr).contains("no project here"));
}

/// Nothing that is not a terminal gets colours, also without NO_COLOR.
#[test]
fn colours_are_for_terminals() {
    for line in [&["check", "tests/conf/broken/unknown_key.toml"][..], &["--help"], &["doctor"], &["status"]] {
        let mut command = Command::cargo_bin("expctl").unwrap();
        let output = command.current_dir(root()).env_remove("NO_COLOR").env("EXPCTL_LOG", "trace").args(line);
        let output = output.env("XDG_CONFIG_HOME", "/nonexistent").output().unwrap();
        let all = text_of(&output.stdout) + &text_of(&output.stderr);
        assert!(!all.is_empty() && !all.contains('\u{1b}'), "{line:?}: {all}");
    }
}

#[test]
fn help_has_examples() {
    for verb in [
        "check", "plan", "submit", "status", "logs", "retry", "isolate", "report", "compare", "predict", "timings",
        "trace", "import",
    ] {
        let help = text_of(&expctl(&[verb, "--help"]).stdout);
        assert!(help.contains(&format!("Examples:\n  expctl {verb}")), "{verb}: {help}");
    }
    let help = text_of(&expctl(&["--help"]).stdout);
    let said = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("6 results incomplete, or records or data cannot be read or written, 7 comparison refused"),
        "{said}"
    );
}

#[test]
fn a_missing_config_is_explained() {
    let output = expctl(&["check", "conf/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(3));
    snapshot("no_such_config", &String::from_utf8(output.stderr).unwrap());
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
                    ("train.mode", "emulate") => set.push("train.step_ms=60".to_owned()),
                    ("train.emulate", preset) if preset != "none" => {
                        let batch = match preset.split_once('_') {
                            Some(("unet3d", _)) => 7,
                            Some(("resnet50", _)) => 400,
                            _ => 1,
                        };
                        set.extend(["train.mode=emulate".to_owned(), format!("loader.batch_size={batch}")]);
                    }
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
