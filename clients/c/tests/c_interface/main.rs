//! Tests of the C interface: the exported functions as C calls them, and the C program compiled and run.
#![expect(unsafe_code, reason = "the tests call the interface as C does")]

mod functions;
mod hosting;
mod joining;
mod misuse;
mod random_bytes;
mod script;

mod world;
