//! A model's side of a conversation, written down beforehand: the script that the scripted model server and the faux adapter play.
//! Pure: no clock, no network. The types are in `step`, what a request looks like to a script in `conversation`, the choice in `serve`.
//!
//! # Format
//!
//! ```json
//! {"steps": [
//!   {"when": {"results": 0}, "text": "I look it up.", "tools": [{"name": "search", "input": {"q": "disk full"}}]},
//!   {"when": {"contains": "no such index"}, "status": 529, "times": 2},
//!   {"tools": [{"name": "submit", "input": {"value": {"severity": "high"}}}], "usage": {"input": 1200, "output": 40}},
//!   {"text": "Done.", "times": "always"}
//! ]}
//! ```
//!
//! For each request the first step is served that is not spent and whose `when` holds. [`Step`] and [`When`] say what each member means.
//! A member nobody knows is refused, and so is a step that contradicts itself: a typing slip in a script must not become a test that
//! passes for the wrong reason.
//!
//! Names of tools are the host's own (`submit`, `search`); a harness that offers them under a prefix (`mcp__host__submit`) is served the
//! prefixed name, so one script serves every harness ([`Conversation::offered_name`]).

mod conversation;
mod serve;
mod step;

pub use conversation::{Conversation, Message, Side};
pub use serve::{Call, Left, NoStep, Served, Unmet};
pub use step::{Step, StopReason, Times, Tokens, ToolUse, When};

use serde::{Deserialize, Serialize};

/// A script and how much of it has been served.
///
/// Serialises to the file format; what has been served is not part of that.
#[derive(Clone, Debug, Serialize)]
pub struct Script {
    steps: Vec<Step>,
    /// How often each step was served; as long as `steps`.
    #[serde(skip)]
    served: Vec<u64>,
}

/// Why a script was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("script refused at {path}: {message}")]
pub struct ScriptError {
    /// Where, as a path from the root of the JSON: `steps[2].tools[0].input`. The root itself is `.`.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    steps: Vec<Step>,
}

impl Script {
    /// A script of these steps, none served yet.
    ///
    /// # Errors
    /// A step that contradicts itself, by its path.
    pub fn new(steps: Vec<Step>) -> Result<Self, ScriptError> {
        for (index, step) in steps.iter().enumerate() {
            step.check().map_err(|(member, message)| ScriptError {
                path: format!("steps[{index}]{member}"),
                message: message.to_owned(),
            })?;
        }
        let served = vec![0; steps.len()];
        Ok(Self { steps, served })
    }

    /// Reads a script from its JSON text.
    ///
    /// # Errors
    /// Not JSON, an unknown or missing member, a value of the wrong type, a step that contradicts itself: each by its path.
    pub fn parse(json: &str) -> Result<Self, ScriptError> {
        let mut json = serde_json::Deserializer::from_str(json);
        let file: File = serde_path_to_error::deserialize(&mut json)
            .map_err(|e| ScriptError { path: e.path().to_string(), message: e.inner().to_string() })?;
        json.end().map_err(|e| ScriptError { path: ".".to_owned(), message: e.to_string() })?;
        Self::new(file.steps)
    }

    /// The steps, served or not, in the order of the file.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> (String, String) {
        let e = Script::parse(json).unwrap_err();
        (e.path, e.message)
    }

    #[test]
    fn a_slip_in_a_script_is_refused_by_its_path() {
        for (json, path, says) in [
            (r#"{"steps":[{"text":"a"},{"txt":"b"}]}"#, "steps[1].txt", "unknown field `txt`"),
            (r#"{"steps":[{"text":"a","when":{"contain":"x"}}]}"#, "steps[0].when.contain", "unknown field `contain`"),
            (r#"{"steps":[{"tools":[{"name":"t","input":[1]}]}]}"#, "steps[0].tools[0].input", "expected a map"),
            (r#"{"steps":[{"tools":[{"input":{}}]}]}"#, "steps[0].tools[0]", "missing field `name`"),
            (r#"{"steps":[{"text":"a","usage":{"inputs":1}}]}"#, "steps[0].usage.inputs", "unknown field `inputs`"),
            (r#"{"steps":[{"text":"a","times":0}]}"#, "steps[0].times", "at least 1"),
            (r#"{"steps":[{"text":"a","times":"twice"}]}"#, "steps[0].times", "always"),
            (r#"{"steps":[{"text":"a","stop_reason":"done"}]}"#, "steps[0].stop_reason", "unknown variant `done`"),
            (r#"{"steps":[{"when":{"results":1}}]}"#, "steps[0]", "answers nothing"),
            (r#"{"steps":[{"status":200}]}"#, "steps[0].status", "400 to 599"),
            (r#"{"steps":[{"status":429,"text":"a"}]}"#, "steps[0].status", "no message"),
            (r#"{"steps":[{"text":"a","retry_after":1}]}"#, "steps[0].retry_after", "status"),
            (
                r#"{"steps":[{"text":"a","cut_after_events":1,"stall_after_events":1}]}"#,
                "steps[0].cut_after_events",
                "never both",
            ),
            (r#"{"steps":[{"tools":[{"name":""}]}]}"#, "steps[0].tools[0].name", "empty"),
            (r#"{"step":[]}"#, "step", "unknown field `step`"),
            (r#"{"steps":[{"text":"a"}]} {}"#, ".", "trailing"),
        ] {
            let (at, message) = refused(json);
            assert_eq!(at, path, "{json}: {message}");
            assert!(message.contains(says), "{json}: {message}");
        }
    }

    #[test]
    fn a_script_written_out_reads_back_the_same() {
        let json = r#"{"steps":[{"when":{"contains":"a","results":0},"times":"always","text":"x","tools":[{"name":"t","input":{"a":1},"id":"i"}],"stop_reason":"max_tokens","usage":{"input":1,"cache_read":0,"cache_write_5m":0,"cache_write_1h":0,"output":2,"reasoning":1}},{"status":429,"retry_after":1,"times":2}]}"#;
        let script = Script::parse(json).unwrap();
        let again = Script::parse(&serde_json::to_string(&script).unwrap()).unwrap();
        assert_eq!(script.steps(), again.steps());
        assert_eq!(script.steps().len(), 2);
    }
}
