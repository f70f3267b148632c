//! The client against a stand-in server that says what each test wants to hear, over a real socket.

mod calls;
mod scripted_server;
mod stream;
