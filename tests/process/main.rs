//! Several servers on one Postgres, killed, paused, cut off and lied to: what clients were told is held against what the
//! tables say. A short form by default, `SCALE=n` multiplies it; chapters take turns and each prints its figures.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod apart;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod cancels;
#[cfg(test)]
mod clock;
#[cfg(all(test, feature = "failpoints"))]
mod failpoints;
#[cfg(test)]
mod feed;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod history;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod lost_acks;
#[cfg(test)]
mod matches;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod rival;
#[cfg(test)]
mod seats;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod tables;

/// Test support that this binary shares with tests/it.
#[cfg(test)]
#[path = "../it/support"]
mod support {
    pub(crate) mod database;
    pub(crate) mod generated_client;
    #[path = "../../common/party.rs"]
    pub(crate) mod party;
    #[expect(dead_code, reason = "tests/it uses the rest")]
    pub(crate) mod server_process;
}
