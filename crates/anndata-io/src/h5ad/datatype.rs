use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_order_t, H5T_sign_t, H5Tclose, H5Tget_class, H5Tget_ebias, H5Tget_fields, H5Tget_offset,
    H5Tget_order, H5Tget_precision, H5Tget_sign, H5Tget_size, H5Tget_super,
};

use crate::matrix::number::{Kind, Number};

/// Which numeric type it is; `Err` names what it is instead.
pub(super) fn number(id: hid_t) -> Result<Number, String> {
    // SAFETY: the type is open, and these look at it; `base` is closed again.
    unsafe {
        match H5Tget_class(id) {
            H5T_class_t::H5T_INTEGER => integer(id),
            H5T_class_t::H5T_FLOAT => float(id),
            H5T_class_t::H5T_ENUM => {
                let base = H5Tget_super(id);
                let number = if base < 0 { Err("is of a damaged type".to_owned()) } else { integer(base) };
                H5Tclose(base);
                number
            }
            H5T_class_t::H5T_STRING | H5T_class_t::H5T_VLEN => Err("holds text, not numbers".to_owned()),
            H5T_class_t::H5T_COMPOUND => Err("holds records or complex numbers, not real numbers".to_owned()),
            _ => Err("holds no numbers".to_owned()),
        }
    }
}

/// # Safety
/// `id` is an open type of a class that has an order of bytes.
unsafe fn big_endian(id: hid_t) -> Result<bool, String> {
    // SAFETY: as the caller says.
    match unsafe { H5Tget_order(id) } {
        H5T_order_t::H5T_ORDER_LE => Ok(false),
        H5T_order_t::H5T_ORDER_BE => Ok(true),
        _ => Err("has its bytes in an order that is not supported".to_owned()),
    }
}

/// # Safety
/// `id` is an open integer type.
unsafe fn integer(id: hid_t) -> Result<Number, String> {
    // SAFETY: as the caller says.
    let (size, precision, offset, sign) =
        unsafe { (H5Tget_size(id), H5Tget_precision(id), H5Tget_offset(id), H5Tget_sign(id)) };
    let signed = sign == H5T_sign_t::H5T_SGN_2;
    let kind = match (size, signed) {
        (1, true) => Kind::I8,
        (1, false) => Kind::U8,
        (2, true) => Kind::I16,
        (2, false) => Kind::U16,
        (4, true) => Kind::I32,
        (4, false) => Kind::U32,
        (8, true) => Kind::I64,
        (8, false) => Kind::U64,
        _ => return Err(format!("has integers of {size} bytes, which are not supported")),
    };
    if precision != size * 8 || offset != 0 {
        return Err(format!("has integers of {precision} bits in {size} bytes, which are not supported"));
    }
    // SAFETY: as the caller says.
    let big_endian = if size == 1 { false } else { unsafe { big_endian(id) }? };
    Ok(Number { kind, big_endian })
}

/// # Safety
/// `id` is an open type of floating point.
unsafe fn float(id: hid_t) -> Result<Number, String> {
    let [mut sign, mut exponent, mut exponent_bits, mut mantissa, mut mantissa_bits] = [0usize; 5];
    // SAFETY: as the caller says; the five places are written to.
    let (size, bias, known) = unsafe {
        let known = H5Tget_fields(
            id,
            &raw mut sign,
            &raw mut exponent,
            &raw mut exponent_bits,
            &raw mut mantissa,
            &raw mut mantissa_bits,
        );
        (H5Tget_size(id), H5Tget_ebias(id), known >= 0)
    };
    let kind = match (size, sign, exponent, exponent_bits, mantissa, mantissa_bits, bias) {
        (2, 15, 10, 5, 0, 10, 15) if known => Kind::F16,
        (4, 31, 23, 8, 0, 23, 127) if known => Kind::F32,
        (8, 63, 52, 11, 0, 52, 1023) if known => Kind::F64,
        _ => {
            return Err(format!(
                "has numbers of floating point of {size} bytes that are not IEEE half, single or double"
            ));
        }
    };
    // SAFETY: as the caller says.
    Ok(Number { kind, big_endian: unsafe { big_endian(id) }? })
}
