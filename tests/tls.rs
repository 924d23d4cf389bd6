//! TLS on the client port: who gets in, with which certificate, and how a renewed one is taken.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

#[expect(dead_code, reason = "what other tests need")]
mod recorder;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use recorder::{ANSWER, Recorder, Step, json};
use rig::{Upstream, guard, policy, within};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tigertally::policy::{FlagOverrides, Policy, Sources, load};
use tigertally::proxy::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An authority, and what it signs.
struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Signed {
    chain: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, name: SanType) -> Signed {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.0).unwrap();
        Signed { chain: made.pem(), certificate: made.der().clone(), key }
    }

    fn server(&self) -> Signed {
        self.sign(SanType::IpAddress([127, 0, 0, 1].into()))
    }

    fn client(&self, uri: &str) -> Signed {
        self.sign(SanType::URI(uri.try_into().unwrap()))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

fn write(directory: &Path, signed: &Signed, client_ca: Option<&str>) {
    std::fs::write(directory.join("cert.pem"), &signed.chain).unwrap();
    std::fs::write(directory.join("key.pem"), signed.key.serialize_pem()).unwrap();
    if let Some(pem) = client_ca {
        std::fs::write(directory.join("clients.pem"), pem).unwrap();
    }
}

/// What a start or a reload reads from there.
fn read(upstream: &Upstream, directory: &Path) -> Result<Policy, String> {
    let set = |key: &str, file: &str| {
        let path = directory.join(file);
        path.exists().then(|| (format!("TIGERTALLY_TLS__{key}"), path.display().to_string()))
    };
    let env =
        [("CERT_FILE", "cert.pem"), ("KEY_FILE", "key.pem"), ("CLIENT_CA_FILE", "clients.pem")];
    let env = env.into_iter().filter_map(|(key, file)| set(key, file)).collect();
    let read = load(Sources { file: None, env, flags: FlagOverrides::default() });
    let read = read.map_err(|problems| problems.to_string())?;
    assert!(read.files.len() >= 2);
    Ok(Policy { auth: read.auth, tls: read.tls, ..policy(upstream) })
}

/// A client that trusts that authority and may show a certificate.
fn config(trusts: &Authority, shows: Option<&Signed>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusts.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match shows {
        None => builder.with_no_client_auth(),
        Some(signed) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.key.serialize_der()));
            builder.with_client_auth_cert(vec![signed.certificate.clone()], key).unwrap()
        }
    }
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

fn client(config: ClientConfig) -> HttpsClient {
    let builder = HttpsConnectorBuilder::new().with_tls_config(config);
    Client::builder(TokioExecutor::new()).build(builder.https_only().enable_http1().build())
}

/// The status, or `None` when the connection was not made.
async fn get(client: &HttpsClient, guard: &Running, path: &str) -> Option<(u16, Value)> {
    let request = Request::get(format!("https://{}{path}", guard.client_addr));
    let answer = within(client.request(request.body(Full::new(Bytes::new())).unwrap())).await;
    let answer = answer.ok()?;
    let status = answer.status().as_u16();
    Some((status, serde_json::from_str(&rig::text(answer).await).unwrap_or_default()))
}

async fn failed_handshakes(guard: &Running) -> String {
    let request = Request::get(format!("http://{}/metrics", guard.admin_addr));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let page = rig::text(rig::send(&rig::client(), request).await).await;
    let line = page.lines().find_map(|it| it.strip_prefix("tigertally_handshakes_failed_total "));
    line.unwrap().to_owned()
}

#[tokio::test]
async fn clients_are_served_by_https_and_one_that_says_nothing_holds_up_nobody() {
    let authority = Authority::new();
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &authority.server(), None);
    let upstream = Upstream::start().await;
    let mut policy = read(&upstream, scratch.path()).unwrap();
    policy.limits.header_read_timeout = std::time::Duration::from_millis(300);
    let guard = guard(policy).await;
    let mut silent = TcpStream::connect(guard.client_addr).await.unwrap();
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        assert_eq!(get(&client(config), &guard, "/health").await.unwrap().0, 200);
    }
    // A client that trusts another authority goes away; the silent one is sent away.
    let stranger = client(config(&Authority::new(), None));
    assert_eq!(get(&stranger, &guard, "/health").await, None);
    assert_eq!(within(silent.read(&mut [0])).await.unwrap_or(0), 0);
    let plain = Request::get(format!("http://{}/health", guard.client_addr));
    let plain = plain.body(Full::new(Bytes::new())).unwrap();
    assert!(within(rig::client().request(plain)).await.is_err());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while failed_handshakes(&guard).await != "3" {
        assert!(std::time::Instant::now() < end, "{}", failed_handshakes(&guard).await);
    }
}

#[tokio::test]
async fn http2_is_offered_by_alpn() {
    let authority = Authority::new();
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &authority.server(), None);
    let upstream = Upstream::start().await;
    let guard = guard(read(&upstream, scratch.path()).unwrap()).await;
    let mut config = config(&authority, None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(guard.client_addr).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = within(connector.connect(name, stream)).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let request = Request::get("https://127.0.0.1/health").body(Full::new(Bytes::new())).unwrap();
    tokio::select! {
        answer = within(sender.send_request(request)) => assert_eq!(answer.unwrap().status(), 200),
        ended = connection => unreachable!("{ended:?}"),
    }
}

#[tokio::test]
async fn a_client_certificate_of_the_authority_is_wanted_and_is_the_identity() {
    let (servers, clients, foreign) = (Authority::new(), Authority::new(), Authority::new());
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &servers.server(), Some(&clients.pem()));
    let upstream = Upstream::start().await;
    let policy = read(&upstream, scratch.path()).unwrap();
    assert_eq!(policy.auth.mode(), "certificate");
    let guard = guard(policy).await;
    let (alice, bob) = (clients.client("spiffe://mesh/alice"), clients.client("spiffe://mesh/bob"));
    let mallory = foreign.client("spiffe://mesh/alice");
    assert_eq!(get(&client(config(&servers, None)), &guard, "/v1/models").await, None);
    assert_eq!(get(&client(config(&servers, Some(&mallory))), &guard, "/v1/models").await, None);
    let [alice, bob] = [alice, bob].map(|signed| client(config(&servers, Some(&signed))));
    assert_eq!(get(&alice, &guard, "/v1/models").await.unwrap().0, 200);
    // What one does in a conversation is not there for the other.
    let path = "/guard/v1/conversations/c";
    let request = Request::post(format!("https://{}{path}/generation", guard.client_addr));
    let request = request.body(Full::new(Bytes::from("{\"generation\":7}"))).unwrap();
    assert_eq!(within(alice.request(request)).await.unwrap().status(), 200);
    let (mine, theirs) = (get(&alice, &guard, path).await, get(&bob, &guard, path).await);
    let (mine, theirs) = (mine.unwrap().1.to_string(), theirs.unwrap().1.to_string());
    assert!(mine.contains('7') && !theirs.contains('7'), "{mine}\n{theirs}");
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_and_a_bad_one_changes_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &old.server(), None);
    let upstream = Upstream::start().await;
    let guard = guard(read(&upstream, scratch.path()).unwrap()).await;
    let by_old = || client(config(&old, None));
    let by_new = || client(config(&new, None));
    let kept = by_old();
    assert!(get(&kept, &guard, "/health").await.is_some());
    assert!(get(&by_new(), &guard, "/health").await.is_none());
    // The key of another certificate, and no certificate at all.
    std::fs::write(scratch.path().join("cert.pem"), new.server().chain).unwrap();
    let told = read(&upstream, scratch.path()).unwrap_err();
    assert!(told.contains("tls.cert_file") && told.contains("tls.key_file"), "{told}");
    std::fs::write(scratch.path().join("cert.pem"), "nothing").unwrap();
    let told = read(&upstream, scratch.path()).unwrap_err();
    assert!(told.contains("holds no certificate"), "{told}");
    assert!(get(&by_old(), &guard, "/health").await.is_some());
    write(scratch.path(), &new.server(), None);
    guard.gateway().reload(read(&upstream, scratch.path()).unwrap()).unwrap();
    assert!(get(&by_new(), &guard, "/health").await.is_some());
    assert!(get(&by_old(), &guard, "/health").await.is_none());
    assert!(get(&kept, &guard, "/health").await.is_some(), "what is open stays open");
    // TLS is not taken off by a reload.
    let plain = policy(&upstream);
    assert_eq!(guard.gateway().reload(plain).unwrap(), ["tls"]);
    assert!(get(&by_new(), &guard, "/health").await.is_some());
}

/// As without TLS: `close_notify` and the end of its side may be half a close.
#[tokio::test]
async fn who_ends_its_side_and_waits_is_told_from_who_has_left() {
    let authority = Authority::new();
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &authority.server(), None);
    let recorder = Recorder::start().await;
    let mut policy = read(&Upstream::start().await, scratch.path()).unwrap();
    policy.upstream.url = format!("http://{}", recorder.address).parse().unwrap();
    let guard = guard(policy).await;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config(&authority, None)));
    let name = ServerName::try_from("127.0.0.1").unwrap();
    for (asked, waits) in [(1, true), (2, false)] {
        let go = Arc::new(tokio::sync::Notify::new());
        recorder.will([Step::Gate(Arc::clone(&go)), json(ANSWER)]);
        let stream = TcpStream::connect(guard.client_addr).await.unwrap();
        let mut stream = connector.connect(name.clone(), stream).await.unwrap();
        let body = rig::ask(false);
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ";
        let request = format!("{head}{}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        recorder.until("it is asked", |up| up.whole().len() == asked).await;
        if waits {
            go.notify_one();
            let mut answer = String::new();
            within(stream.read_to_string(&mut answer)).await.unwrap();
            assert!(answer.contains("HTTP/1.1 200 OK\r\n") && answer.ends_with(ANSWER), "{answer}");
        } else {
            drop(stream);
            recorder.until("it is left", |up| up.left() == 1).await;
        }
    }
}
