//! A settle ends the open turn as interrupted and runs, starts and pays nothing; the turn is never opened again.

use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_kernel::{
    Body, EffectKind, LogKey, OutcomeEnd, Replay, SessionKey, SharedLog, TurnEndHow, UNDECIDED, Usd, read_all,
};
use agentrun_runner::{HostFault, NodeWord, Review, ReviewVerdict, SettleError, Settlement, settle_open_turn};
use agentrun_testing::faux::FauxHistory;
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::logs::Logs;
use crate::world::{
    Probe, World, adapter, books_are_quiet, calls, count, intents, key, node, outcomes, says, step, submits, when,
    within,
};
use crate::{cut, place, settle, start, take};

fn script() -> Value {
    json!([
        when(json!({"contains": "`submit` tool"}), submits(7)),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
    ])
}

/// A session that was cut while its tool ran.
async fn cut_in_a_call(probe: &std::sync::Arc<Probe>, replay: Replay) -> World {
    let world = World::new();
    let running = start(&world.runner(script()), node(vec![probe.tool(replay)]));
    probe.began().await;
    cut(running).await;
    world
}

#[tokio::test]
async fn b28_it_ends_the_open_turn_as_interrupted_and_runs_sends_and_pays_nothing() {
    for replay in [Replay::Never, Replay::Safe] {
        let probe = Probe::held();
        let world = cut_in_a_call(&probe, replay).await;
        let (before, money) = (world.records().await, world.books().await.counted());
        let settlement = settle(&world).await.unwrap();
        let turn = match &before.iter().find(|record| record.body.kind() == "placed").unwrap().body {
            Body::Placed(placed) => placed.turn.clone(),
            _ => unreachable!(),
        };
        assert_eq!(settlement.turn, Some((turn, TurnEndHow::Interrupted)));
        assert_eq!(settlement.interrupted, ["search"]);
        assert_eq!(settlement.unsent, [], "the model has its prompt");
        let records = world.records().await;
        assert_eq!(probe.runs(), 1, "not even what is safe to run");
        assert_eq!(outcomes(&records, EffectKind::Tool)[0].end, OutcomeEnd::Interrupted);
        assert_eq!((count(&records, "placed"), intents(&records, EffectKind::Request).len()), (1, 1));
        assert_eq!(world.books().await.counted(), money);
        assert_eq!(world.homes(), 0, "no home was made");
        let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
        assert!(survey.ended && survey.open_calls.is_empty(), "its history shows no turn to go on with");
        assert_eq!(settle(&world).await.unwrap(), Settlement::default(), "nothing is left");
        assert_eq!(world.records().await, records);
    }
}

#[tokio::test]
async fn b29_a_settled_turn_is_not_resumed_by_a_later_run_which_opens_one_of_its_own() {
    let probe = Probe::held();
    let world = cut_in_a_call(&probe, Replay::Safe).await;
    settle(&world).await.unwrap();
    let delivered = world.runner(script()).run_node(node(vec![probe.tool(Replay::Safe)]), step()).await.unwrap();
    assert_eq!((delivered.value, probe.runs()), (json!({"n": 7}), 1));
    let records = world.records().await;
    let turns: Vec<_> = records
        .iter()
        .filter_map(|record| if let Body::Placed(placed) = &record.body { Some(placed) } else { None })
        .collect();
    assert_eq!(turns.len(), 2);
    assert!(turns[0].turn != turns[1].turn && turns[1].text.contains("`submit` tool"), "{turns:?}");
    assert!(
        turns[1].text.contains("ended from outside"),
        "the model did not end it, and is not told that it did: {turns:?}"
    );
    books_are_quiet(&world).await;
}

#[tokio::test]
async fn b28_a_request_in_flight_counts_in_full_and_is_not_asked_again() {
    let world = World::new();
    let running = start(&world.runner(json!([{"stall_after_events": 0}])), node(Vec::new()));
    let open = async {
        while world.state().await.open_effects().next().is_none() {
            tokio::task::yield_now().await;
        }
    };
    within(open).await;
    cut(running).await;
    settle(&world).await.unwrap();
    let (books, spent) = (world.books().await, world.state().await.spent);
    assert_eq!((books.held(), books.unknown_count(), spent.unknown_count), (Usd::ZERO, 1, 1));
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 1);
}

#[tokio::test]
async fn b28_a_session_at_rest_is_not_touched() {
    let world = World::new();
    assert_eq!(settle(&world).await.unwrap(), Settlement::default());
    assert_eq!(world.records().await, []);
    world.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let records = world.records().await;
    assert_eq!(take(&world).await.unwrap(), Settlement::default());
    assert_eq!(world.records().await, records);
}

#[tokio::test]
async fn f14_a_live_owner_keeps_its_session_unless_it_is_taken() {
    let (world, probe) = (World::new(), Probe::held());
    let running = start(&world.runner(script()), node(vec![probe.tool(Replay::Never)]));
    probe.began().await;
    let records = world.records().await;
    assert_eq!(settle(&world).await.unwrap_err(), SettleError::Busy(key()));
    assert_eq!(world.records().await, records, "it was not fenced either");
    let settlement = take(&world).await.unwrap();
    assert_eq!(settlement.turn.unwrap().1, TurnEndHow::Interrupted);
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!(error.word, NodeWord::Fenced, "{error}");
    probe.let_go();
    assert_eq!(outcomes(&world.records().await, EffectKind::Tool)[0].end, OutcomeEnd::Interrupted);
}

#[tokio::test]
async fn b28_a_turn_that_its_history_shows_ended_is_recorded_as_done() {
    let whole = World::new();
    let talk = json!([says("It is 7."), {"status": 529}]);
    whole.runner(talk).run_node(node(Vec::new()), step()).await.unwrap_err();
    let logs = Logs::of(&whole).await;
    let end = logs.records.iter().position(|record| record.body.kind() == "turn_end").unwrap();
    let world = logs.cut(end).await;
    assert_eq!(settle(&world).await.unwrap().turn.unwrap().1, TurnEndHow::Done);
    assert_eq!(count(&world.records().await, "settled"), 0);
}

#[tokio::test]
async fn b28_a_delivery_whose_turn_is_open_is_ended_as_done_and_its_history_mended() {
    let whole = World::new();
    whole.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    let delivered = logs.records.iter().position(|record| record.body.kind() == "delivered").unwrap();
    let world = logs.cut(delivered + 1).await;
    assert_eq!(settle(&world).await.unwrap().turn.unwrap().1, TurnEndHow::Done);
    let records = world.records().await;
    let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
    assert!(survey.ended && survey.open_calls.is_empty());
    assert_eq!(count(&records, "settled"), 0);
}

/// A review that must not be asked.
struct Unasked;

#[async_trait]
impl Review for Unasked {
    async fn review(&self, _: &str, _: &Value) -> Result<ReviewVerdict, HostFault> {
        Err(HostFault("down".to_owned()))
    }
}

#[tokio::test]
async fn b28_a_submission_that_waits_for_its_review_is_not_accepted_and_the_model_is_told() {
    let world = World::new();
    let mut reviewed = node(Vec::new());
    reviewed.review = Some(std::sync::Arc::new(Unasked));
    let error = world.runner(json!([submits(7)])).run_node(reviewed, step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::HostFault);
    assert_eq!(settle(&world).await.unwrap().interrupted, ["submit"]);
    let records = world.records().await;
    let verdict = records.iter().find_map(|record| match &record.body {
        Body::Verdict(verdict) => Some((verdict.accepted, verdict.message.as_str())),
        _ => None,
    });
    assert_eq!(verdict, Some((false, UNDECIDED)));
    let again = json!([when(json!({"contains": "`submit` tool", "anywhere": "Submit it again"}), submits(8))]);
    let delivered = world.runner(again).run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 8}));
}

#[tokio::test]
async fn b28_it_begins_no_ledger_so_a_new_run_keeps_its_cap() {
    let whole = World::new();
    whole.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let records = Logs::of(&whole).await.records;
    let placed = records.iter().position(|record| record.body.kind() == "placed").unwrap();
    let world = World::new();
    let mut writer = agentrun_kernel::SessionStore::open(&world.store, &key(), None).await.unwrap();
    for record in &records[..=placed] {
        writer.append(agentrun_kernel::Batch::of([record.body.clone()]), None).await.unwrap();
    }
    settle(&world).await.unwrap();
    let ledger = LogKey::Shared(SharedLog::Ledger((&key()).into()));
    assert_eq!(read_all::<agentrun_kernel::LedgerBody>(&world.store, &ledger).await.unwrap(), []);
}

#[tokio::test]
async fn b29_a_session_of_another_harness_is_refused_and_not_read() {
    struct Other;
    #[async_trait]
    impl agentrun_adapter::AgentAdapter for Other {
        fn profile(&self) -> &agentrun_adapter::AdapterProfile {
            &agentrun_adapter::AdapterProfile {
                name: "other",
                widest: agentrun_adapter::Capabilities {
                    own_ids: false,
                    drain: false,
                    fork: false,
                    steer: false,
                    restores_responses: false,
                    builtins: agentrun_kernel::Built::Neither,
                },
                speaks: &[],
                program: None,
            }
        }
        fn history(&self) -> &dyn agentrun_adapter::NativeHistory {
            &FauxHistory
        }
        async fn check(
            &self,
            _: &agentrun_adapter::SessionPlan,
            _: Option<&agentrun_kernel::Survey>,
        ) -> Result<agentrun_adapter::Checked, agentrun_adapter::Refusal> {
            panic!("a settle asks for no program")
        }
        async fn open(
            &self,
            _: agentrun_adapter::Admission,
            _: agentrun_adapter::Seat,
        ) -> Result<Box<dyn agentrun_adapter::AdapterSession>, agentrun_adapter::AdapterError> {
            panic!("a settle opens nothing")
        }
    }
    let probe = Probe::held();
    let world = cut_in_a_call(&probe, Replay::Never).await;
    let records = world.records().await;
    let mut at = place(&world);
    at.adapter = std::sync::Arc::new(Other);
    let error = settle_open_turn(&at, &key(), false).await.unwrap_err();
    assert!(matches!(error, SettleError::Node(error) if error.word == NodeWord::Binding));
    assert_eq!(world.records().await, records);
    at.adapter = adapter(json!([]));
    let nobody = SessionKey::new("nobody").unwrap();
    assert_eq!(settle_open_turn(&at, &nobody, false).await.unwrap(), Settlement::default());
}
