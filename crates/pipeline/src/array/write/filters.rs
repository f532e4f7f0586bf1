use std::ffi::{c_int, c_uint, c_void};

use hdf5_metno::filters::Filter;
use hdf5_metno_sys::h5z::{H5Z_CLASS_T_VERS, H5Z_class2_t, H5Zregister};

unsafe extern "C" fn refuse(
    _: c_uint,
    _: usize,
    _: *const c_uint,
    _: usize,
    _: *mut usize,
    _: *mut *mut c_void,
) -> usize {
    0
}

/// Make a filter known to the library, which refuses to make data sets of others: chunks are written past it.
pub(super) fn announce(filters: &[Filter]) {
    for filter in filters.iter().filter(|filter| !filter.is_available()) {
        let class = H5Z_class2_t {
            version: H5Z_CLASS_T_VERS as c_int,
            id: filter.id(),
            encoder_present: 1,
            decoder_present: 1,
            name: c"chunks".as_ptr(),
            can_apply: None,
            set_local: None,
            filter: Some(refuse),
        };
        // SAFETY: the class is valid, and the library copies it; the name is static.
        hdf5_metno::sync::sync(|| unsafe { H5Zregister((&raw const class).cast()) });
    }
}
