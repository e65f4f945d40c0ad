//! Bounds, and what a store shows beside its records: the list of sessions and the watch.

use agentrun_kernel::{
    AppendError, Batch, Body, Bound, Built, Delivered, Digest, End, Epoch, Failed, Head, PlanDigests, RECORD_BYTES,
    Refused, RunId, Seq, SharedBatch,
};
use serde_json::Value;

use super::data::Rig;
use super::words::{
    Answer, Failure, also, bytes_of, data, ensure, key, ledger, log, native, numbers, one, refused, same, session,
    until,
};

pub(super) async fn what_cannot_be_stored_is_refused_and_writes_nothing(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    let before = bytes_of(&rig.again, &log("a")?).await?;
    refused!(writer.append(Batch::of([]), None).await, Err(AppendError::Refused(Refused::Empty)));
    let large = Batch::of([data(1), native(&vec![7; RECORD_BYTES])]);
    refused!(writer.append(large, None).await, Err(AppendError::Refused(Refused::TooLarge { .. })));
    let also_empty = Some(agentrun_kernel::SharedAppend {
        log: ledger("r")?,
        expected: Seq::START,
        batch: SharedBatch::Ledger(Vec::new()),
    });
    refused!(writer.append(one(1), also_empty).await, Err(AppendError::Refused(Refused::Empty)));
    refused!(
        rig.store.append_at(&ledger("r")?, Seq::START, SharedBatch::Ledger(Vec::new())).await,
        Err(AppendError::Refused(Refused::Empty))
    );
    same(bytes_of(&rig.again, &log("a")?).await?, before, "the session's bytes after the refusals")?;
    same(bytes_of(&rig.again, &ledger("r")?.into()).await?.1, Head::default(), "the ledger's head")?;
    same(writer.append(one(1), None).await?, Seq(1), "the next append, which is fine")?;
    Ok(String::new())
}

/// The bound is the specification's, so a store must hold what is just inside it.
pub(super) async fn b42_a_record_as_large_as_the_bound_allows_is_kept_whole(rig: Rig) -> Answer {
    let pattern: Vec<u8> = (0..=250).collect();
    let mut large = pattern.repeat(RECORD_BYTES / pattern.len());
    large.truncate(RECORD_BYTES - 512);
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(Batch::of([data(1), native(&large), data(2)]), None).await?;
    drop(writer);
    let rig = rig.reopen().await?;
    let records = session(&rig.store, "a").await?;
    same(records.len(), 3, "records")?;
    ensure!(records.get(1).is_some_and(|record| record.body == native(&large)), "the large record came back otherwise");
    Ok(format!("{} bytes", large.len()))
}

pub(super) async fn the_list_shows_each_session_with_its_run_and_end_in_key_order(rig: Rig) -> Answer {
    for name in ["c", "a", "b", "d"] {
        let mut writer = rig.store.open(&key(name)?, None).await?;
        if name == "a" {
            writer.append(Batch::of([bound("run-1")?]), also("run-1", Seq::START, "x")?).await?;
        }
        if name != "c" {
            writer.append(one(1), None).await?;
        }
        if name == "b" {
            writer.append(Batch::of([Body::Delivered(Delivered { value: 1.into() })]), None).await?;
        }
        if name == "d" {
            let failed = Failed { word: "w".into(), message: "m".into() };
            writer.append(Batch::of([Body::Failed(failed)]), None).await?;
        }
    }
    for store in [&rig.store, &rig.again] {
        let all = store.heads(None, 100).await?;
        let shown: Vec<_> = all.iter().map(|head| (head.key.as_str(), head.run.is_some(), head.end)).collect();
        let due = vec![
            ("a", true, None),
            ("b", false, Some(End::Delivered)),
            ("c", false, None),
            ("d", false, Some(End::Failed)),
        ];
        same(shown, due, "the list")?;
        let due = Some(Head { seq: Seq(2), epoch: Epoch(1) });
        same(all.get(1).map(|head| head.head), due, "the head of `b` in the list")?;
        let page = store.heads(Some(&key("a")?), 2).await?;
        same(Some(page.as_slice()), all.get(1..3), "the page of two after `a`")?;
        ensure!(store.heads(Some(&key("d")?), 2).await?.is_empty(), "the page after the last session is not empty");
    }
    Ok(String::new())
}

fn bound(run: &str) -> Result<Body, Failure> {
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
    Ok(Body::Bound(Bound {
        format: 1,
        adapter: "faux".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::new(run)?,
        parent: None,
        builtins: Built::Neither,
        host: Value::Null,
    }))
}

pub(super) async fn a_watch_shows_every_handles_commits(rig: Rig) -> Answer {
    let log = log("a")?;
    let mut watch = rig.store.watch(&log).await?;
    same(watch.head(), Head::default(), "the head before anything")?;
    let mut own = rig.store.open(&key("a")?, None).await?;
    own.append(one(1), None).await?;
    until(&mut watch, Head { seq: Seq(1), epoch: Epoch(1) }).await?;
    let mut other = rig.again.open(&key("a")?, None).await?;
    until(&mut watch, Head { seq: Seq(1), epoch: Epoch(2) }).await?;
    other.append(Batch::of([data(2), data(3)]), None).await?;
    until(&mut watch, Head { seq: Seq(3), epoch: Epoch(2) }).await?;
    same(rig.store.watch(&log).await?.head(), Head { seq: Seq(3), epoch: Epoch(2) }, "a new watch's head")?;
    same(numbers(&rig.store, "a").await?, vec![1, 2, 3], "records")?;
    Ok(String::new())
}
