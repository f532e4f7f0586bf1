/// One edge type: edge i leads from `sources[i]` to `targets[i]`, genes counted from 0.
#[derive(Clone, Copy, Debug)]
pub struct EdgeList<'a> {
    /// Name, for example `string12_0_fusion`.
    pub name: &'a str,
    /// Source genes.
    pub sources: &'a [i64],
    /// Target genes.
    pub targets: &'a [i64],
}
