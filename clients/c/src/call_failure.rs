//! Failed calls and streams: the status code, and `google.rpc.Status` as bytes.

use tonic::{Code, Status};

/// Failed call.
pub(crate) struct CallFailure {
    pub(crate) code: i32,
    pub(crate) details: Vec<u8>,
}

impl From<&Status> for CallFailure {
    fn from(status: &Status) -> Self {
        Self { code: code(status).into(), details: status.details().to_vec() }
    }
}

/// Code of a failure, corrected where tonic's differs from that of other gRPC libraries: a passed deadline, and a lost connection.
fn code(status: &Status) -> Code {
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => Code::DeadlineExceeded,
        Code::Unknown if std::error::Error::source(status).is_some() => Code::Unavailable,
        code => code,
    }
}
