//! `[auth]` and `[tls]` as an operator meets them: what does not go together, and with which words.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::policy::{Policy, Sources, load};
use rcgen::{CertificateParams, KeyPair};

/// Loads a text as `t.toml`, beside some files that it may name. Messages lose the directory.
fn load_text(text: &str) -> Result<Policy, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key);
    let other = KeyPair::generate().unwrap();
    for (name, text) in [
        ("t.toml", text),
        ("nothing", "sk-very-secret\n"),
        ("keys.toml", ""),
        ("bad.toml", "[[key]]\nid = \"a\"\n"),
        ("cert.pem", &signed.unwrap().pem()),
        ("key.pem", &key.serialize_pem()),
        ("other.pem", &other.serialize_pem()),
        ("public.pem", &key.public_key_pem()),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let prefix = format!("{}/", directory.path().display());
    let file = Some(directory.path().join("t.toml"));
    load(Sources { file, ..Sources::default() })
        .map_err(|problems| problems.iter().map(|it| it.to_string().replace(&prefix, "")).collect())
}

const JWT: &str = "[auth]\nmode = \"jwt\"\nissuer = \"i\"\naudience = \"a\"\n";

#[test]
fn what_does_not_go_together_is_told_with_line_key_and_way_out() {
    let jwt = |more: &str| format!("{JWT}{more}");
    let header = |more: &str| format!("[auth]\nmode = \"header\"\n{more}");
    let cases = [
        (
            "[auth]\nmode = \"keyz\"".to_owned(),
            "t.toml:2: auth.mode: must be one of \"none\", \"keys\", \"jwt\", \"header\", \"certificate\", not \"keyz\"; did you mean \"keys\"?",
        ),
        (
            "[auth]\nmode = \"keys\"".to_owned(),
            "t.toml:2: auth.mode: \"keys\" needs auth.keys_file; `tigertally keys add` makes one",
        ),
        (
            "[auth]\nkeys_file = \"x\"".to_owned(),
            "t.toml:2: auth.keys_file: belongs to mode = \"keys\"",
        ),
        (
            "[auth]\nmode = \"keys\"\nkeys_file = \"x\"".to_owned(),
            "t.toml:3: auth.keys_file: x: cannot be read: No such file or directory (os error 2); `tigertally keys add` makes one",
        ),
        (
            "[auth]\nmode = \"keys\"\nkeys_file = \"bad.toml\"".to_owned(),
            "t.toml:3: auth.keys_file: bad.toml:1: key.name: is missing",
        ),
        (
            "[auth]\nmode = \"keys\"\nkeys_file = \"keys.toml\"\nissuer = \"i\"".to_owned(),
            "t.toml:4: auth.issuer: belongs to mode = \"jwt\"",
        ),
        (
            "[auth]\nmode = \"jwt\"".to_owned(),
            "t.toml:2: auth.mode: \"jwt\" needs auth.issuer: who signs the tokens, as in their `iss`",
        ),
        (
            "[auth]\nmode = \"jwt\"".to_owned(),
            "t.toml:2: auth.mode: \"jwt\" needs auth.audience: whom the tokens are meant for, as in their `aud`",
        ),
        (jwt(""), "t.toml:2: auth.mode: \"jwt\" needs auth.jwks_url or auth.public_key_file"),
        (
            jwt("jwks_url = \"http://issuer.example/jwks\""),
            "t.toml:5: auth.jwks_url: must begin with https:// unless it is on this machine",
        ),
        (
            jwt("jwks_url = \"https://a/\"\npublic_key_file = \"public.pem\""),
            "t.toml:5: auth.jwks_url: stands beside auth.public_key_file; keys come from one of the two",
        ),
        (
            jwt("public_key_file = \"public.pem\"\njwks_refresh = \"1m\""),
            "t.toml:6: auth.jwks_refresh: makes no sense without auth.jwks_url",
        ),
        (
            jwt("public_key_file = \"nothing\""),
            "t.toml:5: auth.public_key_file: nothing: holds no public key in PEM (\"-----BEGIN PUBLIC KEY-----\")",
        ),
        (
            jwt("public_key_file = \"key.pem\""),
            "t.toml:5: auth.public_key_file: key.pem: holds a private key; this proxy needs the public one only",
        ),
        (
            jwt("public_key_file = \"public.pem\"\nalgorithms = [\"RS256\"]"),
            "t.toml:6: auth.algorithms: allows none that fits a key of auth.public_key_file",
        ),
        (
            jwt("public_key_file = \"public.pem\"\nalgorithms = [\"ES256\", \"HS256\"]"),
            "t.toml:6: auth.algorithms: \"HS256\" cannot be allowed: it needs no key, or one that whoever checks it could sign with",
        ),
        (
            jwt("public_key_file = \"public.pem\"\nclock_skew = \"1h\""),
            "t.toml:6: auth.clock_skew: must be at most 10m",
        ),
        (
            header("trusted_peers = [\"10.0.0.1\"]"),
            "t.toml:2: auth.mode: \"header\" needs auth.header, such as \"x-forwarded-user\"",
        ),
        (
            header("header = \"x-user\""),
            "t.toml:2: auth.mode: \"header\" needs auth.trusted_peers: the addresses that may set it",
        ),
        (
            header("header = \"authorization\"\ntrusted_peers = [\"10.0.0.1\"]"),
            "t.toml:3: auth.header: \"authorization\" has a meaning of its own; choose another header",
        ),
        (
            header(
                "header = \"x-user\"\ntenant_header = \"X-User\"\ntrusted_peers = [\"10.0.0.1\"]",
            ),
            "t.toml:4: auth.tenant_header: is auth.header too; the two must differ",
        ),
        (
            header("header = \"x-user\"\ntrusted_peers = [\"10.0.0.1\",\n\"10.0.0.1/8\"]"),
            "t.toml:5: auth.trusted_peers: \"10.0.0.1/8\" has address bits behind its prefix; write \"10.0.0.0/8\"",
        ),
        (
            "[auth]\nmode = \"certificate\"".to_owned(),
            "t.toml:2: auth.mode: \"certificate\" needs tls.client_ca_file",
        ),
        (
            "[tls]\ncert_file = \"cert.pem\"".to_owned(),
            "t.toml:2: tls.cert_file: needs tls.key_file beside it",
        ),
        (
            "[tls]\nclient_ca_file = \"cert.pem\"".to_owned(),
            "t.toml:2: tls.client_ca_file: needs tls.cert_file and tls.key_file beside it",
        ),
        (
            "[tls]\ncert_file = \"nothing\"\nkey_file = \"key.pem\"".to_owned(),
            "t.toml:2: tls.cert_file: nothing: holds no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")",
        ),
        (
            "[tls]\ncert_file = \"cert.pem\"\nkey_file = \"nothing\"".to_owned(),
            "t.toml:3: tls.key_file: holds no private key in PEM (\"-----BEGIN PRIVATE KEY-----\", without a password)",
        ),
        (
            "[tls]\ncert_file = \"cert.pem\"\nkey_file = \"other.pem\"".to_owned(),
            "t.toml:2: tls.cert_file: cannot be used with tls.key_file: keys may not be consistent: KeyMismatch",
        ),
    ];
    for (text, wanted) in cases {
        let told = load_text(&text).err().unwrap_or_default();
        assert!(told.iter().any(|line| line == wanted), "{text}\n{wanted}\n{told:#?}");
        assert!(!told.join("\n").contains("sk-very-secret"), "{told:?}");
    }
}

#[test]
fn an_identity_header_has_no_other_meaning() {
    for (name, sound) in [
        ("x-forwarded-user", true),
        ("X-Auth-Request-Email", true),
        ("x-conversation-owner", true),
        ("x-conversation-id", false),
        ("X-Generation", false),
        ("idempotency-key", false),
        ("traceparent", false),
        ("x-stainless-retry-count", false),
        ("x-tigertally-principal", false),
        ("content-type", false),
    ] {
        let text = format!(
            "[auth]\nmode = \"header\"\nheader = \"{name}\"\ntrusted_peers = [\"10.0.0.1\"]"
        );
        let told = load_text(&text).err().unwrap_or_default();
        assert_eq!(told.is_empty(), sound, "{name}: {told:?}");
        assert!(told.iter().all(|line| line.starts_with("t.toml:3: auth.header: ")), "{told:?}");
    }
}

#[test]
fn each_mode_is_shown_as_it_can_be_read_again_and_lets_others_reach_the_port() {
    let tls = "[tls]\ncert_file = \"cert.pem\"\nkey_file = \"key.pem\"\n";
    let with_ca = format!("{tls}client_ca_file = \"cert.pem\"\n");
    let cases = [
        ("keys", "[auth]\nmode = \"keys\"\nkeys_file = \"keys.toml\"\n".to_owned()),
        ("jwt", format!("{JWT}public_key_file = \"public.pem\"\ntenant_claim = \"org.id\"\n")),
        ("jwt", format!("{JWT}jwks_url = \"https://a/jwks\"\njwks_ca_file = \"cert.pem\"\n")),
        (
            "header",
            "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"10.0.0.0/8\"]\n"
                .to_owned(),
        ),
        ("certificate", with_ca.clone()),
        ("certificate", format!("[auth]\nmode = \"certificate\"\n{with_ca}")),
    ];
    for (mode, text) in cases {
        let policy = load_text(&format!("listen = \"0.0.0.0:8090\"\n{text}")).unwrap();
        assert_eq!(policy.auth.mode(), mode, "{text}");
        assert!(!policy.insecure && !policy.is_open_to_others());
        let shown = policy.show();
        for line in text.lines().filter(|line| !line.contains(".pem") && !line.contains(".toml")) {
            let list = line.replace("audience = \"a\"", "audience = [\"a\"]");
            assert!(shown.contains(&list), "{line}\n{shown}");
        }
    }
    // Required certificates keep strangers out, though everybody who has one is the same principal.
    let anonymous = format!("listen = \"0.0.0.0:8090\"\n[auth]\nmode = \"none\"\n{with_ca}");
    let policy = load_text(&anonymous).unwrap();
    assert_eq!((policy.auth.mode(), policy.is_open_to_others()), ("none", false));
    // TLS alone asks nobody who they are.
    let told = load_text(&format!("listen = \"0.0.0.0:8090\"\n{tls}")).unwrap_err();
    assert!(told[0].starts_with("t.toml:1: listen: others can reach this address"), "{told:?}");
}

#[test]
fn a_reload_never_opens_the_port_that_stays() {
    let asking = "listen = \"0.0.0.0:8090\"\n[auth]\nmode = \"keys\"\nkeys_file = \"keys.toml\"\n";
    let running = load_text(asking).unwrap();
    // Sound by itself: it would listen on this machine only. But the port cannot move.
    let mut new = load_text("listen = \"127.0.0.1:8090\"\n").unwrap();
    assert_eq!(new.keep_fixed(&running), ["listen", "auth.mode"]);
    assert_eq!(new.auth.mode(), "keys");
}
