//! Tests of the C interface: the exported functions as C calls them, and the C program compiled and run.
#![expect(unsafe_code, reason = "the tests call the interface as C does")]
#![expect(clippy::indexing_slicing, reason = "a missing entry fails the test")]

// `cfg(test)` tells clippy that helper functions here are tests too.
#[cfg(test)]
mod beacons;
#[cfg(feature = "client")]
#[cfg(test)]
mod cmake_package;
#[cfg(test)]
mod compilers;
#[cfg(test)]
mod functions;
#[cfg(test)]
mod hosting;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod match_hosting;
#[cfg(test)]
mod misuse;
#[cfg(test)]
mod queue_functions;
#[cfg(test)]
mod queueing;
#[cfg(test)]
mod random_bytes;
#[cfg(test)]
mod script;
#[cfg(feature = "client")]
#[cfg(test)]
mod served;
#[cfg(feature = "client")]
#[cfg(test)]
mod server;
#[cfg(feature = "client")]
#[cfg(test)]
mod streams;
#[cfg(feature = "credentials")]
#[cfg(test)]
mod verifier;
#[cfg(test)]
mod world;
