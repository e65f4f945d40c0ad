//! People's words while a turn runs: in that turn, once, at no request's cost but the one that shows the results of its calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_adapter::{RequestBarrier, Start, Turn, TurnEnd, Words};
use agentrun_kernel::{
    Batch, Body, Drive, Message, MessageId, PlaceTicket, Restart, Source, StopLevel, StopRaiser, Submission,
    SubmissionId, Why,
};
use agentrun_testing::script::{Script, Step};
use agentrun_testing::scripted::{Before, ScriptedModel, SeenRequest};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::{mpsc as channel, watch};

use crate::harness::result_sent;
use crate::rig::{Owner, Rig, Work, calls};

/// Far above what a loaded machine needs.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const WORDS: &str = "look at the other one too";
pub(crate) const THIRD: &str = "and the third";

/// A ticket that steers `text` into the open turn.
pub(crate) async fn steers(drive: &Drive, text: &'static str) -> PlaceTicket {
    let id = SubmissionId::fresh();
    let submission = Submission::new(id.clone(), Source::Person, text);
    drive.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
    let turn = drive.with_state(|state| state.open_turn.as_ref().unwrap().id.clone());
    drive.ticket(Message { id: MessageId::fresh(), turn, carries: vec![id], replaces: Vec::new(), text: text.into() })
}

/// What somebody says, one message each.
#[derive(Debug)]
struct Said {
    drive: Drive,
    said: channel::UnboundedReceiver<&'static str>,
    next: Option<&'static str>,
}

#[async_trait]
impl Words for Said {
    async fn next(&mut self) -> Result<PlaceTicket, Restart> {
        if self.next.is_none() {
            self.next = self.said.recv().await;
        }
        let Some(text) = self.next else { std::future::pending().await };
        let ticket = steers(&self.drive, text).await;
        self.next = None;
        Ok(ticket)
    }
}

/// Says things into the turns of an owner.
pub(crate) struct Mouth(channel::UnboundedSender<&'static str>);

impl Mouth {
    pub(crate) fn say(&self, text: &'static str) {
        self.0.send(text).unwrap();
    }
}

/// A turn that words can be said into.
pub(crate) fn heard(owner: &Owner, turn: Turn) -> (Turn, Mouth) {
    let (to, said) = channel::unbounded_channel();
    let words = Said { drive: owner.drive.clone(), said, next: None };
    (Turn { words: Some(Box::new(words)), ..turn }, Mouth(to))
}

/// Waits for what must come.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(BOUND, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

/// Waits until so many messages were placed.
pub(crate) async fn placed(drive: &Drive, wanted: usize) {
    until("the words were not placed", || drive.with_state(|state| state.messages().count()) >= wanted).await;
}

/// Stands before the model as the gate does: each request waits for the barrier, then until it is let through.
#[derive(Default)]
pub(crate) struct Gate {
    seat: Mutex<Option<(Drive, Arc<dyn RequestBarrier>)>>,
    came: watch::Sender<usize>,
    passed: watch::Sender<usize>,
    recorded: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

impl Gate {
    /// A model behind a gate that lets the first `open` requests through.
    pub(crate) fn before(steps: Vec<Step>, open: usize) -> (Arc<Self>, ScriptedModel) {
        let gate = Arc::new(Self::default());
        gate.recorded.send_replace(usize::MAX);
        gate.open(open);
        let model = ScriptedModel::start_behind(Script::new(steps).unwrap(), gate.clone()).unwrap();
        (gate, model)
    }

    pub(crate) fn open(&self, requests: usize) {
        self.open.send_replace(requests);
    }

    /// How many requests are explained by the records; a later one does not come so far.
    pub(crate) fn record(&self, requests: usize) {
        self.recorded.send_replace(requests);
    }

    pub(crate) fn own(&self, owner: &Owner) {
        let barrier = owner.session.request_barrier().unwrap();
        *self.seat.lock().unwrap() = Some((owner.drive.clone(), barrier));
    }

    /// Lets go of the owner's records.
    pub(crate) fn disown(&self) {
        *self.seat.lock().unwrap() = None;
    }

    /// Waits until so many requests came.
    pub(crate) async fn came(&self, requests: usize) {
        let mut came = self.came.subscribe();
        let waited = tokio::time::timeout(BOUND, came.wait_for(|came| *came >= requests)).await;
        waited.expect("the model was not asked").unwrap();
    }

    /// Waits until so many requests passed the barrier.
    pub(crate) async fn passed(&self, requests: usize) {
        let mut passed = self.passed.subscribe();
        let waited = tokio::time::timeout(BOUND, passed.wait_for(|passed| *passed >= requests)).await;
        waited.expect("the model was not asked, or the history did not explain why").unwrap();
    }
}

/// Counts one more; answers how many those are.
fn count(sender: &watch::Sender<usize>) -> usize {
    let mut number = 0;
    sender.send_modify(|count| {
        *count += 1;
        number = *count;
    });
    number
}

#[async_trait]
impl Before for Gate {
    async fn admit(&self, body: &[u8]) -> Result<(), String> {
        let came = count(&self.came);
        let _ = self.recorded.subscribe().wait_for(|recorded| *recorded >= came).await;
        let seat = self.seat.lock().unwrap().clone();
        let Some((drive, barrier)) = seat else { return Err("nobody owns the session".to_owned()) };
        let tail = barrier.before_request(body).await.map_err(|error| error.to_string())?;
        let bodies = tail.bodies();
        if !bodies.is_empty() {
            drive.append(Batch::of(bodies), None).await.map_err(|error| error.to_string())?;
        }
        drop((tail, drive, barrier));
        let number = count(&self.passed);
        // One that is never let through ends with its connection.
        let _ = self.open.subscribe().wait_for(|open| *open >= number).await;
        Ok(())
    }
}

/// How often the model is told `text` in the requests, one after the other.
pub(crate) fn shows(model: &ScriptedModel, text: &str) -> Vec<usize> {
    model.requests().iter().map(|request| times_said(request, text)).collect()
}

fn times_said(request: &SeenRequest, text: &str) -> usize {
    request.body["messages"].to_string().matches(text).count()
}

/// The history's own account of what it took is what was placed, in that order.
async fn all_taken(rig: &Rig) -> usize {
    let owner = rig.own(Work::Answers, &[]).await;
    let placed: Vec<_> =
        owner.drive.with_state(|state| state.messages().map(|message| message.placed.message.clone()).collect());
    assert_eq!(owner.survey.taken, placed);
    placed.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_tool_runs_are_in_the_request_that_shows_its_result_and_cost_none() {
    let (gate, model) = Gate::before(vec![calls(&[("work", json!({}))]), Step::says("done")], 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, "do it"), shows(&model, WORDS)), (vec![1, 1], vec![0, 1]));
    assert!(result_sent(&model.requests()[1], "toolu_work_0").to_string().contains("work done"));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_messages_are_steered_a_call_each_and_each_behind_the_one_before_in_the_records() {
    let work = || calls(&[("work", json!({}))]);
    let mut again = work();
    again.tools[0].id = Some("toolu_work_1".to_owned());
    let (gate, model) = Gate::before(vec![work(), again, Step::says("done")], 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        mouth.say(THIRD);
        placed(&drive, 2).await;
        host.let_go.notify_one();
        host.begun.notified().await;
        placed(&drive, 3).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, WORDS), shows(&model, THIRD)), (vec![0, 1, 1], vec![0, 0, 1]));
    // A crash finds one message on its way: each was placed behind the line of the one before.
    let (mut native, mut before) = (String::new(), Vec::new());
    for record in rig.records().await {
        match record.body {
            Body::Native(write) => native += &String::from_utf8_lossy(&write.bytes),
            Body::Placed(message) => {
                for id in &before {
                    let shown =
                        ["source_uuid", "uuid"].iter().any(|name| native.contains(&format!("\"{name}\":\"{id}\"")));
                    assert!(shown, "{id} is not in the history");
                }
                before.push(message.message.to_string());
            }
            _ => {}
        }
    }
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 3);
}

/// No gate stands before this model: what records the history is the call alone.
#[tokio::test(flavor = "multi_thread")]
async fn b38_words_wait_until_the_records_show_the_message_that_opened_the_turn() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    mouth.say(WORDS);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((host, drive));
    owner.close().await;
    let records = rig.records().await;
    let words = records.iter().rposition(|record| matches!(record.body, Body::Placed(_))).unwrap();
    let shown = records[..words].iter().any(|record| match &record.body {
        Body::Native(write) => String::from_utf8_lossy(&write.bytes).contains("do it"),
        _ => false,
    });
    assert!(shown, "a crash now would find two messages on their way");
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_the_model_answers_wait_for_a_call() {
    let (gate, model) = Gate::before(vec![calls(&[("work", json!({}))]), Step::says("done")], 0);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        gate.passed(1).await;
        mouth.say(WORDS);
        // Time to take them. What comes now might begin a turn of its own.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(drive.with_state(|state| state.messages().count()), 1, "no call runs");
        gate.open(9);
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    gate.disown();
    drop((host, drive));
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(shows(&model, WORDS), [0, 1]);
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_words_said_while_a_built_in_runs_come_behind_its_output() {
    let command = json!({"command": "touch began; while [ ! -e go ]; do sleep 0.05; done; echo seen"});
    let rig = Rig::new(vec![calls(&[("Bash", command)]), Step::says("done")]).with_builtins(&["Bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (drive, workspace) = (owner.drive.clone(), rig.workspace.path().to_owned());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        until("the command did not run", || workspace.join("began").exists()).await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        std::fs::write(workspace.join("go"), "").unwrap();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop(drive);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(shows(&rig.model, WORDS), [0, 1]);
    assert!(result_sent(&rig.model.requests()[1], "toolu_Bash_0").to_string().contains("seen"));
    rig.assert_valid().await;
    assert_eq!(all_taken(&rig).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn f09_a_request_waits_until_the_transcript_holds_the_words_it_shows() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let barrier = owner.session.request_barrier().unwrap();
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    let body = rig.model.requests().remove(1).body.to_string();
    drop(barrier.before_request(body.as_bytes()).await.unwrap());
    // Where the line with the words is not there yet, nobody is asked.
    let home = owner.home().join("claude/projects");
    let folder = std::fs::read_dir(home).unwrap().next().unwrap().unwrap().path();
    let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read_to_string(&path).unwrap();
    let line = whole.lines().find(|line| line.contains("\"source_uuid\"")).unwrap();
    let held_back = whole.split_once(line).unwrap().0.to_owned();
    for lacks in [held_back.clone(), format!("{held_back}{line}")] {
        std::fs::write(&path, lacks).unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(300), barrier.before_request(body.as_bytes()));
        assert!(waits.await.is_err(), "words the transcript lacks must hold the request");
    }
    std::fs::write(&path, whole).unwrap();
    drop(barrier.before_request(body.as_bytes()).await.unwrap());
    drop((barrier, host, drive));
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_words_held_when_the_answer_is_submitted_are_never_given_and_the_next_message_follows_a_clean_end() {
    let steps = vec![calls(&[("work", json!({})), ("submit", json!({"value": 1}))]), Step::says("two")];
    let (gate, model) = Gate::before(steps, 9);
    let rig = Rig::new(vec![Step::says("elsewhere")]).asking(model.base_url());
    let mut owner = rig.own(Work::Waits, &[]).await;
    gate.own(&owner);
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive) = (owner.host.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        host.let_go.notify_one();
    });
    assert_eq!(end.unwrap(), TurnEnd::Idle);
    drop((host, drive));
    owner.end_turn().await;
    // The same program: what it had kept would come now.
    let turn = owner.place("and now?").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    gate.disown();
    owner.end_turn().await;
    owner.close().await;
    assert_eq!((shows(&model, WORDS), shows(&model, "and now?")), (vec![0, 0], vec![0, 1]));
    assert!(!rig.native().await.contains(WORDS), "it was told of them");
    let owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.ended && owner.survey.taken.len() == 2, "{:?}", owner.survey);
}

#[tokio::test(flavor = "multi_thread")]
async fn m33_a_session_that_is_told_to_stop_takes_no_words() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("never asked")]);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, stop) = (owner.host.clone(), owner.stop.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        stop.raise(StopLevel::Drain, Why::Host);
        mouth.say(WORDS);
        // Time to take them.
        tokio::time::sleep(Duration::from_millis(300)).await;
        host.let_go.notify_one();
    });
    assert!(matches!(end.unwrap(), TurnEnd::Stopped(_)));
    assert_eq!(owner.drive.with_state(|state| state.messages().count()), 1);
}

/// Its answer that it has the words is kept from us, so that it is found with them at hand.
pub(crate) const KEEPS_QUIET: &str = r#"tee "$HOME/told" | HARNESS "$@" | grep --line-buffered -v '"state":"queued"'"#;

#[tokio::test(flavor = "multi_thread")]
async fn b21_an_interrupt_takes_the_words_back_that_the_program_would_begin_a_turn_with() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]).with_program(KEEPS_QUIET);
    let mut owner = rig.own(Work::Waits, &[]).await;
    let (turn, mouth) = heard(&owner, owner.place("do it").await);
    let (host, drive, stop, told) =
        (owner.host.clone(), owner.drive.clone(), owner.stop.clone(), owner.home().join("told"));
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        mouth.say(WORDS);
        placed(&drive, 2).await;
        host.let_go.notify_one();
        until("the words were not given", || std::fs::read_to_string(&told).is_ok_and(|told| told.contains(WORDS)))
            .await;
        stop.raise(StopLevel::Interrupt, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Interrupt));
    assert_eq!(rig.model.requests().len(), 1, "a turn it began by itself is paid for");
    drop((host, drive));
    // Gone on with in the same home, where what the program wrote of the interrupt stands.
    owner.stop = StopRaiser::new();
    let words = owner.drive.with_state(|state| Message::from(&*state.messages().nth(1).unwrap().placed));
    let turn = owner.turn(Start::Again(words));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.close().await;
    assert_eq!((shows(&rig.model, "do it"), shows(&rig.model, WORDS)), (vec![1, 1], vec![0, 1]));
    assert_eq!(shows(&rig.model, "interrupted by"), [0, 0], "nobody but us interrupted");
    assert_eq!(all_taken(&rig).await, 2);
}
