//! Connection attacks on the real binary in a process of its own, with an honest client beside the attackers. `SCALE=30` is
//! the long form of docs/SECURITY-TESTS.md. Tests run one at a time.

// `cfg(test)` is redundant for the compiler; clippy uses it to treat these modules as tests.
#[cfg(test)]
mod attack;
#[cfg(test)]
mod attacker_process;
#[cfg(test)]
mod connection_flood;
#[cfg(test)]
mod connection_outcome;
#[cfg(test)]
mod control_process;
#[cfg(test)]
mod greedy_callers;
#[cfg(test)]
mod h2spec;
#[cfg(test)]
mod http2_attacks;
#[cfg(test)]
mod library_defaults;
#[cfg(test)]
mod many_addresses;
#[cfg(test)]
mod raw_http2;
#[cfg(test)]
mod report;
#[cfg(test)]
mod server_under_attack;

/// Test support that this binary shares with tests/it.
#[cfg(test)]
#[path = "../it/support"]
mod support {
    #[expect(dead_code, reason = "tests/it uses the rest")]
    #[path = "../../common/certs.rs"]
    pub(crate) mod certs;
    pub(crate) mod generated_client;
    #[path = "../../common/network_namespace.rs"]
    pub(crate) mod network_namespace;
    #[expect(dead_code, reason = "tests/it uses the rest")]
    pub(crate) mod server_process;
}
