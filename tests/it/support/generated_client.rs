//! Message types and clients as prost and tonic generate them. Tests compare the server's handwritten encoding with
//! them.

#![expect(clippy::all, unreachable_pub, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/plain/fireteam.v1.rs"));
