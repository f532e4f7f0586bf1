use expctl_record::{DeviceMasks, Implementation, Mode, ModelKind, Norm, Processor, Settings};

/// What a reader of figures of the lazy model must know of its batches, one sentence each: where it computes another function than on the
/// whole graph with masks (docs/lazy-model.md), and where it does not read what the step makes. Empty where no layer of it is computed.
pub fn model_remarks(settings: &Settings) -> Vec<String> {
    let Settings { model, pipeline, train, .. } = settings;
    let computes = !matches!(train.mode, Mode::Data | Mode::ZeroLoss);
    if !computes || settings.runs_command() || settings.reads_array() || model.kind != ModelKind::Lazy {
        return Vec::new();
    }
    let mut all = Vec::new();
    match pipeline.processor {
        Processor::Subgraph | Processor::IncidenceSubgraph
            if [model.norm, model.preprocessor_norm].contains(&Norm::Graph) =>
        {
            all.push(
                "norms over all nodes of the batch are taken without the removed genes, so predictions and losses are not those of \
                 masked batches (model.norm and model.preprocessor_norm = \"node\" make them equal)"
                    .to_owned(),
            );
        }
        Processor::Neighborhood => {
            let hops = pipeline.hops;
            let plural = if hops == 1 { "" } else { "s" };
            all.push(format!(
                "the encoder sees the genes within {hops} hop{plural} of the perturbed ones, so predictions and losses are not those of \
                 the whole graph"
            ));
        }
        _ => {}
    }
    if pipeline.device_masks != DeviceMasks::None && model.implementation == Implementation::Shared {
        all.push(
            "on the host the masks that the step makes are not read: the kernels of the implementation \"shared\" go by the genes \
             (\"operations\" reads the masks)"
                .to_owned(),
        );
    }
    all
}
