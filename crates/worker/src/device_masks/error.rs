/// Why masks cannot be made on the device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceMaskError {
    /// A sample perturbs a gene that the graph does not have.
    #[error("sample {sample} of the batch perturbs gene {gene}, but the graph has {genes} genes")]
    Gene {
        /// Position in the batch.
        sample: usize,
        /// The gene.
        gene: i64,
        /// How many there are.
        genes: usize,
    },
    /// An edge type has more edges than positions of 32 bits reach.
    #[error("edge type {name} has {edges} edges, too many for device masks")]
    Edges {
        /// The edge type.
        name: String,
        /// Its edges.
        edges: usize,
    },
    /// An operation of libtorch failed.
    #[error("device masks: {0}")]
    Torch(#[from] tch::TchError),
}
