//! Programs that are not what was asked for: an error with their last words, and nothing left running.

use std::time::Duration;

use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{AdapterError, AdapterErrorKind, TurnEnd};
use agentrun_testing::script::Step;

use crate::rig::{Rig, Work};

/// The error of a turn on this program. Nothing of it is left, no request was made, and the message is still to be placed.
async fn refused(script: &str) -> AdapterError {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(script);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    let left = sweep(&owner.marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
    assert_eq!(rig.model.all_requests().len(), 0);
    assert!(owner.drive.with_state(|state| state.open_turn.is_none()), "nothing was placed");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_exits_before_it_listens_is_an_error_with_its_code_and_its_last_words() {
    let error = refused("echo 'listening soon'; echo 'the config is broken' >&2; exit 3").await;
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(3) }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("the config is broken") && text.contains("listening soon"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_stdout_is_never_taken_for_an_address() {
    let error =
        refused(r#"printf 'hello\n\377\376{\n{"id": 1}\nopencode server listening on http://127.0.0.1\n'; sleep 300"#)
            .await;
    assert!(matches!(error.kind, AdapterErrorKind::Protocol), "{error:?}");
    assert!(error.to_string().contains("says that it listens on `127.0.0.1`"), "{error}");
    let far = refused("echo 'opencode server listening on http://192.0.2.1:4096'; sleep 300").await;
    assert!(matches!(far.kind, AdapterErrorKind::Protocol), "{far:?}");
    assert!(far.to_string().contains("says that it listens on `192.0.2.1:4096`"), "{far}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_the_password_is_another_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ =
                stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    });
    let error = refused(&format!("echo 'opencode server listening on http://{address}'; sleep 300")).await;
    assert!(matches!(error.kind, AdapterErrorKind::Protocol), "{error:?}");
    assert!(error.to_string().contains("another one listens there"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_not_waited_for() {
    // Held, or held already by another on this machine.
    let held = std::net::TcpListener::bind("127.0.0.1:4096");
    let rig = Rig::new(vec![Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_any_more_is_said_to_be_not_startable() {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program("exit 0");
    std::fs::remove_file(rig.scratch("program")).unwrap();
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::Spawn), "{error:?}");
    assert!(error.to_string().contains("program"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_the_real_program_is_found_and_its_version_is_in_range() {
    let found = agentrun_adapter::opencode::PROGRAM.find().await.unwrap();
    assert_eq!(found.version.to_string(), "1.18.33");
}
