//! Checksums of what is kept by user: rows too small to be anything but their columns.

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{RatingHistoryEntry, SatisfactionStats};
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::queues::queue_rows::TicketUser;
use crate::store::queues::record_result::history_slot;
use crate::store::rows::{RowChecksum, to_ms};

/// Of a row of `ticket_user`.
pub(in crate::store) fn ticket_user_checksum(user: UserKey, spot: &TicketUser) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_bytes(spot.ticket.as_bytes());
    sum.add_number(i64::from(spot.queue.set_id.0));
    sum.add_number(spot.queue.silo.0.cast_signed());
    sum.add_number(i64::from(spot.exclusive));
    sum.finish()
}

/// Of a row of `match_user`.
pub(in crate::store) fn match_user_checksum(user: UserKey, play: MatchId) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_bytes(play.as_bytes());
    sum.finish()
}

/// Of a row of `penalty`.
pub(in crate::store) fn penalty_checksum((user, set_id): (UserKey, SetId), penalty: &Penalty) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(user.as_bytes());
    sum.add_number(i64::from(set_id.0));
    sum.add_number(i64::from(penalty.level));
    sum.add_number(to_ms(penalty.cooldown_until));
    sum.add_number(to_ms(penalty.resets_at));
    sum.finish()
}

/// Of a row of `rating`. The file keeps no sign of a zero. What a row has had only since there are results, or since decay can stand
/// still, counts when it says anything: rows of before have none of it, and keep their sums.
pub(in crate::store) fn rating_checksum(row: &RatingRow) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(row.user.as_bytes());
    sum.add_number(i64::from(row.set_id.0));
    for number in [row.rating.rating, row.rating.deviation, row.volatility] {
        sum.add_number((number + 0.0).to_bits().cast_signed());
    }
    sum.add_number(i64::from(row.match_count));
    sum.add_number(to_ms(row.last_match_at));
    let SatisfactionStats { abandoned_matches: abandoned, feedback_count: scores, feedback_sum: score_sum } =
        row.satisfaction;
    let later = [i64::from(row.streak), i64::from(abandoned), i64::from(scores), i64::from(score_sum)];
    if later != [0; 4] {
        later.into_iter().for_each(|number| sum.add_number(number));
    }
    if row.periods_played != 0 {
        sum.add_number(i64::from(row.periods_played));
    }
    sum.finish()
}

/// Of a row of `rating_change`.
pub(in crate::store) fn rating_change_checksum(change: &RatingHistoryEntry) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(change.user.as_bytes());
    sum.add_bytes(change.match_id.as_bytes());
    let numbers = [
        change.set_id.0,
        history_slot(change.rated_match_number),
        change.rated_match_number,
        change.rank,
        change.side_count,
    ];
    numbers.into_iter().for_each(|number| sum.add_number(i64::from(number)));
    sum.add_number(to_ms(change.reported_at));
    for rated in [change.before, change.after] {
        sum.add_number((rated.rating + 0.0).to_bits().cast_signed());
        sum.add_number((rated.deviation + 0.0).to_bits().cast_signed());
    }
    sum.finish()
}

/// Of a row of `score`.
pub(in crate::store) fn feedback_checksum(match_id: MatchId, user: UserKey, score: u8, at: UnixMs) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(match_id.as_bytes());
    sum.add_bytes(user.as_bytes());
    sum.add_number(i64::from(score));
    sum.add_number(to_ms(at));
    sum.finish()
}
