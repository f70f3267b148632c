//! Authentication, access policy and rate limits of callers, and the signed tokens that keep the server stateless.

pub mod authenticator;
pub mod block_cipher;
pub mod client_certificate;
pub mod credential_error;
pub(crate) mod fail_points;
pub mod forwarded_for;
pub mod identity;
pub mod jwt;
pub mod jwt_signing_key;
pub mod key_file;
pub mod match_credential;
pub mod policy;
pub mod public_user_keys;
pub mod rate_limit;
pub mod receipt_check;
pub mod token;
mod verified_credential_cache;
pub mod verifying_keys;
