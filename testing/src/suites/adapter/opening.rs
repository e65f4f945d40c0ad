//! What is asked before anything is spent, and what an open does and does not.

use agentrun_adapter::{ModelApi, RefusalKind, admit};

use super::host::Work;
use super::rig::{Bench, write_program};
use crate::script::Step;
use crate::suites::failure::{Answer, Failure, ensure, same};

pub(super) async fn b25_check_spends_nothing_and_may_be_asked_again(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("never asked")])?;
    let first = rig.adapter.check(&rig.plan(), None).await?;
    let again = rig.adapter.check(&rig.plan(), None).await?;
    same((first.capabilities, first.harness), (again.capabilities, again.harness.clone()), "what two checks found")?;
    same(rig.model.requests().len(), 0, "model requests")?;
    same(rig.records().await?.len(), 0, "records")?;
    let files = std::fs::read_dir(rig.workspace.path())?.count();
    same(files, 0, "files in the workspace")?;
    Ok(format!("{} {}", again.harness.name, again.harness.version))
}

pub(super) async fn b25_a_program_that_is_not_there_is_refused_with_what_to_install(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?;
    let over = bench.subject.over(&rig.scratch("nothing-here")).ok_or_else(none)?;
    let Err(refusal) = over.check(&rig.plan(), None).await else { return Err(Failure("it was let in".to_owned())) };
    same(&refusal.kind, &RefusalKind::NotInstalled, "the refusal")?;
    ensure!(!refusal.next.is_empty(), "the refusal says nothing of what to do: {refusal}");
    Ok(String::new())
}

pub(super) async fn b25_a_version_outside_the_range_is_refused_and_both_are_named(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?;
    let program = write_program(&rig.scratch("old"), "echo 0.0.1")?;
    let over = bench.subject.over(&program).ok_or_else(none)?;
    match over.check(&rig.plan(), None).await.map(|_| ()) {
        Err(refusal) => match &refusal.kind {
            RefusalKind::Version { found, supported } => {
                same(found.as_str(), "0.0.1", "the version it names as found")?;
                ensure!(!supported.is_empty(), "it does not say what is supported: {refusal}");
                Ok(supported.clone())
            }
            other => Err(Failure(format!("refused as {other:?}"))),
        },
        Ok(()) => Err(Failure("it was let in".to_owned())),
    }
}

fn none() -> Failure {
    Failure("the subject has no adapter over another program".to_owned())
}

pub(super) async fn b25_an_endpoint_it_does_not_speak_to_is_refused(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?;
    let speaks = rig.profile().speaks;
    let foreign = [None, Some(ModelApi::Messages), Some(ModelApi::Responses), Some(ModelApi::ChatCompletions)];
    let spoken = |api: &Option<ModelApi>| api.map_or(speaks.is_empty(), |api| speaks.contains(&api));
    for api in foreign.into_iter().filter(|api| !spoken(api)) {
        let plan = agentrun_adapter::SessionPlan { api, ..rig.plan() };
        let refused = admit(&*rig.adapter, &plan, None).await.map(|_| ()).map_err(|refusal| refusal.kind);
        same(refused, Err(RefusalKind::Api), &format!("an endpoint that speaks {api:?}"))?;
    }
    Ok(String::new())
}

pub(super) async fn b25_built_ins_it_cannot_record_are_refused(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?.with_builtin("bash");
    let refused = admit(&*rig.adapter, &rig.plan(), None).await.map(|_| ()).map_err(|refusal| refusal.kind);
    same(refused, Err(RefusalKind::Lacks(agentrun_adapter::Ability::RecordBuiltins)), "a plan with a built-in")?;
    Ok(String::new())
}

pub(super) async fn b26_a_fork_it_cannot_do_is_refused(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?;
    let plan = agentrun_adapter::SessionPlan { fork: true, ..rig.plan() };
    let refused = admit(&*rig.adapter, &plan, None).await.map(|_| ()).map_err(|refusal| refusal.kind);
    same(refused, Err(RefusalKind::Lacks(agentrun_adapter::Ability::Fork)), "a plan that forks")?;
    Ok(String::new())
}

pub(super) async fn b27_an_open_places_and_asks_nothing(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("never asked")])?;
    let owner = rig.own(Work::Answers).await?;
    ensure!(!owner.survey.resumable && owner.survey.taken.is_empty(), "an empty history says {:?}", owner.survey);
    ensure!(owner.drive.with_state(|state| state.open_turn.is_none()), "a turn was opened");
    owner.close().await?;
    same(rig.model.requests().len(), 0, "model requests")?;
    Ok(String::new())
}

pub(super) async fn b27_an_open_of_a_finished_session_asks_nothing_and_its_history_says_so(bench: Bench) -> Answer {
    let rig = bench.rig(vec![Step::says("done"), Step::says("never asked")])?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("do it").await?;
    owner.close().await?;
    let owner = rig.own(Work::Answers).await?;
    ensure!(owner.survey.ended && owner.survey.resumable, "the history says {:?}", owner.survey);
    same(owner.survey.taken.len(), 1, "messages taken")?;
    owner.close().await?;
    same(rig.model.requests().len(), 1, "model requests")?;
    Ok(String::new())
}

pub(super) async fn what_a_session_can_do_is_never_wider_than_its_profile(bench: Bench) -> Answer {
    let rig = bench.rig(Vec::new())?;
    let owner = rig.own(Work::Answers).await?;
    let (has, may) = (owner.session.capabilities(), rig.profile().widest);
    let pairs = [
        ("own_ids", has.own_ids, may.own_ids),
        ("drain", has.drain, may.drain),
        ("fork", has.fork, may.fork),
        ("steer", has.steer, may.steer),
        ("restores_responses", has.restores_responses, may.restores_responses),
        ("built-ins", has.builtins != agentrun_kernel::Built::Neither, may.builtins != agentrun_kernel::Built::Neither),
    ];
    for (name, has, may) in pairs {
        ensure!(may || !has, "the session can {name}, its profile cannot");
    }
    owner.close().await?;
    Ok(String::new())
}
