//! What a fault of a layer below means for the node: its word, and what to do.

use agentrun_adapter::{Ability, Refusal, RefusalKind};
use agentrun_kernel::{DriveError, Parked, StoreError};

use crate::books::LedgerError;
use crate::bridge::ReviewFault;
use crate::error::{NodeError, NodeWord, ParkedAt, word_of};
use crate::inbox::TakeError;
use crate::node::Step;
use crate::recover::RecoveryError;

pub(crate) fn refused(step: &Step, refusal: &Refusal) -> NodeError {
    let word = match refusal.kind {
        RefusalKind::Lacks(Ability::Fork) => NodeWord::ForkRefused,
        _ => NodeWord::Refused,
    };
    NodeError::new(&step.session, word, refusal.to_string())
}

pub(crate) fn storage(step: &Step, error: &StoreError) -> NodeError {
    NodeError::new(&step.session, NodeWord::Storage, error.to_string())
}

pub(crate) fn of_drive(step: &Step, error: &DriveError) -> NodeError {
    let word = match error {
        DriveError::Restart(restart) if restart.is_fenced() => NodeWord::Fenced,
        _ => NodeWord::Storage,
    };
    NodeError::new(&step.session, word, error.to_string())
}

pub(crate) fn of_ledger(step: &Step, error: &LedgerError) -> NodeError {
    match error {
        LedgerError::Drive(error) => of_drive(step, error),
        LedgerError::Store(error) => storage(step, error),
        LedgerError::Denied(denied) => NodeError::new(&step.session, word_of(denied), denied.to_string()),
        refused @ LedgerError::NegativeCap(_) => NodeError::new(&step.session, NodeWord::Refused, refused.to_string()),
        other => NodeError::new(&step.session, NodeWord::Storage, other.to_string()),
    }
}

pub(crate) fn of_recovery(step: &Step, error: RecoveryError) -> NodeError {
    let fail = |word, message: String| NodeError::new(&step.session, word, message);
    match error {
        RecoveryError::Ledger(error) => of_ledger(step, &error),
        RecoveryError::Review(ReviewFault::Drive(error)) => of_drive(step, &error),
        RecoveryError::Review(error @ ReviewFault::Host(_)) => fail(NodeWord::HostFault, error.to_string()),
        RecoveryError::Store(error) | RecoveryError::Inbox(TakeError::Store(error)) => storage(step, &error),
        RecoveryError::Inbox(TakeError::Drive(error)) => of_drive(step, &error),
        error @ (RecoveryError::History(_) | RecoveryError::Endless) => fail(NodeWord::Harness, error.to_string()),
    }
}

pub(crate) fn parked_error(step: &Step, parked: &Parked, message: String) -> NodeError {
    let mut error = NodeError::new(&step.session, NodeWord::OverCap, message);
    error.park = Some(ParkedAt { needed: parked.needed, cap: parked.cap, spent: parked.spent });
    error
}
