//! What is appended is there: in order, whole, from any place, for every handle.

use agentrun_kernel::{AppendError, Batch, Epoch, Head, Seq, SessionWriter};

use super::data::Rig;
use super::words::{Answer, abandon, data, ensure, key, log, native, numbers, one, poll, same, session};

pub(super) async fn b42_records_come_back_in_order_and_whole(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    same((writer.epoch(), writer.last()), (Epoch(1), Seq::START), "a new session's epoch and last seq")?;
    same(writer.append(Batch::of([data(1), data(2)]), None).await?, Seq(2), "the answer of an append of two")?;
    let big: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    same(writer.append(Batch::of([native(&big)]).and(data(3)), None).await?, Seq(4), "the answer of the next append")?;
    for store in [&rig.store, &rig.again] {
        let records = session(store, "a").await?;
        same(records.iter().map(|record| record.seq.0).collect(), vec![1, 2, 3, 4], "seqs")?;
        ensure!(
            records.iter().all(|record| record.epoch == Epoch(1)),
            "a record bears another epoch than its writer's"
        );
        ensure!(
            records.get(2).is_some_and(|record| record.body == native(&big)),
            "400 kB of native bytes came back otherwise"
        );
        same(numbers(store, "a").await?, vec![1, 2, 3], "records")?;
    }
    Ok(String::new())
}

pub(super) async fn b42_what_resolved_is_there_for_the_next_handle(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    for n in 1..=20 {
        writer.append(one(n), None).await?;
        same(numbers(&rig.again, "a").await?.last().copied(), Some(n), "the newest record for a second handle")?;
    }
    drop(writer);
    let rig = rig.reopen().await?;
    same(numbers(&rig.store, "a").await?, (1..=20).collect(), "records after everything was closed and opened again")?;
    Ok(String::new())
}

pub(super) async fn a_dropped_append_is_still_in_the_log(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    abandon(writer.append(one(1), None)).await;
    let again = &rig.again;
    let first = || async move { Ok(numbers(again, "a").await?.first().copied()) };
    same(poll("a dropped append", first).await?, 1, "the record of an append nobody waited for")?;
    // The writer lost its place: it must not write over or beside what is there.
    match writer.append(one(2), None).await {
        Ok(Seq(2)) => same(numbers(again, "a").await?, vec![1, 2], "records")?,
        Err(AppendError::Unknown(_)) => same(numbers(again, "a").await?, vec![1], "records")?,
        other => ensure!(false, "the append after a dropped one answered {other:?}"),
    }
    Ok(String::new())
}

pub(super) async fn a_dropped_open_fences_or_does_not_but_nothing_between(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    drop(abandon(rig.store.open(&key("a")?, None)).await);
    let mut landed = 0;
    for n in 1..=3 {
        match old.append(one(n), None).await {
            Ok(_) => landed = n,
            Err(AppendError::Fenced { newer: Epoch(2) }) => break,
            Err(other) => ensure!(false, "the old writer was answered {other:?}"),
        }
    }
    let mut new = rig.again.open(&key("a")?, None).await?;
    ensure!(new.epoch() > Epoch(1), "the epoch did not grow");
    new.append(one(9), None).await?;
    let due: Vec<u64> = (1..=landed).chain([9]).collect();
    same(numbers(&rig.again, "a").await?, due, "records")?;
    Ok(String::new())
}

pub(super) async fn a_long_log_reads_back_from_any_place(rig: Rig) -> Answer {
    let mut here = rig.store.open(&key("b")?, None).await?;
    let mut there: Option<SessionWriter> = None;
    let mut n = 0;
    let mut sizes = [1_u64, 7, 128, 3, 250, 1, 128, 64].into_iter().cycle();
    while n < 1_200 {
        // The other log's records lie between this one's, and the owner changes, so that no writer knows all rows by itself.
        here.append(one(0), None).await?;
        let size = sizes.next().unwrap_or(1);
        let store = if n % 2 == 0 { &rig.store } else { &rig.again };
        let mut writer = match there.take() {
            Some(writer) if n % 3 != 0 => writer,
            _ => store.open(&key("a")?, Some(Seq(n))).await?,
        };
        writer.append(Batch::of((n + 1..=n + size).map(data)), None).await?;
        n += size;
        there = Some(writer);
    }
    drop((here, there));
    let rig = rig.reopen().await?;
    same(numbers(&rig.store, "a").await?, (1..=n).collect(), "records")?;
    let log = log("a")?;
    for from in [0, 1, 2, 127, 128, 129, 256, 257, 700, n - 1, n, n + 1] {
        for limit in [1, 5, 130, 10_000] {
            let page = rig.store.read(&log, Seq(from), limit).await?;
            let seqs: Vec<_> = page.frames.iter().map(|frame| frame.seq.0).collect();
            let due: Vec<_> = (from.max(1)..=n).take(limit).collect();
            // Large records may end a page early; these are small.
            same(seqs, due, &format!("the page from {from} of {limit}"))?;
            same(page.head.seq, Seq(n), "the page's head")?;
        }
    }
    Ok(format!("{n} records"))
}

pub(super) async fn an_unknown_log_is_an_empty_one(rig: Rig) -> Answer {
    let nobody = log("nobody")?;
    let page = rig.store.read(&nobody, Seq(1), 10).await?;
    ensure!(page.frames.is_empty(), "a log nobody wrote has records");
    same(page.head, Head::default(), "its head")?;
    same(rig.store.watch(&nobody).await?.head(), Head::default(), "what a watch shows of it")?;
    ensure!(rig.store.heads(None, 10).await?.is_empty(), "looking at a session made one");
    same(rig.store.id(), rig.again.id(), "the ids of two handles on the same data")?;
    Ok(String::new())
}
