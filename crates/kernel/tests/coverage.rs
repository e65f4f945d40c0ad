//! Transition coverage: which kind of record may follow in which state of a session, and whether a canned history goes there. What is legal is
//! found by trying, from every state that canned and random legal histories reach, a record of each kind; a legal pair that no canned history
//! visits fails the suite. The table is printed either way (`--no-capture`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use agentrun_kernel::{
    Body, EffectKey, EffectKind, Illegal, Intent, Outcome, OutcomeEnd, Record, Replay, SessionState, Settled, Source,
    Survey, Today, TurnEndHow, Withdrawn, decide, is_quiet, settle,
};
use common::histories::{Canned, answer, ask, canned, checkpoint, data, moved};
use common::recovery::done;
use common::{
    Dice, bound, candidate, delivered, failed, intent, message, native, opened, paid, parked, submission, turn,
    verdict, words,
};

/// What a session is doing, as far as it decides which records may follow. The first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// No record yet.
    Empty,
    /// Sealed.
    Moved,
    /// One of the runner's bounds ended it.
    Failed,
    /// A follow-up is begun, in its turn or still before it.
    FollowUp,
    /// Delivered, and the delivering turn is still open.
    Closing,
    /// Delivered, and a later turn is open.
    Later,
    /// Delivered, nothing open.
    Delivered,
    /// The cap refused.
    Parked,
    /// A candidate waits for its verdict.
    Undecided,
    /// An open turn with a model request, or a paid decision, in flight.
    Request,
    /// An open turn with a built-in of the harness open.
    Builtin,
    /// An open turn with one of our tools open.
    Tool,
    /// An open turn, nothing open in it.
    Turn,
    /// No turn is open, and an effect is.
    Adrift,
    /// No turn is open, and words wait to be placed.
    Waiting,
    /// Nothing was placed yet.
    Fresh,
    /// A turn has ended, and nothing waits.
    Idle,
}

const STATES: [At; 17] = [
    At::Empty,
    At::Fresh,
    At::Waiting,
    At::Turn,
    At::Tool,
    At::Builtin,
    At::Request,
    At::Undecided,
    At::Adrift,
    At::Idle,
    At::Parked,
    At::Closing,
    At::Delivered,
    At::FollowUp,
    At::Later,
    At::Failed,
    At::Moved,
];

impl At {
    fn of(state: &SessionState) -> Self {
        let open = |kinds: &[EffectKind]| state.open_effects().any(|effect| kinds.contains(&effect.intent.effect));
        let waits = |accepted: &agentrun_kernel::Accepted| {
            !accepted.withdrawn && (accepted.unsent || accepted.message.is_none())
        };
        match &state.open_turn {
            _ if state.bound.is_none() => Self::Empty,
            _ if state.moved.is_some() => Self::Moved,
            _ if state.failed.is_some() => Self::Failed,
            _ if open(&[EffectKind::FollowUp]) => Self::FollowUp,
            Some(turn) if state.delivered.is_some() && turn.after_delivery => Self::Later,
            Some(_) if state.delivered.is_some() => Self::Closing,
            None if state.delivered.is_some() => Self::Delivered,
            _ if state.parked.is_some() => Self::Parked,
            _ if state.undecided().is_some() => Self::Undecided,
            Some(_) if open(&[EffectKind::Request, EffectKind::Decision]) => Self::Request,
            Some(_) if open(&[EffectKind::Builtin]) => Self::Builtin,
            Some(_) if open(&[EffectKind::Tool, EffectKind::Submit]) => Self::Tool,
            Some(_) => Self::Turn,
            None if state.open_effects().next().is_some() => Self::Adrift,
            None if state.submissions().any(waits) => Self::Waiting,
            None if state.last_turn.is_none() => Self::Fresh,
            None => Self::Idle,
        }
    }
}

type Pair = (At, &'static str);

/// Records of every kind as they could follow here: what fits this state, and what does not.
fn tries(state: &SessionState) -> Vec<Body> {
    let fresh = format!("x{}", state.head);
    let fresh = fresh.as_str();
    let mut bodies = vec![
        bound(),
        opened(),
        native(0, "line\n"),
        native(state.native_length("h") + 1, "gap\n"),
        delivered(),
        failed(),
        parked(),
        ask(),
        answer(),
        checkpoint(),
        data(),
        moved(),
    ];
    let follow_up = Source::FollowUp(EffectKey(fresh.to_owned()));
    for source in [Source::Node, Source::Nudge, Source::Person, Source::Recovery, follow_up] {
        bodies.push(submission(fresh, source));
    }
    for accepted in state.submissions() {
        let id = accepted.submission.id.clone();
        bodies.push(submission(id.as_str(), Source::Person));
        bodies.push(Body::Withdrawn(Withdrawn { ids: vec![id.clone()], why: "tried".to_owned() }));
        bodies.push(Body::Settled(Settled { turn: None, unsent: vec![id.clone()] }));
        let open = state.open_turn.as_ref().map(|turn| turn.id.clone());
        for in_turn in [Some(turn(fresh)), open].into_iter().flatten() {
            bodies.push(Body::Placed(agentrun_kernel::Placed {
                message: message(fresh),
                replaces: accepted.message.clone().filter(|_| in_turn == turn(fresh)).into_iter().collect(),
                turn: in_turn,
                carries: vec![id.clone()],
                text: "tried".into(),
            }));
        }
    }
    bodies.push(Body::Withdrawn(Withdrawn { ids: vec![words("nobody")], why: "tried".to_owned() }));
    bodies.push(common::placed(fresh, fresh, &["nobody"], &[]));
    let open = state.open_turn.as_ref().map(|turn| turn.id.clone());
    for in_turn in [open.clone(), Some(turn("another"))].into_iter().flatten() {
        bodies.push(Body::TurnEnd { turn: in_turn.clone(), how: TurnEndHow::Done });
        bodies.push(Body::Settled(Settled { turn: Some(in_turn), unsent: Vec::new() }));
    }
    bodies.push(Body::Settled(Settled { turn: None, unsent: Vec::new() }));
    for kind in [
        EffectKind::Tool,
        EffectKind::Submit,
        EffectKind::Builtin,
        EffectKind::Request,
        EffectKind::Decision,
        EffectKind::FollowUp,
    ] {
        let begun = Intent { turn: open.clone(), ..intent(fresh, kind, Replay::Never, None) };
        bodies.push(Body::Intent(Intent { quote: Some(common::usd("1")), ..begun.clone() }));
        bodies.push(Body::Intent(if kind == EffectKind::Request { paid(begun, "1") } else { begun }));
    }
    let unknown = EffectKey("unknown".to_owned());
    for key in state.effects().map(|effect| effect.intent.key.clone()).chain([unknown]) {
        bodies.push(Body::Outcome(Outcome::new(key.clone(), OutcomeEnd::Ok, "tried")));
        bodies.push(Body::Intent(intent(key.as_str(), EffectKind::Tool, Replay::Never, None)));
    }
    let next = state.candidate.as_ref().map_or(1, |candidate| candidate.number + 1);
    bodies.extend([candidate(next, fresh), candidate(next + 1, fresh)]);
    for number in [next - 1, next] {
        bodies.extend([verdict(number, true), verdict(number, false)]);
    }
    bodies
}

fn following(state: &SessionState, body: Body) -> Record {
    Record { seq: state.head.next(), epoch: state.epoch.max(agentrun_kernel::Epoch(1)), at: 0, body }
}

/// What was found by trying.
#[derive(Default)]
struct Found {
    legal: BTreeSet<Pair>,
    refused: BTreeMap<Pair, BTreeMap<&'static str, usize>>,
}

impl Found {
    /// Tries everything here; gives back what may follow.
    fn tried(&mut self, state: &SessionState) -> Vec<Record> {
        let at = At::of(state);
        let mut may = Vec::new();
        for record in tries(state).into_iter().map(|body| following(state, body)) {
            let pair = (at, record.body.kind());
            match state.check(&record) {
                Ok(()) => {
                    self.legal.insert(pair);
                    may.push(record);
                }
                Err(Illegal { invariant, .. }) => {
                    *self.refused.entry(pair).or_default().entry(invariant.name()).or_default() += 1;
                }
            }
        }
        may
    }

    fn explore(&mut self, histories: &[Canned], walks: u64) {
        for (_, log) in histories {
            let mut state = SessionState::default();
            self.tried(&state);
            for record in &log.records {
                state.apply(record);
                self.tried(&state);
            }
        }
        for seed in 0..walks {
            let mut dice = Dice::new(seed);
            let mut state = SessionState::default();
            for _ in 0..40 {
                let may = self.tried(&state);
                // What ends a session ends the walk: seldom.
                let ends =
                    |record: &&Record| matches!(record.body, Body::Moved { .. } | Body::Failed(_) | Body::Delivered(_));
                let on: Vec<_> = may.iter().filter(|record| dice.below(8) == 0 || !ends(record)).collect();
                if on.is_empty() {
                    break;
                }
                state.apply(on[dice.below(on.len())]);
            }
        }
    }
}

/// How often each pair is in a history. A history that does not hold the invariants is a fault of this suite.
fn visits(histories: &[Canned]) -> BTreeMap<Pair, usize> {
    let mut visits = BTreeMap::new();
    for (named, log) in histories {
        let mut state = SessionState::default();
        for record in &log.records {
            state.check(record).unwrap_or_else(|illegal| panic!("{named}: {illegal}"));
            *visits.entry((At::of(&state), record.body.kind())).or_default() += 1;
            state.apply(record);
        }
    }
    visits
}

/// The canned histories, and each cut short behind every record by what may end a session anywhere: its move, and a bound of the runner's.
fn histories() -> Vec<Canned> {
    let mut all = canned();
    for (named, log) in canned() {
        for length in 0..=log.records.len() {
            let cut = log.cut(length);
            for end in [moved(), failed()] {
                let state = SessionState::fold(&cut.records);
                if state.check(&following(&state, end.clone())).is_ok() {
                    all.push((named, cut.clone().and(end)));
                }
            }
        }
    }
    all
}

fn unvisited(legal: &BTreeSet<Pair>, visits: &BTreeMap<Pair, usize>) -> Vec<Pair> {
    legal.iter().filter(|pair| !visits.contains_key(pair) && !UNWRITTEN.contains(pair)).copied().collect()
}

/// Pairs that the checks allow and no writer of ours writes: a log with one is not refused for it, and nothing rests on it.
const UNWRITTEN: &[Pair] = &[
    // All of it begins in a turn, behind a prompt.
    (At::Fresh, "intent"),
    (At::Fresh, "candidate"),
    (At::Fresh, "delivered"),
    (At::Fresh, "parked"),
    (At::Fresh, "settled"),
    (At::Waiting, "candidate"),
    (At::Adrift, "candidate"),
    (At::Idle, "candidate"),
    // A candidate's submit is open.
    (At::Turn, "candidate"),
    // What was taken is not sent again, though a message may stand for it.
    (At::Idle, "placed"),
    (At::Adrift, "intent"),
    // What was retracted is not retracted again, nor what was sent.
    (At::Fresh, "withdrawn"),
    (At::Idle, "withdrawn"),
    // A message waits until what its turn would find open is ended; a follow-up too.
    (At::Undecided, "placed"),
    (At::Closing, "intent"),
    (At::Adrift, "settled"),
    // The candidate is decided before its turn is settled, the follow-up's outcome comes before its settle.
    (At::Undecided, "settled"),
    (At::FollowUp, "settled"),
    // Nothing is asked of the gate any more.
    (At::Failed, "parked"),
];

fn print(found: &Found, visits: &BTreeMap<Pair, usize>) {
    println!(
        "records (rows) by what the session is doing (columns): a number says how often canned histories write it there,"
    );
    println!(
        "`!` that it is legal and none does, `-` that it is legal and no writer of ours writes it, `.` that it is refused\n"
    );
    print!("{:<12}", "");
    STATES.iter().for_each(|at| print!("{:>10}", format!("{at:?}")));
    println!();
    for kind in Body::KINDS {
        print!("{kind:<12}");
        for at in STATES {
            let pair = (at, *kind);
            let cell = match (visits.get(&pair), found.legal.contains(&pair)) {
                (Some(times), _) => times.to_string(),
                (None, true) if UNWRITTEN.contains(&pair) => "-".to_owned(),
                (None, true) => "!".to_owned(),
                (None, false) => ".".to_owned(),
            };
            print!("{cell:>10}");
        }
        println!();
    }
    println!("\nrefused, by");
    let mut by: BTreeMap<(&str, String), Vec<At>> = BTreeMap::new();
    for (pair @ (at, kind), invariants) in &found.refused {
        if !found.legal.contains(pair) {
            let names = invariants.keys().copied().collect::<Vec<_>>().join(", ");
            by.entry((*kind, names)).or_default().push(*at);
        }
    }
    for ((kind, names), at) in by {
        println!("{kind:<12}{names:<40}{at:?}");
    }
}

#[test]
fn every_legal_record_in_every_state_is_in_a_canned_history_and_the_table_says_where() {
    let histories = histories();
    let visits = visits(&histories);
    let mut found = Found::default();
    found.explore(&canned(), 100);
    print(&found, &visits);
    let (legal, all) = (found.legal.len(), STATES.len() * Body::KINDS.len());
    println!("\n{all} pairs: {legal} legal, {} of them visited; {} refused", visits.len(), all - legal);

    let met: BTreeSet<_> = visits.keys().map(|(at, _)| *at).chain([At::Moved]).collect();
    assert_eq!(met, STATES.into_iter().collect(), "a state that no history reaches");
    let written: BTreeSet<_> = visits.keys().map(|(_, kind)| *kind).collect();
    assert_eq!(written, Body::KINDS.iter().copied().collect(), "a kind that no history writes");
    for pair in Body::KINDS.iter().flat_map(|kind| STATES.map(|at| (at, *kind))) {
        assert!(found.legal.contains(&pair) || found.refused.contains_key(&pair), "{pair:?} was not tried");
    }
    for pair in UNWRITTEN {
        assert!(found.legal.contains(pair) && !visits.contains_key(pair), "{pair:?} is listed as legal and unwritten");
    }
    let unvisited = unvisited(&found.legal, &visits);
    assert_eq!(unvisited, [], "legal, and no canned history goes there");
}

#[test]
fn a_canned_history_folds_to_one_state_in_any_cut() {
    for (named, log) in canned() {
        let whole = SessionState::fold(&log.records);
        for cut in 0..=log.records.len() {
            let mut state = SessionState::fold(&log.records[..cut]);
            log.records[cut..].iter().for_each(|record| state.apply(record));
            assert_eq!(state, whole, "{named}, cut {cut}");
        }
    }
}

/// Whatever a canned history is cut behind, the next owner's table comes to an end, and a settle to rest, by legal records alone.
#[test]
fn inv8_any_canned_history_cut_behind_any_record_is_recovered_and_settled() {
    let mut cuts = 0;
    for (named, log) in canned() {
        for length in 1..=log.records.len() {
            let cut = log.cut(length).reopened();
            let open_turn = cut.state().open_turn;
            for taken in [false, true] {
                cuts += 1;
                let before = Survey {
                    resumable: true,
                    taken: open_turn.iter().filter(|_| taken).map(|turn| turn.message.clone()).collect(),
                    ..Survey::default()
                };
                let (mut log, mut survey, mut gate_open) = (cut.clone(), before.clone(), false);
                let ended = (0..50).any(|_| {
                    let today = Today { own_ids: true, gate_open, rerunnable: &|_| true, ours: &|_| true };
                    let decision = decide(&log.state(), &survey, today);
                    done(&log, &mut survey, &mut gate_open, decision)
                        .map(|bodies| bodies.into_iter().for_each(|body| log.push(body)))
                        .is_none()
                });
                assert!(ended, "{named}: cut behind record {length}, its recovery does not end");
                let (mut log, mut survey) = (cut.clone(), before);
                let rested = (0..50).any(|_| {
                    let decision = settle(&log.state(), &survey);
                    done(&log, &mut survey, &mut false, decision)
                        .map(|bodies| bodies.into_iter().for_each(|body| log.push(body)))
                        .is_none()
                });
                assert!(
                    rested && is_quiet(&log.state(), &survey),
                    "{named}: cut behind record {length}, its settle does not rest"
                );
            }
        }
    }
    println!("{cuts} cuts recovered and settled");
}

#[test]
fn a_history_that_is_missing_leaves_a_legal_pair_unvisited() {
    let mut found = Found::default();
    found.explore(&canned(), 0);
    let kept: Vec<_> =
        histories().into_iter().filter(|(named, _)| !named.starts_with("a late request ends behind")).collect();
    assert_eq!(unvisited(&found.legal, &visits(&kept)), [(At::Delivered, "parked")]);
}
