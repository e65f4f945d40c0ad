//! People's words for a turn that runs: taken in that turn, once, whatever dies on the way.

use agentrun_adapter::{Start, Words};
use agentrun_kernel::{Batch, Body, Drive, Message, MessageId, PlaceTicket, Restart, Source, Submission, SubmissionId};
use async_trait::async_trait;
use tokio::sync::watch;

use super::host::Work;
use super::rig::{Bench, Owner, times_shown};
use crate::script::{Conversation, Step};
use crate::suites::failure::{Answer, Failure, ensure, same};

const WORDS: &str = "look at the other one too";

fn times_said(request: &Conversation) -> usize {
    request.messages.iter().map(|message| message.text.matches(WORDS).count()).sum()
}

/// Words that somebody sends, one message each, once the turn they are for is open.
#[derive(Debug)]
struct Sent {
    drive: Drive,
    left: Vec<&'static str>,
    handed: watch::Sender<usize>,
}

/// A ticket that steers `text` into the open turn.
async fn steers(drive: &Drive, text: &str) -> Result<PlaceTicket, Failure> {
    let id = SubmissionId::fresh();
    drive.append(Batch::of([Body::Submission(Submission::new(id.clone(), Source::Person, text))]), None).await?;
    let turn = drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone()));
    let turn = turn.ok_or_else(|| Failure("words were asked for while no turn was open".to_owned()))?;
    let message = Message { id: MessageId::fresh(), turn, carries: vec![id], replaces: Vec::new(), text: text.into() };
    Ok(drive.ticket(message))
}

#[async_trait]
impl Words for Sent {
    async fn next(&mut self) -> Result<PlaceTicket, Restart> {
        if let Some(text) = self.left.first().copied()
            && let Ok(ticket) = steers(&self.drive, text).await
        {
            self.left.remove(0);
            self.handed.send_modify(|handed| *handed = handed.saturating_add(1));
            return Ok(ticket);
        }
        std::future::pending().await
    }
}

/// Runs a turn that is told `texts` while `work` runs, to its end.
async fn told_in_a_call(owner: &mut Owner<'_>, texts: &[&'static str]) -> Result<(), Failure> {
    let handed = watch::Sender::new(0);
    let mut first = handed.subscribe();
    let words = Sent { drive: owner.drive.clone(), left: texts.to_vec(), handed };
    let mut turn = owner.place("do it").await?;
    turn.words = Some(Box::new(words));
    let host = owner.host.clone();
    let lets_go = async {
        host.begun().await?;
        let told = first.wait_for(|handed| *handed > 0).await.is_ok();
        ensure!(told, "the turn ended and asked for no words");
        host.let_go();
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ended = owner.idle(turn) => ended,
        early = lets_go => early,
    }
}

pub(super) async fn m33_words_sent_while_a_call_runs_are_taken_in_that_turn_and_shown_once(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done"), Step::says("done")])?;
    let mut owner = rig.own(Work::Waits).await?;
    told_in_a_call(&mut owner, &[WORDS]).await?;
    owner.close().await?;
    let state = rig.state().await?;
    let messages: Vec<_> = state.messages().map(|message| message.placed.clone()).collect();
    let turns: Vec<_> = messages.iter().map(|placed| placed.turn.clone()).collect();
    ensure!(turns.len() == 2 && turns.first() == turns.last(), "placed in the turns {turns:?}");
    let survey = rig.adapter.history().survey(&rig.files().await?)?;
    let placed: Vec<_> = messages.iter().map(|placed| placed.message.clone()).collect();
    same(survey.taken, placed, "messages taken")?;
    let shown = rig.model.requests().last().map(|it| (times_shown(it, "do it"), times_said(it)));
    same(shown, Some((1, 1)), "times the prompt and the words were shown")?;
    rig.assert_valid().await?;
    Ok(format!("{} requests", rig.model.requests().len()))
}

pub(super) async fn m33_messages_are_steered_one_after_the_other_and_in_their_order(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("one"), Step::says("two"), Step::says("three")])?;
    let mut owner = rig.own(Work::Waits).await?;
    told_in_a_call(&mut owner, &[WORDS, "and at the third"]).await?;
    // What the turn did not take is left to the next one.
    owner.close().await?;
    let (state, survey) = (rig.state().await?, rig.adapter.history().survey(&rig.files().await?)?);
    let placed: Vec<_> = state.messages().map(|message| message.placed.message.clone()).collect();
    let (placed, taken) = (placed.as_slice(), survey.taken.as_slice());
    ensure!(taken.len() >= 2 && placed.starts_with(taken), "placed were {placed:?}, taken {taken:?}");
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b38_words_that_were_placed_and_not_taken_are_placed_again_behind_what_the_turn_did(
    bench: Bench,
) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done"), Step::says("done")])?;
    let mut owner = rig.own(Work::Waits).await?;
    let turn = owner.place("do it").await?;
    let host = owner.host.clone();
    tokio::select! {
        end = owner.session.run_turn(turn) => return Err(Failure(format!("the turn ended: {end:?}"))),
        begun = host.begun() => begun?,
    }
    drop(host);
    let words = steers(&owner.drive, WORDS).await?.place().await?;
    owner.crash().await?;
    let mut owner = rig.own_with(Work::Answers, &rig.answers().await?).await?;
    ensure!(!owner.survey.taken.contains(&words.id), "words nobody sent are in the history");
    let turn = owner.turn(Start::Again(words.clone()));
    owner.idle(turn).await?;
    same(owner.asked().len(), 0, "calls that were made a second time")?;
    owner.close().await?;
    let survey = rig.adapter.history().survey(&rig.files().await?)?;
    ensure!(survey.taken.last() == Some(&words.id), "the history says {:?} were taken", survey.taken);
    let shown = rig.model.requests().last().map(|it| (times_shown(it, "do it"), times_said(it)));
    same(shown, Some((1, 1)), "times the prompt and the words were shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}
