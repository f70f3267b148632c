//! Tests of the client against a scripted server over TCP.

mod calls;
mod scripted_server;
mod stream;
