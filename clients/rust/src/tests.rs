//! Tests of the client against a scripted server over TCP.

mod beacons_run;
mod calls;
mod matching_run;
mod queueing_run;
mod scripted_beacon;
mod scripted_server;
mod stream;
