//! Tests of the client against a scripted server over TCP.

mod calls;
mod matching_run;
mod queueing_run;
mod scripted_server;
mod stream;
