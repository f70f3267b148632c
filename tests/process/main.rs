//! Several servers on one Postgres, killed, paused, cut off and lied to: what clients were told is held against what the
//! tables say. A short form by default, `SCALE=n` multiplies it; chapters take turns and each prints its figures.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod cancels;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod consistency;
#[cfg(test)]
mod feed;
#[cfg(test)]
mod history;
#[cfg(test)]
mod load_client;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod lost_answers;
#[cfg(test)]
mod matches;
#[cfg(all(test, feature = "mutants"))]
mod mutants;
#[cfg(test)]
mod netns;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod postgres_hang;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod report;
#[cfg(test)]
mod seats;
#[cfg(test)]
mod table_checks;

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
