//! The trait a harness is driven through, and what is compared before anything is spent.
//!
//! ```text
//!  check(plan) ──► Checked ──admit──► Admission ──open(seat)──► AdapterSession ──run_turn*──► close
//!     │ Refusal: nothing spent, nothing opened                      │ drop: the crash path, the guard ends all
//! ```

use async_trait::async_trait;

use agentrun_kernel::{Built, HarnessVersion, SessionKey, Survey};

use crate::error::{Ability, AdapterError, Refusal, RefusalKind};
use crate::native::NativeHistory;
use crate::process::HarnessProgram;
use crate::seat::{ModelApi, Seat};
use crate::session::AdapterSession;
use crate::tools::ToolSpec;

/// One kind of harness.
///
/// `profile` and `history` are pure and MUST work with no program installed: a settle and a carry need them on machines that never ran
/// the harness. `check` MAY start the program to ask its version, MUST NOT make a model request, and MUST leave nothing running.
#[async_trait]
pub trait AgentAdapter: Send + Sync + 'static {
    /// Its name and the widest it can do, on any version.
    fn profile(&self) -> &AdapterProfile;

    /// How its own history is read and repaired.
    fn history(&self) -> &dyn NativeHistory;

    /// Whether this plan can be run here and now: program found, version in range, abilities there.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was spent; its text says what to do.
    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal>;

    /// Makes the session. It may start nothing until its first turn.
    ///
    /// # Errors
    /// [`AdapterError`]; nothing is left running.
    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError>;
}

/// What an adapter is, before any program is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterProfile {
    /// Its name, as in records and on the command line.
    pub name: &'static str,
    /// The widest it can do.
    pub widest: Capabilities,
    /// The APIs it can be pointed at; empty for one that makes its model steps in process.
    pub speaks: &'static [ModelApi],
    /// The program it starts; `None` for one that is built in.
    pub program: Option<&'static HarnessProgram>,
}

/// What a session can do. The default is nothing: an ability that was forgotten is then refused, never assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It takes messages under our ids, and they are read back by them.
    pub own_ids: bool,
    /// Calls in flight can end while nothing new begins.
    pub drain: bool,
    /// A session can start from another's context.
    pub fork: bool,
    /// It takes words while a turn runs: see [`Words`](crate::Words).
    pub steer: bool,
    /// A response that was recorded and never reached its history can be written back.
    pub restores_responses: bool,
    /// What becomes of its built-in tools.
    pub builtins: Built,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            own_ids: false,
            drain: false,
            fork: false,
            steer: false,
            restores_responses: false,
            builtins: Built::Neither,
        }
    }
}

/// What a session is to be.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// The session.
    pub session: SessionKey,
    /// The model's exact name.
    pub model: String,
    /// What its model endpoint speaks; `None` for model steps made in process.
    pub api: Option<ModelApi>,
    /// The system prompt's parts.
    pub system: Vec<String>,
    /// Host tools, `submit` among them.
    pub tools: Vec<ToolSpec>,
    /// Built-in tools the harness may use.
    pub builtins: Vec<String>,
    /// Whether it starts from another session's context.
    pub fork: bool,
}

/// What `check` found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What this version can do; never wider than the profile.
    pub capabilities: Capabilities,
    /// The program's version.
    pub harness: HarnessVersion,
    /// Where the program is, for adapters that start one.
    pub program: Option<std::path::PathBuf>,
    /// The plan that was checked.
    pub plan: SessionPlan,
}

/// A plan that was checked and whose needs were compared with what the session can do. Only [`admit`] makes one, so no adapter is opened
/// unchecked.
#[derive(Clone, Debug)]
pub struct Admission {
    checked: Checked,
}

impl Admission {
    /// What was checked.
    #[must_use]
    pub const fn checked(&self) -> &Checked {
        &self.checked
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &SessionPlan {
        &self.checked.plan
    }
}

/// Checks the plan with the adapter and compares its needs with what the session can do: once, here.
///
/// # Errors
/// [`Refusal`]: nothing was opened or spent.
pub async fn admit(
    adapter: &dyn AgentAdapter,
    plan: &SessionPlan,
    prior: Option<&Survey>,
) -> Result<Admission, Refusal> {
    speaks(adapter.profile(), plan.api)?;
    let checked = adapter.check(plan, prior).await?;
    let lacks = |ability: Ability| Refusal {
        kind: RefusalKind::Lacks(ability),
        message: format!("{} {} cannot {}", adapter.profile().name, checked.harness.version, ability.as_str()),
        next: "run the node on a harness that can, or take the need out of the node".to_owned(),
    };
    if plan.fork && !checked.capabilities.fork {
        return Err(lacks(Ability::Fork));
    }
    if !plan.builtins.is_empty() && checked.capabilities.builtins == Built::Neither {
        return Err(lacks(Ability::RecordBuiltins));
    }
    Ok(Admission { checked })
}

/// An endpoint the harness cannot speak to is found before a program is looked for.
fn speaks(profile: &AdapterProfile, api: Option<ModelApi>) -> Result<(), Refusal> {
    let named = |apis: &[ModelApi]| match apis {
        [] => "its own steps, without HTTP".to_owned(),
        some => some.iter().map(|api| api.as_str()).collect::<Vec<_>>().join(" or "),
    };
    let fits = api.map_or(profile.speaks.is_empty(), |api| profile.speaks.contains(&api));
    if fits {
        return Ok(());
    }
    Err(Refusal {
        kind: RefusalKind::Api,
        message: format!("{} speaks {}, not {}", profile.name, named(profile.speaks), named(api.as_slice()),),
        next: "choose a provider that the harness speaks to, or another harness".to_owned(),
    })
}
