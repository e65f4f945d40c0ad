//! A session leaves one store and arrives in another (f22): what a file is, who may land where, and what becomes of what was open.

use std::io::Cursor;
use std::sync::Arc;

use agentrun_kernel::*;
use serde_json::json;

use crate::suite::{data, key, ledger, numbers, session};

/// Each test on each backend, as source and as target.
macro_rules! transfers {
    ($($name:ident)*) => {
        transfers! { on memory: on_memory $($name)* }
        transfers! { on sqlite: on_sqlite $($name)* }
        transfers! { on sled: on_sled $($name)* }
    };
    (on $backend:ident: $module:ident $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let ((_from, from), (_to, to)) = (crate::backends::$backend(), crate::backends::$backend());
                    super::$name(from.store, to.store, to.reopen).await;
                }
            )*
        }
    };
}

transfers! {
    f22_a_sealed_session_goes_on_elsewhere_under_its_key_one_epoch_up
    f22_a_seal_fences_the_owner_and_closes_session_and_inbox
    f22_an_unsealed_export_does_not_land_under_its_own_key
    f22_a_copy_lands_under_another_key_with_what_was_open_interrupted
    f22_a_moved_session_keeps_what_is_open_for_its_next_owner
    f22_no_session_lands_twice_or_where_its_key_was_used
    f22_a_removed_session_does_not_come_back
    f22_an_inbox_moves_with_its_session
    f22_a_move_widens_no_cap
    f22_a_move_counts_in_a_ledger_that_is_there
    f01_imports_and_other_sessions_share_a_ledger_and_none_is_lost
    f04_an_attempt_does_not_land_without_the_earlier_ones
    an_export_fences_nobody_and_ends_at_what_is_durable
    an_export_of_nothing_and_a_seal_of_nothing_are_refused_and_make_nothing
    a_sealed_session_is_sealed_once_and_exported_at_any_time
    a_broken_session_is_not_sealed
    a_landed_session_is_whole_in_every_list_and_for_every_reader
    a_long_session_with_any_bytes_lands_as_it_was
}

type Reopen = Box<dyn Fn() -> Store + Send + Sync>;

fn bound(run: &str) -> Body {
    let digest = Digest::of(b"");
    let plan = PlanDigests {
        prompt: digest.clone(),
        system: digest.clone(),
        schema: digest.clone(),
        tools: digest,
        model: "m".to_owned(),
        label: "l".to_owned(),
        attempt: 1,
    };
    Body::Bound(Bound {
        format: 1,
        adapter: "faux".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::new(run).unwrap(),
        parent: None,
        builtins: Built::Neither,
        host: json!(null),
    })
}

fn opened(earlier: &[&str]) -> Body {
    let earlier = earlier.iter().map(|name| key(name)).collect();
    Body::Opened(Opened { earlier, version: "0".to_owned(), harness: None, native_session: None })
}

fn intent(name: &str, effect: EffectKind, replay: Replay, quote: Option<&str>) -> Body {
    let arguments = json!({ "of": name });
    Body::Intent(Intent {
        key: EffectKey(name.to_owned()),
        effect,
        replay,
        name: "tool".to_owned(),
        turn: None,
        call: Some(CallId(name.to_owned())),
        digest: Digest::of_json(&arguments),
        arguments,
        hold: quote.map(|_| HoldId(format!("hold-{name}"))),
        quote: quote.map(usd),
    })
}

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

pub(crate) fn post(words: &str) -> SharedBatch {
    let submission = Submission::new(SubmissionId(words.to_owned()), Source::Person, words);
    SharedBatch::Inbox(vec![InboxBody::Post { submission }])
}

/// A session of run `r` with these records behind the first two.
pub(crate) async fn begun(store: &Store, name: &str, bodies: impl IntoIterator<Item = Body>) -> SessionWriter {
    let mut writer = store.open(&key(name), None).await.unwrap();
    writer.append(Batch::of([bound("r"), opened(&[])]), None).await.unwrap();
    for body in bodies {
        writer.append(Batch::of([body]), None).await.unwrap();
    }
    writer
}

async fn exported(store: &Store, name: &str) -> Vec<u8> {
    let mut file = Vec::new();
    export(store.as_ref(), &key(name), &mut file).await.unwrap();
    file
}

pub(crate) async fn sealed(store: &Store, name: &str) -> Vec<u8> {
    assert!(seal(store.as_ref(), &key(name), "there").await.unwrap().now);
    exported(store, name).await
}

pub(crate) fn read(file: &[u8]) -> Import {
    Import::read(Cursor::new(file)).unwrap()
}

pub(crate) async fn books(store: &Store) -> Vec<LedgerBody> {
    let records = read_all::<LedgerBody>(store.as_ref(), &ledger("r").into()).await.unwrap();
    records.into_iter().map(|record| record.body).collect()
}

async fn frames(store: &Store, log: &LogKey) -> Vec<Frame> {
    store.read(log, Seq(1), 10_000).await.unwrap().frames
}

async fn f22_a_sealed_session_goes_on_elsewhere_under_its_key_one_epoch_up(from: Store, to: Store, reopen: Reopen) {
    drop(begun(&from, "a", [data(1)]).await);
    drop(begun_again(&from, "a", data(2)).await);
    let before = frames(&from, &(&key("a")).into()).await;
    let file = sealed(&from, "a").await;
    let import = read(&file);
    assert_eq!((import.key(), import.sealed()), (&key("a"), Some("there")));
    let landed = import.land(to.as_ref(), None).await.unwrap();
    assert!(landed.moved);
    // Two owners, then the seal's, then this one.
    assert_eq!((landed.epoch, landed.records, landed.interrupted), (Epoch(4), 6, 0));
    let here = frames(&to, &(&key("a")).into()).await;
    assert_eq!(here[..5], before[..], "byte for byte what it was, but for the seal");
    let records = session(&to, "a").await;
    let state = validate(&records).unwrap();
    assert_eq!((state.moved, state.epoch), (None, Epoch(4)));
    let Body::Data { name, value } = &records[5].body else { panic!("{records:?}") };
    assert_eq!((name.as_str(), &value["key"], &value["sealed"]), (IMPORTED, &json!("a"), &json!("there")));
    let mut writer = reopen().open(&key("a"), Some(Seq(6))).await.unwrap();
    assert_eq!(writer.epoch(), Epoch(5));
    writer.append(Batch::of([data(3)]), None).await.unwrap();
    assert_eq!(numbers(&to, "a").await, [1, 2, 3]);
}

/// Another owner takes it and writes.
async fn begun_again(store: &Store, name: &str, body: Body) -> SessionWriter {
    let mut writer = store.open(&key(name), None).await.unwrap();
    writer.append(Batch::of([opened(&[]), body]), None).await.unwrap();
    writer
}

async fn f22_a_seal_fences_the_owner_and_closes_session_and_inbox(from: Store, _to: Store, _: Reopen) {
    let mut owner = begun(&from, "a", [data(1)]).await;
    seal(from.as_ref(), &key("a"), "there").await.unwrap();
    let refused = owner.append(Batch::of([data(2)]), None).await;
    assert!(matches!(refused, Err(AppendError::Fenced { newer: Epoch(2) })), "{refused:?}");
    let refused = from.open(&key("a"), None).await;
    assert!(matches!(&refused, Err(OpenError::Moved { to, .. }) if to == "there"), "{refused:?}");
    let refused = from.append_at(&SharedLog::Inbox(key("a")), Seq(0), post("late")).await;
    assert!(matches!(refused, Err(AppendError::Refused(Refused::Ended(End::Moved)))), "{refused:?}");
    assert_eq!(numbers(&from, "a").await, [1]);
}

async fn f22_an_unsealed_export_does_not_land_under_its_own_key(from: Store, to: Store, _: Reopen) {
    let _lives = begun(&from, "a", [data(1)]).await;
    let import = read(&exported(&from, "a").await);
    assert_eq!(import.sealed(), None);
    for under in [None, Some(&key("a"))] {
        let refused = import.land(to.as_ref(), under).await;
        assert!(matches!(&refused, Err(LandError::Unsealed { key: of }) if *of == key("a")), "{refused:?}");
    }
    assert!(to.heads(None, 5).await.unwrap().is_empty());
    assert!(books(&to).await.is_empty());
}

async fn f22_a_copy_lands_under_another_key_with_what_was_open_interrupted(from: Store, to: Store, _: Reopen) {
    let submitted = Candidate {
        number: 1,
        key: EffectKey("submit".to_owned()),
        digest: Digest::of(b""),
        submitted: json!({"value": 1}),
    };
    let mut original = begun(
        &from,
        "a",
        [
            data(1),
            intent("safe", EffectKind::Tool, Replay::Safe, None),
            intent("never", EffectKind::Tool, Replay::Never, None),
            intent("request", EffectKind::Request, Replay::Never, Some("0.5")),
            intent("submit", EffectKind::Submit, Replay::Safe, None),
            Body::Candidate(submitted),
        ],
    )
    .await;
    from.append_at(&SharedLog::Inbox(key("a")), Seq(0), post("words")).await.unwrap();
    let file = exported(&from, "a").await;
    let landed = read(&file).land(to.as_ref(), Some(&key("b"))).await.unwrap();
    assert!(!landed.moved);
    assert_eq!((landed.key, landed.from, landed.interrupted, landed.epoch), (key("b"), key("a"), 4, Epoch(2)));
    let state = validate(&session(&to, "b").await).unwrap();
    assert_eq!(state.open_effects().count(), 0);
    assert!(state.effects().all(Effect::interrupted), "none ran as far as the copy knows");
    assert!(state.undecided().is_none(), "the value is reviewed where it was submitted");
    assert_eq!(state.spent.unknown, usd("0.5"), "what the cut request may have cost counts in full");
    assert!(session(&to, "a").await.is_empty(), "its own key is free here");
    let posts = read_all::<InboxBody>(to.as_ref(), &SharedLog::Inbox(key("b")).into()).await.unwrap();
    assert_eq!(posts.len(), 1, "no word of a person is lost");
    // A copy of the same in the store it came from, beside the one that lives on.
    read(&file).land(from.as_ref(), Some(&key("b"))).await.unwrap();
    original.append(Batch::of([data(2)]), None).await.unwrap();
    assert_eq!(numbers(&from, "a").await, [1, 2]);
    assert_eq!(numbers(&from, "b").await, [1]);
    // A sealed one may be copied too: the seal is not part of the copy.
    let landed = read(&sealed(&from, "a").await).land(to.as_ref(), Some(&key("c"))).await.unwrap();
    assert!(!landed.moved);
    assert!(to.open(&key("c"), None).await.is_ok());
}

async fn f22_a_moved_session_keeps_what_is_open_for_its_next_owner(from: Store, to: Store, _: Reopen) {
    let submission = Submission::new(SubmissionId("node".to_owned()), Source::Node, "words");
    let placed = Placed {
        message: MessageId("m".to_owned()),
        turn: TurnId("t".to_owned()),
        carries: vec![submission.id.clone()],
        replaces: Vec::new(),
        text: Arc::from("words"),
    };
    let of_turn = |name, replay| match intent(name, EffectKind::Tool, replay, None) {
        Body::Intent(intent) => Body::Intent(Intent { turn: Some(TurnId("t".to_owned())), ..intent }),
        other => other,
    };
    let open = [of_turn("safe", Replay::Safe), of_turn("never", Replay::Never)];
    drop(begun(&from, "a", [Body::Submission(submission), Body::Placed(placed)].into_iter().chain(open)).await);
    let file = sealed(&from, "a").await;
    read(&file).land(to.as_ref(), None).await.unwrap();
    let state = validate(&session(&to, "a").await).unwrap();
    let open: Vec<_> =
        state.open_effects().map(|effect| (effect.intent.key.as_str().to_owned(), effect.opens)).collect();
    assert_eq!(open, [("safe".to_owned(), 0), ("never".to_owned(), 0)], "a move is no attempt at them");
    let never = |_: &EffectKey| true;
    let today = Today { own_ids: true, gate_open: false, rerunnable: &never, ours: &|_| true };
    let decided = decide(&state, &Survey::default(), today);
    assert_eq!(decided, Decision::RunAgain(EffectKey("safe".to_owned())));
}

async fn f22_no_session_lands_twice_or_where_its_key_was_used(from: Store, to: Store, reopen: Reopen) {
    drop(begun(&from, "a", [data(1)]).await);
    let file = sealed(&from, "a").await;
    let import = read(&file);
    let taken = |refused: Result<Landed, LandError>, wanted: Option<End>| {
        let told = matches!(&refused, Err(LandError::Refused(ImportError::Taken { end, .. })) if *end == wanted);
        assert!(told, "{refused:?}");
    };
    import.land(to.as_ref(), None).await.unwrap();
    let before = (frames(&to, &(&key("a")).into()).await, books(&to).await);
    for store in [&to, &reopen()] {
        taken(import.land(store.as_ref(), None).await, None);
        taken(import.land(store.as_ref(), Some(&key("a"))).await, None);
    }
    assert_eq!((frames(&to, &(&key("a")).into()).await, books(&to).await), before, "and nothing was added");
    // Nor where it came from: nobody can say whether it landed elsewhere meanwhile.
    taken(import.land(from.as_ref(), None).await, Some(End::Moved));
    // A key that somebody only opened is taken too, and one that somebody posted to.
    drop(to.open(&key("opened"), None).await.unwrap());
    taken(import.land(to.as_ref(), Some(&key("opened"))).await, None);
    to.append_at(&SharedLog::Inbox(key("posted")), Seq(0), post("x")).await.unwrap();
    taken(import.land(to.as_ref(), Some(&key("posted"))).await, None);
}

async fn f22_a_removed_session_does_not_come_back(from: Store, to: Store, _: Reopen) {
    drop(begun(&from, "a", [data(1)]).await);
    let import = read(&sealed(&from, "a").await);
    let tombstone = from.remove(&key("a"), None).await.unwrap();
    assert_eq!(tombstone.end, *import.end(), "the tombstone tells that this file is of what was removed");
    let refused = import.land(from.as_ref(), None).await;
    assert!(
        matches!(&refused, Err(LandError::Refused(ImportError::Taken { end: Some(End::Removed), .. }))),
        "{refused:?}"
    );
    let refused = seal(from.as_ref(), &key("a"), "there").await;
    assert!(matches!(refused, Err(SealError::Removed { .. })), "{refused:?}");
    let refused = export(from.as_ref(), &key("a"), &mut Vec::new()).await;
    assert!(matches!(refused, Err(ExportError::Unknown { .. })), "{refused:?}");
    import.land(to.as_ref(), None).await.unwrap();
}

async fn f22_an_inbox_moves_with_its_session(from: Store, to: Store, _: Reopen) {
    drop(begun(&from, "a", []).await);
    let inbox = SharedLog::Inbox(key("a"));
    from.append_at(&inbox, Seq(0), post("one")).await.unwrap();
    from.append_at(&inbox, Seq(1), SharedBatch::Inbox(vec![InboxBody::Retract { id: SubmissionId("one".to_owned()) }]))
        .await
        .unwrap();
    let before = frames(&from, &inbox.clone().into()).await;
    let landed = read(&sealed(&from, "a").await).land(to.as_ref(), None).await.unwrap();
    assert_eq!(landed.inbox, 2);
    assert_eq!(frames(&to, &inbox.clone().into()).await, before);
    assert_eq!(to.append_at(&inbox, Seq(2), post("two")).await.unwrap(), Seq(3), "people go on from there");
}

/// The session has booked 0.25, holds 0.5, and its run has a cap of 5 that was 3.
async fn spending(store: &Store) {
    let mut writer = begun(store, "a", []).await;
    let cap = LedgerBody::Cap { cap: Some(usd("3")) };
    store.append_at(&ledger("r"), Seq(0), SharedBatch::Ledger(vec![cap])).await.unwrap();
    let raise = LedgerBody::Raise { id: "up".to_owned(), cap: usd("5") };
    store.append_at(&ledger("r"), Seq(1), SharedBatch::Ledger(vec![raise])).await.unwrap();
    let paid = |name: &str, quote| intent(name, EffectKind::Request, Replay::Never, Some(quote));
    let mut done = Outcome::new(EffectKey("one".to_owned()), OutcomeEnd::Ok, "");
    done.cost = Some(usd("0.25"));
    writer.append(Batch::of([paid("one", "0.4"), Body::Outcome(done), paid("two", "0.5")]), None).await.unwrap();
}

async fn f22_a_move_widens_no_cap(from: Store, to: Store, _: Reopen) {
    spending(&from).await;
    let before = frames(&from, &ledger("r").into()).await;
    let file = sealed(&from, "a").await;
    let top: serde_json::Value = serde_json::from_slice(file.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(top["cap"], "5", "the file says what it was");
    let landed = read(&file).land(to.as_ref(), None).await.unwrap();
    // As much cap as was counted: what it may spend here a person says, by a raise.
    let share = [
        LedgerBody::Cap { cap: Some(usd("0.75")) },
        LedgerBody::Decision { id: "import:a:3".to_owned(), session: key("a"), amount: usd("0.75") },
    ];
    assert_eq!(books(&to).await, share);
    assert_eq!((landed.cap, landed.run), (Some(usd("0.75")), Some(RunId::new("r").unwrap())));
    assert_eq!(frames(&from, &ledger("r").into()).await, before, "and there it keeps counting");
}

async fn f22_a_move_counts_in_a_ledger_that_is_there(from: Store, to: Store, _: Reopen) {
    spending(&from).await;
    let cap = LedgerBody::Cap { cap: Some(usd("1")) };
    to.append_at(&ledger("r"), Seq(0), SharedBatch::Ledger(vec![cap.clone()])).await.unwrap();
    let copied = read(&exported(&from, "a").await).land(to.as_ref(), Some(&key("copy"))).await.unwrap();
    assert_eq!((books(&to).await, copied.cap), (vec![cap.clone()], None), "what the original spent is counted once");
    let landed = read(&sealed(&from, "a").await).land(to.as_ref(), None).await.unwrap();
    let share = LedgerBody::Decision { id: "import:a:3".to_owned(), session: key("a"), amount: usd("0.75") };
    assert_eq!((books(&to).await, landed.cap), (vec![cap, share], None));
}

async fn f01_imports_and_other_sessions_share_a_ledger_and_none_is_lost(from: Store, to: Store, reopen: Reopen) {
    to.append_at(&ledger("r"), Seq(0), SharedBatch::Ledger(vec![LedgerBody::Cap { cap: None }])).await.unwrap();
    let other = reopen();
    let busy = tokio::spawn(async move {
        let mut at = Seq(1);
        for n in 0..100 {
            let raise = SharedBatch::Ledger(vec![LedgerBody::Raise { id: format!("{n}"), cap: Usd::default() }]);
            loop {
                match other.append_at(&ledger("r"), at, raise.clone()).await {
                    Ok(seq) => break at = seq,
                    Err(AppendError::Conflict { found, .. }) => at = found,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    let mut landing = Vec::new();
    for n in 0..8 {
        let name = format!("s-{n}");
        drop(begun(&from, &name, [intent("paid", EffectKind::Request, Replay::Never, Some("0.5"))]).await);
        let (import, to) = (read(&sealed(&from, &name).await), Arc::clone(&to));
        landing.push(async move { import.land(to.as_ref(), None).await });
    }
    // All at once: all but one of those that saw one place of the ledger must look again.
    let landing: Vec<_> = landing.into_iter().map(tokio::spawn).collect();
    for landed in landing {
        landed.await.unwrap().unwrap();
    }
    busy.await.unwrap();
    let books = books(&to).await;
    let mut shares: Vec<_> = books
        .iter()
        .filter_map(|body| match body {
            LedgerBody::Decision { session, amount, .. } => Some((session.as_str(), *amount)),
            _ => None,
        })
        .collect();
    shares.sort();
    let due: Vec<_> = (0..8).map(|n| format!("s-{n}")).collect();
    assert_eq!(shares, due.iter().map(|name| (name.as_str(), usd("0.5"))).collect::<Vec<_>>(), "each once");
    assert_eq!(books.len(), 1 + 100 + 8, "and no raise is lost");
}

async fn f04_an_attempt_does_not_land_without_the_earlier_ones(from: Store, to: Store, _: Reopen) {
    drop(begun(&from, "first", [intent("never", EffectKind::Tool, Replay::Never, None)]).await);
    let mut second = from.open(&key("second"), None).await.unwrap();
    // One of them ended before its first record: there is nothing of it to bring.
    second.append(Batch::of([bound("r"), opened(&["never-began", "first"])]), None).await.unwrap();
    let (first, second) = (read(&sealed(&from, "first").await), read(&sealed(&from, "second").await));
    let refused = second.land(to.as_ref(), None).await;
    assert!(matches!(&refused, Err(LandError::Earlier { earlier, .. }) if *earlier == key("first")), "{refused:?}");
    assert!(to.heads(None, 5).await.unwrap().is_empty());
    first.land(to.as_ref(), None).await.unwrap();
    second.land(to.as_ref(), None).await.unwrap();
}

async fn an_export_fences_nobody_and_ends_at_what_is_durable(from: Store, to: Store, _: Reopen) {
    let mut owner = begun(&from, "a", [data(1)]).await;
    owner.append(crate::suite::buffered(data(2)), None).await.unwrap();
    let file = exported(&from, "a").await;
    owner.append(Batch::of([data(3)]), None).await.unwrap();
    assert_eq!(numbers(&from, "a").await, [1, 2, 3], "its owner goes on");
    read(&file).land(to.as_ref(), Some(&key("b"))).await.unwrap();
    assert_eq!(numbers(&to, "b").await, [1]);
    // One that writes without pause: what is in a file is a log that was there at one time.
    let writing = tokio::spawn(async move {
        for n in 4..400 {
            owner.append(Batch::of([data(n)]), None).await.unwrap();
        }
    });
    let mut places = Vec::new();
    while !writing.is_finished() {
        places.push(read(&exported(&from, "a").await).state().head.0);
    }
    writing.await.unwrap();
    assert!(places.is_sorted() && places.len() > 1, "{places:?}");
}

async fn an_export_of_nothing_and_a_seal_of_nothing_are_refused_and_make_nothing(from: Store, _to: Store, _: Reopen) {
    let mut file = Vec::new();
    let refused = export(from.as_ref(), &key("nobody"), &mut file).await;
    assert!(matches!(refused, Err(ExportError::Unknown { .. })), "{refused:?}");
    assert!(file.is_empty());
    let refused = seal(from.as_ref(), &key("nobody"), "there").await;
    assert!(matches!(refused, Err(SealError::Unknown { .. })), "{refused:?}");
    assert!(from.heads(None, 5).await.unwrap().is_empty());
    let mut owner = from.open(&key("empty"), None).await.unwrap();
    let refused = seal(from.as_ref(), &key("empty"), "there").await;
    assert!(matches!(refused, Err(SealError::Unknown { .. })), "{refused:?}");
    owner.append(Batch::of([data(1)]), None).await.unwrap();
}

async fn a_sealed_session_is_sealed_once_and_exported_at_any_time(from: Store, _to: Store, _: Reopen) {
    drop(begun(&from, "a", [data(1)]).await);
    let first = sealed(&from, "a").await;
    let again = seal(from.as_ref(), &key("a"), "elsewhere").await.unwrap();
    assert_eq!(again, Sealed { to: "there".to_owned(), now: false });
    assert_eq!(exported(&from, "a").await, first);
    let mut file = Vec::new();
    let told = export(from.as_ref(), &key("a"), &mut file).await.unwrap();
    assert_eq!((told.records, told.inbox, told.sealed.as_deref()), (4, 0, Some("there")));
    assert_eq!(told.bytes, file.len() as u64);
}

async fn a_broken_session_is_not_sealed(from: Store, _to: Store, _: Reopen) {
    // Written past the session task, which would have refused it.
    let mut writer = from.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([opened(&[])]), None).await.unwrap();
    let refused = seal(from.as_ref(), &key("a"), "there").await;
    assert!(matches!(refused, Err(SealError::Broken { .. })), "{refused:?}");
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    // Its file says so, at the line.
    let error = Import::read(Cursor::new(exported(&from, "a").await)).unwrap_err();
    assert!(matches!((error.line, &error.fault), (2, FileFault::Illegal(Illegal { seq: Seq(1), .. }))), "{error}");
}

async fn a_landed_session_is_whole_in_every_list_and_for_every_reader(from: Store, to: Store, reopen: Reopen) {
    for (name, last, end) in [
        ("d", Body::Delivered(Delivered { value: json!(1) }), Some(End::Delivered)),
        ("f", Body::Failed(Failed { word: "w".to_owned(), message: "m".to_owned() }), Some(End::Failed)),
        ("o", data(1), None),
    ] {
        drop(begun(&from, name, [last]).await);
        let log = LogKey::from(&key(name));
        let mut watch = to.watch(&log).await.unwrap();
        let landed = read(&sealed(&from, name).await).land(to.as_ref(), None).await.unwrap();
        let head = Head { seq: Seq(landed.records), epoch: landed.epoch };
        for store in [&to, &reopen()] {
            let heads = store.heads(None, 9).await.unwrap();
            let found = heads.iter().find(|found| found.key == key(name)).unwrap();
            assert_eq!(
                (found.end, found.head, found.run.as_ref().map(RunId::as_str)),
                (end, head, Some("r")),
                "{name}"
            );
            assert_eq!(store.read(&log, Seq(1), 0).await.unwrap().head, head);
        }
        let shown = async {
            while watch.head() != head {
                watch.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), shown).await.expect("the landing was never shown");
    }
}

async fn a_long_session_with_any_bytes_lands_as_it_was(from: Store, to: Store, reopen: Reopen) {
    let mut writer = begun(&from, "a", []).await;
    let every: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    let large: Vec<u8> = (0..300_000_u32).map(|n| (n * 7) as u8).collect();
    let native = |offset, bytes: &[u8]| {
        Body::Native(NativeWrite { stream: "s\u{1}".to_owned(), offset, bytes: Arc::from(bytes) })
    };
    let bodies = [native(0, &every), native(1_000, &large), native(0, b""), native(0, "line \"one\"\n".as_bytes())];
    writer.append(Batch::of(bodies), None).await.unwrap();
    writer.append(Batch::of((0..700).map(data)), None).await.unwrap();
    let before = frames(&from, &(&key("a")).into()).await;
    let file = sealed(&from, "a").await;
    read(&file).land(to.as_ref(), None).await.unwrap();
    let after = frames(&reopen(), &(&key("a")).into()).await;
    assert_eq!(after[..before.len()], before[..]);
    read(&file).land(to.as_ref(), Some(&key("b"))).await.unwrap();
    let copied = session(&to, "b").await;
    let original = session(&from, "a").await;
    assert_eq!(copied[..before.len()], original[..before.len()]);
}
