//! Canned histories by name: what sessions really go through, each a legal log. The transition coverage reads which records they write in
//! which states; every prefix of each must be recoverable.

use agentrun_kernel::{
    Ask, AskAnswer, Body, Checkpoint, Digest, EffectKind, OutcomeEnd, Replay, Seq, Source, TurnEndHow,
};
use serde_json::json;

use super::{
    Log, candidate, delivered, effect, failed, intent, native, outcome, paid, parked, placed, settled, submission,
    turn_end, verdict, withdrawn, words,
};

/// A history and what happened in it.
pub(crate) type Canned = (&'static str, Log);

pub(crate) fn ask() -> Body {
    Body::Ask(Ask { id: "q".to_owned(), what: "may it?".to_owned(), choices: Vec::new() })
}

pub(crate) fn answer() -> Body {
    Body::Answer(AskAnswer { id: "q".to_owned(), answer: "yes".to_owned(), by: "somebody".to_owned() })
}

pub(crate) fn checkpoint() -> Body {
    Body::Checkpoint(Checkpoint {
        of: Seq(1),
        image: "tree".to_owned(),
        reference: "r".to_owned(),
        digest: Digest::of(b"image"),
    })
}

pub(crate) fn data() -> Body {
    Body::Data { name: "host".to_owned(), value: json!(1) }
}

pub(crate) fn moved() -> Body {
    Body::Moved { to: "elsewhere".to_owned() }
}

impl Log {
    /// What goes on around a session whatever it is doing: the host, the harness's files, a person who asks and takes it back, and a process
    /// that dies.
    pub(crate) fn meanwhile(self) -> Self {
        let said = format!("said{}", self.records.len());
        self.all([data(), native(0, "line\n"), ask(), answer(), checkpoint()])
            .and(submission(&said, Source::Person))
            .and(withdrawn(&[&said]))
            .reopened()
    }

    /// A person's words, placed into the open turn.
    pub(crate) fn steered(self, words: &str) -> Self {
        self.and(submission(words, Source::Person)).and(placed(&format!("steers-{words}"), "t", &[words], &[]))
    }

    /// A paid request is begun.
    pub(crate) fn request(self, name: &str) -> Self {
        self.and(Body::Intent(paid(intent(name, EffectKind::Request, Replay::Never, Some("t")), "1")))
    }

    /// The value is submitted and accepted, in the call `name`.
    pub(crate) fn submitted(self, name: &str) -> Self {
        self.begun(name, EffectKind::Submit, Replay::Safe)
            .and(candidate(1, name))
            .and(verdict(1, true))
            .ended(name, OutcomeEnd::Ok)
            .and(delivered())
    }

    /// A follow-up `name` asks for a turn of its own.
    pub(crate) fn follow_up(self, name: &str) -> Self {
        let asked = format!("asked-{name}");
        self.and(Body::Intent(intent(name, EffectKind::FollowUp, Replay::Never, None)))
            .and(submission(&asked, Source::FollowUp(effect(name))))
    }

    /// It was cut: its outcome, its prompt withdrawn and its turn settled are one batch.
    pub(crate) fn cut_follow_up(self, name: &str, in_turn: Option<&str>, unsent: &[&str]) -> Self {
        let asked = format!("asked-{name}");
        let settled = in_turn.map_or_else(|| beside(unsent), |turn| settled(turn, unsent));
        self.reopened().ended(name, OutcomeEnd::Interrupted).and(withdrawn(&[&asked])).and(settled)
    }
}

/// A settle where no turn is open.
fn beside(unsent: &[&str]) -> Body {
    Body::Settled(agentrun_kernel::Settled { turn: None, unsent: unsent.iter().map(|id| words(id)).collect() })
}

fn ended(how: TurnEndHow) -> Log {
    Log::in_turn().and(turn_end("t", how))
}

/// Delivered, and its turn is over.
fn at_rest() -> Log {
    Log::in_turn().submitted("s").and(turn_end("t", TurnEndHow::Done))
}

/// The turn of a follow-up in a session that did not deliver.
fn in_follow_up() -> Log {
    ended(TurnEndHow::Done).follow_up("f").and(placed("m2", "t2", &["asked-f"], &[]))
}

fn of_kind(name: &str, kind: EffectKind) -> Body {
    Body::Intent(intent(name, kind, Replay::Never, Some("t")))
}

/// Every one.
pub(crate) fn canned() -> Vec<Canned> {
    use EffectKind::{Builtin, Decision, Request, Submit, Tool};
    use OutcomeEnd::{Error, Interrupted, Ok, Refused};
    use TurnEndHow::{Done, Failed};
    vec![
        ("an empty log", Log::default_epoch()),
        (
            "a node delivers in one turn",
            Log::in_turn().request("r").and(Body::Outcome(outcome("r", Ok))).and(native(0, "call\n")).submitted("s"),
        ),
        (
            "nothing was said yet, and the world goes on",
            Log::new().meanwhile().and(submission("node", Source::Node)).meanwhile().and(placed(
                "m",
                "t",
                &["node"],
                &[],
            )),
        ),
        (
            "people's words are steered into a turn, whatever it is at",
            Log::in_turn()
                .steered("one")
                .request("r")
                .steered("two")
                .ended("r", Ok)
                .begun("a", Tool, Replay::Never)
                .steered("three")
                .ended("a", Ok)
                .and(of_kind("b", Builtin))
                .steered("four")
                .ended("b", Ok)
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .steered("five")
                .and(verdict(1, false))
                .ended("s", Error)
                .and(turn_end("t", Done))
                .and(beside(&["five"])),
        ),
        ("prompts wait and one is taken back", Log::new().and(submission("a", Source::Person)).and(withdrawn(&["a"]))),
        (
            "a turn with nothing in it, and the world goes on",
            Log::in_turn().meanwhile().and(turn_end("t", Done)).meanwhile(),
        ),
        (
            "a never tool runs to its end, and the world goes on",
            Log::in_turn().begun("a", Tool, Replay::Never).meanwhile().ended("a", Ok).and(turn_end("t", Done)),
        ),
        (
            "tools run beside each other, a request and a decision too",
            Log::in_turn()
                .begun("a", Tool, Replay::Safe)
                .begun("b", Tool, Replay::Never)
                .request("r")
                .begun("d", Decision, Replay::Never)
                .ended("b", Error)
                .ended("r", Interrupted)
                .ended("a", Ok)
                .ended("d", Ok),
        ),
        (
            "a request is in flight, and the world goes on",
            Log::in_turn()
                .request("r")
                .meanwhile()
                .begun("r2", Request, Replay::Never)
                .ended("r", Ok)
                .ended("r2", Error),
        ),
        (
            "a built-in the harness never told the end of is ended with its turn",
            Log::in_turn()
                .and(of_kind("b", Builtin))
                .meanwhile()
                .and(of_kind("b2", Builtin))
                .ended("b2", Ok)
                .ended("b", Interrupted)
                .and(turn_end("t", Done)),
        ),
        (
            "a harness dies in the middle of everything, and its turn ends before its effects",
            Log::in_turn()
                .begun("a", Tool, Replay::Never)
                .and(of_kind("b", Builtin))
                .request("r")
                .and(turn_end("t", Failed))
                .meanwhile()
                .ended("r", Interrupted)
                .ended("a", Interrupted)
                .ended("b", Interrupted),
        ),
        (
            "a submission is rejected, the next one accepted",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .meanwhile()
                .and(verdict(1, false))
                .ended("s", Error)
                .begun("s2", Submit, Replay::Safe)
                .and(candidate(2, "s2"))
                .and(verdict(2, true))
                .ended("s2", Ok)
                .and(delivered()),
        ),
        (
            "the review outlasts its turn, and the value is delivered behind it",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .and(turn_end("t", TurnEndHow::Interrupted))
                .and(verdict(1, true))
                .ended("s", Ok)
                .and(delivered()),
        ),
        (
            "the same, and a person's words wait",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .and(turn_end("t", TurnEndHow::Interrupted))
                .and(submission("said", Source::Person))
                .and(verdict(1, true))
                .ended("s", Ok)
                .and(delivered()),
        ),
        (
            "the same, and a request has no end yet",
            Log::in_turn()
                .request("r")
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .and(turn_end("t", TurnEndHow::Interrupted))
                .and(verdict(1, true))
                .ended("s", Ok)
                .and(delivered())
                .ended("r", Ok),
        ),
        (
            "a request begins, is refused and another ends while the review is asked",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .request("r")
                .and(Body::Intent(intent("b", Builtin, Replay::Never, Some("t"))))
                .ended("r", Ok)
                .and(parked())
                .ended("b", Ok)
                .and(verdict(1, true))
                .ended("s", Ok)
                .and(delivered())
                .and(parked()),
        ),
        (
            "a value is submitted and rejected beside a built-in, and the cap refuses",
            Log::in_turn()
                .and(of_kind("b", Builtin))
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .and(verdict(1, false))
                .ended("s", Error)
                .and(parked()),
        ),
        (
            "a submission arrives while a parallel request has parked the session",
            Log::in_turn().and(parked()).begun("s", Submit, Replay::Safe).and(candidate(1, "s")).and(verdict(1, false)),
        ),
        (
            "a node fails while its value is under review, and is settled",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .and(failed())
                .reopened()
                .and(verdict(1, false))
                .ended("s", Interrupted)
                .and(settled("t", &[])),
        ),
        ("a turn ends before its tool", Log::in_turn().begun("a", Tool, Replay::Never).and(turn_end("t", Failed))),
        ("a turn ends before its built-in", Log::in_turn().and(of_kind("b", Builtin)).and(turn_end("t", Done))),
        (
            "a request outlasts its turn, the reminder goes out, and the cap refuses",
            Log::in_turn().request("r").and(turn_end("t", Failed)).and(parked()).reopened().ended("r", Interrupted),
        ),
        (
            "the reminder goes out while a request of the turn before has no end yet",
            Log::in_turn()
                .request("r")
                .and(turn_end("t", Done))
                .and(submission("nudge", Source::Nudge))
                .and(placed("m2", "t2", &["nudge"], &[]))
                .and(parked()),
        ),
        ("the cap refuses, told behind the turn", ended(Failed).and(parked())),
        ("the same, and a person's words wait", ended(Failed).and(submission("said", Source::Person)).and(parked())),
        (
            "a settle comes before the review",
            Log::in_turn()
                .begun("s", Submit, Replay::Safe)
                .and(candidate(1, "s"))
                .reopened()
                .and(verdict(1, false))
                .ended("s", Interrupted)
                .and(settled("t", &[]))
                .and(submission("nudge", Source::Nudge))
                .and(placed("m2", "t2", &["nudge"], &[])),
        ),
        (
            "a message that was not taken is carried by the next one",
            Log::in_turn().reopened().and(settled("t", &["node"])).meanwhile().and(placed(
                "m2",
                "t2",
                &["node"],
                &["m"],
            )),
        ),
        (
            "a settled turn leaves words, and a person retracts them",
            Log::in_turn().reopened().and(settled("t", &["node"])).and(withdrawn(&["node"])).meanwhile(),
        ),
        (
            "the model has its say without an answer and is reminded",
            ended(Done).and(submission("nudge", Source::Nudge)).and(placed("m2", "t2", &["nudge"], &[])),
        ),
        (
            "a late request of the delivering turn ends after the delivery, and the world goes on",
            Log::in_turn().request("r").submitted("s").meanwhile().ended("r", Ok).and(turn_end("t", Done)).meanwhile(),
        ),
        (
            "a late request ends behind the delivering turn",
            Log::in_turn()
                .request("r")
                .submitted("s")
                .and(parked())
                .and(turn_end("t", Done))
                .ended("r", Ok)
                .and(parked()),
        ),
        ("a settle ends the turn of a delivery", Log::in_turn().submitted("s").reopened().and(settled("t", &[]))),
        (
            "a person asks on behind the delivery, a tool runs and a submit is answered",
            at_rest()
                .and(submission("said", Source::Person))
                .and(placed("m2", "t2", &["said"], &[]))
                .meanwhile()
                .request("r2")
                .begun("a2", Tool, Replay::Never)
                .ended("a2", Ok)
                .ended("r2", Ok)
                .and(turn_end("t2", Done)),
        ),
        (
            "a person's turn behind the delivery is settled",
            at_rest()
                .and(submission("said", Source::Person))
                .and(placed("m2", "t2", &["said"], &[]))
                .reopened()
                .and(settled("t2", &["said"])),
        ),
        (
            "a follow-up runs to its end",
            at_rest()
                .follow_up("f")
                .and(placed("m2", "t2", &["asked-f"], &[]))
                .request("r2")
                .meanwhile()
                .ended("r2", Ok)
                .and(turn_end("t2", Done))
                .ended("f", Ok)
                .meanwhile(),
        ),
        (
            "a follow-up is cut in its turn, and a person's words beside it stay",
            at_rest()
                .follow_up("f")
                .and(submission("said", Source::Person))
                .and(placed("m2", "t2", &["said", "asked-f"], &[]))
                .cut_follow_up("f", Some("t2"), &["said"])
                .and(placed("m3", "t3", &["said"], &["m2"])),
        ),
        (
            "the cap refuses a follow-up's request, and a person's after it",
            at_rest()
                .follow_up("f")
                .and(placed("m2", "t2", &["asked-f"], &[]))
                .and(parked())
                .and(turn_end("t2", Failed))
                .ended("f", Error)
                .and(submission("said", Source::Person))
                .and(placed("m3", "t3", &["said"], &[]))
                .and(parked()),
        ),
        (
            "the model submits and delivers in a follow-up's turn",
            ended(Done)
                .follow_up("f")
                .and(placed("m2", "t2", &["asked-f"], &[]))
                .submitted("s")
                .and(turn_end("t2", Done))
                .ended("f", Ok),
        ),
        (
            "a follow-up begins while a person's words wait, and is cut before its turn",
            ended(Done).and(submission("said", Source::Person)).follow_up("f").cut_follow_up("f", None, &["said"]),
        ),
        (
            "a follow-up's tool is cut with it",
            in_follow_up().and(of_kind("a", Tool)).cut_follow_up("f", Some("t2"), &[]),
        ),
        (
            "a follow-up's built-in is cut with it",
            in_follow_up().and(of_kind("b", Builtin)).cut_follow_up("f", Some("t2"), &[]),
        ),
        ("a follow-up's request is cut with it", in_follow_up().request("r").cut_follow_up("f", Some("t2"), &[])),
        ("a follow-up is cut before its turn", at_rest().follow_up("f").cut_follow_up("f", None, &[])),
        (
            "a follow-up of a session that did not deliver is cut before its turn",
            ended(Done).follow_up("f").meanwhile().cut_follow_up("f", None, &[]),
        ),
        (
            "the cap refuses a request while a tool runs, and a raise lets it go on",
            Log::in_turn()
                .begun("a", Tool, Replay::Never)
                .and(parked())
                .meanwhile()
                .ended("a", Ok)
                .and(parked())
                .request("r")
                .ended("r", Ok),
        ),
        (
            "a parked session is settled, and its words wait",
            Log::in_turn().and(parked()).reopened().and(settled("t", &["node"])).and(placed(
                "m2",
                "t2",
                &["node"],
                &["m"],
            )),
        ),
        ("a parked turn ends by itself", Log::in_turn().and(parked()).and(turn_end("t", Failed)).request("r")),
        (
            "one of the runner's bounds ends a node while a tool runs",
            Log::in_turn()
                .begun("a", Tool, Replay::Never)
                .and(failed())
                .meanwhile()
                .ended("a", Refused)
                .and(turn_end("t", Failed)),
        ),
        ("a failed node's turn is settled", Log::in_turn().and(failed()).reopened().and(settled("t", &[]))),
    ]
}
