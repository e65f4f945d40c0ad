//! OpenCode as a server of its own for each session: started at the first turn, asked over loopback HTTP, ended with the session.
//!
//! `launch` has how it is started and everything it is told; `server` the running program; `api` the requests it takes. `plugin` is the
//! script that brings the host's tools into it and `callback` the endpoint the script calls back. `timeline` reads what it recorded of the
//! session, `builtins` says which of its own tools a node may list, `mirror` follows that while it runs (the barriers), `mend` writes what must be added and `history` is both as records need
//! them. `session` and `turn` drive it.
//!
//! What a session did is an event log of the program's own: numbered from zero without gaps, each event written in one transaction with
//! the rows it stands for. The log is mirrored line by line, and put into a fresh program by its own replay. So a mirror is never torn
//! between two rows, and a restored session is the one that was.

mod adapter;
mod api;
mod builtins;
mod callback;
mod calls;
mod history;
mod ids;
mod json;
mod launch;
mod mend;
mod mirror;
mod plugin;
mod response;
mod server;
mod session;
mod timeline;
mod turn;

pub use adapter::OpenCodeAdapter;
pub use history::OpenCodeHistory;
pub use launch::PROGRAM;
