//! A session leaves a store as a file, and arrives in another from it.
//!
//! ```text
//!  seal ──► [.. moved{to}]  fenced for good ──► export ──► FILE ──► Import::read (all of it, checked) ──► land under the SAME key
//!           nothing is sealed ───────────────► export ──► FILE ──► Import::read ──► land under ANOTHER key, what was open ends interrupted
//! ```
//!
//! No fence reaches from one store into another. What keeps a moved session from having two owners is that the old one can write no more
//! before the new one can: only an export that ends in the seal may land under its own key, one epoch up. It can tell one store from
//! another, not one copy of the file from the next: **land a sealed export once**.
//!
//! What moves is the session and its inbox. Its run's ledger does not: other sessions go on paying from it, and the holds and bookings
//! of the one that left keep counting there. So that no cap is ever widened by a move, the run begins where the session lands with what
//! the session has counted so far (as one booking) and, if it had a cap, with exactly that much cap: no room. A person raises it.
//!
//! # The file
//!
//! JSON, one object a line, because a person who is handed one can look into it with any tool, and because damage can be told by its line:
//!
//! ```text
//!  {"type":"export","version":1,"format":1,"by":"0.1.0","key":"t1","records":57,"inbox":1,"cap":"5"}
//!  {"type":"record","seq":1,"epoch":1,"at":1764488000000,"crc":"9ae0daaf","text":"{\"kind\":\"bound\",…}"}
//!  …                                                     bytes behind a record's text: "blob" as text, or "hex" where they are none
//!  {"type":"post","seq":1,…}
//!  {"type":"earlier","key":"t0"}                         an attempt of the same step that this one rests on; it must have landed before
//!  {"type":"end","sha256":"…"}                           over every byte before this line
//! ```
//!
//! Each record keeps the checksum it had in its store, over the log's name, its place and its bytes; the last line covers the whole file,
//! and its absence tells a file that was cut. A file holds what the records hold and nothing else: no credential is in them, and no path
//! or environment of the machine is added. Its checksums tell damage; they do not tell who wrote it.

mod export;
mod file;
mod import;
mod lines;

pub use export::{ExportError, Exported, SealError, Sealed, export, seal};
pub use file::{FileError, FileFault};
pub use import::{IMPORTED, Import, LandError, Landed};
