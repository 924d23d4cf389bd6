//! Tokens with one thing wrong each, and their valid neighbours.

use crate::issuer::{AUDIENCE, ISSUER, Signer, b64, claims, now};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use ring::hmac;
use serde_json::{Value, json};

/// Makes tokens from a seed.
pub(crate) struct Forger<'s> {
    random: StdRng,
    signers: [&'s Signer; 3],
    stranger: Signer,
    /// The first signer's public key, as everybody can read it.
    public: &'static [u8],
}

/// What is wrong, and the token.
pub(crate) type Forged = (&'static str, String);

impl<'s> Forger<'s> {
    pub(crate) fn new(seed: u64, signers: [&'s Signer; 3]) -> Self {
        let public = include_bytes!("rsa_a.pub.pem");
        let stranger = Signer::rsa(signers[0].id, true);
        Forger { random: StdRng::seed_from_u64(seed), signers, stranger, public }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn signer(&mut self) -> &'s Signer {
        self.signers[self.below(3)]
    }

    /// One claim otherwise (`Null`: missing), everything else right, and truly signed.
    fn claim(&mut self, name: &str, values: &[Value]) -> String {
        let signer = self.signer();
        let mut claims = claims("alice");
        match self.pick(values) {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        signer.token(&signer.header(), &claims)
    }

    pub(crate) fn wrong(&mut self, kind: usize) -> Forged {
        match kind % 10 {
            0 => ("signature", self.wrong_signature()),
            1 => ("algorithm", self.wrong_algorithm()),
            2 => {
                let past = now() - 31 - self.below(100_000) as u64;
                let wrong =
                    [json!(past), Value::Null, json!("never"), json!(-1), json!([1]), json!(0)];
                ("expiry", self.claim("exp", &wrong))
            }
            3 => {
                let wrong = [
                    json!("other"),
                    Value::Null,
                    json!([]),
                    json!(["a", "b"]),
                    json!(7),
                    json!(""),
                ];
                ("audience", self.claim("aud", &wrong))
            }
            4 => {
                let near = ISSUER.trim_end_matches('/');
                let wrong = [
                    json!(near),
                    Value::Null,
                    json!(7),
                    json!("https://evil.example/"),
                    json!(""),
                    json!([ISSUER]),
                    json!(["https://evil.example/", ISSUER]),
                ];
                ("issuer", self.claim("iss", &wrong))
            }
            5 => {
                let (signer, id) = (self.signer(), self.below(1000));
                let mut header = signer.header();
                header["kid"] = self.pick(&[
                    json!(format!("k{id}")),
                    json!(""),
                    json!(7),
                    json!("hmac"),
                    json!("../../dev/null"),
                ]);
                ("key id", signer.token(&header, &claims("alice")))
            }
            6 => {
                let soon = now() + 60 + self.below(100_000) as u64;
                ("not-before", self.claim("nbf", &[json!(soon), json!("now"), json!(u64::MAX)]))
            }
            7 => ("malformed", self.malformed()),
            8 => ("its own key", self.brings_its_key()),
            _ => {
                let long = "x".repeat(257);
                let wrong = [
                    Value::Null,
                    json!(""),
                    json!(7),
                    json!(" "),
                    json!(["alice"]),
                    json!(long),
                    json!("a\nb"),
                ];
                ("principal", self.claim("sub", &wrong))
            }
        }
    }

    fn wrong_signature(&mut self) -> String {
        let signer = self.signer();
        let token = signer.good("alice");
        let (message, signature) = token.rsplit_once('.').unwrap();
        match self.below(5) {
            0 => {
                let mut bytes = signer.sign(message.as_bytes());
                let at = self.below(bytes.len());
                bytes[at] ^= 1 << self.below(8);
                format!("{message}.{}", b64(bytes))
            }
            1 => format!("{message}."),
            2 => format!("{message}.{}", &signature[..signature.len() / 2]),
            // Somebody else's claims under a true signature.
            3 => {
                let (header, _) = message.split_once('.').unwrap();
                format!("{header}.{}.{signature}", b64(claims("mallory").to_string()))
            }
            _ => self.stranger.token(&self.signers[0].header(), &claims("alice")),
        }
    }

    fn wrong_algorithm(&mut self) -> String {
        let claims = claims("alice").to_string();
        let with = |algorithm: &str, id: &str| {
            let header = json!({ "typ": "JWT", "alg": algorithm, "kid": id }).to_string();
            format!("{}.{}", b64(header), b64(&claims))
        };
        let rsa = self.signers[0];
        match self.below(5) {
            0 => {
                let none = self.pick(&["none", "None", "NONE", "nOnE", ""]);
                format!("{}.", with(none, rsa.id))
            }
            1 => {
                let message = with("none", rsa.id);
                format!("{message}.{}", b64(rsa.sign(message.as_bytes())))
            }
            // The public key as a shared secret: everybody could sign.
            2 => {
                let id = self.pick(&[rsa.id, "hmac"]);
                let message = with("HS256", id);
                let secret = self.pick(&[self.public, &b"secret"[..], &b""[..]]);
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                format!("{message}.{}", b64(hmac::sign(&key, message.as_bytes())))
            }
            // Another algorithm than the key's, and ones that are not allowed.
            3 => {
                let other = self.pick(&["ES256", "EdDSA", "RS384", "PS256", "ES384"]);
                let message = with(other, rsa.id);
                format!("{message}.{}", b64(rsa.sign(message.as_bytes())))
            }
            _ => {
                let message = with("RS257", rsa.id);
                format!("{message}.{}", b64(rsa.sign(message.as_bytes())))
            }
        }
    }

    fn malformed(&mut self) -> String {
        let signer = self.signer();
        let (header, good) = (signer.header().to_string(), signer.good("alice"));
        match self.below(10) {
            0 => good.replacen('.', "", 1),
            1 => format!("{good}.{}", b64("x")),
            2 => good.replace('.', ".."),
            3 => format!("{good}=="),
            4 => signer.signed(&header, "not json"),
            5 => signer.signed(&header, "[1]"),
            6 => signer.signed("{\"alg\":", &claims("alice").to_string()),
            7 => {
                let twice = format!("{{\"exp\":1,{}", &claims("alice").to_string()[1..]);
                signer.signed(&header, &twice)
            }
            8 => {
                let mut header = signer.header();
                header["crit"] = self.pick(&[json!(["exp"]), json!(["x"]), json!([])]);
                header["x"] = json!(1);
                signer.token(&header, &claims("alice"))
            }
            _ => (0..1 + self.below(200)).map(|_| char::from(33 + self.below(94) as u8)).collect(),
        }
    }

    /// Signed with a key that the token itself brings, or says where to find.
    fn brings_its_key(&mut self) -> String {
        let mut header = self.signers[0].header();
        match self.below(3) {
            0 => header["jwk"] = self.stranger.jwk(),
            1 => header["jku"] = json!("http://127.0.0.1:9/jwks"),
            _ => header["x5u"] = json!("http://127.0.0.1:9/x5u"),
        }
        self.stranger.token(&header, &claims("alice"))
    }

    /// What looks unusual and is right.
    pub(crate) fn right(&mut self, kind: usize) -> String {
        let signer = self.signer();
        let (mut header, mut claims) = (signer.header(), claims("alice"));
        match kind % 8 {
            0 => {}
            1 => claims["aud"] = json!(["other", AUDIENCE]),
            2 => claims["exp"] = json!(now() - 10),
            3 => claims["nbf"] = json!(now() + 10),
            4 => drop(claims.as_object_mut().unwrap().remove("nbf")),
            5 => drop(header.as_object_mut().unwrap().remove("typ")),
            // The only key of its kind needs no id.
            6 => drop(header.as_object_mut().unwrap().remove("kid")),
            _ => header["jku"] = json!("http://127.0.0.1:9/jwks"),
        }
        signer.token(&header, &claims)
    }
}
