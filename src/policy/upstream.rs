//! The `[upstream]` section, and secrets: they come from files or from the environment only.

use super::findings::Findings;
use super::problem::Origin;
use super::section::{Found, Section, flag, span, text};
use super::{Secret, Upstream, UpstreamKind};
use http::Uri;
use std::path::{Path, PathBuf};

pub(super) fn resolve(mut section: Section<'_>, upstream: &mut Upstream, findings: &Findings) {
    if let Some(url) = section.found("url", text) {
        match base_url(&url.value) {
            Ok(base) => upstream.url = base,
            // The value is not repeated: it may hold a password.
            Err(message) => findings.tell(&url.origin, &url.key, message),
        }
    }
    let kinds = [("sglang", UpstreamKind::Sglang), ("openai", UpstreamKind::Openai)];
    upstream.kind = section.choice("kind", &kinds).unwrap_or(upstream.kind);
    upstream.api_key = secret(&mut section, ["api_key_file", "api_key"], findings).secret;
    section.set("connect_timeout", &mut upstream.connect_timeout, span);
    section.set("first_byte_timeout", &mut upstream.first_byte_timeout, span);
    section.set("idle_timeout", &mut upstream.idle_timeout, span);
    let rid = section.found("rid", flag);
    upstream.rid = upstream.kind == UpstreamKind::Sglang;
    match rid {
        Some(Found { value: true, key, origin }) if upstream.kind == UpstreamKind::Openai => {
            findings.tell(
                &origin,
                &key,
                "only kind = \"sglang\" knows a rid; set false, or remove it",
            );
        }
        Some(rid) => upstream.rid = rid.value,
        None => {}
    }
    section.finish();
}

/// The base URL: no trailing slash, no `/v1` (clients of other proxies are used to writing it).
fn base_url(url: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "is no URL; write it as \"http://127.0.0.1:30000\"";
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| matches!(scheme, "http" | "https")) {
        return Err("must begin with http:// or https://");
    }
    if url.contains(['?', '#']) {
        return Err("must be a base URL, without a query or a fragment");
    }
    let url = url.trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/');
    let uri: Uri = url.parse().map_err(|_| FORM)?;
    let authority = uri.authority().ok_or(FORM)?;
    if authority.as_str().contains('@') {
        return Err("must not hold credentials; name a file in upstream.api_key_file");
    }
    if authority.host().is_empty() || authority.as_str().ends_with(':') {
        return Err(FORM);
    }
    let bare = authority.as_str() == authority.host();
    if !bare && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("has a port that does not exist");
    }
    Ok(uri)
}

/// The base URL of a collector.
pub(super) fn collector_url(url: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "is no URL; write it as \"http://127.0.0.1:4318\"";
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("must begin with http:// or https://");
    }
    if url.contains(['?', '#', '@']) {
        return Err("must be a base URL, without credentials, a query or a fragment");
    }
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| FORM)?;
    let host = uri.authority().ok_or(FORM)?.host();
    if host.is_empty() { Err(FORM) } else { Ok(uri) }
}

/// A secret and the file it came from.
#[derive(Default)]
pub(super) struct FromFile {
    pub(super) secret: Option<Secret>,
    pub(super) file: Option<PathBuf>,
}

/// Reads a secret from the file that one key names, or from the other key's environment variable.
pub(super) fn secret(
    section: &mut Section<'_>,
    [file_key, key]: [&'static str; 2],
    findings: &Findings,
) -> FromFile {
    let mut read = FromFile::default();
    if let Some(file) = section.found(file_key, text) {
        let path = beside(&file.origin, &file.value);
        findings.reads_secret(&path);
        // Neither the path nor what was read is repeated: some write the secret where its file belongs.
        match std::fs::read_to_string(&path).map_err(|error| format!("cannot be read: {error}")) {
            Ok(text) => read.secret = sound(&text, &file.origin, &file.key, findings),
            Err(message) => {
                let message = format!("{message}; it must name a file that holds the secret");
                findings.tell(&file.origin, &file.key, message);
            }
        }
        read.file = Some(path);
    }
    if let Some(direct) = section.found(key, text) {
        if matches!(direct.origin, Origin::Env(_)) {
            read.secret = sound(&direct.value, &direct.origin, &direct.key, findings);
        } else {
            let message = format!(
                "a secret does not belong in this file; name one that holds it in {file_key}"
            );
            findings.tell(&direct.origin, &direct.key, message);
        }
    }
    read
}

/// A secret that can stand in a header.
fn sound(text: &str, origin: &Origin, key: &str, findings: &Findings) -> Option<Secret> {
    let secret = text.trim();
    if !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(Secret::new(secret.to_owned()));
    }
    let message = "must hold one secret: a line of visible ASCII without spaces";
    findings.tell(origin, key, message);
    None
}

/// A path as it was meant: beside the file that names it, or where the program was started.
pub(super) fn beside(origin: &Origin, path: &str) -> PathBuf {
    match origin {
        Origin::File { path: file, .. } => file.parent().unwrap_or(Path::new("")).join(path),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_lose_their_slash_and_v1() {
        for (url, base) in [
            ("http://127.0.0.1:30000", "http://127.0.0.1:30000/"),
            ("http://127.0.0.1:30000/", "http://127.0.0.1:30000/"),
            ("http://127.0.0.1:30000/v1", "http://127.0.0.1:30000/"),
            ("http://127.0.0.1:30000/v1/", "http://127.0.0.1:30000/"),
            ("https://models.example/sglang/v1", "https://models.example/sglang"),
            ("https://models.example/v1x", "https://models.example/v1x"),
            ("http://[::1]:30000", "http://[::1]:30000/"),
            ("http://sglang:30000", "http://sglang:30000/"),
        ] {
            assert_eq!(base_url(url).map(|uri| uri.to_string()), Ok(base.to_owned()), "{url}");
        }
    }

    #[test]
    fn what_is_no_base_url_is_told() {
        const FORM: &str = "is no URL; write it as \"http://127.0.0.1:30000\"";
        for (url, told) in [
            ("127.0.0.1:30000", "must begin with http:// or https://"),
            ("ftp://a", "must begin with http:// or https://"),
            ("http://", FORM),
            ("http://:80", FORM),
            ("http://a:", FORM),
            ("http://a b", FORM),
            ("http://a:99999", "has a port that does not exist"),
            ("http://a/?x=1", "must be a base URL, without a query or a fragment"),
            ("http://me:pw@a", "must not hold credentials; name a file in upstream.api_key_file"),
        ] {
            assert_eq!(base_url(url), Err(told), "{url}");
        }
    }
}
