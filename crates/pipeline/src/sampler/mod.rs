//! Which sample comes when, on which rank.
