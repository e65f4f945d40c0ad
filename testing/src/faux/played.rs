//! The script as one adapter plays it, and how a session that began in an earlier process finds its place in it.

use std::collections::HashSet;

use super::history::{History, Line};
use crate::script::{Conversation, NoStep, Script, Served};

/// A script and the responses that came from it.
#[derive(Debug)]
pub(super) struct Played {
    script: Script,
    given: HashSet<String>,
}

impl Played {
    pub(super) fn new(script: Script) -> Self {
        Self { script, given: HashSet::new() }
    }

    /// Serves the next request.
    pub(super) fn serve(&mut self, talk: &Conversation, response: &str) -> Result<Served, NoStep> {
        let served = self.script.next(talk)?;
        self.given.insert(response.to_owned());
        Ok(served)
    }

    /// Spends the steps that an earlier process was served: each response of `history` that did not come from here is asked for again, by
    /// the conversation as it stood before it. So a step without `when` is spent by counting and one with it by what it waited for. A step
    /// that gave no response (a status) is spent on the way to the one that did.
    pub(super) fn catch_up(&mut self, history: &History, tools: &[String]) {
        for (place, line) in history.lines().iter().enumerate() {
            let Line::Response { id, .. } = line else { continue };
            if !self.given.insert(id.clone()) {
                continue;
            }
            let before = history.lines().get(..place).unwrap_or_default();
            let talk = History::conversation(before, tools);
            let mut last = None;
            while let Ok(served) = self.script.next(&talk) {
                // A fault that is served `always` never lets an answer through; the script was another one then.
                if served.step.status.is_none() || last.replace(served.index) == Some(served.index) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::MessageId;

    fn played(json: &str) -> Played {
        Played::new(Script::parse(json).unwrap())
    }

    fn asked(text: &str) -> History {
        let mut history = History::default();
        history.push(Line::Prompt { id: MessageId::fresh(), text: text.into() }).unwrap();
        history
    }

    fn answered(history: &mut History, id: &str) {
        history.push(Line::Response { id: id.to_owned(), text: Some("a".to_owned()), calls: Vec::new() }).unwrap();
        history.push(Line::Prompt { id: MessageId::fresh(), text: "more".into() }).unwrap();
    }

    fn serve(played: &mut Played, history: &History, id: &str) -> Option<usize> {
        played.serve(&History::conversation(history.lines(), &[]), id).ok().map(|served| served.index)
    }

    #[test]
    fn steps_of_an_earlier_process_are_spent_by_counting_or_by_their_condition() {
        let script = r#"{"steps":[{"status":529},{"text":"one"},{"when":{"contains":"go"},"text":"go"},{"text":"two"},{"text":"three"}]}"#;
        let mut history = asked("go");
        answered(&mut history, "r1");
        answered(&mut history, "r2");
        let mut resumed = played(script);
        resumed.catch_up(&history, &[]);
        assert_eq!(
            serve(&mut resumed, &history, "r3"),
            Some(4),
            "the fault, `one` and `two` are spent, `go` was not waited for"
        );
    }

    #[test]
    fn a_session_opened_again_in_the_same_process_skips_nothing() {
        let mut history = asked("x");
        let mut played = played(r#"{"steps":[{"text":"one"},{"text":"two"}]}"#);
        assert_eq!(serve(&mut played, &history, "r1"), Some(0));
        answered(&mut history, "r1");
        played.catch_up(&history, &[]);
        assert_eq!(serve(&mut played, &history, "r2"), Some(1));
    }
}
