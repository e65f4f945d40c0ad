//! `agentrun resume`: the same run again from its records alone. The node and the flags come from the session's first record; only the
//! credential is asked for anew, since it is in no record, and the API's address may have moved.

use agentrun_kernel::SessionKey;

use crate::args::ResumeArgs;
use crate::credential::Secrets;
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::run::{Place, go};
use crate::stores;

pub(crate) async fn resume(url: &str, args: &ResumeArgs, secrets: &Secrets) -> Result<Exit, Failure> {
    let store = stores::existing(url).await?;
    let session: SessionKey = args.session.clone();
    let (_, state) = stores::session(&store, url, &session).await?;
    let Some(bound) = &state.bound else {
        return Err(Failure::refused(format!(
            "session `{session}` was opened and never bound to a node; run it again: agentrun run NODE.json --session {session}"
        )));
    };
    let mut plan = Plan::of_record(&session, &bound.host, state.answered())?;
    plan.flags.moved_to(args.base_url.as_deref())?;
    let run = bound.run.clone();
    go(Place { store, url, session, run, state }, &plan, &args.how, secrets).await
}
