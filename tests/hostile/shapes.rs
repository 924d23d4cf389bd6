//! Requests that two readers could read differently, or that no reader should read. Each is sent with another request
//! behind it, which a reader that is led astray would answer.

use super::recorder::{ANSWER, Recorder};
use super::{BODY, Raw, chat, guard, passes, policy, sound};

/// What a reader that lost its place would take for a request.
const BEHIND: &str = "GET /v1/models HTTP/1.1\r\nhost: smuggled\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// No HTTP: that status without a body, and the connection ends.
    Bare(u16),
    /// HTTP, and refused in our own words.
    Refused(u16, &'static str),
    /// It goes up, as this one body; nothing behind it is read.
    Last,
    /// It goes up, and what is behind it is a request of its own.
    Passes,
}
use Becomes::{Bare, Last, Passes, Refused};

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

const TE: &str = "transfer-encoding: chunked\r\n";

/// Of lengths.
fn lengths() -> Vec<(&'static str, String, Becomes)> {
    let (length, chunks) = (BODY.len(), chunked(BODY));
    let one = |value: &str| chat(&format!("content-length: {value}\r\n"), BODY);
    let te = |value: &str| chat(&format!("transfer-encoding: {value}\r\n"), &chunks);
    let own = format!("content-length: {length}\r\n");
    vec![
        ("a length", sound(BODY), Passes),
        ("chunks", chat(TE, &chunks), Passes),
        ("a length and chunks", chat(&format!("{own}{TE}"), &chunks), Last),
        ("chunks and a length", chat(&format!("{TE}{own}"), &chunks), Last),
        ("chunks and a shorter length", chat(&format!("{TE}content-length: 5\r\n"), &chunks), Last),
        ("a length of none and chunks", chat(&format!("content-length: 0\r\n{TE}"), &chunks), Last),
        ("a length twice", chat(&format!("{own}{own}"), BODY), Passes),
        ("two lengths", chat(&format!("{own}content-length: 5\r\n"), BODY), Bare(400)),
        ("two lengths in one", one(&format!("{length}, 5")), Bare(400)),
        ("a length with a sign", one(&format!("+{length}")), Bare(400)),
        ("a negative length", one("-1"), Bare(400)),
        ("a hexadecimal length", one("0x43"), Bare(400)),
        ("a length with a letter", one(&format!("{length}a")), Bare(400)),
        ("no length's value", one(""), Bare(400)),
        ("a length beyond numbers", one("18446744073709551616"), Bare(400)),
        ("a length that no memory holds", one("9999999999999999"), Refused(413, "body_too_large")),
        ("chunks by another name", te("xchunked"), Bare(400)),
        ("chunks that are not the last coding", te("chunked, identity"), Bare(400)),
        ("identity as a coding", te("identity"), Bare(400)),
        ("a coding with a control character", te("\u{b}chunked"), Bare(400)),
        ("chunks in capitals", te("CHUNKED"), Passes),
        (
            "chunks and then another coding",
            chat("transfer-encoding: chunked\r\ntransfer-encoding: x\r\n", &chunks),
            Bare(400),
        ),
        ("chunks in HTTP/1.0", chat(TE, &chunks).replace("HTTP/1.1", "HTTP/1.0"), Bare(400)),
        ("a length in HTTP/1.0", sound(BODY).replace("HTTP/1.1", "HTTP/1.0"), Last),
    ]
}

/// Of lines.
fn lines() -> Vec<(&'static str, String, Becomes)> {
    let with = |line: &str| chat(&format!("{line}\r\ncontent-length: {}\r\n", BODY.len()), BODY);
    let te = |line: &str| chat(line, &chunked(BODY));
    vec![
        ("a space before the colon", te("transfer-encoding : chunked\r\n"), Bare(400)),
        ("a tab before the colon", te("transfer-encoding\t: chunked\r\n"), Bare(400)),
        ("a folded line", te("transfer-encoding:\r\n chunked\r\n"), Bare(400)),
        ("a folded line of no meaning", with("x-a: b\r\n\tc"), Bare(400)),
        ("a NUL in a value", with("x-a: b\0c"), Bare(400)),
        ("a NUL in a name", with("x-a\0: b"), Bare(400)),
        ("a CR in a value", with("x-a: b\rx-b: c"), Bare(400)),
        ("no colon", with("x-a"), Bare(400)),
        ("no name", with(": b"), Bare(400)),
        ("a space in a name", with("x a: b"), Bare(400)),
        ("a line before the first", format!("\r\n{}", sound(BODY)), Passes),
        ("spaces around a value", with("x-a:  \t b \t"), Passes),
        ("letters beyond ASCII in a value", with("x-a: Zürich"), Passes),
        ("no space after the colon", with("x-a:b"), Passes),
        ("another version", sound(BODY).replace("HTTP/1.1", "HTTP/1.2"), Bare(400)),
        ("no version", sound(BODY).replace(" HTTP/1.1", ""), Bare(400)),
        ("two spaces", sound(BODY).replace("POST ", "POST  "), Bare(400)),
        ("no request at all", "\u{16}\u{3}\u{1}\0\u{5}hello\r\n\r\n".to_owned(), Bare(400)),
    ]
}

/// Of sizes.
fn sizes() -> Vec<(&'static str, String, Becomes)> {
    let with = |lines: &str| chat(&format!("{lines}content-length: {}\r\n", BODY.len()), BODY);
    let many = |count: usize| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let long = |bytes: usize| format!("x-a: {}\r\n", "a".repeat(bytes));
    let path = |bytes: usize| {
        sound(BODY).replace("completions ", &format!("completions?{} ", "a".repeat(bytes)))
    };
    vec![
        // Three more are in every request here.
        ("as many headers as there may be", with(&many(97)), Passes),
        ("a header more", with(&many(98)), Bare(431)),
        ("a long header", with(&long(100 << 10)), Passes),
        ("too long a header", with(&long(200 << 10)), Bare(431)),
        ("a long path", path(60 << 10), Passes),
        ("too long a path", path(66 << 10), Bare(414)),
    ]
}

/// Of chunks.
fn chunks() -> Vec<(&'static str, String, Becomes)> {
    const INVALID: Becomes = Refused(400, "body_invalid");
    let (size, half) = (format!("{:x}", BODY.len()), BODY.len() / 2);
    let with = |chunks: String| chat(TE, &chunks);
    let sized = |size: &str| with(format!("{size}\r\n{BODY}\r\n0\r\n\r\n"));
    let two =
        format!("{half:x}\r\n{}\r\n{:x}\r\n{}", &BODY[..half], BODY.len() - half, &BODY[half..]);
    vec![
        ("two chunks", with(format!("{two}\r\n0\r\n\r\n")), Passes),
        ("a size in capitals with zeros", sized(&format!("000{}", size.to_uppercase())), Passes),
        ("an extension", sized(&format!("{size};a=\"b\"")), Passes),
        ("a long extension", sized(&format!("{size};{}", "a".repeat(8 << 10))), Passes),
        ("too long an extension", sized(&format!("{size};{}", "a".repeat(17 << 10))), INVALID),
        ("a line feed in an extension", sized(&format!("{size};a\n")), INVALID),
        ("no size", sized(""), INVALID),
        ("a size that is no number", sized("xyz"), INVALID),
        ("a size with 0x", sized(&format!("0x{size}")), INVALID),
        ("a negative size", sized("-1"), INVALID),
        ("a size beyond numbers", sized("fffffffffffffffff"), INVALID),
        ("a size with a line feed only", with(format!("{size}\n{BODY}\r\n0\r\n\r\n")), INVALID),
        ("a chunk that goes on", with(format!("5\r\n{BODY}\r\n0\r\n\r\n")), INVALID),
        ("a chunk without its end", with(format!("{size}\r\n{BODY}0\r\n\r\n")), INVALID),
        ("a trailer", with(format!("{two}\r\n0\r\nx-conversation-id: two words\r\n\r\n")), Passes),
        (
            "a trailer with a length",
            with(format!("{two}\r\n0\r\ncontent-length: 1\r\n\r\n")),
            Passes,
        ),
        (
            "a long trailer",
            with(format!("{two}\r\n0\r\nx-a: {}\r\n\r\n", "a".repeat(20 << 10))),
            INVALID,
        ),
    ]
}

/// Of codings, which nobody here undoes: a few kilobytes could become gigabytes.
fn codings() -> Vec<(&'static str, String, Becomes)> {
    const INVALID: Becomes = Refused(400, "body_invalid");
    let with = |lines: &str| chat(&format!("{lines}content-length: {}\r\n", BODY.len()), BODY);
    vec![
        ("gzip", with("content-encoding: gzip\r\n"), INVALID),
        ("deflate", with("content-encoding: deflate\r\n"), INVALID),
        ("brotli", with("content-encoding: br\r\n"), INVALID),
        ("zstandard", with("content-encoding: zstd\r\n"), INVALID),
        ("two codings", with("content-encoding: identity, gzip\r\n"), INVALID),
        (
            "a second coding",
            with("content-encoding: identity\r\ncontent-encoding: gzip\r\n"),
            INVALID,
        ),
        ("no coding", with("content-encoding: identity\r\n"), Passes),
        (
            "a coding of the transfer that nobody undoes",
            chat("transfer-encoding: gzip, chunked\r\n", &chunked("\u{1f}\u{8b}\u{8}")),
            INVALID,
        ),
    ]
}

/// Of targets and switches of protocol.
fn targets() -> Vec<(&'static str, String, Becomes)> {
    const CLOSED: Becomes = Refused(403, "route_closed");
    let to = |target: &str| sound(BODY).replace("/v1/chat/completions", target);
    let with = |lines: &str| chat(&format!("{lines}content-length: {}\r\n", BODY.len()), BODY);
    vec![
        ("another host in the target", to("http://elsewhere:1/v1/chat/completions"), Passes),
        (
            "a tunnel",
            "CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere\r\n\r\n".to_owned(),
            CLOSED,
        ),
        ("a star", "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), CLOSED),
        ("a method in small letters", sound(BODY).replace("POST", "post"), CLOSED),
        ("a NUL in the path", to("/v1/chat/completions\0"), Bare(400)),
        ("a line feed in the path", to("/v1/chat\n/completions"), Bare(400)),
        (
            "a switch to HTTP/2",
            with("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAA\r\n"),
            Passes,
        ),
        ("a switch to WebSocket", with("connection: upgrade\r\nupgrade: websocket\r\n"), Passes),
    ]
}

/// What is wrong with what became of a request.
async fn wrong(
    client: &mut Raw,
    upstream: &Recorder,
    request: &str,
    becomes: Becomes,
) -> Option<String> {
    let before = upstream.whole().len();
    client.send(format!("{request}{BEHIND}")).await;
    let Some(answer) = client.answer().await else { return Some("no answer".to_owned()) };
    let up = upstream.whole()[before..].to_vec();
    let got = (answer.status, answer.body.as_str());
    let right = match becomes {
        Bare(status) => got == (status, "") && up.is_empty() && client.ends_silently().await,
        Refused(status, code) => {
            (answer.status, answer.code().as_str()) == (status, code) && up.is_empty()
        }
        Last | Passes => {
            let hidden = ["chunked", "http2-settings", "upgrade", "two words", "elsewhere"];
            got == (200, ANSWER)
                && up.len() == 1
                && up[0].body == BODY.as_bytes()
                && !hidden.iter().any(|word| up[0].head.contains(word))
        }
    };
    if !right {
        return Some(format!("{answer:?}, and {up:?} went up"));
    }
    match becomes {
        Last if !client.ends_silently().await => Some("something is answered behind it".to_owned()),
        Passes => match client.answer().await {
            Some(behind) if (behind.status, behind.body.as_str()) == (200, "{}") => None,
            behind => Some(format!("{behind:?} behind it")),
        },
        _ => None,
    }
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused_or_read_in_one() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let tables = [lengths(), lines(), sizes(), chunks(), codings(), targets()];
    let mut all = Vec::new();
    for (name, request, becomes) in tables.into_iter().flatten() {
        let mut client = Raw::connect(guard.client_addr).await;
        if let Some(told) = wrong(&mut client, &upstream, &request, becomes).await {
            all.push(format!("{name} must be {becomes:?}: {told}"));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    assert_eq!(upstream.half(), 0);
    passes(&mut Raw::connect(guard.client_addr).await, &upstream).await;
}

/// A line feed alone ends a line (RFC 9112, section 2.2, lets a reader take it so), in the whole head or in none of
/// it: what goes up is written anew.
#[tokio::test]
async fn a_line_feed_alone_ends_a_line() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(sound(BODY).replace("\r\n", "\n")).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, ANSWER));
    let up = upstream.whole();
    assert_eq!(up.len(), 1);
    assert_eq!(up[0].head.matches('\n').count(), up[0].head.matches("\r\n").count());
}
