//! What the crash sweep's crossings are in every other build: nothing.

/// Says that a point was reached. No code but in the crash sweep's own build.
#[doc(hidden)]
#[macro_export]
macro_rules! crossing {
    ($point:ident) => {};
}

/// Whether a fault was planted. Never, but in the crash sweep's own build.
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}
