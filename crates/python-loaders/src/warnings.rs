//! What the loaders warn of, as warnings of Python (`UserWarning`).
//!
//! Invariant: no loader thread takes the GIL. Texts wait here until the program's own thread opens a data set or asks for a batch.

use std::ffi::CString;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Texts that wait at most; later ones are dropped.
const CAPACITY: usize = 100;

/// Whether there are texts: asked at each batch, without a lock.
static ARE_WAITING: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Take warnings of all crates of this module from now on.
pub fn collect() {
    // It fails where the module was initialised before: then they are taken already.
    let _ = tracing::subscriber::set_global_default(Collector);
}

/// Give the waiting warnings to Python.
///
/// # Errors
/// The program made exceptions of warnings.
pub fn emit(py: Python<'_>) -> PyResult<()> {
    if !ARE_WAITING.swap(false, Ordering::Acquire) {
        return Ok(());
    }
    let texts = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    for text in texts {
        let text = CString::new(text.replace('\0', " "))?;
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    Ok(())
}

/// Takes events of level WARN and ERROR; spans are of no interest.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < CAPACITY {
            waiting.push(text.whole());
            ARE_WAITING.store(true, Ordering::Release);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as text: its message, then its other fields in brackets.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl EventText {
    fn whole(self) -> String {
        if self.fields.is_empty() { self.message } else { format!("{} ({})", self.message, self.fields) }
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a text does not fail.
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            let _ = write!(self.fields, "{comma}{} = {value:?}", field.name());
        }
    }
}
