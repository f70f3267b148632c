//! Fault tests of several servers on one Postgres: servers are killed, paused and cut off, and messages are lost. Each test
//! compares its clients' call history with the tables. `SCALE=n` multiplies the default length; tests run one at a time, and
//! each prints a report line.

// `cfg(test)` is redundant for the compiler; clippy uses it to treat these modules as tests.
#[cfg(test)]
mod allocation_offers;
#[cfg(test)]
mod beacon_programs;
#[cfg(test)]
mod cancels;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod consistency;
#[cfg(all(test, feature = "failpoints"))]
mod failpoints;
#[cfg(test)]
mod feed;
#[cfg(all(test, feature = "failpoints"))]
mod feed_without_polls;
#[cfg(test)]
mod history;
#[cfg(test)]
mod hosting_servers;
#[cfg(all(test, feature = "failpoints"))]
mod hung_files;
#[cfg(test)]
mod identities;
#[cfg(all(test, feature = "failpoints"))]
mod late_queue_feed;
#[cfg(test)]
mod limited_owner;
#[cfg(test)]
mod load_client;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod lost_answers;
#[cfg(test)]
mod match_checks;
#[cfg(test)]
mod match_life;
#[cfg(test)]
mod matches;
#[cfg(test)]
mod measured_latency;
#[cfg(test)]
mod netns;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod owner_limits;
#[cfg(all(test, feature = "failpoints"))]
mod panics;
#[cfg(test)]
mod player_reports;
#[cfg(test)]
mod postgres_hang;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod queue_programs;
#[cfg(test)]
mod random_servers;
#[cfg(test)]
mod receipts;
#[cfg(test)]
mod refused_players;
#[cfg(test)]
mod report;
#[cfg(test)]
mod rolling_upgrade;
#[cfg(test)]
mod seats;
#[cfg(all(test, feature = "failpoints"))]
mod slow_pass;
#[cfg(test)]
mod table_checks;

/// Test support that this binary shares with tests/it.
#[cfg(test)]
#[path = "../it/support"]
mod support {
    #[expect(dead_code, reason = "tests/it uses the rest")]
    pub(crate) mod allocator;
    #[expect(dead_code, reason = "tests/it uses the rest")]
    pub(crate) mod database;
    #[path = "../../common/delay_line.rs"]
    pub(crate) mod delay_line;
    pub(crate) mod generated_client;
    #[path = "../../common/network_namespace.rs"]
    pub(crate) mod network_namespace;
    #[path = "../../common/party.rs"]
    pub(crate) mod party;
    #[expect(dead_code, reason = "tests/it uses the rest")]
    pub(crate) mod server_process;
}
