//! Shared logs: one of those that saw the same place lands, and a batch over two logs lands whole or not at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentrun_kernel::{AppendError, Head, Seq};

use super::data::Rig;
use super::words::{
    Answer, Failure, also, bytes_of, ensure, inbox, key, ledger, numbers, one, raise, raises, refused, retract, same,
    session,
};

pub(super) async fn a_shared_log_takes_one_of_two_that_saw_the_same_place(rig: Rig) -> Answer {
    same(rig.store.append_at(&ledger("r")?, Seq::START, raise("one")).await?, Seq(1), "the answer of the first")?;
    refused!(
        rig.again.append_at(&ledger("r")?, Seq::START, raise("two")).await,
        Err(AppendError::Conflict { expected: Seq(0), found: Seq(1), .. })
    );
    // Ahead of the log is no place either.
    refused!(
        rig.again.append_at(&ledger("r")?, Seq(2), raise("two")).await,
        Err(AppendError::Conflict { expected: Seq(2), found: Seq(1), .. })
    );
    same(rig.again.append_at(&ledger("r")?, Seq(1), raise("two")).await?, Seq(2), "the answer of the second")?;
    same(rig.store.append_at(&inbox("r")?, Seq::START, retract()).await?, Seq(1), "the inbox of the same name")?;
    same(raises(&rig.store, "r").await?, words(&["one", "two"]), "the ledger")?;
    let rig = rig.reopen().await?;
    same(raises(&rig.store, "r").await?, words(&["one", "two"]), "the ledger after a reopen")?;
    Ok(String::new())
}

pub(super) async fn many_tasks_append_to_one_shared_log_and_none_is_lost(rig: Rig) -> Answer {
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let store = Arc::clone(if task % 2 == 0 { &rig.store } else { &rig.again });
            tokio::spawn(async move {
                let mut conflicts = 0;
                for turn in 0..8 {
                    let mut at = Seq::START;
                    loop {
                        match store.append_at(&ledger("r")?, at, raise(&format!("{task}-{turn}"))).await {
                            Ok(_) => break,
                            Err(AppendError::Conflict { found, .. }) => at = found,
                            Err(other) => return Err(Failure::from(other)),
                        }
                        conflicts += 1;
                    }
                }
                Ok(conflicts)
            })
        })
        .collect();
    let mut conflicts = 0;
    for task in tasks {
        conflicts += task.await??;
    }
    let ids = raises(&rig.store, "r").await?;
    same(ids.len(), 128, "records in the ledger")?;
    same(ids.iter().collect::<BTreeSet<_>>().len(), 128, "different records in the ledger")?;
    for task in 0..16 {
        let own: Vec<_> = ids.iter().filter(|id| id.starts_with(&format!("{task}-"))).cloned().collect();
        let due: Vec<_> = (0..8).map(|turn| format!("{task}-{turn}")).collect();
        same(own, due, "one task's records, in its order")?;
    }
    Ok(format!("{conflicts} conflicts"))
}

pub(super) async fn a_batch_over_two_logs_lands_whole(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    writer.append(one(1), also("r", Seq::START, "one")?).await?;
    writer.append(one(2), also("r", Seq(1), "two")?).await?;
    same(numbers(&rig.again, "a").await?, vec![1, 2], "the session")?;
    same(raises(&rig.again, "r").await?, words(&["one", "two"]), "the ledger")?;
    Ok(String::new())
}

pub(super) async fn a_batch_whose_shared_part_conflicts_lands_in_neither_log(rig: Rig) -> Answer {
    let mut writer = rig.store.open(&key("a")?, None).await?;
    rig.again.append_at(&ledger("r")?, Seq::START, raise("other")).await?;
    refused!(
        writer.append(one(1), also("r", Seq::START, "mine")?).await,
        Err(AppendError::Conflict { found: Seq(1), .. })
    );
    ensure!(session(&rig.again, "a").await?.is_empty(), "the session's half landed without the ledger's");
    same(raises(&rig.again, "r").await?, words(&["other"]), "the ledger")?;
    writer.append(one(1), also("r", Seq(1), "mine")?).await?;
    same(numbers(&rig.again, "a").await?, vec![1], "the session after the append was tried again")?;
    Ok(String::new())
}

pub(super) async fn a_fenced_batch_touches_no_shared_log(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    let _new = rig.again.open(&key("a")?, None).await?;
    refused!(old.append(one(1), also("r", Seq::START, "mine")?).await, Err(AppendError::Fenced { .. }));
    ensure!(raises(&rig.again, "r").await?.is_empty(), "the ledger's half landed without the session's");
    same(bytes_of(&rig.again, &ledger("r")?.into()).await?.1, Head::default(), "the ledger's head")?;
    Ok(String::new())
}

/// A loser must not be sent to fold the ledger and try again.
pub(super) async fn f02_the_fence_is_told_before_the_conflict(rig: Rig) -> Answer {
    let mut old = rig.store.open(&key("a")?, None).await?;
    let _new = rig.again.open(&key("a")?, None).await?;
    rig.again.append_at(&ledger("r")?, Seq::START, raise("other")).await?;
    refused!(old.append(one(1), also("r", Seq::START, "mine")?).await, Err(AppendError::Fenced { .. }));
    same(raises(&rig.store, "r").await?, words(&["other"]), "the ledger")?;
    Ok(String::new())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
