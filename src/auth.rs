//! Who is calling and what they may, and the tokens that let the server remember nothing about it.

pub mod identity;
pub mod key_file;
pub mod policy;
pub mod proxy;
pub mod quota;
pub mod token;
