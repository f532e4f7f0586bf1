//! A chart as PNG, and both files of a chart.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::chart::{Chart, ChartError, Size};
use crate::svg::{draw, svg};
use crate::theme::Theme;

/// Pixels per point: sharp on dense screens.
const SCALE: f32 = 2.0;

/// Login nodes have no fonts, so the parts of DejaVu Sans that charts need are compiled in.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(include_bytes!("font/DejaVuSans.ttf").to_vec());
    fonts.load_font_data(include_bytes!("font/DejaVuSans-Bold.ttf").to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// A chart as a PNG file, dark on white, two pixels per point; `size` as in [`svg`].
///
/// # Errors
/// [`ChartError::NoPanel`], or an SVG that cannot be drawn in the memory there is.
pub fn png(chart: &Chart, size: Option<Size>) -> Result<Vec<u8>, ChartError> {
    let name = || chart.name.clone();
    let options = Options { fontdb: FONTS.clone(), ..Options::default() };
    let tree = Tree::from_str(&draw(chart, Theme::Light, size)?, &options)
        .map_err(|source| ChartError::Svg { chart: name(), source })?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| ChartError::NoSize { chart: name() })?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| ChartError::NoMemory { chart: name() })?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|source| ChartError::Encode { chart: name(), source: Box::new(source) })
}

/// The two files of a chart, each with its name: `<stem>_<chart>.svg` for readers that show SVG, `.png` for all others.
///
/// # Errors
/// As [`png`].
pub fn chart_files(chart: &Chart, size: Option<Size>, stem: &str) -> Result<[(String, Vec<u8>); 2], ChartError> {
    let file = |ending: &str| format!("{stem}_{}.{ending}", chart.name);
    Ok([(file("svg"), svg(chart, size)?.into_bytes()), (file("png"), png(chart, size)?)])
}
