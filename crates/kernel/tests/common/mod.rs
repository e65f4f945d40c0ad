//! Canned histories: a session's log written line by line, and logs drawn at random from the legal ones.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod histories;
pub(crate) mod recovery;

use std::sync::Arc;

use agentrun_kernel::{
    Body, Bound, Built, CallId, Candidate, Delivered, Digest, EffectKey, EffectKind, Epoch, FORMAT, Failed, HoldId,
    Intent, MessageId, NativeWrite, Opened, Outcome, OutcomeEnd, Parked, Placed, PlanDigests, Record, Replay, RunId,
    Seq, SessionKey, SessionState, Settled, Source, Submission, SubmissionId, TurnEndHow, TurnId, Usd, Verdict,
    Withdrawn, validate,
};
use serde_json::{Value, json};

pub(crate) fn key() -> SessionKey {
    SessionKey::new("s").unwrap()
}

pub(crate) fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

pub(crate) fn effect(name: &str) -> EffectKey {
    EffectKey(name.to_owned())
}

pub(crate) fn turn(name: &str) -> TurnId {
    TurnId(name.to_owned())
}

pub(crate) fn message(name: &str) -> MessageId {
    MessageId(name.to_owned())
}

pub(crate) fn words(id: &str) -> SubmissionId {
    SubmissionId(id.to_owned())
}

pub(crate) fn bound() -> Body {
    let plan = PlanDigests {
        prompt: Digest::of(b"p"),
        system: Digest::of(b"s"),
        schema: Digest::of(b"v"),
        tools: Digest::of(b"t"),
        model: "m".to_owned(),
        label: "l".to_owned(),
        attempt: 1,
    };
    Body::Bound(Bound {
        format: u32::from(FORMAT),
        adapter: "faux".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::from(&key()),
        parent: None,
        builtins: Built::Gated,
        host: Value::Null,
    })
}

pub(crate) fn opened() -> Body {
    Body::Opened(Opened { earlier: Vec::new(), version: "0".to_owned(), harness: None, native_session: None })
}

pub(crate) fn submission(id: &str, source: Source) -> Body {
    Body::Submission(Submission::new(words(id), source, id))
}

pub(crate) fn placed(name: &str, in_turn: &str, carries: &[&str], replaces: &[&str]) -> Body {
    Body::Placed(Placed {
        message: message(name),
        turn: turn(in_turn),
        carries: carries.iter().map(|id| words(id)).collect(),
        replaces: replaces.iter().map(|name| message(name)).collect(),
        text: Arc::from(carries.join("\n")),
    })
}

/// An intent whose call id is its key and whose arguments are `{"of": key}`.
pub(crate) fn intent(name: &str, kind: EffectKind, replay: Replay, in_turn: Option<&str>) -> Intent {
    let arguments = json!({ "of": name });
    Intent {
        key: effect(name),
        effect: kind,
        replay,
        name: "tool".to_owned(),
        turn: in_turn.map(turn),
        call: Some(CallId(name.to_owned())),
        digest: Digest::of_json(&arguments),
        arguments,
        hold: None,
        quote: None,
    }
}

pub(crate) fn paid(intent: Intent, quote: &str) -> Intent {
    Intent { hold: Some(HoldId(format!("hold-{}", intent.key))), quote: Some(usd(quote)), ..intent }
}

pub(crate) fn outcome(name: &str, end: OutcomeEnd) -> Outcome {
    Outcome::new(effect(name), end, format!("{name} ended"))
}

pub(crate) fn candidate(number: u32, name: &str) -> Body {
    let value = json!({ "value": number });
    Body::Candidate(Candidate { number, key: effect(name), digest: Digest::of_json(&value), submitted: value })
}

pub(crate) fn verdict(number: u32, accepted: bool) -> Body {
    Body::Verdict(Verdict { number, accepted, message: String::new() })
}

pub(crate) fn delivered() -> Body {
    Body::Delivered(Delivered { value: json!(7) })
}

pub(crate) fn failed() -> Body {
    Body::Failed(Failed { word: "turn_limit".to_owned(), message: "used up".to_owned() })
}

pub(crate) fn parked() -> Body {
    Body::Parked(Parked {
        word: "over_cap".to_owned(),
        needed: usd("2"),
        cap: usd("1"),
        spent: usd("0.5"),
        ledger: Seq(3),
    })
}

pub(crate) fn settled(in_turn: &str, unsent: &[&str]) -> Body {
    Body::Settled(Settled { turn: Some(turn(in_turn)), unsent: unsent.iter().map(|id| words(id)).collect() })
}

pub(crate) fn withdrawn(ids: &[&str]) -> Body {
    Body::Withdrawn(Withdrawn { ids: ids.iter().map(|id| words(id)).collect(), why: "test".to_owned() })
}

pub(crate) fn turn_end(in_turn: &str, how: TurnEndHow) -> Body {
    Body::TurnEnd { turn: turn(in_turn), how }
}

pub(crate) fn native(offset: u64, bytes: &str) -> Body {
    Body::Native(NativeWrite { stream: "h".to_owned(), offset, bytes: Arc::from(bytes.as_bytes()) })
}

/// A log under construction.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
    epoch: u64,
}

impl Log {
    /// Bound and opened once.
    pub(crate) fn new() -> Self {
        Self { records: Vec::new(), epoch: 1 }.and(bound()).and(opened())
    }

    /// Nothing yet, at the first epoch.
    pub(crate) fn default_epoch() -> Self {
        Self { records: Vec::new(), epoch: 1 }
    }

    /// One message of the node is placed in the turn `t`, as message `m`.
    pub(crate) fn in_turn() -> Self {
        Self::new().and(submission("node", Source::Node)).and(placed("m", "t", &["node"], &[]))
    }

    pub(crate) fn and(mut self, body: Body) -> Self {
        self.push(body);
        self
    }

    pub(crate) fn all(self, bodies: impl IntoIterator<Item = Body>) -> Self {
        bodies.into_iter().fold(self, Self::and)
    }

    pub(crate) fn push(&mut self, body: Body) {
        let seq = Seq(self.records.len() as u64 + 1);
        self.records.push(Record { seq, epoch: Epoch(self.epoch), at: 0, body });
    }

    /// What a store holds.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        Self { epoch: records.last().map_or(1, |record| record.epoch.0), records }
    }

    /// Its first records.
    pub(crate) fn cut(&self, length: usize) -> Self {
        Self::of(self.records[..length].to_vec())
    }

    /// Another process opened it.
    pub(crate) fn reopened(mut self) -> Self {
        self.epoch += 1;
        self.and(opened())
    }

    pub(crate) fn begun(self, name: &str, kind: EffectKind, replay: Replay) -> Self {
        self.and(Body::Intent(intent(name, kind, replay, Some("t"))))
    }

    pub(crate) fn ended(self, name: &str, end: OutcomeEnd) -> Self {
        self.and(Body::Outcome(outcome(name, end)))
    }

    /// The state of a log that is legal.
    pub(crate) fn state(&self) -> SessionState {
        validate(&self.records).unwrap()
    }
}

/// A small generator of numbers; the same seed is the same row.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn yes(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Any body, with names from pools so small that they meet.
pub(crate) fn any_body(dice: &mut Dice) -> Body {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let ids = ["w1", "w2", "w3", "w4", "w5"];
    let ends = [OutcomeEnd::Ok, OutcomeEnd::Error, OutcomeEnd::Interrupted, OutcomeEnd::Refused];
    let kinds = [
        EffectKind::Tool,
        EffectKind::Tool,
        EffectKind::Request,
        EffectKind::Submit,
        EffectKind::Builtin,
        EffectKind::Decision,
    ];
    let turns = ["t1", "t2", "t3", "t4"];
    let messages = ["m1", "m2", "m3", "m4"];
    let (said, in_turn) = (*dice.pick(&messages), *dice.pick(&turns));
    let (name, id, number) = (*dice.pick(&names), *dice.pick(&ids), u32::try_from(dice.below(4)).unwrap());
    match dice.below(20) {
        0 => opened(),
        1 | 2 => {
            let follow_up = Source::FollowUp(effect("follow"));
            let source = dice.pick(&[Source::Node, Source::Nudge, Source::Person, follow_up]).clone();
            submission(id, source)
        }
        3 => withdrawn(&[id]),
        4 | 5 => {
            let replaces: &[&str] = if dice.yes() { &["m1"] } else { &[] };
            placed(said, in_turn, &[id], replaces)
        }
        6 => turn_end(in_turn, TurnEndHow::Done),
        7..=10 => {
            let replay = *dice.pick(&[Replay::Safe, Replay::Never]);
            let intent = intent(name, *dice.pick(&kinds), replay, Some("t1"));
            Body::Intent(if dice.yes() { paid(intent, "0.25") } else { intent })
        }
        11..=14 => {
            let cost = if dice.yes() { Some(usd("0.1")) } else { None };
            Body::Outcome(Outcome { cost, ..outcome(name, *dice.pick(&ends)) })
        }
        15 => native(dice.below(9) as u64, "line\n"),
        16 => candidate(number, name),
        17 => verdict(number, dice.yes()),
        18 => settled(in_turn, &[id]),
        _ => match dice.below(12) {
            0 => delivered(),
            1 => failed(),
            2..=4 => parked(),
            _ => Body::Data { name: name.to_owned(), value: json!(number) },
        },
    }
}

/// A legal log: of the bodies drawn, those that may follow.
pub(crate) fn any_legal(seed: u64, draws: usize) -> Log {
    let mut dice = Dice::new(seed);
    let mut log = Log::new();
    let mut state = log.state();
    for _ in 0..draws {
        if dice.below(12) == 0 {
            log = log.reopened();
        } else {
            log.push(any_body(&mut dice));
        }
        let last = log.records.last().unwrap();
        if state.check(last).is_ok() {
            state.apply(last);
        } else {
            log.records.pop();
        }
    }
    log
}
