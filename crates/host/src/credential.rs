//! The provider's credential: zeroised when dropped, redacted in `Debug`, without `Display` or serialisation. Only this crate can read
//! it, and it does so in two places: where the upstream request is built, and where answers are searched for it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Shorter ones cannot be told from ordinary text when answers are searched for the credential.
const SHORTEST: usize = 8;
/// No provider's key comes near; a file that is larger is another file.
const LONGEST: usize = 4_096;

/// A provider's API key.
pub struct Credential(Zeroizing<Vec<u8>>);

/// The text is no credential. Names where it came from, never what it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// Nothing but white space.
    #[error("the credential is empty; set it to the provider's API key")]
    Empty,
    /// Too short.
    #[error("the credential is shorter than {SHORTEST} characters; set it to the provider's whole API key")]
    TooShort,
    /// Too long.
    #[error("the credential is longer than {LONGEST} bytes; it should hold the provider's API key and nothing else")]
    TooLong,
    /// Something that a header cannot carry.
    #[error("the credential has characters that an API key cannot have (white space, control or non-ASCII)")]
    NotAKey,
    /// The file cannot be read.
    #[error("the credential file {} cannot be read: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Credential {
    /// A credential from its text; white space around it is dropped. The text given is zeroised.
    ///
    /// # Errors
    /// [`CredentialError`] when no provider can have issued it.
    pub fn from_text(text: String) -> Result<Self, CredentialError> {
        Self::from_bytes(&Zeroizing::new(text.into_bytes()))
    }

    /// A credential from a file that holds nothing else.
    ///
    /// # Errors
    /// [`CredentialError`] when it cannot be read or holds something else.
    pub fn from_file(path: &Path) -> Result<Self, CredentialError> {
        // The exact room at once: a buffer that grows leaves pieces of the key in the freed ones.
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 1));
        File::open(path)
            .and_then(|file| file.take(LONGEST as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| CredentialError::File { path: path.to_owned(), error })?;
        Self::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, CredentialError> {
        let bytes = bytes.trim_ascii();
        match bytes.len() {
            0 => Err(CredentialError::Empty),
            _ if !bytes.iter().all(u8::is_ascii_graphic) => Err(CredentialError::NotAKey),
            1..SHORTEST => Err(CredentialError::TooShort),
            SHORTEST..=LONGEST => Ok(Self(Zeroizing::new(bytes.to_vec()))),
            _ => Err(CredentialError::TooLong),
        }
    }

    /// The key itself.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b89_a_credential_is_trimmed_and_never_shown() {
        let key = Credential::from_text(" sk-canary-0123456789\n".to_owned()).unwrap();
        assert_eq!(key.expose(), b"sk-canary-0123456789");
        assert_eq!(format!("{key:?}"), "Credential(redacted)");
    }

    #[test]
    fn what_no_provider_issues_is_refused_without_showing_it() {
        for text in [
            "",
            " \n",
            "tiny-k",
            "two words-here",
            "gr\u{fc}n-gr\u{fc}n-gr\u{fc}n",
            "line\nbreak-in-it",
            &"k".repeat(4_097),
        ] {
            let error = Credential::from_text(text.to_owned()).unwrap_err().to_string();
            assert!(text.trim().is_empty() || !error.contains(text.trim()), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-canary-0123456789\n").unwrap();
        assert_eq!(Credential::from_file(&path).unwrap().expose(), b"sk-canary-0123456789");
        let missing = folder.path().join("none");
        assert!(Credential::from_file(&missing).unwrap_err().to_string().contains("none"));
    }
}
