//! Errors of requests that cannot be read: bad protobuf, bad framing, a missing message.
//!
//! tonic answers most of them with INTERNAL. They are the client's fault, so the answer is INVALID_ARGUMENT, and no alarm for
//! faults of the server counts them.

use tonic::{Code, Status};

use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// Limit of tonic's own text in the message, bytes.
const DESCRIPTION_BYTES_MAX: usize = 160;

/// Starts of tonic's texts for a response that cannot be encoded.
const RESPONSE_ENCODING_ERROR_PREFIXES: [&str; 2] = ["Error encoding", "Error compressing"];

/// Rejection for a status with which tonic answers an unreadable request; `None` for all others.
///
/// Each error of the server itself has details, except for a response that cannot be encoded.
pub fn rejection_of_unreadable_request(status: &Status) -> Option<Rejection> {
    let names_the_server = matches!(status.code(), Code::Internal | Code::Unknown | Code::DataLoss);
    if !names_the_server || !status.details().is_empty() {
        return None;
    }
    let description = status.message();
    if RESPONSE_ENCODING_ERROR_PREFIXES.iter().any(|start| description.starts_with(start)) {
        return None;
    }
    let end = description.floor_char_boundary(DESCRIPTION_BYTES_MAX);
    let text = format!("the request cannot be read: {}; send the message that proto/ defines", &description[..end]);
    Some(Rejection::new(Code::InvalidArgument, ErrorReason::InvalidRequest, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::internal_error_status;

    #[test]
    fn unreadable_request_is_told_from_a_fault_of_the_server() {
        let of = |status: &Status| rejection_of_unreadable_request(status).map(|rejection| rejection.code);
        assert_eq!(of(&Status::internal("failed to decode Protobuf message")), Some(Code::InvalidArgument));
        assert_eq!(of(&Status::unknown("error reading a body from connection")), Some(Code::InvalidArgument));
        assert_eq!(of(&internal_error_status()), None);
        assert_eq!(of(&Status::internal("Error encoding: buffer")), None);
        assert_eq!(of(&Status::unimplemented("")), None);
        assert_eq!(of(&Status::out_of_range("decoded message length too large")), None);
        let long = rejection_of_unreadable_request(&Status::internal("é".repeat(500))).unwrap();
        assert!(long.message.len() < 300, "{}", long.message);
    }
}
