//! The `jsonwebtoken` crate's signatures by *ring*, which this program's TLS uses already: verifying only.
//!
//! The crate reads tokens and claims; the cryptography is left to a provider. Ours knows no HMAC and cannot
//! sign, so that a token signed with a public key as if it were a secret finds no verifier at all.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as by_ring;

static RING: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes *ring* the provider of this process. Doing so again changes nothing.
pub(super) fn install() {
    let _ = RING.install_default();
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let scheme = match algorithm {
        Algorithm::RS256 => Scheme::Rsa(&by_ring::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Scheme::Rsa(&by_ring::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Scheme::Rsa(&by_ring::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Scheme::Rsa(&by_ring::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Scheme::Rsa(&by_ring::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Scheme::Rsa(&by_ring::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Scheme::Other(&by_ring::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Scheme::Other(&by_ring::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Scheme::Other(&by_ring::ED25519),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    Ok(Box::new(ByRing { algorithm: *algorithm, scheme, key: key.clone() }))
}

enum Scheme {
    Rsa(&'static by_ring::RsaParameters),
    Other(&'static dyn by_ring::VerificationAlgorithm),
}

struct ByRing {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.scheme, self.key.kind()) {
            (Scheme::Rsa(scheme), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                by_ring::RsaPublicKeyComponents { n, e }.verify(scheme, message, signature)
            }
            (Scheme::Rsa(scheme), DecodingKeyKind::SecretOrDer(key)) => {
                by_ring::UnparsedPublicKey::new(*scheme, key).verify(message, signature)
            }
            (Scheme::Other(scheme), DecodingKeyKind::SecretOrDer(key)) => {
                by_ring::UnparsedPublicKey::new(*scheme, key).verify(message, signature)
            }
            (Scheme::Other(_), DecodingKeyKind::RsaModulusExponent { .. }) => {
                Err(ring::error::Unspecified)
            }
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
