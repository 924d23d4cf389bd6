//! `tigertally health`: asks a running proxy whether it is well, for container health checks and scripts.
//!
//! No configuration is read: a file that was broken after the start must not make a proxy look ill that goes on with
//! the settings it has. What the admin port's address is, a flag or the environment says.

use super::args::Health;
use super::{say, tell};
use http::Uri;
use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

/// What is shown of a body. A probe's answer is one short line.
const SHOWN: usize = 512;

/// Asks, and says what was answered: 0 when that is a status of 2xx, else 1.
#[must_use]
pub fn run(health: &Health) -> ExitCode {
    let url = url(health);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell(&format_args!("tigertally: cannot ask: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(ask(&url, health.timeout)) {
        Ok(answer) if answer.is_well => {
            say(&format_args!("{url} {answer}\n"));
            ExitCode::SUCCESS
        }
        Ok(answer) => {
            tell(&format_args!("tigertally: {url} {answer}"));
            ExitCode::FAILURE
        }
        Err(why) => {
            tell(&format_args!("tigertally: {url} {why}"));
            ExitCode::FAILURE
        }
    }
}

/// What is asked.
fn url(health: &Health) -> String {
    let path = if health.live { "livez" } else { "readyz" };
    match &health.url {
        Some(url) => url.to_string(),
        None => format!("http://{}/{path}", reached_at(health.admin_listen)),
    }
}

/// Where a port is reached that listens on this address, from the same machine.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// An URL to ask, as it is typed.
pub(super) fn read_url(text: &str) -> Result<Uri, String> {
    let hint = "write http://HOST:PORT/PATH";
    let url: Uri = text.parse().map_err(|_| format!("is no URL; {hint}"))?;
    match url.scheme_str() {
        Some("http") if url.authority().is_some() => Ok(url),
        Some("https") => {
            Err("TLS is not spoken here; ask the admin port, which has none".to_owned())
        }
        _ => Err(format!("is no URL with http://; {hint}")),
    }
}

struct Answer {
    is_well: bool,
    status: u16,
    body: String,
}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.body.is_empty() { "" } else { ": " };
        write!(f, "answers {}{colon}{}", self.status, self.body)
    }
}

async fn ask(url: &str, patience: Duration) -> Result<Answer, String> {
    let told = |error: reqwest::Error| {
        if error.is_timeout() {
            return format!("does not answer within {} ms", patience.as_millis());
        }
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        format!("does not answer: {cause}")
    };
    // A proxy in the environment is for what lies outside, and another place than the one asked says nothing.
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(patience)
        .build()
        .map_err(told)?;
    let mut response = client.get(url).send().await.map_err(told)?;
    let mut body = Vec::new();
    while body.len() < SHOWN
        && let Some(chunk) = response.chunk().await.map_err(told)?
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(SHOWN);
    Ok(Answer {
        is_well: response.status().is_success(),
        status: response.status().as_u16(),
        body: one_line(&body),
    })
}

/// A text that cannot steer a terminal or a log.
fn one_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim().chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_every_interface_is_asked_on_loopback() {
        let asked = |listen: &str| listen.parse().map(reached_at).map(|it| it.to_string());
        assert_eq!(asked("0.0.0.0:9464"), Ok("127.0.0.1:9464".to_owned()));
        assert_eq!(asked("[::]:9464"), Ok("[::1]:9464".to_owned()));
        assert_eq!(asked("10.0.0.7:1"), Ok("10.0.0.7:1".to_owned()));
    }

    #[test]
    fn what_is_no_url_is_told_with_what_to_write() {
        for text in ["127.0.0.1:9464", "/livez", "ftp://a/b", "http//a", "https://a/livez", ""] {
            assert!(read_url(text).is_err(), "{text}");
        }
        assert!(read_url("http://127.0.0.1:30000/health").is_ok());
        assert!(read_url("http://localhost").is_ok());
    }

    #[test]
    fn a_body_is_one_line_and_steers_nothing() {
        assert_eq!(one_line(b"ok\n"), "ok");
        assert_eq!(one_line(b"a\x1b[31mb\r\nc\xff"), "a [31mb  c\u{fffd}");
    }
}
