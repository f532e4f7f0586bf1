use tch::{Kind, TchError, Tensor};

/// The kind that sums and predictions have: float32, also where layers compute with less, or float64 where they do.
pub(super) fn wide_kind(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// Of any shape, as [`wide_kind`] says.
pub(super) fn wide(x: &Tensor) -> Result<Tensor, TchError> {
    x.f_to_kind(wide_kind(x.kind()))
}
