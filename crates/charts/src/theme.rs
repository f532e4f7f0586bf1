//! Colours and style sheets.

use std::fmt::Write as _;

/// Number of colours of series; a series takes the colour of its index modulo this.
///
/// The first three are those of Okabe and Ito, "Color Universal Design" (2008), brighter on dark; two more were chosen so that
/// five stay apart with red or green blindness, and all have the contrast of 3:1 that WCAG 2.2 (1.4.11) asks of graphics. No
/// five more stay apart from these for every eye, so that the sixth to tenth also differ in shape: squares for dots, dashes
/// for lines.
pub const COLOURS: usize = 10;

/// The colour of marks that are of no series, an index beyond all of them: the fill of the grid in the outline of the axes. Beside a panel of
/// coloured series they are taken for none of it.
pub const NEUTRAL: usize = 1_000_000;

/// CSS class of a fill (`f`) or stroke (`s`) in the colour of a layer.
pub fn class(kind: char, colour: usize) -> String {
    if colour == NEUTRAL { format!("{kind}n") } else { format!("{kind}{}", colour % COLOURS) }
}

/// The background that a picture is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Light or dark by a media query; the picture has its own background.
    System,
    /// Dark on white, for renderers without media queries.
    Light,
    /// The colours of the page around it, by [`page_style`].
    Page,
}

/// The colours for one background.
pub struct Colours {
    /// Background.
    pub ground: &'static str,
    /// Text and axes.
    pub ink: &'static str,
    /// Numbers at the axes.
    pub quiet: &'static str,
    /// Grid.
    pub grid: &'static str,
    /// Series.
    pub series: [&'static str; COLOURS],
}

pub const LIGHT: Colours = Colours {
    ground: "#ffffff",
    ink: "#1f2328",
    quiet: "#59636e",
    grid: "#e4e7eb",
    series: [
        "#0072b2", "#d55e00", "#009e73", "#5b2a86", "#7f1d1d", "#c2579f", "#8a7300", "#2f8fd6", "#4f6b1f", "#6e7781",
    ],
};

pub const DARK: Colours = Colours {
    ground: "#0d1117",
    ink: "#e6edf3",
    quiet: "#a4adb8",
    grid: "#2a3038",
    series: [
        "#56b4e9", "#e8743b", "#1fa57c", "#f5e663", "#8a63ff", "#e79ac6", "#c9a227", "#9be0c8", "#b5705f", "#9aa4af",
    ],
};

/// CSS rules with the colours for one background.
fn rules(colours: &Colours, scope: &str) -> String {
    let Colours { ground, ink, quiet, grid, series } = colours;
    let mut css = format!(
        "{scope}.ground{{fill:{ground}}}{scope}.ink{{fill:{ink}}}{scope}.quiet{{fill:{quiet}}}\
         {scope}.axis{{stroke:{quiet}}}{scope}.grid{{stroke:{grid}}}{scope}.rule,{scope}.whisker{{stroke:{ink}}}\
         {scope}.edge,{scope}.rim{{stroke:{ground}}}"
    );
    for (i, colour) in series.iter().enumerate() {
        let _ = write!(css, "{scope}.f{i}{{fill:{colour}}}{scope}.s{i}{{stroke:{colour}}}");
    }
    // Behind the edges of bars, whose stroke it replaces.
    let _ = write!(css, "{scope}.fn{{fill:{grid};stroke:{quiet}}}{scope}.sn{{stroke:{quiet}}}");
    css
}

/// CSS rules without colours.
const SHAPES: &str = "text{font-family:\"DejaVu Sans\",Verdana,\"Segoe UI\",Helvetica,Arial,sans-serif;font-size:12px}\
.title{font-size:15px;font-weight:bold}.subtitle{font-size:13px;font-weight:bold}.axis,.grid{fill:none;stroke-width:1}\
.faint{stroke-opacity:.45}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.dots{fill:none;stroke-width:5}\
.rim{stroke-width:7.5}.many{stroke-width:2.6}.line,.dots,.rule,.whisker{vector-effect:non-scaling-stroke}.bar{fill-opacity:.88}\
.whisker{fill:none;stroke-width:1.4}.rule{fill:none;stroke-width:1.2;stroke-dasharray:5 4}.edge{stroke-width:.8}";

/// The style sheet inside a picture; empty for [`Theme::Page`].
pub fn style(theme: Theme) -> String {
    match theme {
        Theme::Light => format!("{SHAPES}{}", rules(&LIGHT, "")),
        Theme::System => {
            format!("{SHAPES}{}@media (prefers-color-scheme:dark){{{}}}", rules(&LIGHT, ""), rules(&DARK, ""))
        }
        Theme::Page => String::new(),
    }
}

/// The style sheet of a page with charts (class `chart`): the scheme of the system, unless `data-theme` of the root element is
/// `light` or `dark`.
pub fn page_style() -> String {
    let shapes: String =
        SHAPES.replace("text{", ".chart text{").replace("}.", "}.chart .").replace(",.grid{", ",.chart .grid{");
    format!(
        "{shapes}{}@media (prefers-color-scheme:dark){{{}}}{}",
        rules(&LIGHT, ".chart "),
        rules(&DARK, ":root:not([data-theme=light]) .chart "),
        rules(&DARK, ":root[data-theme=dark] .chart ")
    )
}

/// Nine colours of viridis, dark to bright, with even steps of lightness, so that it can be read without colours, too (van der Walt and
/// Smith, matplotlib 2015).
const VIRIDIS: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// The colour of a value at `share` of the way from the lowest (0) to the highest (1).
pub fn shade(share: f64) -> String {
    let place = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 } * (VIRIDIS.len() - 1) as f64;
    let below = (place.floor() as usize).min(VIRIDIS.len() - 2);
    let [r, g, b] = std::array::from_fn(|i| {
        let (from, to) = (f64::from(VIRIDIS[below][i]), f64::from(VIRIDIS[below + 1][i]));
        (from + (to - from) * (place - below as f64)).round() as u8
    });
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    fn linear(colour: &str) -> Rgb {
        std::array::from_fn(|i| {
            let c = f64::from(u8::from_str_radix(&colour[1 + 2 * i..3 + 2 * i], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// WCAG 2.2.
    fn contrast(a: &str, b: &str) -> f64 {
        let light = |c| {
            let [r, g, b] = linear(c);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// Oklab (Ottosson 2020).
    fn oklab([r, g, b]: Rgb) -> Rgb {
        let cone = |x: f64, y: f64, z: f64| (x * r + y * g + z * b).max(0.0).cbrt();
        let l = cone(0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9);
        let m = cone(0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6);
        let s = cone(0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5);
        [
            0.210_454_255_3 * l + 0.793_617_785 * m - 0.004_072_046_8 * s,
            1.977_998_495_1 * l - 2.428_592_205 * m + 0.450_593_709_9 * s,
            0.025_904_037_1 * l + 0.782_771_766_2 * m - 0.808_675_766 * s,
        ]
    }

    /// Normal vision, protanopia and deuteranopia (Machado, Oliveira and Fernandes 2009, severity 1).
    const EYES: [[Rgb; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_82, 0.042_94, 0.968_881]],
    ];

    fn seen(colour: &str, eye: &[Rgb; 3]) -> Rgb {
        let rgb = linear(colour);
        oklab(std::array::from_fn(|i| (0..3).map(|j| eye[i][j] * rgb[j]).sum()))
    }

    #[test]
    fn marks_and_words_stand_out_from_the_ground() {
        for colours in [&LIGHT, &DARK] {
            for colour in colours.series {
                assert!(contrast(colour, colours.ground) >= 3.0, "{colour} on {}", colours.ground);
            }
            for words in [colours.ink, colours.quiet] {
                assert!(contrast(words, colours.ground) >= 4.5, "{words} on {}", colours.ground);
            }
        }
    }

    #[test]
    fn neutral_marks_are_seen_and_are_no_series() {
        for colours in [&LIGHT, &DARK] {
            assert!(!colours.series.contains(&colours.grid) && !colours.series.contains(&colours.quiet));
            // Outline on the ground, and a whisker on the fill.
            assert!(contrast(colours.quiet, colours.ground) >= 3.0 && contrast(colours.ink, colours.grid) >= 3.0);
        }
    }

    #[test]
    fn the_first_five_stay_apart_for_colour_blind_readers() {
        for colours in [&LIGHT, &DARK] {
            for eye in &EYES {
                for (i, a) in colours.series[..5].iter().enumerate() {
                    for b in &colours.series[..i] {
                        let (p, q) = (seen(a, eye), seen(b, eye));
                        let apart = (0..3).map(|k| (p[k] - q[k]).powi(2)).sum::<f64>().sqrt();
                        assert!(apart > 0.07, "{a} and {b}: {apart}");
                    }
                }
            }
        }
    }

    #[test]
    fn shades_go_from_dark_to_bright() {
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(shade), ["#440154", "#21908d", "#fde725", "#fde725"]);
        let steps: Vec<f64> = (0..=20).map(|i| oklab(linear(&shade(f64::from(i) / 20.0)))[0]).collect();
        assert!(steps.is_sorted());
    }
}
