//! Tests that take minutes: `make check` leaves them out.

mod lazy_agreement;
