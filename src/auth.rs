//! Who is calling, and the tokens that let the server remember nothing about it.

pub mod key_file;
pub mod proxy;
pub mod token;
