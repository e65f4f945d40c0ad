//! Output stays aligned and whole, whatever a program writes and however slowly it is read.

use std::time::{Duration, Instant};

use agentrun_adapter::process::{Exit, Frame, FrameTooLong, LINE_LIMIT, STDERR_TAIL};

use super::support::{line, start};

#[tokio::test]
async fn noise_bad_utf8_and_crlf_cost_only_their_own_line() {
    let (mut child, mut frames) = start(
        r#"printf 'Welcome!\n{"a":1}\r\n\n{"bad":"\377"}\n\377\376\n{"half":\n[1]\n {"b":{"c":[]}}\n{"end":"\303\244"}'"#,
    );
    let mut seen = Vec::new();
    while let Some(frame) = frames.recv().await {
        seen.push(frame.unwrap());
    }
    let json = |text: &str| Frame::Json(text.into());
    let noise = |bytes: &[u8]| Frame::Noise(bytes.into());
    assert_eq!(
        seen,
        [
            noise(b"Welcome!"),
            json(r#"{"a":1}"#),
            noise(b"{\"bad\":\"\xff\"}"),
            noise(b"\xff\xfe"),
            noise(b"{\"half\":"),
            noise(b"[1]"),
            json(r#" {"b":{"c":[]}}"#),
            json(r#"{"end":"ä"}"#),
        ]
    );
    assert_eq!(child.wait().await, Exit::Code(0));
}

#[tokio::test]
async fn a_line_of_64_mib_passes_and_a_longer_one_is_skipped() {
    let fill = LINE_LIMIT - r#"{"a":""}"#.len();
    let line_of = |fill: usize| format!(r#"printf '{{"a":"'; head -c {fill} /dev/zero | tr '\0' x; printf '"}}\n';"#);
    let script = format!("{} {} echo '{{\"next\":1}}'", line_of(fill), line_of(fill + 1));
    let (_child, mut frames) = start(&script);
    let Some(Ok(Frame::Json(longest))) = frames.recv().await else { panic!("the longest line did not pass") };
    assert_eq!(longest.len(), LINE_LIMIT);
    assert_eq!(frames.recv().await, Some(Err(FrameTooLong { bytes: LINE_LIMIT as u64 + 1, limit: LINE_LIMIT })));
    assert_eq!(frames.recv().await, Some(Ok(Frame::Json(r#"{"next":1}"#.into()))));
    assert_eq!(frames.recv().await, None);
}

#[tokio::test]
async fn closed_output_is_not_the_programs_end() {
    let (mut child, mut frames) = start("echo bye; exec >&- 2>&-; read -r line; exit 5");
    assert_eq!(line(&mut frames).await, "bye");
    assert_eq!(frames.recv().await, None);
    assert!(std::path::Path::new(&format!("/proc/{}", child.program_pid())).exists());
    assert_eq!(child.end(Duration::from_secs(60)).await.unwrap(), Exit::Code(5));
}

#[tokio::test]
async fn a_flood_on_stderr_neither_blocks_nor_grows() {
    let (mut child, mut frames) =
        start("head -c 20000000 /dev/zero | tr '\\0' e >&2; echo 'last words' >&2; echo done");
    assert_eq!(line(&mut frames).await, "done");
    assert_eq!(child.wait().await, Exit::Code(0));
    let tail = child.stderr_tail();
    assert_eq!(tail.len(), STDERR_TAIL);
    assert!(tail.ends_with("last words\n"));
}

const FLOOD: &str = "yes '{\"filler\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}' | head -n 200000 | cat -n | \
                     sed 's/^ *\\([0-9]*\\).\\(.*\\)$/{\"n\":\\1,\"is\":\\2}/'; echo done >&2";

#[tokio::test]
async fn a_slow_reader_makes_the_program_wait_and_loses_nothing() {
    let (mut child, mut frames) = start(FLOOD);
    for number in 1..=200_000 {
        let line = line(&mut frames).await;
        assert!(line.starts_with(&format!("{{\"n\":{number},")), "{line}");
        if number == 100 {
            // 20 MB are to come, more than all pipes hold: it can only have got here by not waiting.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(child.stderr_tail(), "");
        }
    }
    assert_eq!(frames.recv().await, None);
    assert_eq!(child.wait().await, Exit::Code(0));
    assert_eq!(child.stderr_tail(), "done\n");
}

#[tokio::test]
async fn a_program_nobody_reads_can_still_end_by_itself() {
    let (mut child, frames) = start(FLOOD);
    drop(frames);
    assert_eq!(child.end(Duration::from_secs(60)).await.unwrap(), Exit::Code(0));
    assert_eq!(child.stderr_tail(), "done\n");
}

#[tokio::test]
async fn input_arrives_whole_and_in_order() {
    let (child, mut frames) = start("cat");
    let stdin = child.stdin();
    let long = format!("{{\"long\":\"{}\"}}\n", "x".repeat(1 << 20));
    // Dropped half-way: the pipe takes 64 KiB, so the write is still going on. The line is written whole all the same.
    let dropped = tokio::time::timeout(Duration::ZERO, stdin.send(long.as_str()));
    assert!(dropped.await.is_err());
    let after = tokio::spawn({
        let stdin = child.stdin();
        async move { stdin.send("{\"after\":1}\n").await }
    });
    assert_eq!(line(&mut frames).await.len(), long.len() - 1);
    assert_eq!(line(&mut frames).await, "{\"after\":1}");
    after.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_stall_clock_is_set_back_by_any_frame() {
    let (child, mut frames) = start("while read -r line; do echo \"$line\"; done");
    let clock = child.clock();
    clock.stalled(Duration::from_millis(20)).await;
    let sent = Instant::now();
    child.stdin().send("not json\n").await.unwrap();
    assert_eq!(line(&mut frames).await, "not json");
    let silent = clock.silent_for();
    assert!(silent <= sent.elapsed(), "the silence began with the line, not before it");
}
