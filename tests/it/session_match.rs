//! Matches of searched sessions: their hosts begin them, and everything that follows is as for matches of queues.

pub(crate) mod fixture;
pub(crate) mod game_server;
pub(crate) mod liars;
pub(crate) mod meetings;
pub(crate) mod operators;
pub(crate) mod peer_host;
pub(crate) mod players;
pub(crate) mod rated_searches;
pub(crate) mod rating_systems;
pub(crate) mod searching_population;
pub(crate) mod several_clients;
