//! Row checksums of tables keyed by user, whose rows have no body.

use crate::domain::id::{ConsentId, MatchId, RatingKey, SetId, UserKey};
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{RatingHistoryEntry, UserSatisfactionStatistics};
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::queues::StoredBlockList;
use crate::store::queues::TicketMembership;
use crate::store::queues::consents::StoredConsent;
use crate::store::queues::queue_rows::record_result::history_slot;
use crate::store::rows::{RowChecksum, to_ms};

/// Checksum of a row of `ticket_user`.
pub(in crate::store) fn ticket_user_checksum(user: UserKey, membership: &TicketMembership) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_bytes(membership.ticket_id.as_bytes());
    sum.add_number(i64::from(membership.queue.set_id.0));
    sum.add_number(membership.queue.silo.0.cast_signed());
    sum.add_number(i64::from(membership.exclusive));
    sum.finish()
}

/// Checksum of a row of `match_user`.
pub(in crate::store) fn match_user_checksum(user: UserKey, match_id: MatchId) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_bytes(match_id.as_bytes());
    sum.finish()
}

/// Checksum of a row of `penalty`.
pub(in crate::store) fn penalty_checksum((user, set_id): (UserKey, SetId), penalty: &Penalty) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_number(i64::from(set_id.0));
    sum.add_number(i64::from(penalty.level));
    sum.add_number(to_ms(penalty.cooldown_until));
    sum.add_number(to_ms(penalty.resets_at));
    sum.finish()
}

/// Checksum of a row of `consent`.
pub(in crate::store) fn consent_checksum(id: ConsentId, consent: &StoredConsent) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(id.as_bytes());
    sum.add_bytes(consent.consumer.as_ref().map_or(&[][..], |taker| &taker.0));
    sum.add_number(i64::from(consent.is_revoked));
    sum.add_number(to_ms(consent.expires_at));
    sum.finish()
}

/// Checksum of a row of `block_list`.
pub(in crate::store) fn block_list_checksum(list: &StoredBlockList) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(list.user.as_bytes());
    sum.add_bytes(&list.encode_blocked());
    sum.add_number(list.version.cast_signed());
    sum.finish()
}

/// Checksum of a row of `rating` or `keyed_rating`. The sign of a zero is ignored, because SQLite does not store it. `streak` and the
/// columns after it count only if they are not zero.
pub(in crate::store) fn rating_checksum(row: &RatingRow) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(row.user.as_bytes());
    sum.add_number(row.key.to_stored());
    for number in [row.rating.rating, row.rating.deviation, row.volatility] {
        sum.add_number((number + 0.0).to_bits().cast_signed());
    }
    sum.add_number(i64::from(row.rated_match_count));
    sum.add_number(to_ms(row.last_match_at));
    let UserSatisfactionStatistics {
        abandoned_matches,
        disputed_matches: _,
        given_feedback_count: feedback_count,
        given_feedback_sum: feedback_sum,
    } = row.satisfaction;
    let later_columns =
        [i64::from(row.streak), i64::from(abandoned_matches), i64::from(feedback_count), i64::from(feedback_sum)];
    if later_columns != [0; 4] {
        later_columns.into_iter().for_each(|number| sum.add_number(number));
    }
    if row.last_match_active_period != 0 {
        sum.add_number(i64::from(row.last_match_active_period));
    }
    sum.finish()
}

/// Checksum of a row of `rating_change` or `keyed_rating_change`.
pub(in crate::store) fn rating_change_checksum(change: &RatingHistoryEntry) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(change.user.as_bytes());
    sum.add_bytes(change.match_id.as_bytes());
    sum.add_number(change.key.to_stored());
    let numbers = [history_slot(change.rated_match_number), change.rated_match_number, change.rank, change.side_count];
    numbers.into_iter().for_each(|number| sum.add_number(i64::from(number)));
    sum.add_number(to_ms(change.reported_at));
    for estimate in [change.before, change.after] {
        sum.add_number((estimate.rating + 0.0).to_bits().cast_signed());
        sum.add_number((estimate.deviation + 0.0).to_bits().cast_signed());
    }
    sum.finish()
}

/// Checksum of a row of `first_rating_scale`.
pub(in crate::store) fn first_rating_scale_checksum(set_id: SetId, scale: RatingKey) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_number(i64::from(set_id.0));
    sum.add_number(scale.to_stored());
    sum.finish()
}

/// Checksum of a row of `feedback`.
pub(in crate::store) fn feedback_checksum(match_id: MatchId, user: UserKey, stars: u8, given_at: UnixMs) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(match_id.as_bytes());
    sum.add_bytes(user.as_bytes());
    sum.add_number(i64::from(stars));
    sum.add_number(to_ms(given_at));
    sum.finish()
}
