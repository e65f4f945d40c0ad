//! Bytes that arrive badly: a program stands between the adapter and its harness and does that to every byte.

use agentrun_adapter::TurnEnd;

use super::host::{Work, answer_of};
use super::rig::{Bench, times_shown};
use crate::script::Step;
use crate::suites::failure::{Answer, ensure, same};

/// A whole turn with a call, and a next one on the same program.
async fn works_through(bench: Bench, fault: &str) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("one"), Step::says("two")])?.with_fault(fault).await?;
    let mut owner = rig.own(Work::Answers).await?;
    owner.runs("first").await?;
    owner.runs("second").await?;
    owner.close().await?;
    let requests = rig.model.requests();
    same(requests.len(), 3, "model requests")?;
    let answer = answer_of("work", &bench.call_id("work", 0));
    let shown =
        requests.last().map(|it| (times_shown(it, "first"), times_shown(it, &answer), times_shown(it, "second")));
    same(shown, Some((1, 1, 1)), "times both messages and the call's text were shown")?;
    rig.assert_valid().await?;
    Ok(String::new())
}

pub(super) async fn banners_and_bytes_that_are_no_text_cost_nothing(bench: Bench) -> Answer {
    works_through(bench, "noise").await
}

pub(super) async fn lines_that_end_in_crlf_are_lines(bench: Bench) -> Answer {
    works_through(bench, "crlf").await
}

pub(super) async fn a_line_that_comes_byte_by_byte_is_one_line(bench: Bench) -> Answer {
    works_through(bench, "bytes").await
}

pub(super) async fn a_flood_on_stderr_holds_nothing_up(bench: Bench) -> Answer {
    works_through(bench, "flood").await
}

pub(super) async fn a_program_that_reads_slowly_gets_everything(bench: Bench) -> Answer {
    works_through(bench, "slow").await
}

/// A harness that is spoken with over its pipes has nothing more to say; another one may not notice.
pub(super) async fn output_that_closes_under_a_living_program_ends_the_turn(bench: Bench) -> Answer {
    let rig = bench.rig(vec![bench.works(), Step::says("done")])?.with_fault("closes=SCRATCH/close").await?;
    let mut owner = rig.own(Work::Waits).await?;
    let turn = owner.place("do it").await?;
    let host = owner.host.clone();
    let close = async {
        host.begun().await?;
        std::fs::write(rig.scratch("close"), "")?;
        host.let_go();
        Ok::<_, crate::suites::failure::Failure>(())
    };
    let (end, closed) = tokio::join!(owner.session.run_turn(turn), close);
    closed?;
    let note = match end {
        Ok(end) => {
            ensure!(end == TurnEnd::Idle, "the turn ended {end:?}");
            "it does not need that pipe".to_owned()
        }
        Err(error) => format!("{:?}", error.kind),
    };
    drop(host);
    owner.crash().await?;
    Ok(note)
}
