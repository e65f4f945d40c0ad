//! The kernel's own tables decide what this model's decide, in every state that it reaches, and its validator takes every log that the model
//! writes. So a verdict on the model is one on the code, as far as prompts go.
#![allow(clippy::unwrap_used, reason = "a failed test is a report")]

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use agentrun_kernel::{
    Body, Bound, Built, Digest, EffectKey, EffectKind, Epoch, FollowUpName, FollowUpNext, Intent, MessageId, Opened,
    Outcome, OutcomeEnd, Placed as PlacedBody, PlanDigests, Record as KernelRecord, Repair, Replay, RunId, Seq,
    SessionState, Settled, Source, Submission, SubmissionId, Survey, Today, TurnEndHow, TurnId, Withdrawn,
    follow_up_next, validate,
};
use serde_json::Value;
use stateright::Model;

use super::table::Decision;
use super::{ALL, Doing, From, Job, Native, Prompts, Record, Rules, State, Words};

fn name() -> FollowUpName {
    FollowUpName::new("why").unwrap()
}

fn key() -> EffectKey {
    EffectKey::of_follow_up(&name())
}

fn id(from: From) -> SubmissionId {
    match from {
        From::FollowUp => SubmissionId::of_follow_up(&key()),
        other => SubmissionId(format!("{other:?}")),
    }
}

fn ids(words: Words) -> Vec<SubmissionId> {
    words.each().map(id).collect()
}

fn words<'a>(of: impl IntoIterator<Item = &'a SubmissionId>) -> Words {
    let of: Vec<_> = of.into_iter().collect();
    Words::of(ALL.into_iter().filter(|from| of.contains(&&id(*from))))
}

fn message(number: u8) -> MessageId {
    MessageId(format!("message {number}"))
}

fn turn(number: u8) -> TurnId {
    TurnId(format!("turn {number}"))
}

fn bound() -> Body {
    let digest = || Digest::of(b"plan");
    let plan = PlanDigests {
        prompt: digest(),
        system: digest(),
        schema: digest(),
        tools: digest(),
        model: String::new(),
        label: String::new(),
        attempt: 1,
    };
    let binding = plan.binding();
    let run = RunId::new("run").unwrap();
    Body::Bound(Bound {
        format: 1,
        adapter: "model".to_owned(),
        binding,
        plan,
        run,
        parent: None,
        builtins: Built::Gated,
        host: Value::Null,
    })
}

fn opened() -> Body {
    Body::Opened(Opened { earlier: Vec::new(), version: String::new(), harness: None, native_session: None })
}

/// The model's log as the kernel would hold it, up to an open by the owner of now. What the harness's history says is in the survey.
fn records(state: &State) -> Vec<KernelRecord> {
    let mut bodies = vec![(1, bound())];
    let (mut epoch, mut open) = (1, 0);
    for (at, record) in state.log.iter().enumerate() {
        let body = match *record {
            Record::Native { .. } => continue,
            Record::Submission(from) => {
                let source = match from {
                    From::Node => Source::Node,
                    From::Person => Source::Person,
                    From::FollowUp => Source::FollowUp(key()),
                };
                Body::Submission(Submission::new(id(from), source, "words"))
            }
            Record::Withdrawn(from) => Body::Withdrawn(Withdrawn { ids: vec![id(from)], why: String::new() }),
            Record::Placed { message: number, carries, epoch: of } => {
                (epoch, open) = (of, number);
                let before = state.log.iter().take(at);
                let replaces = before.filter_map(|record| match record {
                    Record::Placed { message: number, carries: earlier, .. }
                        if earlier.each().any(|from| carries.has(from)) =>
                    {
                        Some(message(*number))
                    }
                    _ => None,
                });
                let replaces = replaces.collect();
                let (message, turn) = (message(number), turn(number));
                Body::Placed(PlacedBody { message, turn, carries: ids(carries), replaces, text: Arc::from("words") })
            }
            Record::TurnEnd => Body::TurnEnd { turn: turn(open), how: TurnEndHow::Done },
            Record::Settled { unsent } => Body::Settled(Settled { turn: Some(turn(open)), unsent: ids(unsent) }),
            Record::FollowUpIntent { epoch: of } => {
                epoch = of;
                Body::Intent(Intent {
                    key: key(),
                    effect: EffectKind::FollowUp,
                    replay: Replay::Never,
                    name: "why".to_owned(),
                    turn: None,
                    call: None,
                    arguments: Value::Null,
                    digest: Digest::of(b"words"),
                    hold: None,
                    quote: None,
                })
            }
            Record::FollowUpOutcome => Body::Outcome(Outcome::new(key(), OutcomeEnd::Interrupted, "ended")),
        };
        bodies.push((u64::from(epoch), body));
    }
    bodies.push((u64::from(state.epoch.max(1)), opened()));
    (1..)
        .zip(bodies)
        .map(|(seq, (epoch, body))| KernelRecord { seq: Seq(seq), epoch: Epoch(epoch), at: 0, body })
        .collect()
}

fn survey(state: &State) -> Survey {
    let taken: Vec<_> = (1..=state.messages).filter(|number| state.recorded(*number) >= Native::Took).collect();
    let ended = taken.last().is_some_and(|number| state.recorded(*number) == Native::Ended);
    let resumable = !taken.is_empty();
    Survey { taken: taken.into_iter().map(message).collect(), resumable, ended, ..Survey::default() }
}

/// The kernel's decision in this model's words; one that it has no word for is a disagreement.
fn translated(decision: agentrun_kernel::Decision, state: &State) -> Result<Decision, String> {
    use agentrun_kernel::Decision as Kernel;
    let number = |id: &MessageId| (1..=state.messages).find(|number| message(*number) == *id).unwrap();
    let newest = state.placed().last().map_or(0, |placed| placed.message);
    Ok(match decision {
        Kernel::SettleFollowUp { turn, submissions, unsent, .. } => {
            let mut batch: Vec<_> = state.follow_up_open().then_some(Record::FollowUpOutcome).into_iter().collect();
            batch.extend(words(&submissions).each().map(Record::Withdrawn));
            batch.extend(turn.map(|_| Record::Settled { unsent: words(&unsent) }));
            Decision::Write(batch)
        }
        Kernel::EndTurn { how: TurnEndHow::Done, .. } => Decision::Write(vec![Record::TurnEnd]),
        Kernel::CarryOn { unsent, .. } => {
            // A settle also names what was never placed: it waits with or without that.
            let placed = |from: &From| state.placed().any(|placed| placed.carries.has(*from));
            let unsent = Words::of(words(&unsent).each().filter(placed));
            Decision::Write(vec![Record::Settled { unsent }])
        }
        Kernel::Repair(repairs) if repairs == [Repair::EndTurn] => Decision::EndInHistory(newest),
        Kernel::Continue(placed) => Decision::Continue(number(&placed.message)),
        Kernel::PlaceAgain(placed) => Decision::PlaceAgain(number(&placed.message)),
        Kernel::Place(carry) => Decision::Place(words(carry.unsent.iter().chain(&carry.fresh))),
        Kernel::Idle => Decision::Idle,
        other => return Err(format!("the kernel decides {other:?}")),
    })
}

/// Whether the kernel was asked and says the same; `Err` says where it does not.
fn agrees(model: &Prompts, state: &State) -> Result<bool, String> {
    let at = |what: String| format!("{what}\n{:?} on {:#?}", state.job, state.log);
    let kernel: SessionState = validate(&records(state)).map_err(|illegal| at(illegal.to_string()))?;
    let survey = survey(state);
    if state.doing == Doing::Down {
        let quiet = state.begun().is_none() && state.open_turn().is_none();
        let begins = follow_up_next(&kernel, &name()) == FollowUpNext::Begin;
        if begins != (quiet && state.answered()) {
            return Err(at(format!("the kernel says {begins} of a new follow-up")));
        }
    }
    // A follow-up that is begun places its prompt next, and asks no table.
    let begun = state.job == Job::FollowUp && state.follow_up_open() && state.begun() == Some(state.epoch);
    if state.doing != Doing::Deciding || begun {
        return Ok(false);
    }
    let (ours, theirs) = match state.job {
        Job::Run => {
            let today = Today { own_ids: model.own_ids, gate_open: true, rerunnable: &|_| true, ours: &|_| true };
            (model.decide(state), agentrun_kernel::decide(&kernel, &survey, today))
        }
        Job::Settle | Job::FollowUp => (model.settle(state), agentrun_kernel::settle(&kernel, &survey)),
    };
    let theirs = translated(theirs, state).map_err(at)?;
    if theirs == ours { Ok(true) } else { Err(at(format!("the kernel decides {theirs:?}, the model {ours:?}"))) }
}

/// How many states of the model's whole space the kernel was asked in.
fn asked(model: &Prompts) -> Result<usize, String> {
    let mut known: HashSet<State> = model.init_states().into_iter().collect();
    let mut queue: VecDeque<State> = known.iter().cloned().collect();
    let (mut asked, mut actions) = (0, Vec::new());
    while let Some(state) = queue.pop_front() {
        asked += usize::from(agrees(model, &state)?);
        model.actions(&state, &mut actions);
        for action in actions.drain(..) {
            if let Some(next) = model.next_state(&state, action)
                && known.insert(next.clone())
            {
                queue.push_back(next);
            }
        }
    }
    Ok(asked)
}

fn small(rules: Rules) -> Prompts {
    Prompts { rules, own_ids: false, kills: 1, settles: 1, asks: 1 }
}

#[test]
fn the_kernels_tables_decide_what_the_model_decides() {
    for own_ids in [false, true] {
        let asked = asked(&Prompts { own_ids, ..small(Rules::whole()) }).unwrap();
        assert!(asked > 1_000, "asked in {asked} states only");
    }
}

#[test]
fn the_kernels_tables_are_no_table_that_lacks_a_rule() {
    let whole = Rules::whole();
    let variants = [
        Rules { taken_by_history: false, ..whole },
        Rules { taken_is_transitive: false, ..whole },
        Rules { unsent_is_carried: false, ..whole },
        Rules { follow_up_row_first: false, ..whole },
        Rules { settled_in_one_batch: false, ..whole },
        Rules { withdraws_its_own: false, ..whole },
        Rules { at_rest: false, ..whole },
    ];
    for rules in variants {
        assert!(asked(&small(rules)).is_err(), "the kernel agrees with {rules:?}");
    }
}
