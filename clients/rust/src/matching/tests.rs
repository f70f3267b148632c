//! Tests of the search loop in an invented world: a server, hosts and a game in simulated time.

mod chaos;
mod hosting;
mod joining;
mod probing;
mod random_worlds;
mod searching;
mod server;
mod world;
