//! Every invariant of a session log, each with logs that break it and nothing else: their last record is the illegal one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use agentrun_kernel::{Body, EffectKind, Epoch, Invariant, OutcomeEnd, Replay, Seq, Source, TurnEndHow, validate};
use common::{
    Log, bound, candidate, delivered, effect, failed, intent, native, opened, outcome, paid, placed, settled,
    submission, turn_end, usd, verdict, withdrawn,
};

/// Logs that break this invariant with their last record. A new invariant does not compile without its mutants.
fn mutants(invariant: Invariant) -> Vec<Log> {
    use EffectKind::{Builtin, FollowUp, Request, Submit, Tool};
    let tool = |name: &str| Body::Intent(intent(name, Tool, Replay::Never, Some("t")));
    let ended = || Log::in_turn().and(turn_end("t", TurnEndHow::Done));
    let done = || ended().and(delivered());
    let last_at = |log: Log, change: fn(&mut agentrun_kernel::Record)| {
        let mut log = log;
        change(log.records.last_mut().unwrap());
        log
    };
    match invariant {
        Invariant::Order => vec![
            last_at(Log::in_turn(), |record| record.seq = Seq(9)),
            last_at(Log::in_turn(), |record| record.seq = Seq(3)),
            last_at(Log::in_turn().reopened().and(opened()), |record| record.epoch = Epoch(1)),
            last_at(Log::new(), |record| record.epoch = Epoch(0)),
        ],
        Invariant::BoundFirst => vec![Log::default_epoch().and(opened()), Log::new().and(bound())],
        Invariant::OneIntent => vec![
            Log::in_turn().and(tool("a")).and(tool("a")),
            Log::in_turn().and(tool("a")).ended("a", OutcomeEnd::Ok).and(tool("a")),
        ],
        Invariant::OneOutcome => vec![
            Log::in_turn().ended("a", OutcomeEnd::Ok),
            Log::in_turn().and(tool("a")).ended("a", OutcomeEnd::Interrupted).ended("a", OutcomeEnd::Ok),
        ],
        Invariant::OneMessage => vec![
            Log::new().and(placed("m", "t", &["nobody"], &[])),
            ended().and(placed("m2", "t2", &["node"], &[])),
            ended().and(placed("m2", "t2", &["node"], &["other"])),
            Log::new().and(submission("w", Source::Person)).and(withdrawn(&["w"])).and(placed("m", "t", &["w"], &[])),
            Log::new().and(withdrawn(&["nobody"])),
        ],
        Invariant::OneTurn => vec![
            Log::in_turn().and(submission("w", Source::Person)).and(placed("m2", "t2", &["w"], &[])),
            ended().and(submission("w", Source::Person)).and(placed("m2", "t", &["w"], &[])),
            ended().and(submission("w", Source::Person)).and(placed("m", "t2", &["w"], &[])),
            Log::in_turn().and(settled("t", &["node"])).and(placed("m", "t2", &["node"], &["m"])),
            // Into the open turn go people's words alone, under an id of their own, and they stand for nothing else.
            Log::in_turn().and(submission("w", Source::Nudge)).and(placed("m2", "t", &["w"], &[])),
            Log::in_turn().and(submission("w", Source::Person)).and(placed("m", "t", &["w"], &[])),
            Log::in_turn().and(submission("w", Source::Person)).and(placed("m2", "t", &["w"], &["m"])),
            Log::in_turn().and(placed("m2", "t", &[], &[])),
            ended().and(turn_end("t", TurnEndHow::Done)),
            Log::in_turn().and(turn_end("other", TurnEndHow::Done)),
            ended().and(settled("t", &[])),
            Log::new().and(settled("t", &[])),
        ],
        Invariant::DeliveredOnce => vec![
            done().and(delivered()),
            Log::in_turn().and(tool("a")).and(delivered()),
            Log::in_turn().begun("a", Submit, Replay::Safe).and(delivered()),
            Log::in_turn().begun("a", Builtin, Replay::Never).and(delivered()),
            done().and(tool("a")),
            done().begun("a", Request, Replay::Never),
            done().and(submission("w", Source::Nudge)).and(placed("m2", "t2", &["w"], &[])),
            Log::in_turn().and(delivered()).and(submission("w", Source::Person)).and(placed("m2", "t", &["w"], &[])),
            done().and(candidate(1, "a")),
            Log::in_turn().and(delivered()).and(candidate(1, "a")),
            done()
                .and(submission("w", Source::Person))
                .and(placed("m2", "t2", &["w"], &[]))
                .begun("a", Submit, Replay::Safe)
                .and(candidate(1, "a")),
        ],
        Invariant::OneVerdict => vec![
            Log::in_turn().and(verdict(1, true)),
            Log::in_turn().and(candidate(2, "a")),
            Log::in_turn().and(candidate(1, "a")).and(candidate(2, "b")),
            Log::in_turn().and(candidate(1, "a")).and(verdict(2, true)),
            Log::in_turn().and(candidate(1, "a")).and(delivered()),
            Log::in_turn().and(candidate(1, "a")).and(verdict(1, false)).and(verdict(1, true)),
            Log::in_turn().and(candidate(1, "a")).and(verdict(1, false)).and(candidate(1, "a")),
        ],
        Invariant::HoldAndQuote => {
            let whole = paid(intent("a", Request, Replay::Never, Some("t")), "1");
            let with = |intent| Log::in_turn().and(Body::Intent(intent));
            vec![
                with(agentrun_kernel::Intent { quote: None, ..whole.clone() }),
                with(agentrun_kernel::Intent { hold: None, quote: Some(usd("1")), ..whole }),
            ]
        }
        Invariant::NativeExtent => {
            vec![Log::new().and(native(1, "x")), Log::new().and(native(0, "abc")).and(native(4, "x"))]
        }
        Invariant::Ended => vec![
            ended().and(failed()).and(tool("a")),
            ended().and(failed()).and(submission("w", Source::Person)).and(placed("m2", "t2", &["w"], &[])),
            ended().and(failed()).and(candidate(1, "a")),
            ended().and(failed()).and(delivered()),
            ended().and(failed()).and(failed()),
            done().and(failed()),
            Log::new().and(Body::Moved { to: "elsewhere".to_owned() }).and(opened()),
            done()
                .begun("a", FollowUp, Replay::Never)
                .ended("a", OutcomeEnd::Ok)
                .and(Body::Moved { to: "elsewhere".to_owned() })
                .and(native(0, "x")),
        ],
        Invariant::OneSubmission => vec![Log::in_turn().and(submission("node", Source::Node))],
    }
}

/// The invariant declared behind this one. A new one does not compile without its place here.
fn behind(invariant: Invariant) -> Option<Invariant> {
    use Invariant as I;
    match invariant {
        I::Order => Some(I::BoundFirst),
        I::BoundFirst => Some(I::OneIntent),
        I::OneIntent => Some(I::OneOutcome),
        I::OneOutcome => Some(I::OneMessage),
        I::OneMessage => Some(I::OneTurn),
        I::OneTurn => Some(I::DeliveredOnce),
        I::DeliveredOnce => Some(I::OneVerdict),
        I::OneVerdict => Some(I::HoldAndQuote),
        I::HoldAndQuote => Some(I::NativeExtent),
        I::NativeExtent => Some(I::Ended),
        I::Ended => Some(I::OneSubmission),
        I::OneSubmission => None,
    }
}

/// What the numbered invariants of a session's log are checked as. What a log alone cannot show is the drive's to keep: that nothing runs before
/// its intent (2), that the text placed is the text sent (3), that a hold shares its intent's batch (6), that the bytes explain the
/// intent (7); see `b50_…`, `inv3_…`, `inv6_…` and `inv7_…` of the drive. The eighth is that each mutant's log is legal up to its last record.
fn numbered(number: u8) -> &'static [Invariant] {
    use Invariant as I;
    match number {
        1 => &[I::Order, I::BoundFirst],
        2 => &[I::OneIntent, I::OneOutcome],
        3 => &[I::OneMessage, I::OneSubmission, I::OneTurn],
        4 => &[I::OneTurn],
        5 => &[I::DeliveredOnce, I::OneVerdict, I::Ended],
        6 => &[I::HoldAndQuote],
        7 => &[I::NativeExtent],
        other => panic!("no invariant {other}"),
    }
}

#[test]
fn every_invariant_is_listed_is_one_of_the_numbered_ones_and_has_a_mutant() {
    let declared: Vec<_> = std::iter::successors(Some(Invariant::Order), |last| behind(*last)).collect();
    assert_eq!(declared, Invariant::ALL, "in the order of the declaration");
    let numbered: Vec<_> = (1..=7).flat_map(numbered).collect();
    for invariant in Invariant::ALL {
        assert!(numbered.contains(&&invariant), "{invariant:?} is none of the numbered ones");
        assert!(!mutants(invariant).is_empty(), "{invariant:?} has no mutant");
        assert!(invariant.to_string().starts_with(&format!("{}: ", invariant.name())), "{invariant}");
    }
}

#[test]
fn each_invariant_refuses_its_mutants_at_their_last_record() {
    for invariant in Invariant::ALL {
        for (place, log) in mutants(invariant).into_iter().enumerate() {
            let (last, before) = log.records.split_last().unwrap();
            let what = format!("{invariant:?}, mutant {place}");
            validate(before).unwrap_or_else(|illegal| panic!("{what}: an earlier record is refused: {illegal}"));
            let illegal = validate(&log.records).expect_err(&what);
            assert_eq!(
                (illegal.invariant, illegal.seq, illegal.kind),
                (invariant, last.seq, last.body.kind()),
                "{what}"
            );
        }
    }
}

#[test]
fn what_may_follow_a_delivery_and_a_failure_is_not_refused() {
    let begun = Log::in_turn().begun("r", EffectKind::Request, Replay::Never).and(delivered());
    begun.clone().ended("r", OutcomeEnd::Ok).state();
    let ended = begun.ended("r", OutcomeEnd::Ok).and(turn_end("t", TurnEndHow::Done));
    for source in [Source::Person, Source::FollowUp(effect("f"))] {
        let after = ended.clone().and(submission("w", source)).and(placed("m2", "t2", &["w"], &[]));
        after.begun("r2", EffectKind::Request, Replay::Never).and(Body::Outcome(outcome("r2", OutcomeEnd::Ok))).state();
    }
    ended.begun("f", EffectKind::FollowUp, Replay::Never).state();
    let failing = Log::in_turn().begun("a", EffectKind::Tool, Replay::Never).and(failed());
    failing.ended("a", OutcomeEnd::Ok).and(turn_end("t", TurnEndHow::Failed)).reopened().state();
}
