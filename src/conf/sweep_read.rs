use super::keys::SECTIONS;
use super::kind::Kind;
use super::layer::{Layer, Scope, Setting, known_key, read_settings, table_of, text_of};
use super::node::{Key, Node, Table, Value, flatten};
use super::problem::Problem;
use super::source::Origin;
use super::suggest::closest;
use super::sweep::{Axis, Exclude, Row, Sweep};

const PARTS: [&str; 5] = ["grid", "zip", "list", "exclude", "include"];

/// The one key that a sweep takes by its bare name.
const RANKS: (&str, &str) = ("ranks", "launch.ranks");

/// Whether a variant may set a key that the sweep varies.
const OVERRULES: &str = "overrules_variants";

/// In an entry of `exclude`: the variant whose points are dropped.
const VARIANT: &str = "variant";

/// Read `[sweep]`, whose header stands at `at`; values are checked like those of any other table.
pub(super) fn read_sweep(at: Origin, table: &Table, problems: &mut Vec<Problem>) -> Sweep {
    let mut sweep = Sweep { at: Some(at), ..Sweep::default() };
    for (key, node) in table {
        match key.name.as_str() {
            "grid" => {
                if let Some(table) = table_of("`sweep.grid`", node, problems) {
                    sweep.grid.extend(read_axes(flatten("", table), problems));
                }
            }
            "zip" => {
                if let Some(table) = table_of("`sweep.zip`", node, problems) {
                    sweep.zip = read_axes(flatten("", table), problems);
                }
            }
            "list" => sweep.list = read_rows("`sweep.list`", node, problems),
            "exclude" => sweep.exclude = read_excludes(node, problems),
            "include" => sweep.include = read_rows("`sweep.include`", node, problems),
            OVERRULES => {
                let read = Kind::Bool.accept("sweep.overrules_variants", node);
                let read = read.map_err(|problem| problems.push(*problem)).ok();
                sweep.overrules_variants = read.and_then(|value| value.as_bool());
            }
            // A key that stands in [sweep] itself is swept as if it stood in [sweep.grid].
            name if name == RANKS.0 => {
                let named = Key { name: RANKS.1.to_owned(), at: key.at };
                sweep.grid.extend(read_axes(vec![(named, node.clone())], problems));
            }
            name if SECTIONS.contains(&name) => {
                if let Some(table) = table_of(&format!("`sweep.{name}`"), node, problems) {
                    sweep.grid.extend(read_axes(flatten(name, table), problems));
                }
            }
            name => {
                let problem = Problem::new(key.at, format!("unknown key `sweep.{name}`"), "no such key");
                problems.push(match closest(name, PARTS.into_iter().chain([RANKS.0, OVERRULES])) {
                    Some(near) => problem.help(format!("did you mean `sweep.{near}`?")),
                    None => problem.help(
                        "[sweep] takes grid, zip, list, exclude, include and overrules_variants; keys go below the first five",
                    ),
                });
            }
        }
    }
    for (i, axis) in sweep.grid.iter().enumerate() {
        // Of one file: where files are merged, the upper one's values take the place of the lower one's.
        if let Some(first) = sweep.grid[..i].iter().find(|first| first.key == axis.key) {
            let problem = Problem::new(axis.at, format!("`{}` is swept twice", axis.key), "here again");
            problems.push(problem.also(first.at, "swept here"));
        }
    }
    sweep
}

fn read_axes(keys: Vec<(Key, Node)>, problems: &mut Vec<Problem>) -> Vec<Axis> {
    let mut axes = Vec::new();
    for (key, node) in keys {
        let Some(spec) = known_key(&key, &node, Scope::Trial, problems, &mut Layer::new()) else { continue };
        let Value::Array(items) = &node.value else {
            let problem = Problem::new(
                node.at,
                format!("a sweep takes an array of values for `{}`, not {}", spec.key, node.describe()),
                "expected an array",
            );
            problems.push(problem.help("write the values in brackets: [1, 2, 4]"));
            continue;
        };
        let values = items.iter().map(|item| Setting::read(spec, item, problems)).collect();
        axes.push(Axis { key: spec.key, at: key.at, values });
    }
    axes
}

fn read_rows(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<Row>> {
    let tables = read_tables(what, node, problems)?;
    let row = |(at, table): (Origin, &Table)| Row {
        at: Some(at),
        settings: read_settings("", table, Scope::Trial, problems),
    };
    Some(tables.into_iter().map(row).collect())
}

fn read_excludes(node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<Exclude>> {
    let tables = read_tables("`sweep.exclude`", node, problems)?;
    let exclude = |(at, table): (Origin, &Table)| {
        let (named, values): (Table, Table) = table.iter().cloned().partition(|(key, _)| key.name == VARIANT);
        let variant = named.first().and_then(|(_, node)| Some((text_of("`variant`", node, problems)?, node.at)));
        Exclude { variant, row: Row { at: Some(at), settings: read_settings("", &values, Scope::Trial, problems) } }
    };
    Some(tables.into_iter().map(exclude).collect())
}

/// The tables of an array, each with where it stands.
fn read_tables<'a>(what: &str, node: &'a Node, problems: &mut Vec<Problem>) -> Option<Vec<(Origin, &'a Table)>> {
    let Value::Array(items) = &node.value else {
        let problem = Problem::new(
            node.at,
            format!("{what} is an array of tables, not {}", node.describe()),
            "expected an array",
        );
        problems.push(problem.help("write [[sweep.list]] tables, or [{ loader.workers = 4 }]"));
        return None;
    };
    let entry = |item: &'a Node| Some((item.at, table_of(&format!("an entry of {what}"), item, problems)?));
    Some(items.iter().filter_map(entry).collect())
}
