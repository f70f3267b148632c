//! Who is calling, and the tokens that let the server remember nothing about it.

pub mod token;
