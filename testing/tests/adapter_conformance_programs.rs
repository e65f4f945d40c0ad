//! The adapter conformance suite on the three real programs. Needs them in AGENTRUN_CLAUDE, AGENTRUN_CODEX and AGENTRUN_OPENCODE; without
//! one its cases fail and say so.
// A failed test is the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

#[path = "adapter/subjects.rs"]
mod subjects;

mod claude {
    use std::sync::Arc;

    use crate::subjects::{Claude, options};

    agentrun_testing::adapter_conformance!(Arc::new(Claude), options());
}

mod codex {
    use std::sync::Arc;

    use crate::subjects::{Codex, options};

    agentrun_testing::adapter_conformance!(Arc::new(Codex), options());
}

mod opencode {
    use std::sync::Arc;

    use crate::subjects::{OpenCode, options};

    agentrun_testing::adapter_conformance!(Arc::new(OpenCode), options());
}
