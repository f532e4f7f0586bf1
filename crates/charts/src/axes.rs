use super::chart::{Layer, Scale};
use super::layout::{LEAN, LINE, Labels, Placed, SIZE};
use super::pen::{Pen, at};
use super::span::Span;
use super::theme::shade;
use super::ticks::ticks;

/// Steps of the bar that explains colours.
const STEPS: usize = 32;

/// Grid, numbers, names and labels of a panel.
pub(super) fn draw(pen: &mut Pen, placed: &Placed<'_>) {
    let [left, right] = placed.x.places;
    let [bottom, top] = placed.y.places;
    let panel = placed.panel;
    if !panel.title.is_empty() {
        pen.words("text", &[("class", &"ink subtitle"), ("x", &at(left)), ("y", &at(top - 7.0))], &panel.title);
    }
    pen.open("g", &[("class", &"beside")]);
    beside(pen, placed);
    pen.close("g");
    pen.open("g", &[("class", &"below")]);
    below(pen, placed);
    pen.close("g");
    pen.mark("path", &[("class", &"axis"), ("d", &format!("M{} {}V{}H{}", at(left), at(top), at(bottom), at(right)))]);
    let centre = at(f64::midpoint(left, right));
    let below = [
        ("class", &"ink" as _),
        ("text-anchor", &"middle" as _),
        ("x", &centre as _),
        ("y", &at(placed.label_at) as _),
    ];
    if !panel.x.label.is_empty() {
        pen.words("text", &below, &panel.x.label);
    }
    if !panel.y.label.is_empty() {
        let place = format!("translate({} {}) rotate(-90)", at(placed.left + SIZE), at(f64::midpoint(top, bottom)));
        pen.words("text", &[("class", &"ink"), ("text-anchor", &"middle"), ("transform", &place)], &panel.y.label);
    }
}

fn beside(pen: &mut Pen, placed: &Placed<'_>) {
    let [left, right] = placed.x.places;
    let end = at(left - 6.0);
    match &placed.beside {
        Labels::Numbers(ticks) => {
            for tick in ticks {
                let Some(y) = placed.y.place(tick.value) else { continue };
                let path = format!("M{} {}H{}", at(left), at(y), at(right));
                pen.mark("path", &[("class", &grid(&tick.label)), ("d", &path)]);
                let place = [
                    ("class", &"quiet" as _),
                    ("text-anchor", &"end" as _),
                    ("x", &end as _),
                    ("y", &at(y + 4.0) as _),
                ];
                if !tick.label.is_empty() {
                    pen.words("text", &place, &tick.label);
                }
            }
        }
        Labels::Lines(names) => {
            for (i, name) in names.iter().enumerate() {
                let Some(y) = placed.y.place(i as f64) else { continue };
                let place = [
                    ("class", &"quiet" as _),
                    ("text-anchor", &"end" as _),
                    ("x", &end as _),
                    ("y", &at(y + 4.0) as _),
                ];
                pen.words("text", &place, &name.join(" "));
            }
        }
        Labels::Leaning(_) => {}
    }
}

fn below(pen: &mut Pen, placed: &Placed<'_>) {
    let [bottom, top] = placed.y.places;
    match &placed.below {
        Labels::Numbers(ticks) => {
            for tick in ticks {
                let Some(x) = placed.x.place(tick.value) else { continue };
                let path = format!("M{} {}V{}", at(x), at(top), at(bottom));
                pen.mark("path", &[("class", &grid(&tick.label)), ("d", &path)]);
                if !tick.label.is_empty() {
                    centred(pen, x, bottom + LINE + 1.0, &tick.label);
                }
            }
        }
        Labels::Lines(names) => {
            for (i, lines) in names.iter().enumerate() {
                let Some(x) = placed.x.place(i as f64) else { continue };
                for (j, line) in lines.iter().enumerate() {
                    centred(pen, x, bottom + LINE * (j + 1) as f64 + 1.0, line);
                }
            }
        }
        Labels::Leaning(names) => {
            // More names than lines of words fit beside each other: every second, third….
            let every = (1..).find(|n| *n as f64 * placed.x.length() / names.len() as f64 >= LINE).unwrap_or(1);
            for (i, name) in names.iter().enumerate().step_by(every) {
                let Some(x) = placed.x.place(i as f64) else { continue };
                let turn = format!("translate({} {}) rotate(-{LEAN})", at(x + 4.0), at(bottom + 14.0));
                pen.words("text", &[("class", &"quiet"), ("text-anchor", &"end"), ("transform", &turn)], name);
            }
        }
    }
}

/// Lines without a number are faint.
fn grid(label: &str) -> &'static str {
    if label.is_empty() { "grid faint" } else { "grid" }
}

fn centred(pen: &mut Pen, x: f64, y: f64, words: &str) {
    pen.words("text", &[("class", &"quiet"), ("text-anchor", &"middle"), ("x", &at(x)), ("y", &at(y))], words);
}

/// The bar that says which colour is which value, right of a panel with cells.
pub(super) fn shades(pen: &mut Pen, placed: &Placed<'_>, values: [f64; 2]) {
    let Some(name) = placed.panel.layers.iter().find_map(|layer| match layer {
        Layer::Cells { name, .. } => Some(name),
        _ => None,
    }) else {
        return;
    };
    let [bottom, top] = placed.y.places;
    let left = placed.x.places[1] + 14.0;
    let height = (bottom - top) / STEPS as f64;
    for i in 0..STEPS {
        let y = at(bottom - height * (i + 1) as f64);
        let fill = shade((i as f64 + 0.5) / STEPS as f64);
        let place = [
            ("fill", &fill as _),
            ("x", &at(left) as _),
            ("y", &y as _),
            ("width", &"12" as _),
            ("height", &at(height + 0.3) as _),
        ];
        pen.mark("rect", &place);
    }
    let span = Span { values, places: [bottom, top], scale: Scale::Linear };
    for tick in ticks(Scale::Linear, values, ((bottom - top) / 42.0).clamp(3.0, 8.0) as usize) {
        let Some(y) = span.place(tick.value) else { continue };
        pen.words("text", &[("class", &"quiet"), ("x", &at(left + 16.0)), ("y", &at(y + 4.0))], &tick.label);
    }
    // Above the bar, because a low panel has no room beside it.
    let right = at(placed.right);
    pen.words("text", &[("class", &"ink"), ("text-anchor", &"end"), ("x", &right), ("y", &at(top - 7.0))], name);
}
