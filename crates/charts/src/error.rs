use expctl_record::RecordError;

/// Why a picture was not made.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A chart without panels.
    #[error("the picture `{0}` has no panel")]
    Empty(String),
    /// The SVG could not be turned into pixels.
    #[error("the picture `{name}` cannot be turned into a PNG: {reason}")]
    Raster {
        /// Name of the chart.
        name: String,
        /// What the library says.
        reason: String,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] RecordError),
}
