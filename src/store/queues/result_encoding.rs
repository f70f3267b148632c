//! Row encoding of match results.

use std::borrow::Cow;
use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, SiloId};
use crate::domain::match_result::MatchResult;
use crate::store::error::StoreError;
use crate::store::queues::result_body::{decode_result, encode_result};
use crate::store::rows::{RowChecksum, body_error, from_ms, to_ms};

/// Row of `result`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct ResultRow<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) reported_ms: i64,
    pub(in crate::store) request_digest: [u8; 16],
    pub(in crate::store) body: Cow<'a, str>,
}

impl ResultRow<'_> {
    pub(in crate::store) fn encode(result: &MatchResult) -> ResultRow<'static> {
        ResultRow {
            id: *result.report.match_id.as_bytes(),
            silo_id: result.report.silo.0.cast_signed(),
            set_id: i64::from(result.report.set_id.0),
            reported_ms: to_ms(result.reported_at),
            request_digest: result.report_digest,
            body: encode_result(result).into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        [self.silo_id, self.set_id, self.reported_ms].into_iter().for_each(|number| sum.add_number(number));
        sum.add_bytes(&self.request_digest);
        sum.add_bytes(self.body.as_bytes());
        sum.finish()
    }

    pub(in crate::store) fn decode(self) -> Result<Arc<MatchResult>, StoreError> {
        let corrupt = |column, reason| StoreError::CorruptRow { table: "result", column, reason };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let mut result = decode_result(&self.body).map_err(|error| body_error("result", &error))?;
        result.report.match_id = MatchId::from_bytes(self.id);
        result.report.set_id = SetId(set_id);
        result.report.silo = SiloId(self.silo_id.cast_unsigned());
        result.reported_at = from_ms(self.reported_ms);
        result.report_digest = self.request_digest;
        Ok(Arc::new(result))
    }
}

#[cfg(test)]
mod tests;
