//! Reading an export file line by line, and what can be wrong with it. Every fault names the line and the byte it begins at, so that a
//! person can look; nothing of a file counts before its last line was read and fits.

use std::io::BufRead;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::lines::{LINE_BYTES, VERSION};
use crate::ids::{Digest, Seq};
use crate::record::{DecodeError, FORMAT};
use crate::session::Illegal;

/// What is wrong with an export file, and where. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[error("line {line} (byte {offset}): {fault}")]
pub struct FileError {
    /// The line, from 1.
    pub line: u64,
    /// The byte it begins at, from 0.
    pub offset: u64,
    /// What.
    pub fault: FileFault,
}

/// What can be wrong with an export file.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// Not an export of ours.
    #[error("this is no export of a session; write one with `agentrun export KEY FILE`")]
    Foreign,
    /// A newer version of the file.
    #[error(
        "the export has version {found}, this program reads {VERSION}; use the version of agentrun that wrote it, or a newer one"
    )]
    Version {
        /// What it says.
        found: u64,
    },
    /// Records of another format.
    #[error(
        "its records have format {found}, this program reads {FORMAT}; use the version of agentrun that wrote it, or a newer one"
    )]
    Format {
        /// What it says.
        found: u8,
    },
    /// It ends before its last line.
    #[error("the file ends here, before its end line: it was cut; export the session again")]
    Cut,
    /// A line that is not what is due there.
    #[error("damaged: {0}; export the session again")]
    Damaged(String),
    /// A record that does not read back.
    #[error("record {seq}: {error}")]
    Record {
        /// Which.
        seq: Seq,
        /// Why.
        error: DecodeError,
    },
    /// A record that does not fit the log before it.
    #[error("{0}; the session was broken where it came from")]
    Illegal(Illegal),
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Io(std::io::Error),
}

/// The lines of a file, with their places.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    offset: u64,
    hash: Sha256,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), line: 1, offset: 0, hash: Sha256::new() }
    }

    /// A fault of the line that was read last.
    pub(super) fn fault(&self, fault: FileFault) -> FileError {
        FileError { line: self.line, offset: self.offset, fault }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> FileError {
        self.fault(FileFault::Damaged(what.into()))
    }

    /// Goes to the next line, unless the file is over.
    fn step(&mut self) -> Result<bool, FileError> {
        if !self.buffer.is_empty() {
            self.line += 1;
            self.offset += self.buffer.len() as u64;
            self.hash.update(&self.buffer);
            self.buffer.clear();
        }
        let bound = LINE_BYTES as u64 + 1;
        let read = std::io::Read::take(&mut self.input, bound).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| self.fault(FileFault::Io(error)))?;
        if read == 0 {
            return Ok(false);
        }
        if self.buffer.last() == Some(&b'\n') {
            return Ok(true);
        }
        let long = self.buffer.len() > LINE_BYTES;
        Err(match (self.line, long) {
            (1, _) => self.fault(FileFault::Foreign),
            (_, true) => self.damaged("a line longer than any record"),
            (_, false) => self.fault(FileFault::Cut),
        })
    }

    /// The next line, which must be there.
    pub(super) fn next(&mut self) -> Result<(), FileError> {
        match self.step()? {
            true => Ok(()),
            false if self.line == 1 => Err(self.fault(FileFault::Foreign)),
            false => Err(self.fault(FileFault::Cut)),
        }
    }

    /// The line that was read last, as what is due.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, FileError> {
        serde_json::from_slice(&self.buffer).map_err(|error| self.damaged(error.to_string()))
    }

    /// Whether the first line is one of an export, and of a version read here.
    pub(super) fn known(&self) -> Result<(), FileError> {
        #[derive(Deserialize)]
        struct Name {
            r#type: String,
            version: u64,
        }
        match serde_json::from_slice::<Name>(&self.buffer) {
            Ok(Name { r#type, version }) if r#type == "export" => match version {
                VERSION => Ok(()),
                found => Err(self.fault(FileFault::Version { found })),
            },
            Ok(_) | Err(_) => Err(self.fault(FileFault::Foreign)),
        }
    }

    /// Digest of every byte before the line that was read last.
    pub(super) fn digest(&self) -> Digest {
        Digest::of_hash(self.hash.clone())
    }

    /// Holds that the file is over.
    pub(super) fn over(&mut self) -> Result<(), FileError> {
        match self.step() {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.damaged("something follows its end")),
            Err(FileError { fault: FileFault::Cut, .. }) => Err(self.damaged("something follows its end")),
            Err(error) => Err(error),
        }
    }
}
