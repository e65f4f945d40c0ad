//! Stands between an adapter and its program and makes bytes arrive badly: `agentrun-faulty-stdio FAULT PROGRAM [ARGUMENT…]`. For the wire
//! cases of the adapter conformance suite.
//!
//! | fault | what happens |
//! | --- | --- |
//! | `noise` | banners, lines of bytes that are no text and half lines of JSON stand among the program's lines |
//! | `crlf` | its lines end in CRLF |
//! | `bytes` | its output comes byte by byte |
//! | `flood` | 4 MiB on stderr before its first line and after each of the first ten |
//! | `slow` | what it is told arrives in small pieces |
//! | `closes=FILE` | its output is closed, and it lives on, once there is this file |
// A helper of tests: what cannot be done ends it, and the test says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let fault = arguments.next().and_then(|it| it.into_string().ok()).unwrap_or_default();
    let Some(program) = arguments.next() else {
        eprintln!("agentrun-faulty-stdio FAULT PROGRAM [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    if let Some(file) = fault.strip_prefix("closes=") {
        let file = std::path::PathBuf::from(file);
        std::thread::spawn(move || {
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
            // Nothing else here owns the descriptor; what is written from now on fails, which is meant.
            #[allow(unsafe_code, reason = "the standard library has no way to close stdout")]
            drop(unsafe { OwnedFd::from_raw_fd(1) });
        });
    }
    let slow = fault == "slow";
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = vec![0; if slow { 512 } else { 65_536 }];
        while let Ok(length @ 1..) = input.read(&mut buffer) {
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
            if slow {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let read = std::thread::spawn(move || pass_on(&fault, BufReader::new(from)));
    let status = child.wait().unwrap();
    let _ = read.join();
    ExitCode::from(u8::try_from(status.code().or(status.signal().map(|it| 128 + it)).unwrap_or(1)).unwrap_or(1))
}

/// The program's lines, with the fault.
fn pass_on(fault: &str, mut from: impl std::io::BufRead) {
    let mut out = std::io::stdout();
    let mut line = Vec::new();
    let mut count = 0_u32;
    loop {
        if fault == "flood" && count <= 10 {
            let _ = std::io::stderr().write_all(&vec![b'e'; 4 << 20]);
        }
        line.clear();
        if !matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            return;
        }
        count = count.saturating_add(1);
        let told = match fault {
            "noise" => {
                let mut noisy = b"Welcome!\n\xff\xfe\n{\"half\":\n[1]\n{\"bad\":\"\xff\"}\n\n".to_vec();
                noisy.extend_from_slice(&line);
                out.write_all(&noisy)
            }
            "crlf" => {
                let text = line.strip_suffix(b"\n").unwrap_or(&line);
                out.write_all(&[text, b"\r\n"].concat())
            }
            "bytes" => line.iter().try_for_each(|byte| {
                out.write_all(&[*byte])?;
                out.flush()
            }),
            _ => out.write_all(&line),
        };
        // Output that is closed is still taken off the program's hands.
        let _ = told.and_then(|()| out.flush());
    }
}
