//! Credentials: where they come from, and how they get out of this process's own environment before any child exists.
//!
//! ```text
//!  exec with KEY=… ──► stage one: secrets into a pipe, exec self without KEY, the pipe as stdin ──► stage two: read, stdin = /dev/null
//! ```
//!
//! `/proc/PID/environ` shows the block a process was exec'd with, whatever it does to its variables later, and every child of the same
//! user can read it. Only another exec makes a block without the secret. The pipe rides as stdin because a descriptor that is passed so
//! needs no unsafe code to take over, and none stays open for children to inherit.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use agentrun_host::{Credential, CredentialError};
use zeroize::Zeroizing;

use crate::args::Provider;
use crate::exit::Failure;

/// Variables that hold credentials. All leave the environment, also of providers this command does not use.
const VARIABLES: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];
/// Says that stdin is the pipe; its value is our pid, which an exec keeps and no child has.
const HANDED_OVER: &str = "AGENTRUN_HANDED_OVER";
/// Most bytes of all credentials together: what the smallest pipe holds, since nobody reads it while it is written.
const MOST: usize = 4000;

/// The credentials of this process, by variable. Never printed; wiped when dropped.
#[derive(Default)]
pub(crate) struct Secrets(Vec<(&'static str, Zeroizing<Vec<u8>>)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Takes the credentials out of the environment. Called first of all, before any thread or child: in stage one it does not return.
    ///
    /// # Errors
    /// A system that refuses the exec: then nothing goes on, since the environment still holds the credential.
    pub(crate) fn shelter() -> Result<Self, Failure> {
        // A variable still there means that nobody handed anything over, whatever the mark says.
        let bare = VARIABLES.iter().all(|name| std::env::var_os(name).is_none());
        if bare && std::env::var(HANDED_OVER).is_ok_and(|pid| pid == std::process::id().to_string()) {
            return Self::take_over();
        }
        let found: Vec<_> = VARIABLES
            .into_iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, Zeroizing::new(value.into_vec())))
            .collect();
        if found.is_empty() { Ok(Self::default()) } else { Err(Self(found).hand_over()) }
    }

    /// Stage one. Returns only when it failed.
    fn hand_over(self) -> Failure {
        let stuck = |what: &str, error: std::io::Error| {
            Failure::internal(format!(
                "the credential cannot be taken out of the environment ({what}: {error}); use --credential-file instead"
            ))
        };
        let mut text = Zeroizing::new(Vec::with_capacity(MOST));
        for (name, secret) in &self.0 {
            for part in [name.as_bytes(), b"=", secret, b"\0"] {
                // Never grown: a buffer that moves leaves pieces of the secret behind.
                if text.len() + part.len() > MOST {
                    return Failure::usage(format!("the credentials in the environment are longer than {MOST} bytes"));
                }
                text.extend_from_slice(part);
            }
        }
        let (reader, mut writer) = match std::io::pipe() {
            Ok(pipe) => pipe,
            Err(error) => return stuck("pipe", error),
        };
        if let Err(error) = writer.write_all(&text) {
            return stuck("pipe", error);
        }
        drop(writer);
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return stuck("own path", error),
        };
        let mut arguments = std::env::args_os();
        let mut again = Command::new(program);
        if let Some(name) = arguments.next() {
            again.arg0(name);
        }
        again.args(arguments).env(HANDED_OVER, std::process::id().to_string()).stdin(Stdio::from(reader));
        for name in VARIABLES {
            again.env_remove(name);
        }
        stuck("exec", again.exec())
    }

    /// Stage two.
    fn take_over() -> Result<Self, Failure> {
        let stuck =
            |error: std::io::Error| Failure::internal(format!("the handed-over credential cannot be read: {error}"));
        let mut text = Zeroizing::new(Vec::with_capacity(MOST + 1));
        // Not through `std::io::stdin()`: its buffer would keep a copy for as long as the process lives.
        let pipe = File::open("/proc/self/fd/0").map_err(stuck)?;
        pipe.take(MOST as u64).read_to_end(&mut text).map_err(stuck)?;
        let null = File::open("/dev/null").map_err(stuck)?;
        rustix::stdio::dup2_stdin(&null).map_err(|error| stuck(error.into()))?;
        let mut taken = Vec::new();
        for entry in text.split(|byte| *byte == 0) {
            for name in VARIABLES {
                if let Some(secret) = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                    taken.push((name, Zeroizing::new(secret.to_vec())));
                }
            }
        }
        Ok(Self(taken))
    }

    /// The key for a provider: from the file if one is named, else from the environment as it was.
    ///
    /// # Errors
    /// None there, or not usable: what to set is named, never what was found.
    pub(crate) fn key(&self, provider: Provider, file: Option<&Path>) -> Result<Credential, Failure> {
        let bad = |place: &str, error: &CredentialError| Failure::usage(format!("{place}: {error}"));
        if let Some(path) = file {
            return Credential::from_file(path).map_err(|error| bad("--credential-file", &error));
        }
        let variable = provider.variable();
        let Some((_, secret)) = self.0.iter().find(|(name, _)| *name == variable) else {
            return Err(Failure::usage(format!(
                "no key for the model provider: set {variable}, or name a file with --credential-file"
            )));
        };
        let text = std::str::from_utf8(secret).map_err(|_| bad(variable, &CredentialError::NotAKey))?;
        Credential::from_text(text.to_owned()).map_err(|error| bad(variable, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(secret: &str) -> Secrets {
        Secrets(vec![("ANTHROPIC_API_KEY", Zeroizing::new(secret.as_bytes().to_vec()))])
    }

    #[test]
    fn a_slip_in_a_key_is_named_by_its_variable_and_without_its_content() {
        assert!(holding("made-up-key-0123").key(Provider::Anthropic, None).is_ok());
        for bad in ["made up key", "made-up\nkey", "gr\u{fc}n-gr\u{fc}n-key"] {
            let told = holding(bad).key(Provider::Anthropic, None).unwrap_err();
            assert_eq!(told.exit, crate::exit::Exit::Usage);
            assert!(told.message.contains("ANTHROPIC_API_KEY") && !told.message.contains(bad), "{}", told.message);
        }
    }

    #[test]
    fn a_named_file_outranks_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(holding("made-up-key-0123").key(Provider::Anthropic, Some(&path)).is_err());
        std::fs::write(&path, "made-up-key-4567\n").unwrap();
        assert!(holding("").key(Provider::Anthropic, Some(&path)).is_ok());
    }

    #[test]
    fn without_a_key_the_variable_to_set_is_named() {
        let told = Secrets::default().key(Provider::Anthropic, None).unwrap_err();
        assert!(told.message.contains("ANTHROPIC_API_KEY") && told.message.contains("--credential-file"));
    }

    #[test]
    fn secrets_do_not_print() {
        assert_eq!(format!("{:?}", holding("made-up-key-0123")), "[\"ANTHROPIC_API_KEY\"]");
    }
}
