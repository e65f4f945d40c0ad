//! Bodies of every kind, drawn at random.

use std::sync::Arc;

use agentrun_kernel::{
    Ask, AskAnswer, Body, Bound, Built, CallId, Candidate, Checkpoint, Delivered, Digest, EffectKey, EffectKind, Epoch,
    Failed, HarnessVersion, HoldId, InboxBody, Intent, LedgerBody, MessageId, NativeWrite, Opened, Outcome, OutcomeEnd,
    Parked, Placed, PlanDigests, Replay, RunId, Seq, SessionKey, Settled, Source, Submission, SubmissionId,
    TotalsKnown, TotalsPayer, TurnEndHow, TurnId, Usage, Usd, Verdict, Withdrawn,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof![Just(String::new()), "[a-z]{1,8}", any::<String>()]
}

fn blob() -> impl Strategy<Value = Arc<[u8]>> {
    vec(any::<u8>(), 0..80).prop_map(Arc::from)
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 4]>().prop_map(|bytes| Digest::of(&bytes))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // JSON has no other numbers.
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = SessionKey> {
    "[!-~]{1,40}".prop_map(|name| SessionKey::new(name).unwrap())
}

fn run() -> impl Strategy<Value = RunId> {
    "[!-~é]{1,40}".prop_map(|name| RunId::new(name).unwrap())
}

fn usd() -> impl Strategy<Value = Usd> {
    any::<i64>().prop_map(Usd::from_pico)
}

fn usage() -> impl Strategy<Value = Usage> {
    (any::<[u64; 6]>(), of(text())).prop_map(
        |([input, cache_read, cache_write_5m, cache_write_1h, output, web_searches], tier)| Usage {
            input,
            cache_read,
            cache_write_5m,
            cache_write_1h,
            output,
            web_searches,
            tier,
            ..Usage::default()
        },
    )
}

fn ids<T: std::fmt::Debug>(of: impl Fn(String) -> T + Clone + 'static) -> impl Strategy<Value = Vec<T>> {
    vec(text().prop_map(of), 0..4)
}

fn submission() -> impl Strategy<Value = Submission> {
    let source = prop_oneof![
        select(vec![Source::Node, Source::Nudge, Source::Person, Source::Recovery]),
        text().prop_map(|key| Source::FollowUp(EffectKey(key))),
    ];
    (text(), source, text()).prop_map(|(id, source, text)| Submission::new(SubmissionId(id), source, text))
}

fn plan() -> impl Strategy<Value = PlanDigests> {
    ([digest(), digest(), digest(), digest()], text(), text(), any::<u32>()).prop_map(
        |([prompt, system, schema, tools], model, label, attempt)| PlanDigests {
            prompt,
            system,
            schema,
            tools,
            model,
            label,
            attempt,
        },
    )
}

fn bound() -> impl Strategy<Value = Body> {
    let builtins = select(vec![Built::Gated, Built::Observed, Built::Neither]);
    (any::<u32>(), text(), plan(), run(), of(key()), builtins, value()).prop_map(
        |(format, adapter, plan, run, parent, builtins, host)| {
            Body::Bound(Bound { format, adapter, binding: plan.binding(), plan, run, parent, builtins, host })
        },
    )
}

fn intent() -> impl Strategy<Value = Body> {
    let kind = select(vec![
        EffectKind::Tool,
        EffectKind::Submit,
        EffectKind::Builtin,
        EffectKind::Request,
        EffectKind::Decision,
        EffectKind::FollowUp,
    ]);
    let replay = select(vec![Replay::Safe, Replay::Never]);
    let paid = of((text().prop_map(HoldId), usd()));
    (text(), kind, replay, text(), of(text()), of(text()), value(), paid).prop_map(
        |(key, effect, replay, name, turn, call, arguments, paid)| {
            let (hold, quote) = paid.unzip();
            let (turn, call) = (turn.map(TurnId), call.map(CallId));
            let digest = Digest::of_json(&arguments);
            Body::Intent(Intent {
                key: EffectKey(key),
                effect,
                replay,
                name,
                turn,
                call,
                arguments,
                digest,
                hold,
                quote,
            })
        },
    )
}

fn outcome() -> impl Strategy<Value = Body> {
    let end = select(vec![OutcomeEnd::Ok, OutcomeEnd::Error, OutcomeEnd::Interrupted, OutcomeEnd::Refused]);
    (text(), end, text(), of(usage()), of(usd()), of(text()), blob()).prop_map(
        |(key, end, text, usage, cost, response_id, response)| {
            let outcome = Outcome::new(EffectKey(key), end, text);
            Body::Outcome(Outcome { usage, cost, response_id, response, ..outcome })
        },
    )
}

pub(crate) fn session() -> impl Strategy<Value = Body> {
    let how = select(vec![TurnEndHow::Done, TurnEndHow::Interrupted, TurnEndHow::Failed]);
    let version = (text(), text()).prop_map(|(name, version)| HarnessVersion { name, version });
    prop_oneof![
        bound(),
        (vec(key(), 0..3), text(), of(version), of(text())).prop_map(|(earlier, version, harness, native_session)| {
            Body::Opened(Opened { earlier, version, harness, native_session })
        }),
        submission().prop_map(Body::Submission),
        (ids(SubmissionId), text()).prop_map(|(ids, why)| Body::Withdrawn(Withdrawn { ids, why })),
        (text(), text(), ids(SubmissionId), ids(MessageId), text()).prop_map(
            |(message, turn, carries, replaces, text)| {
                Body::Placed(Placed {
                    message: MessageId(message),
                    turn: TurnId(turn),
                    carries,
                    replaces,
                    text: text.into(),
                })
            }
        ),
        (text(), how).prop_map(|(turn, how)| Body::TurnEnd { turn: TurnId(turn), how }),
        intent(),
        outcome(),
        (text(), any::<u64>(), blob()).prop_map(|(stream, offset, bytes)| Body::Native(NativeWrite {
            stream,
            offset,
            bytes
        })),
        (any::<u32>(), text(), digest(), value()).prop_map(|(number, key, digest, submitted)| {
            Body::Candidate(Candidate { number, key: EffectKey(key), digest, submitted })
        }),
        (any::<u32>(), any::<bool>(), text()).prop_map(|(number, accepted, message)| Body::Verdict(Verdict {
            number,
            accepted,
            message
        })),
        value().prop_map(|value| Body::Delivered(Delivered { value })),
        (text(), usd(), usd(), usd(), any::<u64>()).prop_map(|(word, needed, cap, spent, ledger)| {
            Body::Parked(Parked { word, needed, cap, spent, ledger: Seq(ledger) })
        }),
        (text(), text()).prop_map(|(word, message)| Body::Failed(Failed { word, message })),
        (of(text()), ids(SubmissionId))
            .prop_map(|(turn, unsent)| Body::Settled(Settled { turn: turn.map(TurnId), unsent })),
        (text(), text(), vec(text(), 0..3)).prop_map(|(id, what, choices)| Body::Ask(Ask { id, what, choices })),
        (text(), text(), text()).prop_map(|(id, answer, by)| Body::Answer(AskAnswer { id, answer, by })),
        (any::<u64>(), text(), text(), digest()).prop_map(|(of, image, reference, digest)| {
            Body::Checkpoint(Checkpoint { of: Seq(of), image, reference, digest })
        }),
        (text(), value()).prop_map(|(name, value)| Body::Data { name, value }),
        text().prop_map(|to| Body::Moved { to }),
    ]
}

fn known() -> impl Strategy<Value = TotalsKnown> {
    let payer = (key(), any::<u64>(), text()).prop_map(|(session, epoch, what)| TotalsPayer {
        session,
        epoch: Epoch(epoch),
        what,
    });
    (usd(), vec(payer, 0..3), vec((text(), usd()), 0..3)).prop_map(|(above_quote, payers, raises)| TotalsKnown {
        above_quote,
        payers,
        raises,
        decisions: Vec::new(),
    })
}

pub(crate) fn ledger() -> impl Strategy<Value = LedgerBody> {
    let hold = || text().prop_map(HoldId);
    prop_oneof![
        of(usd()).prop_map(|cap| LedgerBody::Cap { cap }),
        (hold(), key(), any::<u64>(), text(), usd(), text()).prop_map(|(id, session, epoch, what, quote, catalog)| {
            LedgerBody::Hold { id, session, epoch: Epoch(epoch), what, quote, catalog }
        }),
        (hold(), of(usage()), of(text()), text(), usd()).prop_map(|(hold, usage, model, catalog, amount)| {
            LedgerBody::Booking { hold, usage, model, catalog, amount }
        }),
        (hold(), text()).prop_map(|(hold, proof)| LedgerBody::Release { hold, proof }),
        (hold(), text()).prop_map(|(hold, why)| LedgerBody::Unknown { hold, why }),
        (text(), key(), usd()).prop_map(|(id, session, amount)| LedgerBody::Decision { id, session, amount }),
        (text(), usd()).prop_map(|(id, cap)| LedgerBody::Raise { id, cap }),
        (of(usd()), [usd(), usd()], any::<u64>(), vec((hold(), usd()), 0..4), known()).prop_map(
            |(cap, [booked, unknown], unknown_count, open, known)| LedgerBody::Totals {
                cap,
                booked,
                unknown,
                unknown_count,
                open,
                known,
            },
        ),
    ]
}

pub(crate) fn inbox() -> impl Strategy<Value = InboxBody> {
    prop_oneof![
        submission().prop_map(|submission| InboxBody::Post { submission }),
        text().prop_map(|id| InboxBody::Retract { id: SubmissionId(id) }),
        text().prop_map(|id| InboxBody::Taken { ids: vec![SubmissionId(id)] }),
    ]
}
