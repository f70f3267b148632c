//! The messages and stubs generated from `proto/fireteam/v1`; what each field means is said there.
#![expect(clippy::large_enum_variant, reason = "generated: the wire decides what an answer holds")]
#![cfg_attr(test, expect(clippy::allow_attributes, clippy::too_many_lines, reason = "generated server stubs"))]

tonic::include_proto!("fireteam.v1");
