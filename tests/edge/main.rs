//! The edge under attack: the real binary in a process of its own, strangers who know HTTP/2 by heart, and somebody beside
//! them who means well. Short by default; `SCALE=30` is the long form of docs/SECURITY-TESTS.md. Chapters take turns.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod attack;
#[cfg(test)]
mod attackers;
#[cfg(test)]
mod bystander;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod fate;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod frames;
#[cfg(test)]
mod greedy;
#[cfg(test)]
#[expect(dead_code, reason = "tests/it uses the rest")]
#[path = "../common/papers.rs"]
mod papers;
#[cfg(test)]
#[path = "../it/plain.rs"]
mod plain;
#[cfg(test)]
#[expect(dead_code, reason = "tests/it uses the rest")]
#[path = "../it/process.rs"]
mod process;
#[cfg(test)]
mod victim;
#[cfg(test)]
mod wire;
