//! A model that pauses in the middle of an answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

/// A model that answers the first request up to its middle, and goes on once it is told; and the requests it was asked.
pub(crate) fn pausing() -> (String, mpsc::Receiver<Value>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, seen) = mpsc::channel();
    let (go_on, told) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if asked.send(body_of(&stream)).is_err() {
                return;
            }
            let whole = json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]});
            let events = [
                json!({"type": "response.created", "response": {"id": format!("resp_{number}")}}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": []}}),
                json!({"type": "response.output_text.delta", "item_id": format!("msg_{number}"), "output_index": 0, "content_index": 0, "delta": "I "}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": whole}),
                json!({"type": "response.completed", "response": {"id": format!("resp_{number}"), "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}}),
            ];
            // A client that hung up wants no more.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
            for (at, event) in events.iter().enumerate() {
                if number == 0 && at == 3 && told.recv().is_err() {
                    return;
                }
                let _ = write!(stream, "event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
                let _ = stream.flush();
            }
        }
    });
    (url, seen, go_on)
}

fn body_of(stream: &TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}
