//! The choice of a step: the first that is not spent and whose condition holds. What nobody can be served is told, step by step.

use std::fmt;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Conversation, Script, Step, StopReason, Times, Tokens, When};

/// A step as it is served to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its place in the script.
    pub index: usize,
    /// The step as written.
    pub step: Step,
    /// Its tools as this request gets them: by the offered name, each with its id.
    pub calls: Vec<Call>,
}

/// A tool call as one request gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The scripted id, or one that was never used before.
    pub id: String,
    /// The name the request offers the tool under.
    pub name: String,
    /// The arguments.
    pub input: Map<String, Value>,
}

impl Served {
    /// Why the model stopped: as scripted, else what fits the answer.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.step.stop_reason.unwrap_or(if self.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse })
    }

    /// What the request is said to have used.
    #[must_use]
    pub fn usage(&self) -> Tokens {
        self.step.usage.unwrap_or(Tokens::UNSAID)
    }
}

/// No step is to be served to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoStep {
    /// The steps that are not spent, in order.
    pub left: Vec<Left>,
}

/// A step that is not spent, and why a request did not get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its place in the script.
    pub index: usize,
    /// The part of its condition that did not hold.
    pub unmet: Unmet,
}

/// The first part of a condition that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// `contains`: this text is not in what is new.
    Contains(String),
    /// `lacks`: this text is in what is new.
    Lacks(String),
    /// `results`: another number of tool results.
    Results {
        /// The number the step waits for.
        wanted: usize,
        /// The number there is.
        found: usize,
    },
    /// `anywhere`: this text is in no message.
    Anywhere(String),
}

impl std::error::Error for NoStep {}

impl fmt::Display for NoStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no step of the script fits this request")?;
        if self.left.is_empty() {
            return f.write_str(": every step has been served");
        }
        for (n, left) in self.left.iter().enumerate() {
            f.write_str(if n == 0 { ": " } else { "; " })?;
            write!(f, "steps[{}] is left, but {}", left.index, left.unmet)?;
        }
        Ok(())
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contains(text) => write!(f, "`contains` {text:?} is not in the last user message"),
            Self::Lacks(text) => write!(f, "`lacks` {text:?} is in the last user message"),
            Self::Results { wanted, found } => write!(f, "`results` is {wanted} and the conversation holds {found}"),
            Self::Anywhere(text) => write!(f, "`anywhere` {text:?} is in no message"),
        }
    }
}

impl When {
    fn unmet(&self, talk: &Conversation) -> Option<Unmet> {
        if let Some(text) = self.contains.as_ref().filter(|text| !talk.newly_mentions(text)) {
            return Some(Unmet::Contains(text.clone()));
        }
        if let Some(text) = self.lacks.as_ref().filter(|text| talk.newly_mentions(text)) {
            return Some(Unmet::Lacks(text.clone()));
        }
        let found = talk.results();
        if let Some(wanted) = self.results.filter(|wanted| *wanted != found) {
            return Some(Unmet::Results { wanted, found });
        }
        self.anywhere.as_ref().filter(|text| !talk.mentions(text)).map(|text| Unmet::Anywhere(text.clone()))
    }
}

impl Script {
    /// Serves the first step that is not spent and fits, and counts it as served.
    ///
    /// # Errors
    /// [`NoStep`] when none fits; nothing is counted then.
    pub fn next(&mut self, talk: &Conversation) -> Result<Served, NoStep> {
        let mut left = Vec::new();
        for (index, (step, served)) in self.steps.iter().zip(&mut self.served).enumerate() {
            if matches!(step.times, Times::AtMost(most) if *served >= most) {
                continue;
            }
            if let Some(unmet) = step.when.unmet(talk) {
                left.push(Left { index, unmet });
                continue;
            }
            *served += 1;
            let calls = step.tools.iter().map(|tool| Call {
                id: tool.id.clone().unwrap_or_else(|| format!("toolu_{}", Uuid::new_v4().simple())),
                name: talk.offered_name(&tool.name).to_owned(),
                input: tool.input.clone(),
            });
            return Ok(Served { index, step: step.clone(), calls: calls.collect() });
        }
        Err(NoStep { left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Message, Side};

    fn talk(text: &str, results: usize) -> Conversation {
        Conversation { messages: vec![Message { side: Side::User, text: text.to_owned(), results }], tools: Vec::new() }
    }

    fn script(json: &str) -> Script {
        Script::parse(json).unwrap()
    }

    #[test]
    fn the_first_unspent_step_that_fits_is_served() {
        let mut script = script(
            r#"{"steps":[
                {"when":{"contains":"red","results":1},"text":"0"},
                {"when":{"lacks":"blue"},"text":"1","times":2},
                {"when":{"anywhere":"blue"},"text":"2","times":"always"}]}"#,
        );
        let mut served = |text, results| script.next(&talk(text, results)).map(|s| s.index);
        assert_eq!(served("red and blue", 0), Ok(2), "step 1 lacks blue");
        assert_eq!(served("red", 0), Ok(1), "results does not fit step 0");
        assert_eq!(served("red", 1), Ok(0));
        assert_eq!(served("red", 1), Ok(1), "step 0 is spent");
        assert_eq!(served("blue", 0), Ok(2));
        assert_eq!(served("blue", 0), Ok(2), "always is never spent");
        let none = served("red", 0).unwrap_err();
        assert_eq!(none.left, [Left { index: 2, unmet: Unmet::Anywhere("blue".to_owned()) }]);
        assert!(none.to_string().contains("steps[2]"), "{none}");
    }

    #[test]
    fn a_refused_request_spends_nothing() {
        let mut script = script(r#"{"steps":[{"when":{"contains":"go"},"text":"x"}]}"#);
        script.next(&talk("wait", 0)).unwrap_err();
        assert_eq!(script.next(&talk("go", 0)).unwrap().index, 0);
        assert_eq!(
            script.next(&talk("go", 0)).unwrap_err().to_string(),
            "no step of the script fits this request: every step has been served"
        );
    }

    #[test]
    fn a_call_gets_the_offered_name_and_an_id_of_its_own_each_time() {
        let mut script = script(r#"{"steps":[{"times":2,"tools":[{"name":"submit"},{"name":"Bash","id":"mine"}]}]}"#);
        let request = Conversation { tools: vec!["mcp__host__submit".to_owned()], ..Conversation::default() };
        let (one, two) = (script.next(&request).unwrap(), script.next(&request).unwrap());
        assert_eq!(one.calls[0].name, "mcp__host__submit");
        assert_eq!((one.calls[1].name.as_str(), one.calls[1].id.as_str()), ("Bash", "mine"));
        assert!(one.calls[0].id.starts_with("toolu_"));
        assert_ne!(one.calls[0].id, two.calls[0].id);
        assert_eq!(one.stop_reason(), StopReason::ToolUse);
        assert_eq!(one.usage(), Tokens::UNSAID);
    }
}
