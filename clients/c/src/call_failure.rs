//! Failed calls and streams: the status code, and `google.rpc.Status` as bytes.

use fireteam_client::normalized_code;
use tonic::Status;

/// Failed call.
pub(crate) struct CallFailure {
    pub(crate) code: i32,
    pub(crate) details: Vec<u8>,
}

impl From<&Status> for CallFailure {
    fn from(status: &Status) -> Self {
        Self { code: normalized_code(status).into(), details: status.details().to_vec() }
    }
}
