//! `auth.mode = "jwt"`: whose tokens open, whose never do, and how new keys of the issuer are learned.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod issuer;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../rig/mod.rs"]
mod rig;
mod wrong;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use issuer::{AUDIENCE, ISSUER, Issuer, Signer, claims};
use rig::{HttpClient, Upstream, client, error, guard, policy, send, text, within};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tigertally::policy::{FlagOverrides, Policy, Sources, load};
use tigertally::proxy::Running;
use wrong::Forger;

const SEED: u64 = 4;

/// A policy with those settings of `[auth]`, read as a start does.
fn with(upstream: &Upstream, settings: &[(&str, &str)]) -> Policy {
    let fixed = [("MODE", "jwt"), ("ISSUER", ISSUER), ("AUDIENCE", AUDIENCE)];
    let env = fixed
        .iter()
        .chain(settings)
        .map(|(key, value)| (format!("TIGERTALLY_AUTH__{key}"), (*value).to_owned()));
    let sources = Sources { file: None, env: env.collect(), flags: FlagOverrides::default() };
    let read = load(sources).unwrap();
    Policy { auth: read.auth, files: read.files, ..policy(upstream) }
}

fn by_url(upstream: &Upstream, issuer: &Issuer) -> Policy {
    with(upstream, &[("JWKS_URL", &format!("http://{}/jwks", issuer.addr))])
}

/// Asks with a token; the status and what was said.
async fn asked(client: &HttpClient, guard: &Running, token: &str) -> (u16, String) {
    let request = Request::get(format!("http://{}/v1/models", guard.client_addr))
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = send(client, request).await;
    let retry = response.headers().contains_key("retry-after");
    let status = response.status().as_u16();
    assert_eq!(retry, status == 503);
    (status, text(response).await)
}

/// Asks until the answer is `status`.
async fn until(client: &HttpClient, guard: &Running, token: &str, status: u16) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (got, body) = asked(client, guard, token).await;
        if got == status {
            return;
        }
        assert!(Instant::now() < end, "{got} {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_thousand_tokens_with_one_thing_wrong_are_refused_and_their_neighbours_pass() {
    let signers = [Signer::rsa("r", false), Signer::ec("e"), Signer::ed("d")];
    let all = [&signers[0], &signers[1], &signers[2]];
    let issuer = Issuer::start(&all).await;
    let upstream = Upstream::start().await;
    let guard = guard(by_url(&upstream, &issuer)).await;
    let client = client();
    let mut forger = Forger::new(SEED, all);
    let mut told = std::collections::HashSet::new();
    for round in 0..1000 {
        let (what, token) = forger.wrong(round);
        let (status, body) = asked(&client, &guard, &token).await;
        assert_eq!(status, 401, "seed {SEED}, round {round}: {what}: {token}\n{body}");
        assert_eq!(error(&body)["code"], "unauthenticated");
        told.insert(body);
        if round % 5 == 0 {
            let token = forger.right(round / 5);
            let (status, body) = asked(&client, &guard, &token).await;
            assert_eq!(status, 200, "seed {SEED}, round {round}: {token}\n{body}");
        }
    }
    assert_eq!(told.len(), 1, "what was wrong is told to nobody: {told:?}");
}

#[tokio::test]
async fn a_rotated_key_is_learned_once_and_made_up_ids_fetch_nothing() {
    let (old, new) = (Signer::rsa("old", false), Signer::rsa("new", true));
    let issuer = Issuer::start(&[&old]).await;
    let upstream = Upstream::start().await;
    let guard = guard(by_url(&upstream, &issuer)).await;
    let client = client();
    until(&client, &guard, &old.good("a"), 200).await;
    assert_eq!(issuer.fetches(), 1);
    issuer.serves(&[&new]);
    assert_eq!(asked(&client, &guard, &new.good("a")).await.0, 200);
    assert_eq!(issuer.fetches(), 2);
    for id in 0..50 {
        let header = json!({ "alg": "RS256", "kid": format!("made-up-{id}") });
        let token = new.token(&header, &claims("a"));
        assert_eq!(asked(&client, &guard, &token).await.0, 401);
    }
    assert_eq!(asked(&client, &guard, &old.good("a")).await.0, 401, "it was withdrawn");
    assert_eq!(issuer.fetches(), 2);
}

#[tokio::test]
async fn nobody_with_a_known_key_waits_for_a_fetch_and_the_old_set_outlives_a_failure() {
    let (old, new) = (Signer::ec("old"), Signer::ed("new"));
    let issuer = Issuer::start(&[&old]).await;
    let upstream = Upstream::start().await;
    let guard = guard(by_url(&upstream, &issuer)).await;
    let client = client();
    until(&client, &guard, &old.good("a"), 200).await;
    issuer.serves(&[&old, &new]);
    issuer.answers(false);
    let token = new.good("a");
    let waiting = asked(&client, &guard, &token);
    let meanwhile = async {
        let end = Instant::now() + Duration::from_secs(10);
        while issuer.fetches() < 2 {
            assert!(Instant::now() < end, "no fetch began");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..20 {
            assert_eq!(asked(&client, &guard, &old.good("a")).await.0, 200);
        }
        issuer.answers(true);
    };
    let ((status, _), ()) = within(async { tokio::join!(waiting, meanwhile) }).await;
    assert_eq!((status, issuer.fetches()), (200, 2));
    // Another source: a set of its own, which cannot be fetched; then the first again, fetched anew.
    issuer.fails();
    let url = format!("http://{}/jwks", issuer.addr);
    let refreshed = with(&upstream, &[("JWKS_URL", &url), ("JWKS_REFRESH", "10ms")]);
    guard.gateway().reload(refreshed).unwrap();
    assert_eq!(asked(&client, &guard, &old.good("a")).await.0, 503);
    issuer.serves(&[&old]);
    until(&client, &guard, &old.good("a"), 200).await;
    issuer.fails();
    let before = issuer.fetches();
    let end = Instant::now() + Duration::from_secs(20);
    while issuer.fetches() < before + 2 {
        assert!(Instant::now() < end, "it is not fetched again");
        assert_eq!(asked(&client, &guard, &old.good("a")).await.0, 200);
    }
}

#[tokio::test]
async fn without_any_keys_it_is_a_failure_and_readyz_says_so() {
    let signer = Signer::ec("k");
    let issuer = Issuer::start(&[&signer]).await;
    issuer.fails();
    let upstream = Upstream::start().await;
    let guard = guard(by_url(&upstream, &issuer)).await;
    let client = client();
    let (status, body) = asked(&client, &guard, &signer.good("a")).await;
    assert_eq!((status, error(&body)["code"].as_str()), (503, Some("identity_unavailable")));
    let ready = async || {
        let request = Request::get(format!("http://{}/readyz", guard.admin_addr));
        let response = send(&client, request.body(Full::new(Bytes::new())).unwrap()).await;
        let status = response.status().as_u16();
        let body: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        (status, body["identity"].clone())
    };
    assert_eq!(ready().await, (503, json!(false)));
    // No credential at all is refused all the same.
    assert_eq!(asked(&client, &guard, "x").await.0, 401);
    issuer.serves(&[&signer]);
    until(&client, &guard, &signer.good("a"), 200).await;
    assert_eq!(ready().await, (200, json!(true)));
}

#[tokio::test]
async fn a_public_key_file_does_without_an_issuer_on_the_network() {
    let upstream = Upstream::start().await;
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("issuer.pem");
    std::fs::write(&file, include_bytes!("rsa_a.pub.pem")).unwrap();
    let claim = [("TENANT_CLAIM", "org.id"), ("MODELS_CLAIM", "models")];
    let settings = [&[("PUBLIC_KEY_FILE", file.to_str().unwrap())], &claim[..]].concat();
    let policy = with(&upstream, &settings);
    assert_eq!(policy.files.iter().map(|it| it.path()).collect::<Vec<_>>(), [&file]);
    let guard = guard(policy).await;
    let client = client();
    let (signer, stranger) = (Signer::rsa("any", false), Signer::rsa("any", true));
    let mut known = claims("a");
    known["models"] = json!(["m"]);
    let token = signer.token(&signer.header(), &known);
    assert_eq!(asked(&client, &guard, &token).await.0, 200);
    assert_eq!(asked(&client, &guard, &stranger.token(&signer.header(), &known)).await.0, 401);
    assert_eq!(asked(&client, &guard, &signer.good("a")).await.0, 401, "no list of models");
    known["org"] = json!({});
    assert_eq!(asked(&client, &guard, &signer.token(&signer.header(), &known)).await.0, 401);
}

#[tokio::test]
async fn the_issuers_own_certificate_is_checked_by_the_authority_that_is_named() {
    let key = || rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, key()).unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = key();
    let certificate = params.signed_by(&own, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(own.serialize_der()).into(),
        )
        .unwrap();
    let signer = Signer::ec("k");
    let issuer = Issuer::start_secure(&[&signer], config).await;
    let url = format!("https://{}/jwks", issuer.addr);
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    let upstream = Upstream::start().await;
    let wary = guard(with(&upstream, &[("JWKS_URL", &url)])).await;
    let settings = [("JWKS_URL", &*url), ("JWKS_CA_FILE", file.to_str().unwrap())];
    let trusting = guard(with(&upstream, &settings)).await;
    let client = client();
    assert_eq!(asked(&client, &wary, &signer.good("a")).await.0, 503);
    assert_eq!(asked(&client, &trusting, &signer.good("a")).await.0, 200);
}
