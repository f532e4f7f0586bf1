//! The trials of a plan: points of a sweep, repeats, variants, and their ids.

use super::*;

fn points(text: &str, keys: &[&str]) -> Vec<Vec<Json>> {
    let trials = trials(&format!("{SMALL}{text}"), &[]).unwrap();
    trials.iter().map(|t| keys.iter().map(|k| t.point.get(*k).cloned().unwrap_or(Json::Null)).collect()).collect()
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
