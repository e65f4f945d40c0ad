//! NODE.json: what a person writes, read strictly. A slip is refused with the path of the member it is in, before anything is started
//! or written; what passes is the normalised node, which a session's first record keeps so that it can be resumed from there alone.
//!
//! [`spec`] is the format, [`check`] what the types cannot say.

mod check;
mod spec;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

pub(crate) use spec::{NodeSpec, ToolSpec, split};

/// A slip in a node file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFault {
    /// The path of the member inside the document: `tools[0].replay`; `.` is the whole.
    pub(crate) at: String,
    /// What is wrong with it and what to write.
    pub(crate) what: String,
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at `{}`: {}", self.at, self.what)
    }
}

/// Reads and checks a node file. Commands in the answer are absolute.
///
/// # Errors
/// The file, the path in it and what is wrong there.
pub(crate) fn read(file: &Path) -> Result<NodeSpec, Failure> {
    let text = std::fs::read(file)
        .map_err(|error| Failure::usage(format!("the node file {} cannot be read: {error}", file.display())))?;
    let folder = std::path::absolute(file).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let folder = folder.unwrap_or_else(|| PathBuf::from("/"));
    let told = |fault: NodeFault| Failure::usage(format!("{}: {fault}", file.display()));
    let mut spec = parse(&text).map_err(told)?;
    check::check(&mut spec, &folder).map_err(told)?;
    Ok(spec)
}

/// Reads a normalised node back from a session's first record. It was checked when it was written; its commands may have gone since.
///
/// # Errors
/// As [`read`].
pub(crate) fn again(value: &serde_json::Value) -> Result<NodeSpec, NodeFault> {
    let mut spec = parse(value.to_string().as_bytes())?;
    check::check(&mut spec, Path::new("/"))?;
    Ok(spec)
}

fn parse(text: &[u8]) -> Result<NodeSpec, NodeFault> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let fault = |at: String, what: String| NodeFault { at, what };
    let spec = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| fault(error.path().to_string(), error.inner().to_string()))?;
    json.end().map_err(|error| fault(".".to_owned(), error.to_string()))?;
    Ok(spec)
}
