//! The data of a store under test, and what can be done to it from outside. A case asks for abilities; data that lacks one is fine, and
//! the report says which cases it cost.

use std::any::Any;
use std::time::{Duration, Instant};

use agentrun_kernel::{Store, StoreError};

/// What can be done to a store's data beside opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// [`Data::beside`].
    Beside,
    /// [`Data::leaving`].
    Leaving,
    /// [`Data::copies`].
    Copies,
    /// [`Data::sync_faults`].
    SyncFaults,
    /// [`Data::power_cuts`].
    PowerCuts,
}

impl Ability {
    /// Every ability.
    pub const ALL: [Self; 5] = [Self::Beside, Self::Leaving, Self::Copies, Self::SyncFaults, Self::PowerCuts];

    /// As a report names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Beside => "several handles at once",
            Self::Leaving => "sessions removed and landed",
            Self::Copies => "an old copy put back",
            Self::SyncFaults => "syncs that fail",
            Self::PowerCuts => "power cuts",
        }
    }
}

type Act = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
type Switch = Box<dyn Fn(bool) -> Result<(), String> + Send + Sync>;

/// The data of one store, empty at first. A suite's factory makes fresh ones, each away from all others.
pub struct Data {
    open: Box<dyn Fn() -> Result<Store, StoreError> + Send + Sync>,
    beside: bool,
    leaving: bool,
    copies: Option<(Act, Act)>,
    fail_syncs: Option<Switch>,
    cut: Option<Act>,
    // Last, so that it drops when nothing of the store is left.
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Data {
    /// Data that `open` gives a handle on: the first one makes it, each later one finds what the earlier left.
    #[must_use]
    pub fn new(open: impl Fn() -> Result<Store, StoreError> + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
            beside: false,
            leaving: false,
            copies: None,
            fail_syncs: None,
            cut: None,
            _kept: Vec::new(),
        }
    }

    /// Keeps `kept` as long as the data: a temporary folder.
    #[must_use]
    pub fn keep(mut self, kept: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(kept));
        self
    }

    /// `open` may be called while earlier handles live, as by another process. Without it a second handle is a clone of the first.
    #[must_use]
    pub const fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// The store removes sessions and lets others land: it does not leave [`SessionStore`](agentrun_kernel::SessionStore)'s defaults.
    #[must_use]
    pub const fn leaving(mut self) -> Self {
        self.leaving = true;
        self
    }

    /// `save` keeps a copy of all there is (once a case); `restore` puts it back in place, under the handles that are open.
    #[must_use]
    pub fn copies(
        mut self,
        save: impl Fn() -> Result<(), String> + Send + Sync + 'static,
        restore: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.copies = Some((Box::new(save), Box::new(restore)));
        self
    }

    /// After `fail(true)` every sync of the data fails, until `fail(false)`.
    #[must_use]
    pub fn sync_faults(mut self, fail: impl Fn(bool) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.fail_syncs = Some(Box::new(fail));
        self
    }

    /// `cut` takes the power: what was never synced is gone, handles opened before it can do nothing more to the data, and the next
    /// `open` finds what was synced.
    #[must_use]
    pub fn power_cuts(mut self, cut: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.cut = Some(Box::new(cut));
        self
    }

    /// Whether it was given this ability.
    #[must_use]
    pub const fn is_able(&self, ability: Ability) -> bool {
        match ability {
            Ability::Beside => self.beside,
            Ability::Leaving => self.leaving,
            Ability::Copies => self.copies.is_some(),
            Ability::SyncFaults => self.fail_syncs.is_some(),
            Ability::PowerCuts => self.cut.is_some(),
        }
    }
}

/// Fresh data with two handles on it, as a case gets it.
pub(super) struct Rig {
    pub(super) store: Store,
    /// A second handle, with a committer of its own where the data allows it.
    pub(super) again: Store,
    data: Data,
    pub(super) options: super::Options,
}

impl Rig {
    pub(super) fn new(data: Data, options: super::Options) -> Result<Self, StoreError> {
        let store = (data.open)()?;
        let again = if data.beside { (data.open)()? } else { store.clone() };
        Ok(Self { store, again, data, options })
    }

    /// Drops both handles and opens anew. The caller has dropped its writers.
    pub(super) async fn reopen(self) -> Result<Self, StoreError> {
        let Self { store, again, data, options } = self;
        drop((store, again));
        let store = open_soon(&data).await?;
        let again = if data.beside { (data.open)()? } else { store.clone() };
        Ok(Self { store, again, data, options })
    }

    pub(super) fn save(&self) -> Result<(), String> {
        self.data.copies.as_ref().map_or_else(lacking, |(save, _)| save())
    }

    pub(super) fn restore(&self) -> Result<(), String> {
        self.data.copies.as_ref().map_or_else(lacking, |(_, restore)| restore())
    }

    pub(super) fn fail_syncs(&self, failing: bool) -> Result<(), String> {
        self.data.fail_syncs.as_ref().map_or_else(lacking, |fail| fail(failing))
    }

    pub(super) fn cut(&self) -> Result<(), String> {
        self.data.cut.as_ref().map_or_else(lacking, |cut| cut())
    }
}

/// A store that lets one process in at a time is closed by threads that end a moment after their handle.
async fn open_soon(data: &Data) -> Result<Store, StoreError> {
    let began = Instant::now();
    loop {
        match (data.open)() {
            Err(_) if !data.beside && began.elapsed() < Duration::from_secs(20) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return answer,
        }
    }
}

fn lacking() -> Result<(), String> {
    Err("a case used an ability it did not ask for".to_owned())
}
