//! The fence: who opened last writes, and nobody else.

use agentrun_kernel::{AppendError, Batch, Body, End, Epoch, OpenError, Refused, Seq, SessionWriter};

use super::data::Rig;
use super::words::{Answer, Failure, bytes_of, data, ensure, key, log, numbers, one, refused, rigged, same, session};

pub(super) async fn b43_of_three_opens_only_the_last_writes(rig: Rig) -> Answer {
    let mut first = rig.store.open(&key("a")?, None).await?;
    first.append(one(1), None).await?;
    let mut second = rig.again.open(&key("a")?, None).await?;
    second.append(one(2), None).await?;
    let mut third = rig.store.open(&key("a")?, Some(Seq(2))).await?;
    for writer in [&mut first, &mut second] {
        refused!(writer.append(one(9), None).await, Err(AppendError::Fenced { newer: Epoch(3) }));
    }
    third.append(one(3), None).await?;
    same(numbers(&rig.again, "a").await?, vec![1, 2, 3], "records")?;
    let epochs: Vec<_> = session(&rig.store, "a").await?.iter().map(|record| record.epoch.0).collect();
    same(epochs, vec![1, 2, 3], "epochs of the records")?;
    Ok(String::new())
}

/// Opens as fast as they come: no two of one instant may both hold the session, and no earlier one outlives a later one by its age.
pub(super) async fn b43_of_many_opens_at_once_the_last_alone_writes(rig: Rig) -> Answer {
    let mut writers = Vec::new();
    for n in 0..40 {
        let store = if n % 2 == 0 { &rig.store } else { &rig.again };
        writers.push(store.open(&key("a")?, None).await?);
    }
    let epochs: Vec<_> = writers.iter().map(|writer| writer.epoch().0).collect();
    same(epochs, (1..=40).collect(), "epochs of opens one after another")?;
    let mut last = writers.pop();
    for mut writer in writers {
        refused!(writer.append(one(9), None).await, Err(AppendError::Fenced { newer: Epoch(40) }));
    }
    if let Some(writer) = &mut last {
        writer.append(one(1), None).await?;
    }
    same(numbers(&rig.again, "a").await?, vec![1], "records")?;
    Ok(String::new())
}

/// Takeovers of an owner that writes without pause: once an open has answered, no record of the old owner follows.
pub(super) async fn b46_nothing_of_an_old_owner_follows_a_takeover(rig: Rig) -> Answer {
    let (mut takes, mut n) = (Vec::new(), 0);
    let mut owner = tokio::spawn(write_until_fenced(rig.store.open(&key("a")?, None).await?));
    for round in 0..60_u64 {
        for _ in 0..round * 7 % 23 {
            tokio::task::yield_now().await;
        }
        let store = if round % 2 == 0 { &rig.again } else { &rig.store };
        let writer = store.open(&key("a")?, None).await?;
        takes.push((writer.epoch(), writer.last()));
        let next = tokio::spawn(write_until_fenced(writer));
        n += owner.await??;
        owner = next;
    }
    owner.abort();
    let records = session(&rig.store, "a").await?;
    for (epoch, last) in takes {
        for record in &records {
            let before = record.seq <= last;
            ensure!(
                before == (record.epoch < epoch),
                "record {} is of epoch {}; epoch {epoch} took the session at {last}",
                record.seq,
                record.epoch
            );
        }
    }
    Ok(format!("60 takeovers, {n} records of fenced owners"))
}

/// Answers how many landed.
async fn write_until_fenced(mut writer: SessionWriter) -> Result<u64, Failure> {
    let mut landed = 0;
    loop {
        match writer.append(one(writer.epoch().0), None).await {
            Ok(_) => landed += 1,
            Err(AppendError::Fenced { .. }) => return Ok(landed),
            Err(other) => return Err(other.into()),
        }
    }
}

pub(super) async fn b43_an_open_fences_no_writer_of_another_key(rig: Rig) -> Answer {
    let mut a = rig.store.open(&key("a")?, None).await?;
    let mut b = rig.store.open(&key("b")?, None).await?;
    let _taken = rig.again.open(&key("a")?, None).await?;
    b.append(one(1), None).await?;
    refused!(a.append(one(1), None).await, Err(AppendError::Fenced { .. }));
    b.append(one(2), None).await?;
    same(numbers(&rig.store, "b").await?, vec![1, 2], "records of the other key")?;
    Ok(String::new())
}

pub(super) async fn b43_epochs_grow_over_reopen(mut rig: Rig) -> Answer {
    let mut due = 1;
    for _ in 0..3 {
        for store in [&rig.store, &rig.again] {
            same(store.open(&key("a")?, None).await?.epoch().0, due, "the epoch of an open")?;
            due += 1;
        }
        rig = rig.reopen().await?;
    }
    Ok(String::new())
}

pub(super) async fn b44_a_refused_append_leaves_every_byte_as_it_was(rig: Rig) -> Answer {
    let log = log("a")?;
    let mut old = rig.store.open(&key("a")?, None).await?;
    old.append(one(1), None).await?;
    let new = rig.again.open(&key("a")?, None).await?;
    let before = bytes_of(&rig.again, &log).await?;
    refused!(old.append(Batch::of([data(2), data(3)]), None).await, Err(AppendError::Fenced { .. }));
    same(bytes_of(&rig.again, &log).await?, before.clone(), "the log's bytes after the refusal")?;
    drop((old, new));
    let rig = rig.reopen().await?;
    same(bytes_of(&rig.store, &log).await?, before, "the log's bytes after the refusal and a reopen")?;
    Ok(String::new())
}

pub(super) async fn b44_a_fenced_writer_stays_fenced(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    drop(rig.again.open(&key("a")?, None).await?);
    for _ in 0..3 {
        refused!(old.append(one(1), None).await, Err(AppendError::Fenced { newer: Epoch(2) }));
    }
    ensure!(session(&rig.store, "a").await?.is_empty(), "a fenced writer wrote");
    Ok(String::new())
}

pub(super) async fn an_open_at_another_head_takes_nothing(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, Some(Seq::START)).await?;
    writer.append(one(1), None).await?;
    for wrong in [Seq::START, Seq(2)] {
        refused!(
            rig.again.open(&key("a")?, Some(wrong)).await,
            Err(OpenError::HeadChanged { expected, found: Seq(1) }) if expected == wrong
        );
    }
    writer.append(one(2), None).await?;
    same(rig.again.open(&key("a")?, Some(Seq(2))).await?.epoch(), Epoch(2), "the epoch of the first open that took")?;
    Ok(String::new())
}

pub(super) async fn f14_two_openers_that_saw_one_head_are_not_both_let_in(rig: Rig) -> Answer {
    let mut first = rig.store.open(&key("a")?, None).await?;
    first.append(one(1), None).await?;
    let mut second = rig.store.open(&key("a")?, Some(Seq(1))).await?;
    second.append(one(2), None).await?;
    refused!(rig.again.open(&key("a")?, Some(Seq(1))).await, Err(OpenError::HeadChanged { .. }));
    second.append(one(3), None).await?;
    Ok(String::new())
}

/// A backup rewinds epochs; only the nonce of the open tells the second epoch 2 from the first.
pub(super) async fn f16_the_writer_of_a_rewound_epoch_is_refused_by_its_nonce(rig: Rig) -> Answer {
    rig.store.open(&key("a")?, None).await?.append(one(1), None).await?;
    rigged(rig.save())?;
    let mut old = rig.store.open(&key("a")?, None).await?;
    same(old.epoch(), Epoch(2), "the epoch of the second open")?;
    rigged(rig.restore())?;
    let mut new = rig.again.open(&key("a")?, None).await?;
    same(new.epoch(), Epoch(2), "the epoch of the first open of the restored copy")?;
    let log = log("a")?;
    let before = bytes_of(&rig.again, &log).await?;
    match old.append(one(8), None).await {
        Err(AppendError::Fenced { .. } | AppendError::Unknown(_)) => {}
        other => ensure!(false, "a writer from before the restore was answered {other:?}"),
    }
    same(bytes_of(&rig.again, &log).await?, before, "the log's bytes after the refusal")?;
    new.append(one(2), None).await?;
    same(numbers(&rig.again, "a").await?, vec![1, 2], "records")?;
    Ok(String::new())
}

pub(super) async fn f22_a_sealed_session_is_not_opened_and_says_where_it_went(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(one(1).and(Body::Moved { to: "another store".to_owned() }), None).await?;
    refused!(writer.append(one(2), None).await, Err(AppendError::Refused(Refused::Ended(End::Moved))));
    for store in [&rig.store, &rig.again] {
        refused!(store.open(&key("a")?, None).await, Err(OpenError::Moved { to, .. }) if to == "another store");
    }
    drop(writer);
    let rig = rig.reopen().await?;
    refused!(rig.store.open(&key("a")?, None).await, Err(OpenError::Moved { to, .. }) if to == "another store");
    same(session(&rig.store, "a").await?.len(), 2, "records of the sealed session")?;
    Ok(String::new())
}
