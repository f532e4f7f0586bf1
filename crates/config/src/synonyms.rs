//! What other systems call our settings, in one table: the Hydra configs of torchcell, Lightning, the data loaders of PyTorch and PyG,
//! loaders of AnnData. Hints at unknown keys and words, the translation of YAML and docs/their-names.md read it.

/// A key of another system.
#[derive(Clone, Copy, Debug)]
pub struct KeySynonym {
    /// Their names: `a.b` is the end of a dotted path, `a.` every key of a section, and a name without a dot the last part of a path.
    pub theirs: &'static [&'static str],
    /// Our dotted key; none where there is nothing to set.
    pub ours: Option<&'static str>,
    /// Values that change: theirs as text (`*` is any), ours in TOML (empty leaves the key out). Others stay the same.
    pub values: &'static [(&'static str, &'static str)],
    /// What else to know; may be empty.
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
    /// What else to know; may be empty.
    pub note: &'static str,
}

/// The same value under another key.
const fn same(ours: &'static str, theirs: &'static [&'static str]) -> KeySynonym {
    KeySynonym { theirs, ours: Some(ours), values: &[], note: "" }
}

/// Another key, and other values.
const fn other(
    ours: &'static str,
    theirs: &'static [&'static str],
    values: &'static [(&'static str, &'static str)],
    note: &'static str,
) -> KeySynonym {
    KeySynonym { theirs, ours: Some(ours), values, note }
}

/// Nothing to set, and why.
const fn none(theirs: &'static [&'static str], note: &'static str) -> KeySynonym {
    KeySynonym { theirs, ours: None, values: &[], note }
}

const fn word(
    key: &'static str,
    theirs: &'static [&'static str],
    ours: &'static str,
    note: &'static str,
) -> WordSynonym {
    WordSynonym { key, theirs, ours, note }
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
    same("data.set", &["dataset", "data.name"]),
    same("data.samples", &["data.size"]),
    same("data.genes", &["n_vars", "num_genes"]),
    same("data.labels", &["data.label"]),
    same("select.samples", &["gene_subsets"]),
    same("select.subset", &["perturbation_subset_size"]),
    other("select.subset", &["is_perturbation_subset"], &[("false", "0"), ("true", "")], ""),
    // [pipeline]
    other(
        "pipeline.store",
        &["use_preprocessed"],
        &[("true", "\"compressed\""), ("false", "\"json\"")],
        "compressed indices; with use_full_masks it is \"full_masks\"",
    ),
    other("pipeline.store", &["use_full_masks"], &[("true", "\"full_masks\""), ("false", "")], ""),
    same("pipeline.store", &["storage"]),
    same("pipeline.processor", &["graph_processor", "graph_processor.type", "pipeline.type"]),
    same("pipeline.hops", &["num_hops", "pipeline.k"]),
    same("pipeline.edge_types", &["graphs"]),
    other(
        "pipeline.merge_edge_types",
        &["merge_graphs", "combine_graphs", "merge_networks"],
        BY_HAND,
        "as [\"string=string12_0_*\"]",
    ),
    other(
        "pipeline.metabolism",
        &["incidence_graphs", "metabolism_bipartite"],
        &[("[metabolism_bipartite]", "true"), ("[]", "false")],
        "",
    ),
    same("pipeline.collation", &["collate_fn", "collater"]),
    other(
        "pipeline.mask_source",
        &["per_gene_masks", "gene_masks", "cache_gene_masks"],
        &[("true", "\"gene_masks\""), ("false", "\"incidence\"")],
        "",
    ),
    same("pipeline.mask_fraction", &["sample_fraction", "mask_sample_fraction", "mask_sampling"]),
    other(
        "pipeline.device_masks",
        &["init_masks_on_gpu", "gpu_masks"],
        &[("true", "\"looped\""), ("false", "\"none\"")],
        "081 made them sample by sample, 082 all at once (\"vectorised\")",
    ),
    // [loader]
    same("loader.batch_size", &["loader.batch"]),
    same("loader.workers", &["num_workers", "loader.threads"]),
    same("loader.prefetch_factor", &["loader.prefetch"]),
    same("loader.pin_memory", &["loader.pin"]),
    same("loader.buffer_mib", &["loader.memory_limit"]),
    none(&["persistent_workers"], "loader threads live as long as the run, from epoch to epoch: leave it out"),
    none(&["data_module.prefetch"], "copies to a GPU run ahead of the step, on a stream of their own: leave it out"),
    none(&["val_batch_size"], "validation has the batch size of training: leave it out"),
    // [array], [sampler]
    same("array.format", &["array.backend"]),
    same("array.files", &["path_list", "array.paths", "adata_paths", "h5ads"]),
    same("array.file_count", &["num_files", "n_files"]),
    same("array.memory", &["in_memory", "array.cache"]),
    same("array.layer", &["layers_keys", "layer_name", "x_key"]),
    same("array.genes", &["var_names", "gene_subset"]),
    other(
        "array.output",
        &["return_sparse", "return_sparse_X", "array.sparse"],
        &[("true", "\"sparse\""), ("false", "\"dense\"")],
        "",
    ),
    other("array.output", &["to_dense"], &[("true", "\"dense\""), ("false", "\"sparse\"")], ""),
    same("array.fetch", &["array.read", "array.access", "fetch_mode"]),
    same("array.normalize", &["target_sum", "normalize_total"]),
    same("array.labels", &["obs_keys", "obs_columns", "label_key"]),
    other("array.cache_mib", &["cache_size", "cache_limit"], BY_HAND, "in MiB"),
    same("array.cache_dir", &["cache_path", "cache_folder", "local_cache"]),
    same("array.requests", &["concurrency", "max_concurrent_requests", "io_threads"]),
    same("sampler.draw", &["sampler.strategy", "sampling"]),
    same("sampler.chunk_rows", &["chunk_size", "soma_chunk_size", "block_size", "row_group_size"]),
    same("sampler.chunks", &["preload_nchunks", "fetch_factor", "parts_per_chunk", "shuffle_chunk_count"]),
    same("sampler.by", &["sampler.weights", "obs_key", "weight_key", "sampler.label"]),
    same("sampler.rows", &["num_samples", "sampler.total_size"]),
    // [model]
    same("model.hidden", &["hidden_channels", "hidden_dim"]),
    same("model.heads", &["num_heads"]),
    same("model.layers", &["num_layers"]),
    same("model.edge_types", &["model.graphs"]),
    same("model.aggregation", &["graph_aggregation_method"]),
    other(
        "model.aggregation_norm",
        &["graph_aggregation_config.aggregation_norm"],
        &[("layer", "true"), ("batch", "true"), ("null", "false")],
        "",
    ),
    same("model.convolution_layers", &["gin_num_layers"]),
    other(
        "model.local_head",
        &["use_local_predictor", "local_predictor_config"],
        &[("true", "\"full\""), ("false", "\"none\"")],
        "",
    ),
    same("model.attention_layers", &["num_attention_layers"]),
    same("model.path", &["model.file", "model.module"]),
    same("model.tokens", &["max_len", "n_genes", "context_length"]),
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
    same("train.mode", &["execution_mode"]),
    same("train.learning_rate", &["lr"]),
    other("train.learning_rate", &["max_lr"], &[], "the peak, where the rate has cycles"),
    same("train.optimizer", &["optimizer.type"]),
    same("train.clip_norm", &["clip_grad_norm_max_norm", "gradient_clip_val"]),
    other("train.clip_norm", &["clip_grad_norm"], &[("false", "0.0"), ("true", "")], ""),
    same("train.loss", &["criterion"]),
    other(
        "train.standardise_labels",
        &["gene_interaction.strategy", "normalization", "normalise_labels", "standardize_labels"],
        &[("standard", "true"), ("null", "false"), ("*", "")],
        "strategy standard alone",
    ),
    same("train.sinkhorn_weight", &["lambda_wasserstein"]),
    same("train.sinkhorn_buffer", &["buffer_size", "min_samples_for_wasserstein", "train.min_samples"]),
    other(
        "train.sinkhorn_gather",
        &["use_ddp_gather"],
        &[("true", "\"detached\""), ("false", "\"off\"")],
        "as published, without a gradient; \"joined\" has one",
    ),
    same("train.precision", &["amp", "autocast"]),
    same("train.gradient_compression", &["comm_hook", "ddp_comm_hook"]),
    other(
        "train.accumulation",
        &["grad_accumulation_schedule", "accumulate_grad_batches"],
        &[("null", "[]"), ("*", "")],
        "as [\"EPOCH:BATCHES\"]",
    ),
    same("train.schedule", &["lr_scheduler", "lr_scheduler.type", "scheduler"]),
    same("train.schedule_epochs", &["first_cycle_steps"]),
    same("train.schedule_stretch", &["cycle_mult"]),
    same("train.schedule_warmup", &["warmup_steps"]),
    same("train.schedule_min", &["min_lr"]),
    same("train.schedule_factor", &["lr_scheduler.gamma"]),
    other(
        "train.epochs",
        &["max_epochs", "num_epochs"],
        BY_HAND,
        "of a training run; any other has measure.epochs, or measure.steps",
    ),
    same("train.validate_every", &["check_val_every_n_epoch"]),
    same("train.patience", &["early_stopping"]),
    same("train.start_from", &["resume", "resume_from", "ckpt_path", "checkpoint_path", "train.weights"]),
    // [measure], [profile], [trace], [checkpoint]
    other("measure.steps", &["max_steps", "limit_train_batches"], &[], "behind measure.warmup, which no rate counts"),
    same("measure.interleave", &["paired", "measure.pack"]),
    same("measure.cold_cache", &["drop_caches", "drop_cache", "drop_page_cache", "clear_cache"]),
    same("measure.sample_every_s", &["sample_interval", "monitor_interval"]),
    same("profile.wait", &["skip_first"]),
    other(
        "profile.active",
        &["profiler.enabled"],
        &[("true", "25"), ("false", "0")],
        "the published runs recorded 25 steps behind profile.wait = 600; trace.at_step records one",
    ),
    none(&["is_pytorch"], "the profiler here is PyTorch's (Kineto): leave it out"),
    same("profile.active", &["profile.steps", "profile.record"]),
    same("profile.record_shapes", &["profile.shapes"]),
    same("profile.memory", &["profile_memory"]),
    same("profile.stack", &["with_stack"]),
    same("profile.operations", &["profile.mask", "profile.masks", "time_operations"]),
    same("trace.at_step", &["trace.step", "trace.at"]),
    same("checkpoint.every_steps", &["save_every", "every_n_train_steps"]),
    // [worker], [launch], [slurm]
    same("worker.command", &["worker.script", "worker.program", "worker.cmd"]),
    same("worker.starts_ranks", &["launcher"]),
    other(
        "launch.ranks",
        &["strategy"],
        BY_HAND,
        "several ranks train with DDP, one rank needs no strategy: set it to the number of GPUs",
    ),
    same("launch.ranks", &["devices", "world_size", "nproc_per_node", "processes"]),
    same("launch.nodes", &["num_nodes", "nnodes"]),
    same("launch.device", &["accelerator"]),
    same("launch.backend", &["process_group_backend", "dist_backend"]),
    same("slurm.gpus_per_rank", &["gpus", "gpus_per_task", "gres"]),
    same("slurm.image", &["container", "sif"]),
    same("slurm.cpus_per_rank", &["cpus_per_task", "cpus"]),
    same("slurm.memory_mib", &["slurm.mem", "slurm.memory"]),
    same("slurm.time_min", &["slurm.time"]),
    same("slurm.requeues", &["max_requeues", "requeue"]),
    // Without a section here
    none(&["wandb."], "no tracker is written to; notes, CSV and JSON come from `expctl report` and `expctl compare`"),
    none(&["defaults"], "parents are named in `extends = \"PARENT.toml\"`"),
    none(&["compile_mode"], "models run without a compiler: leave it out"),
    none(&["overfit_batches"], "select.subset bounds the samples"),
    none(&["plot_every_n_epochs", "plot_sample_ceiling"], "the note has its pictures by itself: leave it out"),
];

/// Words of other systems.
pub const WORD_SYNONYMS: &[WordSynonym] = &[
    word("pipeline.processor", &["LazySubgraphRepresentation"], "lazy", ""),
    word("pipeline.processor", &["SubgraphRepresentation"], "subgraph", ""),
    word("pipeline.processor", &["IncidenceSubgraphRepresentation"], "incidence_subgraph", ""),
    word("pipeline.processor", &["NeighborSubgraphRepresentation"], "neighborhood", "its num_hops is pipeline.hops"),
    word("pipeline.processor", &["Perturbation"], "perturbation", ""),
    word(
        "model.kind",
        &["HeteroCellBipartiteDangoGI", "GeneInteractionDango", "hetero_cell_bipartite_dango_gi_lazy", "Lazy Hetero"],
        "lazy",
        "this is the model; the graph processor is pipeline.processor = \"lazy\"",
    ),
    word("model.kind", &["DANGO"], "dango", "its graph processor is pipeline.processor = \"perturbation\""),
    word(
        "pipeline.collation",
        &["LazyCollater"],
        "lazy_collater",
        "as it was written; the published runs collated with \"pyg\"",
    ),
    word("pipeline.collation", &["Collater", "default PyG"], "pyg", ""),
    word("pipeline.store", &["Neo4jCellDataset", "lmdb"], "json", "records are generated; no Neo4j is read"),
    word("pipeline.store", &["Neo4jPreprocessedCellDataset"], "compressed", ""),
    word("pipeline.store", &["PreprocessedCellDataset"], "full_masks", ""),
    word(
        "train.mode",
        &["dataloader_profiling"],
        "data",
        "what ran under this name is \"zero_loss\": backward pass and optimizer step on a loss of zero",
    ),
    word(
        "train.mode",
        &["model_profiling"],
        "forward_backward",
        "what ran under this name is \"forward\": it returned before the backward pass",
    ),
    word("train.mode", &["training"], "train", ""),
    word("train.precision", &["bf16-mixed", "bf16"], "bf16_mixed", ""),
    word("train.precision", &["32-true", "32", "fp32"], "float32", ""),
    word("train.precision", &["16-mixed", "fp16"], "", "float16 is not computed in: float32 or bf16_mixed"),
    word("train.optimizer", &["AdamW"], "adamw", ""),
    word("train.loss", &["logcosh"], "log_cosh", ""),
    word("train.loss", &["mle_wass_supcr"], "mse_sinkhorn", "without SupCR, whose weight was 0 in the published runs"),
    word("train.loss", &["mle_dist_supcr", "icloss"], "", "there is no such loss: log_cosh, mse or mse_sinkhorn"),
    word("train.loss", &["MSELoss"], "mse", ""),
    word("train.loss", &["CrossEntropyLoss"], "cross_entropy", ""),
    word("train.schedule", &["CosineAnnealingWarmupRestarts"], "cosine_restarts", ""),
    word("train.schedule", &["ReduceLROnPlateau"], "plateau", ""),
    word("model.norm", &["layer"], "graph", "PyG's LayerNorm in graph mode"),
    word("model.norm", &["batch"], "", "there is no batch norm: graph or node"),
    word(
        "model.aggregation",
        &["cross_attention"],
        "",
        "there is no cross-attention: pairwise_interaction, sum or mean",
    ),
    word("launch.device", &["gpu"], "cuda", ""),
    word(
        "launch.backend",
        &["ddp"],
        "",
        "DDP is how several ranks train, whatever they exchange gradients with: launch.ranks",
    ),
    word("array.format", &["hdf5", "anndata", "AnnCollection", "AnnLoader"], "h5ad", ""),
    word("array.format", &["MappedCollection"], "h5ad", "with sampler.draw = \"uniform\" or \"weighted\""),
    word("array.format", &["StreamingDataset", "streaming"], "mds", ""),
    word(
        "array.format",
        &["tiledbsoma", "tiledb", "soma"],
        "",
        "TileDB is not read: take .h5ad, zarr, parquet or MDS, or run tiledbsoma-ml as a program (worker.command, as conf/peers.toml does)",
    ),
    word(
        "sampler.preset",
        &["NVIDIA Merlin", "merlin"],
        "merlin",
        "with sampler.draw = \"chunked\" and array.format = \"parquet\"",
    ),
    word("sampler.preset", &["cellxgene_census", "census"], "census", "with sampler.draw = \"chunked\""),
    word("sampler.preset", &["scDataset"], "scdataset", "with sampler.draw = \"chunked\""),
    word("sampler.preset", &["annbatch"], "annbatch", "with sampler.draw = \"chunked\""),
    word("sampler.draw", &["RandomSampler"], "uniform", ""),
    word("sampler.draw", &["WeightedRandomSampler"], "weighted", "sampler.by names the column of the weights"),
    word("sampler.draw", &["SequentialSampler"], "sequential", ""),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conf::Kind;
    use crate::conf::keys::{self, KEYS};
    use crate::conf::layer::literal_node;
    use crate::conf::suggest::word_synonym;

    #[test]
    fn every_key_and_value_that_a_synonym_names_exists() {
        for synonym in KEY_SYNONYMS {
            let Some(key) = synonym.ours else {
                assert!(!synonym.note.is_empty(), "{:?} says nothing", synonym.theirs);
                continue;
            };
            let spec = keys::find(key).unwrap_or_else(|| panic!("{:?}: there is no key {key}", synonym.theirs));
            for (theirs, ours) in synonym.values.iter().filter(|(_, ours)| !ours.is_empty()) {
                let node = literal_node(ours).unwrap();
                assert!(spec.kind.accept(key, &node).is_ok(), "{key} = {ours} for {theirs}");
            }
        }
        for synonym in WORD_SYNONYMS {
            let spec = keys::find(synonym.key).unwrap_or_else(|| panic!("there is no key {}", synonym.key));
            let Kind::Choice { words, .. } = spec.kind else { panic!("{} takes no words", synonym.key) };
            let known = words.contains(&synonym.ours) || (synonym.ours.is_empty() && !synonym.note.is_empty());
            assert!(known, "{} has no word {:?}", synonym.key, synonym.ours);
        }
        for (theirs, sections) in SECTION_SYNONYMS {
            assert!(!keys::SECTIONS.contains(&theirs), "{theirs} is a section of ours");
            assert!(sections.iter().all(|section| keys::SECTIONS.contains(section)), "{sections:?}");
        }
    }

    #[test]
    fn a_name_stands_for_one_thing_and_is_not_ours() {
        let mut seen = BTreeSet::new();
        for name in KEY_SYNONYMS.iter().flat_map(|synonym| synonym.theirs) {
            assert!(seen.insert(*name), "{name} stands for two things");
            assert!(keys::find(name).is_none(), "{name} is a key of ours");
            assert!(!KEYS.iter().any(|spec| spec.leaf() == *name), "{name} is a key of ours in some section");
        }
    }

    /// What a config may say in the place of our word is in the table, too.
    #[test]
    fn words_that_are_accepted_are_synonyms() {
        for spec in KEYS.iter() {
            let Kind::Choice { aliases, .. } = spec.kind else { continue };
            for (alias, word) in aliases {
                let found = word_synonym(spec.key, alias).map(|synonym| (synonym.key, synonym.ours));
                assert_eq!(found, Some((spec.key, *word)), "{} = {alias}", spec.key);
            }
        }
    }
}
