//! What is durable when: synced and buffered batches, failing syncs, and the power going at any instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentrun_kernel::{AppendError, BUFFER_TIME, Head, LedgerBody, OpenError, Seq, Store, StoreError, read_all};

use super::data::Rig;
use super::words::{
    Answer, Failure, also, buffered, bytes_of, ensure, key, ledger, log, numbers, one, poll, raise, refused, rigged,
    same, session,
};

pub(super) async fn f18_buffered_batches_keep_their_order_before_a_synced_one(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    let mut due = Vec::new();
    for round in 0..20_u64 {
        for n in 0..round % 4 {
            due.push(round * 10 + n);
            let seq = writer.append(buffered(round * 10 + n), None).await?;
            same(seq.0, due.len() as u64, "the answer of a buffered append")?;
        }
        due.push(round * 10 + 9);
        writer.append(one(round * 10 + 9), None).await?;
        same(numbers(&rig.again, "a").await?, due.clone(), "records after a synced append")?;
    }
    Ok(String::new())
}

pub(super) async fn f18_readers_stop_before_records_that_are_not_synced(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(one(1), None).await?;
    writer.append(buffered(2), None).await?;
    // Wait until it is surely with the backend: a take elsewhere finds it.
    let (again, key) = (&rig.again, &key("a")?);
    let ask = || async move {
        match again.open(key, Some(Seq(7))).await {
            Err(OpenError::HeadChanged { found: Seq(1), .. }) => Ok(None),
            Err(OpenError::HeadChanged { found, .. }) => Ok(Some(found)),
            other => Err(Failure(format!("an open at another head answered {:?}", other.map(|_| "a writer")))),
        }
    };
    same(poll("the buffered record", ask).await?, Seq(2), "what an open found")?;
    // That take showed it to readers; the next one is again only the backend's.
    writer.append(buffered(3), None).await?;
    same(numbers(&rig.store, "a").await?, vec![1, 2], "records before the sync")?;
    writer.append(one(4), None).await?;
    same(numbers(&rig.store, "a").await?, vec![1, 2, 3, 4], "records after it")?;
    Ok(String::new())
}

pub(super) async fn f18_a_dead_owners_buffered_records_are_shown_to_the_next_before_it_takes(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(one(1), None).await?;
    writer.append(buffered(2), None).await?;
    drop(writer);
    let (again, key, log) = (&rig.again, &key("a")?, &log("a")?);
    let ask = || async move {
        let seen = again.read(log, Seq(1), 10).await?.head.seq;
        // Before the buffered batch reached the backend a take at 1 is right too; only what was seen may be taken.
        match again.open(key, Some(seen)).await {
            Ok(writer) => Ok(Some((seen, writer.last()))),
            Err(OpenError::HeadChanged { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    };
    let (seen, taken) = poll("a take", ask).await?;
    same(taken, seen, "the last seq of the take against the one its decision saw")?;
    Ok(String::new())
}

pub(super) async fn f18_a_buffered_batch_of_a_fenced_writer_fails_its_next_synced_one(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    let _new = rig.again.open(&key("a")?, None).await?;
    old.append(buffered(1), None).await.ok();
    refused!(old.append(one(2), None).await, Err(AppendError::Fenced { .. }));
    ensure!(session(&rig.store, "a").await?.is_empty(), "a fenced writer wrote");
    Ok(String::new())
}

pub(super) async fn f17_a_failed_sync_is_unknown_and_poisons_the_store(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    let mut other = rig.store.open(&key("b")?, None).await?;
    writer.append(one(1), None).await?;
    rigged(rig.fail_syncs(true))?;
    refused!(writer.append(one(2), None).await, Err(AppendError::Unknown(_)));
    rigged(rig.fail_syncs(false))?;
    // The disk works again; what it lost it still has lost, so nothing goes on over it.
    refused!(writer.append(one(3), None).await, Err(AppendError::Unknown(_)));
    refused!(other.append(one(1), None).await, Err(AppendError::Unknown(StoreError::Poisoned(_))));
    refused!(rig.store.open(&key("c")?, None).await, Err(OpenError::Store(StoreError::Poisoned(_))));
    refused!(
        rig.store.append_at(&ledger("r")?, Seq::START, raise("x")).await,
        Err(AppendError::Unknown(StoreError::Poisoned(_)))
    );
    drop((writer, other));
    let rig = rig.reopen().await?;
    let found = numbers(&rig.store, "a").await?;
    ensure!(found == [1] || found == [1, 2], "after the failed sync the log holds {found:?}");
    ensure!(session(&rig.store, "b").await?.is_empty(), "the poisoned store wrote");
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(one(9), None).await?;
    let due: Vec<u64> = found.iter().copied().chain([9]).collect();
    same(numbers(&rig.store, "a").await?, due, "records of the next owner")?;
    Ok(format!("the unknown append {}", if found.len() == 2 { "landed" } else { "did not land" }))
}

pub(super) async fn f17_no_fence_is_told_that_was_not_synced(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    old.append(one(1), None).await?;
    rigged(rig.fail_syncs(true))?;
    let taken = rig.store.open(&key("a")?, None).await;
    ensure!(taken.is_err(), "an open whose sync failed answered a writer");
    rigged(rig.fail_syncs(false))?;
    let told = old.append(one(2), None).await;
    drop(old);
    let rig = rig.reopen().await?;
    let epoch = epoch(&rig.store, "a").await?;
    match told {
        Err(AppendError::Fenced { newer }) => {
            ensure!(epoch >= newer.0, "an append was refused by epoch {newer}, the log is at {epoch}");
        }
        Err(AppendError::Unknown(_)) => {}
        other => ensure!(false, "an append on the poisoned store answered {other:?}"),
    }
    Ok(String::new())
}

/// Writers whose every batch is one of both logs, until the power goes between any two instants.
pub(super) async fn f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch(mut rig: Rig) -> Answer {
    const WRITERS: u64 = 4;
    let mut acknowledged = vec![0; WRITERS as usize];
    let mut kept = 0;
    for round in 1..=12_u64 {
        let acked: Vec<_> = (0..WRITERS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let tasks: Vec<_> = acked
            .iter()
            .zip(0..)
            .map(|(acked, w)| {
                let store = Arc::clone(if w % 2 == 0 { &rig.store } else { &rig.again });
                tokio::spawn(write_until_cut(store, w, Arc::clone(acked)))
            })
            .collect();
        let enough = 10 + round * 13 % 40;
        let heard = || acked.iter().map(|acked| acked.load(Ordering::SeqCst)).sum::<u64>();
        let start: u64 = acknowledged.iter().sum();
        poll("an acknowledgement", || async { Ok((heard() >= start + enough).then_some(())) }).await?;
        give_way(round * 5 % 17).await;
        for (before, acked) in acknowledged.iter_mut().zip(&acked) {
            *before = acked.load(Ordering::SeqCst).max(*before);
        }
        rigged(rig.cut())?;
        for task in tasks {
            task.abort();
            // Aborted, or ended by the cut.
            if let Ok(ended) = task.await {
                ended?;
            }
        }
        rig = rig.reopen().await?;
        for (w, acked) in (0..WRITERS).zip(&mut acknowledged) {
            let records = session(&rig.store, &format!("s{w}")).await?;
            let found = numbers(&rig.store, &format!("s{w}")).await?;
            same(found.clone(), (1..=records.len() as u64).collect(), "records of a writer, dense and in order")?;
            let there = found.len() as u64;
            ensure!(there >= *acked, "writer {w}: {acked} acknowledged before cut {round}, {there} there after it");
            ensure!(records.is_sorted_by_key(|record| record.epoch), "writer {w}: epochs went back");
            let shared = ledger(&format!("r{w}"))?.into();
            let shared = read_all::<LedgerBody>(rig.store.as_ref(), &shared).await?.len() as u64;
            // Buffered batches (each third record) are of the session alone.
            same(shared, there - there / 3, &format!("writer {w}: its ledger's records, its session has {there}"))?;
            *acked = there;
            kept += 1;
        }
    }
    Ok(format!("{} records, {kept} logs looked at after a cut", acknowledged.iter().sum::<u64>()))
}

/// Appends to its session and, but for each third batch, in the same step to its ledger; counts what was acknowledged as synced.
async fn write_until_cut(store: Store, w: u64, acked: Arc<AtomicU64>) -> Result<(), Failure> {
    let Ok(mut writer) = store.open(&key(&format!("s{w}"))?, None).await else { return Ok(()) };
    loop {
        let n = writer.last().0 + 1;
        let answer = if n % 3 == 0 {
            writer.append(buffered(n), None).await
        } else {
            let shared = n - 1 - (n - 1) / 3;
            writer.append(one(n), also(&format!("r{w}"), Seq(shared), "x")?).await
        };
        match answer {
            Ok(seq) if n % 3 != 0 => acked.store(seq.0, Ordering::SeqCst),
            Ok(_) => {}
            // The power went.
            Err(AppendError::Unknown(_)) => return Ok(()),
            Err(other) => return Err(Failure(format!("writer {w} at record {n}: {other}"))),
        }
    }
}

/// A store that syncs one group and not the next must not carry the one's way over to the other.
pub(super) async fn f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut(mut rig: Rig) -> Answer {
    for round in 0..3 {
        let mut writer = rig.store.open(&key("a")?, None).await?;
        let last = writer.last().0;
        writer.append(buffered(last + 1), None).await?;
        // Long enough for it to be a group alone, on all but a stalled machine; the promise holds either way.
        tokio::time::sleep(BUFFER_TIME * 2).await;
        writer.append(one(last + 2), None).await?;
        rigged(rig.cut())?;
        drop(writer);
        rig = rig.reopen().await?;
        let due: Vec<_> = (1..=last + 2).collect();
        same(numbers(&rig.store, "a").await?, due, &format!("records after cut {round}"))?;
    }
    Ok(String::new())
}

/// Fenced is final for whoever hears it, so the epoch it names must survive a cut of that very instant.
pub(super) async fn f17_a_refusal_rests_on_a_durable_epoch(mut rig: Rig) -> Answer {
    for round in 0..24 {
        let mut old = rig.store.open(&key("a")?, None).await?;
        let mut n = old.last().0;
        let again = Arc::clone(&rig.again);
        let taking = tokio::spawn(async move { again.open(&key("a")?, None).await.map_err(Failure::from) });
        let newer = loop {
            n += 1;
            // Asks at another instant of the take each time, its sync among them.
            match round % 3 {
                0 => tokio::time::sleep(Duration::from_millis(1)).await,
                _ => give_way((n * 7 + round) % 12).await,
            }
            match tokio::time::timeout(Duration::from_secs(20), old.append(one(n), None)).await {
                Ok(Ok(_)) => {}
                Ok(Err(AppendError::Fenced { newer })) => break newer,
                Ok(Err(other)) => return Err(other.into()),
                Err(_) => return Err(Failure("the old writer was answered nothing in 20 s".to_owned())),
            }
        };
        rigged(rig.cut())?;
        taking.abort();
        let _ = taking.await;
        drop(old);
        rig = rig.reopen().await?;
        let epoch = epoch(&rig.store, "a").await?;
        ensure!(epoch >= newer.0, "an append was refused by epoch {newer}; after a power cut the log is at {epoch}");
    }
    Ok(String::new())
}

/// Whoever hears of a conflict folds the tail it names: it must be there.
pub(super) async fn f17_a_conflict_rests_on_a_durable_record(mut rig: Rig) -> Answer {
    for round in 0..10 {
        let shared = ledger("r")?;
        let expected = Seq(bytes_of(&rig.store, &shared.clone().into()).await?.1.seq.0);
        let (again, log) = (Arc::clone(&rig.again), shared.clone());
        let first = tokio::spawn(async move { again.append_at(&log, expected, raise("first")).await });
        let mut found = None;
        // Whoever is second hears of the first; which one that is does not matter.
        let second = rig.store.append_at(&shared, expected, raise("second")).await;
        if let Err(AppendError::Conflict { found: seq, .. }) = second {
            found = Some(seq);
        }
        rigged(rig.cut())?;
        if let Ok(Err(AppendError::Conflict { .. })) = first.await {
            same(second.is_ok(), true, "whether the second landed, which the first conflicted with")?;
        }
        rig = rig.reopen().await?;
        let Head { seq, .. } = bytes_of(&rig.store, &shared.into()).await?.1;
        let told = second.ok().or(found).unwrap_or(expected);
        ensure!(seq >= told, "round {round}: an append heard of seq {told}; after a power cut the log is at {seq}");
    }
    Ok(String::new())
}

async fn give_way(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

async fn epoch(store: &Store, name: &str) -> Result<u64, Failure> {
    Ok(bytes_of(store, &log(name)?).await?.1.epoch.0)
}
