//! The messages in their plain, generated form, with clients: the judge of what the server writes by hand.

#![expect(clippy::all, unreachable_pub, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/plain/fireteam.v1.rs"));
