use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::chart::Chart;
use super::error::PlotError;
use super::size::Size;
use super::svg::draw;
use super::theme::Theme;

/// Pixels per point: sharp on dense screens.
const SCALE: f32 = 2.0;

/// Login nodes have no typefaces, so they come along: those parts of DejaVu Sans that charts need.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(include_bytes!("font/DejaVuSans.ttf").to_vec());
    fonts.load_font_data(include_bytes!("font/DejaVuSans-Bold.ttf").to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// A chart as a PNG file, dark on white, two pixels per point.
///
/// # Errors
/// A chart without panels, or more pixels than there is memory for.
pub fn png(chart: &Chart) -> Result<Vec<u8>, PlotError> {
    png_sized(chart, None)
}

/// The same with a size, where one was asked for.
///
/// # Errors
/// As [`png`].
pub fn png_sized(chart: &Chart, size: Option<Size>) -> Result<Vec<u8>, PlotError> {
    let failed = |reason: String| PlotError::Raster { name: chart.name.clone(), reason };
    let options = Options { fontdb: FONTS.clone(), ..Options::default() };
    let tree = Tree::from_str(&draw(chart, Theme::Light, size)?, &options).map_err(|e| failed(e.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size".into()))?;
    let mut pixels =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("there is no memory for it".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| failed(e.to_string()))
}
