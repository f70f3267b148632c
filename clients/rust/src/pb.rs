//! Messages and stubs generated from `proto/fireteam/v1`, with the comments of the proto files.
//!
//! `Debug` hides tokens, credentials and connect data: it prints their lengths.
#![expect(clippy::large_enum_variant, reason = "generated from the proto files")]
#![cfg_attr(test, expect(clippy::allow_attributes, clippy::too_many_lines, reason = "generated server stubs"))]

use crate::secret_length::debug_secret_length;

tonic::include_proto!("fireteam.v1");
include!(concat!(env!("OUT_DIR"), "/debug.rs"));
