//! The head of a request as it came over the wire, read beside hyper. hyper hides what two readers could understand differently: of two
//! lengths it keeps one, it drops `#fragment`, it takes absolute targets and bare line feeds. A [`Watched`] stream sees the same bytes,
//! judges each head strictly, and leaves its verdict for the request that hyper makes of it.
//!
//! ```text
//!  socket ─► Watched ─► hyper ─► Door::handle(request)
//!               └─ verdict of each head, in order ──┘
//! ```
//! A body must announce its length, so the watch always knows where the next head begins; after one bad head it trusts nothing more.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::StatusCode;
use memchr::memchr_iter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::edge::{Malformed, bad};

/// Largest head. Claude Code's is about 2 KiB.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// Verdicts on the heads of one connection.
#[derive(Clone, Default)]
pub(crate) struct Verdicts(Arc<Mutex<Watch>>);

#[derive(Default)]
struct Watch {
    /// The head so far; empty between requests.
    head: Vec<u8>,
    /// Bytes of the current body that are still to come.
    body: u64,
    verdicts: VecDeque<Result<(), Malformed>>,
    broken: Option<Malformed>,
}

impl Verdicts {
    /// The verdict on the head of the request that hyper hands over next. Taken once a request, in order.
    pub(crate) fn next(&self) -> Result<(), Malformed> {
        let mut watch = self.watch();
        match (watch.verdicts.pop_front(), watch.broken) {
            (Some(verdict), _) => verdict,
            (None, Some(broken)) => Err(broken),
            // hyper saw a head where the watch saw none: the two disagree about where it began.
            (None, None) => Err(bad("the head of the request is ambiguous")),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn see(&mut self, mut bytes: &[u8]) {
        while self.broken.is_none() && !bytes.is_empty() {
            if self.body > 0 {
                let skipped = usize::try_from(self.body).unwrap_or(usize::MAX).min(bytes.len());
                self.body = self.body.saturating_sub(skipped as u64);
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            // Most heads come in one piece, and are judged where they stand.
            if self.head.is_empty()
                && let Some((head, rest)) = whole_head(bytes)
            {
                bytes = rest;
                if let Err(malformed) = self.head_came(head) {
                    self.broken = Some(malformed);
                }
                continue;
            }
            // Else line by line, so that a bare line feed or an endless head is seen before hyper acts on it.
            let line = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at.saturating_add(1));
            let (line, rest) = bytes.split_at_checked(line).unwrap_or((bytes, &[]));
            bytes = rest;
            self.head.extend_from_slice(line);
            if let Err(malformed) = self.line_came() {
                self.broken = Some(malformed);
            }
        }
    }

    fn line_came(&mut self) -> Result<(), Malformed> {
        if self.head.len() > HEAD_BYTES {
            return Err(Malformed {
                status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                what: "the head is over 64 KiB",
            });
        }
        if !self.head.ends_with(b"\n") {
            return Ok(());
        }
        if !self.head.ends_with(b"\r\n") {
            return Err(bad(BARE));
        }
        // The one empty line that a client may leave after its last body.
        if self.head == b"\r\n" {
            self.head.clear();
        } else if self.head.ends_with(b"\r\n\r\n") {
            let mut head = std::mem::take(&mut self.head);
            self.head_came(&head)?;
            head.clear();
            self.head = head;
        }
        Ok(())
    }

    fn head_came(&mut self, head: &[u8]) -> Result<(), Malformed> {
        self.body = body_length(head)?;
        self.verdicts.push_back(Ok(()));
        Ok(())
    }
}

const BARE: &str = "lines of the head must end with CRLF";

/// A head that stands whole at the beginning of `bytes`, and what follows it. `None` where the way line by line has to say what is wrong.
fn whole_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = 0_usize;
    for feed in memchr_iter(b'\n', bytes.get(..HEAD_BYTES).unwrap_or(bytes)) {
        let line = bytes.get(start..feed)?.strip_suffix(b"\r")?;
        // An empty line before a head is no head.
        match (line.is_empty(), start) {
            (true, 0) => return None,
            (true, _) => return bytes.split_at_checked(feed.saturating_add(1)),
            (false, _) => start = feed.saturating_add(1),
        }
    }
    None
}

/// How long the body after this head is, if the head can be read in one way only. Every request's head passes here: each line is looked at once,
/// and values, which are most of it, many bytes at a time.
fn body_length(head: &[u8]) -> Result<u64, Malformed> {
    let mut at = 0_usize;
    let mut lines = memchr_iter(b'\n', head).map(|feed| {
        let line = head.get(at..feed).unwrap_or_default();
        at = feed.saturating_add(1);
        line.strip_suffix(b"\r").ok_or(bad(BARE))
    });
    request_line(lines.next().unwrap_or(Ok(&[]))?)?;
    let (mut length, mut hosts, mut transfer) = (None, 0_u32, None);
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        let colon = memchr::memchr(b':', line).ok_or(bad("a header line has no colon"))?;
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default();
        if name.is_empty() || !name.iter().all(|byte| TOKEN.get(usize::from(*byte)).is_some_and(|is| *is)) {
            return Err(bad("a header's name must end at its colon, and a header on one line"));
        }
        // No early end: so the compiler makes it sixteen bytes at once.
        if !value.iter().fold(true, |fits, byte| fits & (*byte == b'\t' || (b' '..=b'~').contains(byte))) {
            return Err(bad("a header's value has characters that are not printable ASCII"));
        }
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let stated = number(blank(value)).ok_or(bad("Content-Length must be a number"))?;
                if length.replace(stated).is_some() {
                    return Err(bad("one Content-Length at most"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => transfer = transfer.or(Some(blank(value))),
            4 if name.eq_ignore_ascii_case(b"host") => hosts = hosts.saturating_add(1),
            _ => {}
        }
    }
    match transfer {
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") && length.is_none() => {
            return Err(Malformed {
                status: StatusCode::LENGTH_REQUIRED,
                what: "the body must come with its Content-Length",
            });
        }
        Some(_) => return Err(bad("Content-Length only, no Transfer-Encoding")),
        None => {}
    }
    if hosts > 1 {
        return Err(bad("one Host at most"));
    }
    Ok(length.unwrap_or(0))
}

fn request_line(line: &[u8]) -> Result<(), Malformed> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the request line must be a method, a path and a version"));
    };
    if version != b"HTTP/1.1" {
        return Err(Malformed { status: StatusCode::HTTP_VERSION_NOT_SUPPORTED, what: "HTTP/1.1 only" });
    }
    if method.is_empty() || !method.iter().all(u8::is_ascii_uppercase) {
        return Err(bad("the method must be a word in capitals"));
    }
    if !target.starts_with(b"/") || !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(bad("the target must be a path, without a fragment"));
    }
    Ok(())
}

/// A value without the blanks around it.
fn blank(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Digits and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The characters a header's name is made of.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

static TOKEN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0_u8);
    while byte < 128 {
        #[allow(clippy::indexing_slicing, reason = "computed when it is compiled")]
        {
            table[byte as usize] = is_token(byte);
        }
        byte += 1;
    }
    table
};

/// A stream whose incoming bytes are watched.
pub(crate) struct Watched<S> {
    stream: S,
    verdicts: Verdicts,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S) -> (Self, Verdicts) {
        let verdicts = Verdicts::default();
        (Self { stream, verdicts: verdicts.clone() }, verdicts)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, into);
        if let Some(fresh) = into.filled().get(before..).filter(|fresh| !fresh.is_empty()) {
            this.verdicts.watch().see(fresh);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// Tests: a failure is a report.
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(parts: &[&[u8]]) -> Vec<Result<(), u16>> {
        let mut watch = Watch::default();
        for part in parts {
            watch.see(part);
        }
        let mut all: Vec<_> =
            watch.verdicts.drain(..).map(|verdict| verdict.map_err(|bad| bad.status.as_u16())).collect();
        all.extend(watch.broken.map(|bad| Err(bad.status.as_u16())));
        all
    }

    #[test]
    fn b82_heads_are_found_behind_bodies_however_the_bytes_are_split() {
        // The first body looks like a head, and must not be taken for one.
        let text = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nGET / \r\n\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET #c HTTP/1.1\r\n\r\n";
        for split in 0..=text.len() {
            let (head, tail) = text.split_at(split);
            assert_eq!(verdicts(&[head, tail]), [Ok(()), Ok(()), Err(400)], "{split}");
        }
    }

    #[test]
    fn b82_nothing_is_trusted_after_a_bad_head() {
        let watched = Verdicts::default();
        watched.watch().see(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..3 {
            assert_eq!(watched.next().unwrap_err().status, 400);
        }
    }

    #[test]
    fn a_head_without_end_is_not_kept() {
        let mut watch = Watch::default();
        watch.see(b"GET / HTTP/1.1\r\n");
        for _ in 0..HEAD_BYTES {
            watch.see(b"x");
        }
        assert_eq!(watch.broken.map(|bad| bad.status.as_u16()), Some(431));
        watch.see(&[b'x'; 1 << 20]);
        assert!(watch.head.len() < HEAD_BYTES + 2);
    }
}
