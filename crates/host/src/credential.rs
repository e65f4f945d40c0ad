//! The provider's credential: zeroised when dropped, redacted in `Debug`, without `Display` or serialisation. Nobody reads
//! it: [`Credential::put`] sets it into the upstream request, and answers are searched for its forms.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

/// Shorter ones cannot be told from ordinary text when answers are searched for the credential.
const SHORTEST: usize = 8;
/// No provider's key comes near; a file that is larger is another file.
const LONGEST: usize = 4_096;

/// A half that is shorter may be ordinary text: many keys begin alike.
const SHORTEST_HALF: usize = 16;

/// A provider's API key.
pub struct Credential {
    key: Zeroizing<Vec<u8>>,
    forms: Vec<Form>,
}

/// One way in which a credential may stand in an answer.
pub(crate) struct Form {
    text: Zeroizing<Vec<u8>>,
    rare: usize,
}

impl Form {
    fn of(text: Zeroizing<Vec<u8>>) -> Self {
        // Answers are mostly words in small letters.
        let common = |byte: &u8| match byte {
            b'A'..=b'Z' => 0,
            b'0'..=b'9' => 1,
            b'a'..=b'z' => 3,
            _ => 2,
        };
        let rare = text.iter().enumerate().min_by_key(|(_, byte)| common(byte)).map_or(0, |(place, _)| place);
        Self { text, rare }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// A byte of it that is rare in answers, and its place.
    pub(crate) fn rare(&self) -> (usize, u8) {
        (self.rare, self.text.get(self.rare).copied().unwrap_or_default())
    }
}

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

    /// A credential from a file that holds nothing else, or from a descriptor that was handed over (`/dev/fd/3`).
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
            SHORTEST..=LONGEST => Ok(Self { key: Zeroizing::new(bytes.to_vec()), forms: forms(bytes) }),
            _ => Err(CredentialError::TooLong),
        }
    }

    /// Puts the key into a header of an upstream request, behind `before` (`"Bearer "`, or nothing). This is how a policy uses it: the value
    /// is marked as sensitive, so that it does not show in `Debug`, and a header of that name that the harness sent is replaced.
    pub fn put(&self, headers: &mut HeaderMap, name: HeaderName, before: &str) {
        let text = Zeroizing::new([before.as_bytes(), &self.key].concat());
        if let Ok(mut value) = HeaderValue::from_bytes(&text) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }

    /// The key itself.
    #[cfg(test)]
    fn expose(&self) -> &[u8] {
        &self.key
    }

    /// What an answer is searched for: the key or, where it is long enough, each of its halves; the same escaped for a URL and for JSON, in
    /// hexadecimal, and in base64 at each place within a longer text.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &Form> {
        self.forms.iter()
    }
}

fn forms(key: &[u8]) -> Vec<Form> {
    let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    let mut add = |form: Vec<u8>| {
        let form = Zeroizing::new(form);
        if !forms.contains(&form) {
            forms.push(form);
        }
    };
    let (first, second) = key.split_at(key.len() / 2);
    // The halves side by side are the whole.
    if first.len() >= SHORTEST_HALF {
        add(first.to_vec());
        add(second.to_vec());
    } else {
        add(key.to_vec());
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    if !key.iter().all(plain) {
        for digit in [hex_lower, hex_upper] {
            add(key
                .iter()
                .flat_map(|byte| if plain(byte) { vec![*byte] } else { [b"%", &digit(*byte)[..]].concat() })
                .collect());
        }
        for escaped in [&b"\"\\/"[..], b"\"\\"] {
            add(key
                .iter()
                .flat_map(|byte| if escaped.contains(byte) { vec![b'\\', *byte] } else { vec![*byte] })
                .collect());
        }
    }
    for digit in [hex_lower, hex_upper] {
        add(key.iter().flat_map(|byte| digit(*byte)).collect());
    }
    for before in 0..3 {
        for alphabet in [b"+/", b"-_"] {
            add(in_base64(key, before, alphabet));
        }
    }
    forms.into_iter().map(Form::of).collect()
}

fn hex_lower(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|half| b"0123456789abcdef".get(usize::from(half)).copied().unwrap_or_default())
}

fn hex_upper(byte: u8) -> [u8; 2] {
    hex_lower(byte).map(|digit| digit.to_ascii_uppercase())
}

/// The characters of a base64 text that `key` alone decides, where so many bytes stand before it in its group of three.
fn in_base64(key: &[u8], before: usize, last: &[u8; 2]) -> Vec<u8> {
    let character = |six: u8| match six {
        0..26 => six.saturating_add(b'A'),
        26..52 => six.saturating_sub(26).saturating_add(b'a'),
        52..62 => six.saturating_sub(52).saturating_add(b'0'),
        62 => last[0],
        _ => last[1],
    };
    // As a run of bits; whole groups of six, from the first that lies in the key.
    let bits: Zeroizing<Vec<u8>> =
        Zeroizing::new(key.iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)).collect());
    let skipped = before.saturating_mul(4) % 6;
    let whole = bits.get(skipped..).unwrap_or_default().chunks_exact(6);
    whole.map(|six| character(six.iter().fold(0, |value, bit| value << 1 | bit))).collect()
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
    fn b89_the_forms_are_what_others_make_of_the_key() {
        let forms = |key: &str| -> Vec<String> {
            let key = Credential::from_text(key.to_owned()).unwrap();
            key.forms().map(|form| String::from_utf8(form.bytes().to_vec()).unwrap()).collect()
        };
        // Too short for halves. Checked with other programs: base64 of the key alone, behind one and behind two bytes.
        let all = forms("sk-a/b?c");
        for form in ["sk-a/b?c", "sk-a%2Fb%3Fc", "sk-a%2fb%3fc", "sk-a\\/b?c", "736b2d612f623f63", "736B2D612F623F63"] {
            assert!(all.iter().any(|known| known == form), "{form} is not in {all:?}");
        }
        for (text, form) in
            [("c2stYS9iP2M=", "c2stYS9iP2"), ("eHNrLWEvYj9j", "NrLWEvYj9j"), ("eHhzay1hL2I/Yw==", "zay1hL2I/Y")]
        {
            assert!(text.contains(form));
            assert!(all.iter().any(|known| known == form), "{form} is not in {all:?}");
        }
        let long = "sk-canary-0123456789-0123456789-abc";
        assert_eq!(forms(long)[..2], [long[..17].to_owned(), long[17..].to_owned()]);
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
    fn a_descriptor_is_read_by_its_path() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"sk-canary-0123456789\n").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(Credential::from_file(Path::new(&path)).unwrap().expose(), b"sk-canary-0123456789");
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
