/// One decoded record. Its buffers are reused from record to record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Perturbed genes, ascending, each once; names that are not in the graph are dropped.
    pub genes: Vec<i64>,
    /// The gene interaction.
    pub label: f32,
    /// Its p-value; NaN if there is none.
    pub p_value: f32,
}
