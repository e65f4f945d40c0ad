//! Stores by URL, as a person writes them.

use std::sync::Arc;

use super::{MemoryStore, SledStore, SqliteStore, Store, StoreError};

/// Why a URL names no store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UrlError {
    /// Not of the form `scheme:rest`, or a scheme with no store behind it.
    #[error("`{url}` names no store; write `sqlite:PATH`, `sled:PATH` or `memory:`")]
    Unknown {
        /// As given.
        url: String,
    },
    /// `sqlite:` without a path.
    #[error("`sqlite:` needs the path of a file, as in `sqlite:.agentrun/sessions.db`")]
    NoPath,
    /// `sled:` without a path.
    #[error("`sled:` needs the path of a folder, as in `sled:.agentrun/sessions`")]
    NoFolder,
    /// It names a store that cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store `url` names: `sqlite:PATH`, `sled:PATH` (a relative path is from the current folder) or `memory:`. Waits for disk: call
/// it where blocking is allowed.
///
/// # Errors
/// [`UrlError`] says how to write it, or what is wrong with the place it names.
pub fn open_url(url: &str) -> Result<Store, UrlError> {
    match url.split_once(':') {
        Some(("sqlite", "")) => Err(UrlError::NoPath),
        Some(("sqlite", path)) => Ok(Arc::new(SqliteStore::open(path)?)),
        Some(("sled", "")) => Err(UrlError::NoFolder),
        Some(("sled", path)) => Ok(Arc::new(SledStore::open(path)?)),
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new()?)),
        _ => Err(UrlError::Unknown { url: url.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_stores_that_exist_open_one() {
        assert!(open_url("memory:").unwrap().id().starts_with("memory-"));
        assert!(matches!(open_url("sqlite:").err(), Some(UrlError::NoPath)));
        assert!(matches!(open_url("sled:").err(), Some(UrlError::NoFolder)));
        for url in ["", "sessions.db", "memory:x", "SLED:x", "postgres://localhost/x", "SQLITE:x"] {
            assert!(matches!(open_url(url).err(), Some(UrlError::Unknown { .. })), "{url}");
        }
    }
}
