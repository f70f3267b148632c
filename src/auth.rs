//! Who is calling and what they may, and the tokens that let the server remember nothing about it.

pub mod authenticator;
pub mod certificate;
pub mod credential;
pub mod identity;
pub mod issuing;
pub mod jwt;
pub mod key_file;
pub mod keys;
pub mod policy;
pub mod proxy;
pub mod quota;
pub mod refused;
pub mod token;
mod verified;
