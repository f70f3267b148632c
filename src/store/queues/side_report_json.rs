//! JSON encoding of the reports of a match's players, in the body of the match.
//!
//! | key | content |
//! |---|---|
//! | `sr` | reports: user, ranks of the sides, users who disconnected, duration or null |
//! | `sh` | tickets that were heard since play began |
//! | `sw` | end of the report window |
//! | `so` | outcome, as index in `REPORT_OUTCOMES` |

use serde::de::Error;

use crate::domain::lifecycle::side_reports::{PlayerReport, PlayerResultClaim, SideReports, SideReportsOutcome};
use crate::store::adverts::row_body::HexKey;

/// Report of one player.
pub(super) type PlayerResultReportJson = (HexKey, Vec<u32>, Vec<HexKey>, Option<u64>);

/// Outcomes of reports, in the order of their stored numbers.
const REPORT_OUTCOMES: [SideReportsOutcome; 4] = [
    SideReportsOutcome::Settled,
    SideReportsOutcome::Held,
    SideReportsOutcome::Disputed,
    SideReportsOutcome::Unreported,
];

pub(super) fn encode_player_result_reports(side_reports: &SideReports) -> Vec<PlayerResultReportJson> {
    let report = |PlayerReport { user, claim }: &PlayerReport| {
        let disconnected = claim.disconnected.iter().copied().map(HexKey::from_user_key).collect();
        (HexKey::from_user_key(*user), claim.ranks.clone(), disconnected, claim.duration_ms)
    };
    side_reports.reports.iter().map(report).collect()
}

pub(super) fn decode_player_result_reports(reports: Vec<PlayerResultReportJson>) -> Vec<PlayerReport> {
    let report = |(user, ranks, disconnected, duration_ms): PlayerResultReportJson| PlayerReport {
        user: user.user_key(),
        claim: PlayerResultClaim {
            ranks,
            disconnected: disconnected.into_iter().map(HexKey::user_key).collect(),
            duration_ms,
        },
    };
    reports.into_iter().map(report).collect()
}

pub(super) fn encode_reports_outcome(outcome: SideReportsOutcome) -> Option<u8> {
    let index = REPORT_OUTCOMES.iter().position(|known| *known == outcome);
    index.and_then(|index| u8::try_from(index).ok())
}

pub(super) fn decode_reports_outcome(index: u8) -> Result<SideReportsOutcome, serde_json::Error> {
    let known = REPORT_OUTCOMES.get(usize::from(index)).copied();
    known.ok_or_else(|| serde_json::Error::custom(format_args!("unknown report outcome {index}")))
}
