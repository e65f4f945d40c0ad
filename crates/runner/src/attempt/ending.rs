//! How an attempt ends: the recorded answer, a recorded failure or park, or the fault that outranks what the harness says of its end.

use agentrun_adapter::{AdapterError, AdapterErrorKind};
use agentrun_kernel::{Batch, Body, DriveError, Failed, Parked, StopLevel, Usd, Why};

use super::{Attempt, answered};
use crate::error::{NodeError, NodeWord};
use crate::faults::{of_drive, parked_error};
use crate::gate::Trouble;
use crate::runner::{Delivered, ModelProvider};

/// A raise must leave room for a twentieth more than the step that was refused.
const PARK_MARGIN: i64 = 20;

impl Attempt<'_> {
    pub(super) fn answer(&self) -> Result<Delivered, NodeError> {
        let state = self.drive.state();
        answered(&state, &self.step, false).unwrap_or_else(|| {
            Err(self.fail(NodeWord::Storage, "the session has no answer where one was recorded".to_owned()))
        })
    }

    pub(super) async fn record_failure(&self, word: NodeWord, message: String) -> NodeError {
        let failed = Body::Failed(Failed { word: word.as_str().to_owned(), message: message.clone() });
        match self.drive.append(Batch::of([failed]), None).await {
            Ok(_) => self.fail(word, message),
            Err(error) => of_drive(&self.step, &error),
        }
    }

    pub(super) async fn park(&self, park: &agentrun_cap::Park, message: String) -> NodeError {
        let parked = Parked {
            word: agentrun_cap::Word::OverCap.as_str().to_owned(),
            // The request is asked again with the note on the interruption in it, so it costs a little more than what was refused.
            needed: park.minimum().saturating_add(Usd::from_pico(park.needed.pico() / PARK_MARGIN)),
            cap: park.cap,
            spent: park.spent,
            ledger: self.ledger.with(|books| books.seq()),
        };
        match self.drive.append(Batch::of([Body::Parked(parked.clone())]), None).await {
            Ok(_) => parked_error(&self.step, &parked, message),
            Err(error) => of_drive(&self.step, &error),
        }
    }

    pub(crate) fn fail(&self, word: NodeWord, message: String) -> NodeError {
        NodeError::new(&self.step.session, word, message)
    }

    pub(crate) fn fenced(&self) -> NodeError {
        self.fail(NodeWord::Fenced, "a newer owner has taken the session; this one does nothing more in it".to_owned())
    }

    /// What ended the session's drive, in the store's words.
    pub(crate) async fn lost(&self) -> NodeError {
        of_drive(&self.step, &DriveError::Restart(self.drive.lost().await))
    }

    pub(super) fn stopped(&self) -> NodeError {
        match self.stop.signal().why() {
            Some(Why::Fenced) => self.fenced(),
            Some(Why::Storage) => self.fail(
                NodeWord::Storage,
                "a write to the store failed; see that its file is there and its disk has room, then run the same command: the log decides"
                    .to_owned(),
            ),
            _ => self.fail(
                NodeWord::Aborted,
                "stopped; run the same command, or `agentrun resume`, to go on from the records".to_owned(),
            ),
        }
    }

    pub(super) fn harness(&self, error: &AdapterError) -> NodeError {
        if let AdapterErrorKind::Restart(restart) = &error.kind {
            return of_drive(&self.step, &DriveError::Restart(restart.clone()));
        }
        if self.stop.signal().level() >= StopLevel::Kill {
            return self.stopped();
        }
        if let AdapterErrorKind::Upstream { status } = error.kind {
            return self.upstream(status, &error.message);
        }
        let check = match error.kind {
            AdapterErrorKind::Spawn | AdapterErrorKind::Protocol | AdapterErrorKind::Stalled => {
                "see with `agentrun doctor` that it is the right program, then "
            }
            _ => "",
        };
        let (message, words) = (brief(&error.message, SAID), newest(error.last_words()));
        self.fail(NodeWord::Harness, format!("{message}; {check}run the same command to go on from the records{words}"))
    }

    pub(super) fn upstream(&self, status: Option<u16>, message: &str) -> NodeError {
        let (status, why) = match self.gate.trouble() {
            // What the gate saw; the harness's own status is that of our refusal to it.
            Some(Trouble::Upstream { status, why }) if message.is_empty() => (status, why),
            Some(Trouble::Upstream { status, why }) => {
                (status, format!("{why} (as the harness says it: {})", brief(message, WORDS)))
            }
            _ => (status, brief(message, WORDS)),
        };
        let at = match &self.runner.options.provider {
            ModelProvider::Proxy(proxy) => format!(" ({})", proxy.origin()),
            ModelProvider::Direct => String::new(),
        };
        let next = match status {
            Some(401 | 403) => "check the provider's key, then run the same command to go on",
            Some(429) => "the provider limits the rate; wait, then run the same command to go on",
            Some(400 | 404 | 413) => {
                "the provider refused the request itself: check the model's name and the node, then run the same command"
            }
            Some(_) => "the provider is in trouble; wait, then run the same command to go on",
            None => {
                return self.fail(
                    NodeWord::Upstream,
                    format!(
                        "{why}; check the provider's address{at} and that it is up, then run the same command to go on"
                    ),
                );
            }
        };
        self.fail(NodeWord::Upstream, format!("{why}; {next}"))
    }
}

/// Most characters of a harness's words on a failure: the provider's own sentence fits, a dumped page does not.
const WORDS: usize = 400;
/// Most characters of what an adapter says of one, with the program's own output in it.
const SAID: usize = 1_000;
/// Most characters of a program's last words on stderr, the newest; the rest is in no record.
const LAST_WORDS: usize = 4_000;

fn brief(message: &str, most: usize) -> String {
    let mut words: String = message.chars().take(most).collect();
    if words.len() < message.len() {
        words.push('…');
    }
    words
}

/// The end of a program's last words, behind the line that names them.
fn newest(words: String) -> String {
    let over = words.chars().count().saturating_sub(LAST_WORDS);
    match words.trim_start().split_once('\n') {
        Some((named, said)) if over > 0 => {
            let end: String = said.chars().skip(over).collect();
            format!("\n{named}\n…{end}")
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_dumped_is_told_by_its_beginning_or_by_its_newest_words() {
        assert_eq!(brief("short", SAID), "short");
        assert_eq!(brief(&"x".repeat(5_000), SAID).chars().count(), SAID + 1);
        let dumped = format!("\nits last words on stderr:\n{}the end", "é\n".repeat(20_000));
        let told = newest(dumped);
        assert!(told.starts_with("\nits last words on stderr:\n…") && told.ends_with("the end"));
        assert!(told.chars().count() <= LAST_WORDS + 1);
        let few = "\nits last words on stderr:\nno such file".to_owned();
        assert_eq!(newest(few.clone()), few);
        assert_eq!(newest(String::new()), "");
    }
}
