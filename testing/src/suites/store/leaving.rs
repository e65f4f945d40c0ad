//! Sessions that leave and arrive: removed with a tombstone, sealed, landed whole from elsewhere.

use agentrun_kernel::{
    AppendError, Arrival, Batch, Body, Digest, End, Epoch, Frame, Head, ImportError, Nonce, OpenError, Refused,
    RemoveError, Seq, SessionWriter, SharedAppend, SharedFrames, Store,
};

use super::data::Rig;
use super::words::{
    Answer, Failure, also, bytes_of, data, ensure, inbox, key, ledger, log, numbers, one, raise, refused, retract, same,
};

async fn written(store: &Store, name: &str, count: u64) -> Result<SessionWriter, Failure> {
    let mut writer = store.open(&key(name)?, None).await?;
    for n in 1..=count {
        writer.append(one(n), None).await?;
    }
    Ok(writer)
}

pub(super) async fn f21_a_removed_session_leaves_its_tombstone_and_its_key_is_used_by_nobody(rig: Rig) -> Answer {
    drop(written(&rig.store, "a", 3).await?);
    let last = rig.store.read(&log("a")?, Seq(3), 1).await?.frames;
    let tombstone = rig.store.remove(&key("a")?, Some(Seq(3))).await?;
    same(tombstone.epoch, Epoch(2), "the epoch that the removal raised")?;
    same(tombstone.end.seq, Seq(3), "where the log ended")?;
    let digest = last.first().map(|frame| Digest::of(&frame.bytes));
    same(Some(tombstone.end.digest.clone()), digest, "the digest of its last record")?;
    let rig = rig.reopen().await?;
    for store in [&rig.store, &rig.again] {
        for expected in [None, Some(Seq::START), Some(Seq(3))] {
            refused!(store.open(&key("a")?, expected).await, Err(OpenError::Removed { .. }));
        }
        same(store.remove(&key("a")?, None).await?, tombstone.clone(), "the same removal asked for again")?;
        let (frames, head) = bytes_of(store, &log("a")?).await?;
        same((frames.len(), head), (0, Head { seq: Seq::START, epoch: Epoch(2) }), "its log")?;
        let heads = store.heads(None, 10).await?;
        same(heads.iter().map(|head| head.end).collect(), vec![Some(End::Removed)], "the list")?;
    }
    refused!(rig.store.remove(&key("nobody")?, None).await, Err(RemoveError::Unknown { .. }));
    same(rig.again.heads(None, 10).await?.len(), 1, "sessions after the removal of one that nobody knows")?;
    Ok(String::new())
}

pub(super) async fn f21_an_old_writer_of_a_removed_session_is_fenced(rig: Rig) -> Answer {
    let mut old = written(&rig.store, "a", 2).await?;
    rig.again.remove(&key("a")?, None).await?;
    for n in 3..5 {
        refused!(
            old.append(one(n), also("r", Seq::START, "mine")?).await,
            Err(AppendError::Fenced { newer: Epoch(2) })
        );
    }
    same(numbers(&rig.again, "a").await?, vec![], "records of the removed session")?;
    same(bytes_of(&rig.again, &ledger("r")?.into()).await?.1, Head::default(), "the ledger")?;
    Ok(String::new())
}

pub(super) async fn f21_a_removal_decided_on_an_older_head_removes_nothing(rig: Rig) -> Answer {
    let mut owner = written(&rig.store, "a", 3).await?;
    for wrong in [Seq::START, Seq(2), Seq(4)] {
        refused!(
            rig.again.remove(&key("a")?, Some(wrong)).await,
            Err(RemoveError::HeadChanged { expected, found: Seq(3) }) if expected == wrong
        );
    }
    owner.append(one(4), None).await?;
    same(numbers(&rig.again, "a").await?, vec![1, 2, 3, 4], "records")?;
    Ok(String::new())
}

pub(super) async fn f21_a_removal_touches_no_other_log(rig: Rig) -> Answer {
    let mut writer = written(&rig.store, "a", 200).await?;
    let mut other = written(&rig.again, "b", 2).await?;
    writer.append(one(201), also("r", Seq::START, "one")?).await?;
    rig.store.append_at(&inbox("b")?, Seq::START, retract()).await?;
    let kept = [log("b")?, ledger("r")?.into(), inbox("b")?.into()];
    let mut before = Vec::new();
    for log in &kept {
        before.push(bytes_of(&rig.again, log).await?);
    }
    rig.store.remove(&key("a")?, None).await?;
    for (log, before) in kept.iter().zip(before) {
        same(bytes_of(&rig.again, log).await?, before, &format!("{log} beside the removal"))?;
    }
    other.append(one(3), None).await?;
    rig.again.append_at(&ledger("r")?, Seq(1), raise("two")).await?;
    Ok(String::new())
}

pub(super) async fn f22_a_session_that_left_takes_no_post(rig: Rig) -> Answer {
    drop(written(&rig.store, "gone", 1).await?);
    rig.store.append_at(&inbox("gone")?, Seq::START, retract()).await?;
    let mut sealed = written(&rig.store, "sealed", 1).await?;
    sealed.append(Batch::of([Body::Moved { to: "there".to_owned() }]), None).await?;
    rig.store.remove(&key("gone")?, None).await?;
    for store in [&rig.store, &rig.again] {
        for (name, end) in [("gone", End::Removed), ("sealed", End::Moved)] {
            for at in [Seq::START, Seq(1)] {
                refused!(
                    store.append_at(&inbox(name)?, at, retract()).await,
                    Err(AppendError::Refused(Refused::Ended(told))) if told == end
                );
            }
            let (frames, _) = bytes_of(store, &inbox(name)?.into()).await?;
            ensure!(frames.is_empty(), "the inbox of {name} holds {} records", frames.len());
        }
    }
    Ok(String::new())
}

/// A session of three records and a message, whose ledger is told of it at `place`.
fn arrival(name: &str, place: Seq) -> Result<Arrival, Failure> {
    let log = log(name)?;
    let frame = |n: u64| Frame::encode(&log, Seq(n), Epoch(n.min(2)), 0, &data(n));
    let records = (1..=3).map(frame).collect::<Result<Vec<_>, _>>()?;
    let post = SharedAppend { log: inbox(name)?, expected: Seq::START, batch: retract() };
    let post = SharedFrames::encode(post, 0)?;
    let share = SharedAppend { log: ledger("r")?, expected: place, batch: raise("share") };
    Ok(Arrival {
        key: key(name)?,
        epoch: Epoch(3),
        nonce: Nonce::draw(),
        end: Some(End::Delivered),
        run: None,
        records,
        inbox: post.frames,
        also: Some(SharedFrames::encode(share, 0)?),
    })
}

pub(super) async fn f22_an_arrival_lands_whole_or_not_at_all_and_once(rig: Rig) -> Answer {
    rig.again.append_at(&ledger("r")?, Seq::START, raise("other")).await?;
    let logs = [log("a")?, inbox("a")?.into()];
    refused!(
        rig.store.import(arrival("a", Seq::START)?).await,
        Err(ImportError::Conflict { expected: Seq(0), found: Seq(1), .. })
    );
    for log in &logs {
        same(bytes_of(&rig.again, log).await?.1, Head::default(), &format!("{log} after a conflict"))?;
    }
    let whole = arrival("a", Seq(1))?;
    let head = rig.store.import(whole.clone()).await?;
    same(head, Head { seq: Seq(3), epoch: Epoch(3) }, "the head it landed at")?;
    let rig = rig.reopen().await?;
    for store in [&rig.store, &rig.again] {
        let landed = bytes_of(store, &log("a")?).await?;
        same(landed, (whole.records.clone(), head), "its records")?;
        same(bytes_of(store, &inbox("a")?.into()).await?.0, whole.inbox.clone(), "its inbox")?;
        let heads = store.heads(None, 10).await?;
        same(heads.iter().map(|head| head.end).collect(), vec![Some(End::Delivered)], "the list")?;
        refused!(store.import(arrival("a", Seq(2))?).await, Err(ImportError::Taken { .. }));
    }
    same(bytes_of(&rig.again, &ledger("r")?.into()).await?.1.seq, Seq(2), "the ledger, told once")?;
    let mut owner = rig.again.open(&key("a")?, Some(Seq(3))).await?;
    same(owner.epoch(), Epoch(4), "the first open")?;
    owner.append(one(4), None).await?;
    same(numbers(&rig.store, "a").await?, vec![1, 2, 3, 4], "records")?;
    // A key that was used is taken, however its session stands.
    drop(written(&rig.store, "b", 1).await?);
    rig.store.remove(&key("b")?, None).await?;
    drop(rig.store.open(&key("c")?, None).await?);
    rig.store.append_at(&inbox("d")?, Seq::START, retract()).await?;
    for name in ["b", "c", "d"] {
        refused!(rig.again.import(arrival(name, Seq(2))?).await, Err(ImportError::Taken { .. }));
    }
    Ok(String::new())
}
