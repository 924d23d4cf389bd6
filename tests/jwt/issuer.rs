//! An issuer of tokens: its keys, its key set on a real socket, and every kind of token it or a forger makes.

use axum::serve::Listener;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) const ISSUER: &str = "https://issuer.example/";
pub(crate) const AUDIENCE: &str = "tigertally";

/// A text as tokens write it.
pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A private key.
pub(crate) struct Signer {
    pub(crate) id: &'static str,
    pub(crate) algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    /// An RSA key that was made for these tests and is used nowhere else.
    pub(crate) fn rsa(id: &'static str, second: bool) -> Self {
        let der: &[u8] =
            if second { include_bytes!("rsa_b.pk8") } else { include_bytes!("rsa_a.pk8") };
        let pair = Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(der).unwrap()));
        Signer { id, algorithm: "RS256", pair }
    }

    pub(crate) fn ec(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(scheme, der.as_ref(), &random).unwrap();
        Signer { id, algorithm: "ES256", pair: Pair::Ec(pair) }
    }

    pub(crate) fn ed(id: &'static str) -> Self {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Pair::Ed(Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap());
        Signer { id, algorithm: "EdDSA", pair }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let scheme = &signature::RSA_PKCS1_SHA256;
                pair.sign(scheme, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Its public half, as a key set holds it.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public: ring::rsa::PublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({ "kty": "RSA", "n": b64(public.n), "e": b64(public.e) })
            }
            Pair::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y) })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key()) })
            }
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk["alg"] = self.algorithm.into();
        jwk
    }

    pub(crate) fn header(&self) -> Value {
        json!({ "typ": "JWT", "alg": self.algorithm, "kid": self.id })
    }

    /// A token of these two parts, truly signed.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        self.signed(&header.to_string(), &claims.to_string())
    }

    pub(crate) fn signed(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", b64(header), b64(claims));
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", b64(signature))
    }

    /// A good token for that user.
    pub(crate) fn good(&self, user: &str) -> String {
        self.token(&self.header(), &claims(user))
    }
}

pub(crate) fn claims(user: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now(), "nbf": now() - 5,
        "exp": now() + 300, "org": { "id": "acme" },
    })
}

/// A port that speaks TLS; who cannot is let go.
struct Secure {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, from) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Serves a key set.
pub(crate) struct Issuer {
    pub(crate) addr: SocketAddr,
    reply: Arc<Mutex<(u16, String)>>,
    fetches: Arc<AtomicUsize>,
    gate: watch::Sender<bool>,
}

impl Issuer {
    pub(crate) async fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self::on(listener, addr, keys)
    }

    /// The same by HTTPS, with that certificate.
    pub(crate) async fn start_secure(keys: &[&Signer], config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self::on(Secure { listener, acceptor: Arc::new(config).into() }, addr, keys)
    }

    fn on(listener: impl Listener<Addr = SocketAddr>, addr: SocketAddr, keys: &[&Signer]) -> Self {
        let reply = Arc::new(Mutex::new((200, set(keys))));
        let fetches = Arc::new(AtomicUsize::new(0));
        let gate = watch::Sender::new(true);
        let (told, counted, opened) = (Arc::clone(&reply), Arc::clone(&fetches), gate.subscribe());
        let answer = move || {
            let (told, counted, mut opened) =
                (Arc::clone(&told), Arc::clone(&counted), opened.clone());
            async move {
                counted.fetch_add(1, Ordering::SeqCst);
                opened.wait_for(|open| *open).await.unwrap();
                let (status, body) = told.lock().clone();
                (http::StatusCode::from_u16(status).unwrap(), body)
            }
        };
        let router = axum::Router::new().route("/jwks", axum::routing::get(answer));
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Issuer { addr, reply, fetches, gate }
    }

    pub(crate) fn serves(&self, keys: &[&Signer]) {
        *self.reply.lock() = (200, set(keys));
    }

    pub(crate) fn fails(&self) {
        *self.reply.lock() = (500, "oh".to_owned());
    }

    /// Whether it answers, or keeps whoever asks waiting.
    pub(crate) fn answers(&self, answers: bool) {
        self.gate.send_replace(answers);
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

fn set(keys: &[&Signer]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    // Others in a set must not disturb: a shared secret, an unknown type, nonsense.
    let others =
        [json!({"kty": "oct", "k": "c2VjcmV0", "kid": "hmac"}), json!({"kty": "X"}), json!(7)];
    let keys = [&keys[..], &others[..]].concat();
    json!({ "keys": keys }).to_string()
}
