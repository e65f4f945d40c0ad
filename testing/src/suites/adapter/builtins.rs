//! The harness's own tools: recorded before they run, or denied.

use std::time::Duration;

use agentrun_kernel::Step as Pause;

use super::host::{FORBIDDEN, NOT_HERE, Work};
use super::rig::Bench;
use crate::script::Step;
use crate::suites::failure::{Answer, Failure, ensure, same};

/// How long is looked for what must not come.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn b70_a_built_in_has_its_intent_before_it_runs_and_the_text_the_model_gets_for_an_outcome(
    bench: Bench,
) -> Answer {
    let (tool, arguments) = bench.command("echo made > made; echo seen")?;
    let rig = bench.rig(vec![bench.calls(&[(&tool, arguments)]), Step::says("done")])?.with_builtin(&tool);
    let made = rig.workspace.path().join("made");
    let (mut owner, mut manual) = rig.own_step_by_step(Work::Answers).await?;
    let follow = async {
        while let Some(paused) = manual.paused().await {
            if matches!(paused.step(), Pause::Append(kinds) if kinds.contains(&"intent")) {
                tokio::time::sleep(LOOK).await;
                ensure!(!made.exists(), "the command ran before its intent was recorded");
            }
            paused.go();
        }
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ran = owner.runs("look") => ran?,
        early = follow => early?,
    }
    drop(manual);
    owner.close().await?;
    let outcomes = rig.outcomes().await?;
    let [(name, _, text)] = outcomes.as_slice() else {
        return Err(Failure(format!("one outcome was due, there are {outcomes:?}")));
    };
    same(name.as_str(), tool.as_str(), "the outcome's tool")?;
    let shown = rig.model.requests().last().is_some_and(|it| it.mentions(text.trim_end()));
    ensure!(shown, "the model was not shown the recorded text {text:?}");
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn b70_a_denied_built_in_never_runs_and_the_model_is_told(bench: Bench) -> Answer {
    let (tool, arguments) = bench.command(&format!("echo {FORBIDDEN} > made"))?;
    let rig = bench.rig(vec![bench.calls(&[(&tool, arguments)]), Step::says("done")])?.with_builtin(&tool);
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("look").await?;
    owner.close().await?;
    ensure!(!rig.workspace.path().join("made").exists(), "a denied command ran");
    same(rig.outcomes().await?.len(), 0, "outcomes of a call that was denied")?;
    let requests = rig.model.requests();
    same(requests.len(), 2, "model requests")?;
    let last = requests.last();
    same(last.map_or(0, crate::script::Conversation::results), 1, "results the model was shown")?;
    rig.assert_valid().await?;
    // Some harnesses have no way to pass a reason on.
    let why = last.is_some_and(|it| it.mentions(NOT_HERE));
    Ok(if why { "with the host's reason" } else { "in the harness's own words" }.to_owned())
}
