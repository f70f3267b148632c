//! Answers to calls, as C programs give them: a status, and the response or the details of the failure.

use fireteam_client::matching::{CallError, CallId};
use fireteam_client::{Code, Error, pb};
use prost::bytes::Bytes;
use tonic::Status;

use crate::status::FT_ERROR_VALUE;

/// Parts of an answer.
pub(crate) struct AnswerParts<'a> {
    pub(crate) id: CallId,
    pub(crate) status: i32,
    pub(crate) body: &'a [u8],
    pub(crate) reason: Option<&'a str>,
    pub(crate) retry_after_ms: Option<u64>,
}

impl AnswerParts<'_> {
    /// Result of the call. The body of a success is decoded by `decode`; the failure of that is a failure of the call.
    pub(crate) fn result<Answer>(
        &self,
        decode: impl FnOnce(&[u8]) -> Option<Answer>,
    ) -> Result<Result<Answer, CallError>, i32> {
        match self.status {
            0 => Ok(decode(self.body).ok_or_else(unreadable_answer_error)),
            1..=16 => Ok(Err(self.failure())),
            _ => Err(FT_ERROR_VALUE),
        }
    }

    /// Failure with the details of the server. The body is a `google.rpc.Status`; bytes that are none count as no details.
    fn failure(&self) -> CallError {
        let details = Bytes::copy_from_slice(self.body);
        let status = Status::with_details(Code::from_i32(self.status), "the call failed", details);
        let mut error = CallError::from(&Error::from(status));
        if let Some(reason) =
            self.reason.and_then(|name| pb::ErrorReason::from_str_name(&format!("ERROR_REASON_{name}")))
        {
            error.reason = reason;
        }
        error.retry_after_ms = self.retry_after_ms.or(error.retry_after_ms);
        error
    }
}

/// Failure of a call whose answer cannot be read.
pub(crate) fn unreadable_answer_error() -> CallError {
    let message = "the answer cannot be read".to_owned();
    CallError { code: Code::Internal, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message }
}
