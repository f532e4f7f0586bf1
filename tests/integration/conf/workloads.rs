//! Settings that graphs, arrays and programs take, refuse, or have other defaults for.

use super::*;

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
    assert_eq!(rows, ["`profile.operations` only applies to graph data"]);
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
    let short = trials(&format!("{ROWS}{epochs}"), &["loader.workers=50", "loader.prefetch_factor=4"]).unwrap_err();
    let reason = "the run has 54 steps, the warm-up takes 200 (loader.workers 50 × prefetch_factor 4)";
    assert_eq!(short, [reason]);
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
    assert_eq!(graph, Err(vec!["`data.genes` only applies to arrays".to_owned()]));
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
fn all_that_array_files_do_not_have_is_named_at_once() {
    let files = "experiments/arrayloader/real/*.h5ad";
    let text = format!("{ROWS}array.format = \"h5ad\"\narray.files = [\"{files}\"]\n");
    let wrong = [
        "array.labels=[\"bulk_label\", \"bulk_labels\", \"bulk\"]",
        "sampler.draw=balanced",
        "sampler.by=bulk_label",
        "array.genes=[\"no such gene\"]",
    ];
    let refused = trials(&text, &wrong).map(|_| ()).unwrap_err();
    let mut keys: Vec<&str> = refused.iter().filter_map(|message| message.split('`').nth(1)).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["array.genes", "array.labels", "array.labels", "sampler.by"], "{refused:?}");
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
