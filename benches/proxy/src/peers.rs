//! Other proxies, where `run` has put them: nginx as a plain reverse proxy, LiteLLM as the gateway most people know. Started when the bench
//! runs; one that is not there is left out of the table and named.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::load::Target;
use crate::process::Process;

/// Strong enough for LiteLLM to start; made up.
const KEY: &str = "sk-5f0c2b7d9e4a41868f3c6a1b0d2e7f935f0c2b7d9e4a41868f3c6a1b0d2e7f93";

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn listening(process: &mut Process, port: u16, patience: Duration) -> bool {
    let until = std::time::Instant::now() + patience;
    while std::time::Instant::now() < until && !process.has_ended() {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

fn target(port: u16) -> Target {
    Target { url: format!("http://127.0.0.1:{port}"), key: KEY.to_owned() }
}

/// nginx with one worker, kept connections on both sides, and no buffering of answers.
pub(crate) async fn nginx(program: &Path, origin: &str, folder: &Path) -> Result<(Process, Target), String> {
    let port = free_port();
    let provider = origin.strip_prefix("http://").unwrap();
    let at = folder.display();
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/nginx.pid; error_log {at}/nginx.log;\n\
         user root;\nevents {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_buffer_size 1m; client_max_body_size 32m; client_body_temp_path {at}/b;\n\
         proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         keepalive_requests 10000000; tcp_nodelay on;\n\
         upstream provider {{ server {provider}; keepalive 64; keepalive_requests 10000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://provider; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_buffering off; }} }} }}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let arguments = ["-c", path.to_str().unwrap(), "-p", folder.to_str().unwrap()];
    let said = folder.join("nginx.said");
    let mut process = Process::peer(program.to_str().unwrap(), &arguments, &said).ok_or("does not start")?;
    if listening(&mut process, port, Duration::from_secs(10)).await {
        return Ok((process, target(port)));
    }
    Err(format!("does not listen: {}", std::fs::read_to_string(said).unwrap_or_default()))
}

/// LiteLLM's proxy, one worker, no database.
pub(crate) async fn litellm(program: &Path, origin: &str, folder: &Path) -> Result<(Process, Target), String> {
    let port = free_port();
    let model = crate::bodies::MODEL;
    let config = format!(
        "model_list:\n  - model_name: {model}\n    litellm_params:\n      model: anthropic/{model}\n      api_base: {origin}\n\
         \x20     api_key: made-up-credential-of-a-bench-0123456789\ngeneral_settings:\n  master_key: {KEY}\n"
    );
    let path = folder.join("litellm.yaml");
    std::fs::write(&path, config).unwrap();
    let port_text = port.to_string();
    let arguments =
        ["--config", path.to_str().unwrap(), "--host", "127.0.0.1", "--port", &port_text, "--num_workers", "1"];
    let said = folder.join("litellm.said");
    let mut process = Process::peer(program.to_str().unwrap(), &arguments, &said).ok_or("does not start")?;
    if listening(&mut process, port, Duration::from_secs(120)).await {
        return Ok((process, target(port)));
    }
    let said = std::fs::read_to_string(said).unwrap_or_default();
    Err(format!(
        "does not listen: {}",
        said.chars().rev().take(600).collect::<String>().chars().rev().collect::<String>()
    ))
}
