//! Rows of what came of matches, to domain and back.

use std::borrow::Cow;
use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, SiloId};
use crate::domain::result::MatchResult;
use crate::store::StoreError;
use crate::store::rows::result_body::{decode, encode};
use crate::store::rows::{Checksum, from_ms, to_ms};

/// A row of `result`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct ResultRow<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) reported_ms: i64,
    pub(in crate::store) payload: [u8; 16],
    pub(in crate::store) body: Cow<'a, str>,
}

impl ResultRow<'_> {
    pub(in crate::store) fn of(result: &MatchResult) -> ResultRow<'static> {
        ResultRow {
            id: *result.report.match_id.as_bytes(),
            silo_id: result.report.silo.0.cast_signed(),
            set_id: i64::from(result.report.set_id.0),
            reported_ms: to_ms(result.reported),
            payload: result.payload,
            body: encode(result).into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = Checksum::new();
        sum.bytes(&self.id);
        [self.silo_id, self.set_id, self.reported_ms].into_iter().for_each(|number| sum.number(number));
        sum.bytes(&self.payload);
        sum.bytes(self.body.as_bytes());
        sum.end()
    }

    /// The result.
    pub(in crate::store) fn result(self) -> Result<Arc<MatchResult>, StoreError> {
        let corrupt = |column, what| StoreError::Corrupt { table: "result", column, what };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let mut result = decode(&self.body).map_err(|error| corrupt("body", error.to_string()))?;
        result.report.match_id = MatchId::from_bytes(self.id);
        result.report.set_id = SetId(set_id);
        result.report.silo = SiloId(self.silo_id.cast_unsigned());
        result.reported = from_ms(self.reported_ms);
        result.payload = self.payload;
        Ok(Arc::new(result))
    }
}

#[cfg(test)]
mod tests;
