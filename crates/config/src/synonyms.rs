//! Names of our settings in other systems, in one table: the Hydra configs of torchcell, Lightning, the data loaders of PyTorch and PyG,
//! loaders of AnnData. Hints at unknown keys and words, the translation of YAML and docs/guide/their-names.md use it.

use expctl_settings::{
    Array, Checkpoint, Data, Key, Launch, Loader, Measure, Model, Pipeline, Profile, Sampler, Select, Slurm, TraceAt,
    Train, Worker,
};

/// A key of another system.
#[derive(Clone, Copy, Debug)]
pub struct KeySynonym {
    /// Their names: `a.b` is the end of a dotted path, `a.` every key of a section, and a name without a dot the last part of a path.
    pub theirs: &'static [&'static str],
    /// Our dotted key; none where there is nothing to set.
    pub ours: Option<&'static str>,
    /// Values that change: theirs as text (`*` is any), ours in TOML (empty leaves the key out). Others stay the same.
    pub values: &'static [(&'static str, &'static str)],
    /// A remark for the reader; may be empty.
    pub note: &'static str,
}

/// A word of another system for a value.
#[derive(Clone, Copy, Debug)]
pub struct WordSynonym {
    /// Our dotted key.
    pub key: &'static str,
    /// Their words; case, `-`, `_` and spaces do not matter.
    pub theirs: &'static [&'static str],
    /// Our word; empty where there is none.
    pub ours: &'static str,
    /// A remark for the reader; may be empty.
    pub note: &'static str,
}

/// The same value under another key.
const fn same<T>(ours: Key<T>, theirs: &'static [&'static str]) -> KeySynonym {
    KeySynonym { theirs, ours: Some(ours.name()), values: &[], note: "" }
}

/// Another key, and other values.
const fn other<T>(
    ours: Key<T>,
    theirs: &'static [&'static str],
    values: &'static [(&'static str, &'static str)],
    note: &'static str,
) -> KeySynonym {
    KeySynonym { theirs, ours: Some(ours.name()), values, note }
}

/// Nothing to set, and why.
const fn none(theirs: &'static [&'static str], note: &'static str) -> KeySynonym {
    KeySynonym { theirs, ours: None, values: &[], note }
}

const fn word<T>(key: Key<T>, theirs: &'static [&'static str], ours: &'static str, note: &'static str) -> WordSynonym {
    WordSynonym { key: key.name(), theirs, ours, note }
}

/// The key exists, but no rule makes its value of theirs.
const BY_HAND: &[(&str, &str)] = &[("*", "")];

/// Sections of other systems, with the sections of ours that their keys belong to.
pub const SECTION_SYNONYMS: [(&str, &[&str]); 10] = [
    ("data_module", &["loader", "pipeline", "select", "data"]),
    ("datamodule", &["loader", "pipeline", "select", "data"]),
    ("dataloader", &["loader"]),
    ("cell_dataset", &["pipeline", "data"]),
    ("graph_processor", &["pipeline"]),
    ("trainer", &["train", "measure", "launch"]),
    ("regression_task", &["train"]),
    ("optimizer", &["train"]),
    ("transforms", &["train"]),
    ("profiler", &["profile", "trace"]),
];

/// Keys of other systems. Where two of them stand for one of ours, the lower line wins.
pub const KEY_SYNONYMS: &[KeySynonym] = &[
    // [data], [select]
    same(Data::SET, &["dataset", "data.name"]),
    same(Data::SAMPLES, &["data.size"]),
    same(Data::GENES, &["n_vars", "num_genes"]),
    same(Data::LABELS, &["data.label"]),
    same(Select::SAMPLES, &["gene_subsets"]),
    same(Select::SUBSET, &["perturbation_subset_size"]),
    other(Select::SUBSET, &["is_perturbation_subset"], &[("false", "0"), ("true", "")], ""),
    // [pipeline]
    other(
        Pipeline::STORE,
        &["use_preprocessed"],
        &[("true", "\"compressed\""), ("false", "\"json\"")],
        "compressed indices; with use_full_masks it is \"full_masks\"",
    ),
    other(Pipeline::STORE, &["use_full_masks"], &[("true", "\"full_masks\""), ("false", "")], ""),
    same(Pipeline::STORE, &["storage"]),
    same(Pipeline::PROCESSOR, &["graph_processor", "graph_processor.type", "pipeline.type"]),
    same(Pipeline::HOPS, &["num_hops", "pipeline.k"]),
    same(Pipeline::EDGE_TYPES, &["graphs"]),
    other(
        Pipeline::MERGE_EDGE_TYPES,
        &["merge_graphs", "combine_graphs", "merge_networks"],
        BY_HAND,
        "as [\"string=string12_0_*\"]",
    ),
    other(
        Pipeline::METABOLISM,
        &["incidence_graphs", "metabolism_bipartite"],
        &[("[metabolism_bipartite]", "true"), ("[]", "false")],
        "",
    ),
    same(Pipeline::COLLATION, &["collate_fn", "collater"]),
    other(
        Pipeline::MASK_SOURCE,
        &["per_gene_masks", "gene_masks", "cache_gene_masks"],
        &[("true", "\"gene_masks\""), ("false", "\"incidence\"")],
        "",
    ),
    same(Pipeline::MASK_FRACTION, &["sample_fraction", "mask_sample_fraction", "mask_sampling"]),
    other(
        Pipeline::DEVICE_MASKS,
        &["init_masks_on_gpu", "gpu_masks"],
        &[("true", "\"looped\""), ("false", "\"none\"")],
        "081 made them sample by sample, 082 all at once (\"vectorised\")",
    ),
    // [loader]
    same(Loader::BATCH_SIZE, &["loader.batch"]),
    same(Loader::WORKERS, &["num_workers", "loader.threads"]),
    same(Loader::PREFETCH_FACTOR, &["loader.prefetch"]),
    same(Loader::PIN_MEMORY, &["loader.pin"]),
    same(Loader::BUFFER_MIB, &["loader.memory_limit"]),
    none(&["persistent_workers"], "loader threads live as long as the run, from epoch to epoch: leave it out"),
    none(&["data_module.prefetch"], "copies to a GPU run ahead of the step, on a stream of their own: leave it out"),
    none(&["val_batch_size"], "validation has the batch size of training: leave it out"),
    // [array], [sampler]
    same(Array::FORMAT, &["array.backend"]),
    same(Array::FILES, &["path_list", "array.paths", "adata_paths", "h5ads"]),
    same(Array::FILE_COUNT, &["num_files", "n_files"]),
    same(Array::MEMORY, &["in_memory", "array.cache"]),
    same(Array::LAYER, &["layers_keys", "layer_name", "x_key"]),
    same(Array::GENES, &["var_names", "gene_subset"]),
    other(
        Array::OUTPUT,
        &["return_sparse", "return_sparse_X", "array.sparse"],
        &[("true", "\"sparse\""), ("false", "\"dense\"")],
        "",
    ),
    other(Array::OUTPUT, &["to_dense"], &[("true", "\"dense\""), ("false", "\"sparse\"")], ""),
    same(Array::FETCH, &["array.read", "array.access", "fetch_mode"]),
    same(Array::NORMALIZE, &["target_sum", "normalize_total"]),
    same(Array::LABELS, &["obs_keys", "obs_columns", "label_key"]),
    other(Array::CACHE_MIB, &["cache_size", "cache_limit"], BY_HAND, "in MiB"),
    same(Array::CACHE_DIR, &["cache_path", "cache_folder", "local_cache"]),
    same(Array::REQUESTS, &["concurrency", "max_concurrent_requests", "io_threads"]),
    same(Sampler::DRAW, &["sampler.strategy", "sampling"]),
    same(Sampler::CHUNK_ROWS, &["chunk_size", "soma_chunk_size", "block_size", "row_group_size"]),
    same(Sampler::CHUNKS, &["preload_nchunks", "fetch_factor", "parts_per_chunk", "shuffle_chunk_count"]),
    same(Sampler::BY, &["sampler.weights", "obs_key", "weight_key", "sampler.label"]),
    same(Sampler::ROWS, &["num_samples", "sampler.total_size"]),
    // [model]
    same(Model::HIDDEN, &["hidden_channels", "hidden_dim"]),
    same(Model::HEADS, &["num_heads"]),
    same(Model::LAYERS, &["num_layers"]),
    same(Model::EDGE_TYPES, &["model.graphs"]),
    same(Model::AGGREGATION, &["graph_aggregation_method"]),
    other(
        Model::AGGREGATION_NORM,
        &["graph_aggregation_config.aggregation_norm"],
        &[("layer", "true"), ("batch", "true"), ("null", "false")],
        "",
    ),
    same(Model::CONVOLUTION_LAYERS, &["gin_num_layers"]),
    other(
        Model::LOCAL_HEAD,
        &["use_local_predictor", "local_predictor_config"],
        &[("true", "\"full\""), ("false", "\"none\"")],
        "",
    ),
    same(Model::ATTENTION_LAYERS, &["num_attention_layers"]),
    same(Model::PATH, &["model.file", "model.module"]),
    same(Model::TOKENS, &["max_len", "n_genes", "context_length"]),
    none(&["gene_num", "reaction_num", "metabolite_num"], "the data set says how many"),
    none(
        &["gpr_conv_config.", "metabolism_config.", "prediction_head_config."],
        "the published model does not read it",
    ),
    none(
        &["encoder_type", "activation", "dropout", "gene_encoder_config.heads", "concat", "bias", "share_weights"],
        "one value each, that of the published runs",
    ),
    // [train]
    same(Train::MODE, &["execution_mode"]),
    same(Train::LEARNING_RATE, &["lr"]),
    other(Train::LEARNING_RATE, &["max_lr"], &[], "the peak, where the rate has cycles"),
    same(Train::OPTIMIZER, &["optimizer.type"]),
    same(Train::CLIP_NORM, &["clip_grad_norm_max_norm", "gradient_clip_val"]),
    other(Train::CLIP_NORM, &["clip_grad_norm"], &[("false", "0.0"), ("true", "")], ""),
    same(Train::LOSS, &["criterion"]),
    other(
        Train::STANDARDISE_LABELS,
        &["gene_interaction.strategy", "normalization", "normalise_labels", "standardize_labels"],
        &[("standard", "true"), ("null", "false"), ("*", "")],
        "strategy standard alone",
    ),
    same(Train::SINKHORN_WEIGHT, &["lambda_wasserstein"]),
    same(Train::SINKHORN_BUFFER, &["buffer_size", "min_samples_for_wasserstein", "train.min_samples"]),
    other(
        Train::SINKHORN_GATHER,
        &["use_ddp_gather"],
        &[("true", "\"detached\""), ("false", "\"off\"")],
        "as published, without a gradient; \"joined\" has one",
    ),
    same(Train::PRECISION, &["amp", "autocast"]),
    same(Train::GRADIENT_COMPRESSION, &["comm_hook", "ddp_comm_hook"]),
    other(
        Train::ACCUMULATION,
        &["grad_accumulation_schedule", "accumulate_grad_batches"],
        &[("null", "[]"), ("*", "")],
        "as [\"EPOCH:BATCHES\"]",
    ),
    same(Train::SCHEDULE, &["lr_scheduler", "lr_scheduler.type", "scheduler"]),
    same(Train::SCHEDULE_EPOCHS, &["first_cycle_steps"]),
    same(Train::SCHEDULE_STRETCH, &["cycle_mult"]),
    same(Train::SCHEDULE_WARMUP, &["warmup_steps"]),
    same(Train::SCHEDULE_MIN, &["min_lr"]),
    same(Train::SCHEDULE_FACTOR, &["lr_scheduler.gamma"]),
    other(
        Train::EPOCHS,
        &["max_epochs", "num_epochs"],
        BY_HAND,
        "of a training run; any other has measure.epochs, or measure.steps",
    ),
    same(Train::VALIDATE_EVERY, &["check_val_every_n_epoch"]),
    same(Train::PATIENCE, &["early_stopping"]),
    same(Train::START_FROM, &["resume", "resume_from", "ckpt_path", "checkpoint_path", "train.weights"]),
    // [measure], [profile], [trace], [checkpoint]
    other(Measure::STEPS, &["max_steps", "limit_train_batches"], &[], "behind measure.warmup, which no rate counts"),
    same(Measure::INTERLEAVE, &["paired", "measure.pack"]),
    same(Measure::COLD_CACHE, &["drop_caches", "drop_cache", "drop_page_cache", "clear_cache"]),
    same(Measure::SAMPLE_EVERY_S, &["sample_interval", "monitor_interval"]),
    same(Profile::WAIT, &["skip_first"]),
    other(
        Profile::ACTIVE,
        &["profiler.enabled"],
        &[("true", "25"), ("false", "0")],
        "the published runs recorded 25 steps behind profile.wait = 600; trace.at_step records one",
    ),
    none(&["is_pytorch"], "the profiler here is PyTorch's (Kineto): leave it out"),
    same(Profile::ACTIVE, &["profile.steps", "profile.record"]),
    same(Profile::RECORD_SHAPES, &["profile.shapes"]),
    same(Profile::MEMORY, &["profile_memory"]),
    same(Profile::STACK, &["with_stack"]),
    same(Profile::OPERATIONS, &["profile.mask", "profile.masks", "time_operations"]),
    same(TraceAt::AT_STEP, &["trace.step", "trace.at"]),
    same(Checkpoint::EVERY_STEPS, &["save_every", "every_n_train_steps"]),
    // [worker], [launch], [slurm]
    same(Worker::COMMAND, &["worker.script", "worker.program", "worker.cmd"]),
    same(Worker::STARTS_RANKS, &["launcher"]),
    other(
        Launch::RANKS,
        &["strategy"],
        BY_HAND,
        "several ranks train with DDP, one rank needs no strategy: set it to the number of GPUs",
    ),
    same(Launch::RANKS, &["devices", "world_size", "nproc_per_node", "processes"]),
    same(Launch::NODES, &["num_nodes", "nnodes"]),
    same(Launch::DEVICE, &["accelerator"]),
    same(Launch::BACKEND, &["process_group_backend", "dist_backend"]),
    same(Slurm::GPUS_PER_RANK, &["gpus", "gpus_per_task", "gres"]),
    same(Slurm::IMAGE, &["container", "sif"]),
    same(Slurm::CPUS_PER_RANK, &["cpus_per_task", "cpus"]),
    same(Slurm::MEMORY_MIB, &["slurm.mem", "slurm.memory"]),
    same(Slurm::TIME_MIN, &["slurm.time"]),
    same(Slurm::REQUEUES, &["max_requeues", "requeue"]),
    // Without a section here
    none(&["wandb."], "no tracker is written to; notes, CSV and JSON come from `expctl report` and `expctl compare`"),
    none(&["defaults"], "parents are named in `extends = \"PARENT.toml\"`"),
    none(&["compile_mode"], "models run without a compiler: leave it out"),
    none(&["overfit_batches"], "select.subset bounds the samples"),
    none(&["plot_every_n_epochs", "plot_sample_ceiling"], "the note has its pictures by itself: leave it out"),
];

/// Words of other systems.
pub const WORD_SYNONYMS: &[WordSynonym] = &[
    word(Pipeline::PROCESSOR, &["LazySubgraphRepresentation"], "lazy", ""),
    word(Pipeline::PROCESSOR, &["SubgraphRepresentation"], "subgraph", ""),
    word(Pipeline::PROCESSOR, &["IncidenceSubgraphRepresentation"], "incidence_subgraph", ""),
    word(Pipeline::PROCESSOR, &["NeighborSubgraphRepresentation"], "neighborhood", "its num_hops is pipeline.hops"),
    word(Pipeline::PROCESSOR, &["Perturbation"], "perturbation", ""),
    word(
        Model::KIND,
        &["HeteroCellBipartiteDangoGI", "GeneInteractionDango", "hetero_cell_bipartite_dango_gi_lazy", "Lazy Hetero"],
        "lazy",
        "this is the model; the graph processor is pipeline.processor = \"lazy\"",
    ),
    word(Model::KIND, &["DANGO"], "dango", "its graph processor is pipeline.processor = \"perturbation\""),
    word(
        Pipeline::COLLATION,
        &["LazyCollater"],
        "lazy_collater",
        "as it was written; the published runs collated with \"pyg\"",
    ),
    word(Pipeline::COLLATION, &["Collater", "default PyG"], "pyg", ""),
    word(Pipeline::STORE, &["Neo4jCellDataset", "lmdb"], "json", "records are generated; no Neo4j is read"),
    word(Pipeline::STORE, &["Neo4jPreprocessedCellDataset"], "compressed", ""),
    word(Pipeline::STORE, &["PreprocessedCellDataset"], "full_masks", ""),
    word(
        Train::MODE,
        &["dataloader_profiling"],
        "data",
        "what ran under this name is \"zero_loss\": backward pass and optimizer step on a loss of zero",
    ),
    word(
        Train::MODE,
        &["model_profiling"],
        "forward_backward",
        "what ran under this name is \"forward\": it returned before the backward pass",
    ),
    word(Train::MODE, &["training"], "train", ""),
    word(Train::PRECISION, &["bf16-mixed", "bf16"], "bf16_mixed", ""),
    word(Train::PRECISION, &["32-true", "32", "fp32"], "float32", ""),
    word(Train::PRECISION, &["16-mixed", "fp16"], "", "float16 is not computed in: float32 or bf16_mixed"),
    word(Train::OPTIMIZER, &["AdamW"], "adamw", ""),
    word(Train::LOSS, &["logcosh"], "log_cosh", ""),
    word(Train::LOSS, &["mle_wass_supcr"], "mse_sinkhorn", "without SupCR, whose weight was 0 in the published runs"),
    word(Train::LOSS, &["mle_dist_supcr", "icloss"], "", "there is no such loss: log_cosh, mse or mse_sinkhorn"),
    word(Train::LOSS, &["MSELoss"], "mse", ""),
    word(Train::LOSS, &["CrossEntropyLoss"], "cross_entropy", ""),
    word(Train::SCHEDULE, &["CosineAnnealingWarmupRestarts"], "cosine_restarts", ""),
    word(Train::SCHEDULE, &["ReduceLROnPlateau"], "plateau", ""),
    word(Model::NORM, &["layer"], "graph", "PyG's LayerNorm in graph mode"),
    word(Model::NORM, &["batch"], "", "there is no batch norm: graph or node"),
    word(
        Model::AGGREGATION,
        &["cross_attention"],
        "",
        "there is no cross-attention: pairwise_interaction, sum or mean",
    ),
    word(Launch::DEVICE, &["gpu"], "cuda", ""),
    word(
        Launch::BACKEND,
        &["ddp"],
        "",
        "DDP is how several ranks train, whatever they exchange gradients with: launch.ranks",
    ),
    word(Array::FORMAT, &["hdf5", "anndata", "AnnCollection", "AnnLoader"], "h5ad", ""),
    word(Array::FORMAT, &["MappedCollection"], "h5ad", "with sampler.draw = \"uniform\" or \"weighted\""),
    word(Array::FORMAT, &["StreamingDataset", "streaming"], "mds", ""),
    word(
        Array::FORMAT,
        &["tiledbsoma", "tiledb", "soma"],
        "",
        "TileDB is not read: take .h5ad, zarr, parquet or MDS, or run tiledbsoma-ml as a program (worker.command, as conf/peers.toml does)",
    ),
    word(
        Sampler::PRESET,
        &["NVIDIA Merlin", "merlin"],
        "merlin",
        "with sampler.draw = \"chunked\" and array.format = \"parquet\"",
    ),
    word(Sampler::PRESET, &["cellxgene_census", "census"], "census", "with sampler.draw = \"chunked\""),
    word(Sampler::PRESET, &["scDataset"], "scdataset", "with sampler.draw = \"chunked\""),
    word(Sampler::PRESET, &["annbatch"], "annbatch", "with sampler.draw = \"chunked\""),
    word(Sampler::DRAW, &["RandomSampler"], "uniform", ""),
    word(Sampler::DRAW, &["WeightedRandomSampler"], "weighted", "sampler.by names the column of the weights"),
    word(Sampler::DRAW, &["SequentialSampler"], "sequential", ""),
];

/// Names of other systems as markdown: the part of docs/guide/their-names.md between its `names` marks.
pub fn their_names() -> String {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = "### Keys\n\n| There | Here | What changes |\n|---|---|---|\n".to_owned();
    for synonym in KEY_SYNONYMS {
        let here = synonym.ours.map_or_else(|| "–".to_owned(), |key| format!("`{key}`"));
        let changed = synonym.values.iter().map(|(theirs, ours)| match (*theirs, *ours) {
            ("*", _) => "set it by hand".to_owned(),
            (theirs, "") => format!("`{theirs}`: leave it out"),
            (theirs, ours) => format!("`{theirs}`: `{ours}`"),
        });
        let note = (!synonym.note.is_empty()).then(|| synonym.note.to_owned());
        let said: Vec<String> = changed.chain(note).collect();
        text.push_str(&format!("| {} | {here} | {} |\n", quoted(synonym.theirs), said.join("; ")));
    }
    text.push_str("\n### Words\n\n| There | Here | What else |\n|---|---|---|\n");
    for synonym in WORD_SYNONYMS {
        let here = match synonym.ours {
            "" => "–".to_owned(),
            ours => format!("`{} = \"{ours}\"`", synonym.key),
        };
        text.push_str(&format!("| {} | {here} | {} |\n", quoted(synonym.theirs), synonym.note));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use expctl_settings::{KEYS, SECTIONS, ValueType, find};

    use super::*;
    use crate::layer::{accept, literal_node};
    use crate::suggest::word_synonym;

    #[test]
    fn every_key_and_value_that_a_synonym_names_exists() {
        for synonym in KEY_SYNONYMS {
            let Some(key) = synonym.ours else {
                assert!(!synonym.note.is_empty(), "{:?} says nothing", synonym.theirs);
                continue;
            };
            let spec = find(key).unwrap_or_else(|| panic!("{:?}: there is no key {key}", synonym.theirs));
            for (theirs, ours) in synonym.values.iter().filter(|(_, ours)| !ours.is_empty()) {
                let node = literal_node(ours).unwrap();
                assert!(accept(&spec.value, key, &node).is_ok(), "{key} = {ours} for {theirs}");
            }
        }
        for synonym in WORD_SYNONYMS {
            let spec = find(synonym.key).unwrap_or_else(|| panic!("there is no key {}", synonym.key));
            let ValueType::Choice { words, .. } = spec.value else { panic!("{} takes no words", synonym.key) };
            let known = words.contains(&synonym.ours) || (synonym.ours.is_empty() && !synonym.note.is_empty());
            assert!(known, "{} has no word {:?}", synonym.key, synonym.ours);
        }
        for (theirs, sections) in SECTION_SYNONYMS {
            assert!(!SECTIONS.contains(&theirs), "{theirs} is a section of ours");
            assert!(sections.iter().all(|section| SECTIONS.contains(section)), "{sections:?}");
        }
    }

    #[test]
    fn a_name_stands_for_one_thing_and_is_not_ours() {
        let mut seen = BTreeSet::new();
        for name in KEY_SYNONYMS.iter().flat_map(|synonym| synonym.theirs) {
            assert!(seen.insert(*name), "{name} stands for two things");
            assert!(find(name).is_none(), "{name} is a key of ours");
            assert!(!KEYS.iter().any(|spec| spec.leaf() == *name), "{name} is a key of ours in some section");
        }
    }

    /// The table has the aliases that configs may use, too.
    #[test]
    fn words_that_are_accepted_are_synonyms() {
        for spec in KEYS.iter() {
            let ValueType::Choice { aliases, .. } = spec.value else { continue };
            for (alias, word) in aliases {
                let found = word_synonym(spec.key, alias).map(|synonym| (synonym.key, synonym.ours));
                assert_eq!(found, Some((spec.key, *word)), "{} = {alias}", spec.key);
            }
        }
    }
}
