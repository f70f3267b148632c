//! Checksums of what is kept by user: rows too small to be anything but their columns.

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::life::penalty::Penalty;
use crate::domain::result::{RatingChange, Satisfaction};
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::queues::conclude::slot;
use crate::store::queues::picture::Spot;
use crate::store::rows::{Checksum, to_ms};

/// Of a row of `ticket_user`.
pub(in crate::store) fn spot_checksum(user: UserKey, spot: &Spot) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(user.as_bytes());
    sum.bytes(spot.ticket.as_bytes());
    sum.number(i64::from(spot.queue.set_id.0));
    sum.number(spot.queue.silo.0.cast_signed());
    sum.number(i64::from(spot.alone));
    sum.end()
}

/// Of a row of `match_user`.
pub(in crate::store) fn player_checksum(user: UserKey, play: MatchId) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(user.as_bytes());
    sum.bytes(play.as_bytes());
    sum.end()
}

/// Of a row of `penalty`.
pub(in crate::store) fn penalty_checksum((user, set_id): (UserKey, SetId), penalty: &Penalty) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(user.as_bytes());
    sum.number(i64::from(set_id.0));
    sum.number(i64::from(penalty.rung));
    sum.number(to_ms(penalty.until));
    sum.number(to_ms(penalty.resets_at));
    sum.end()
}

/// Of a row of `rating`. The file keeps no sign of a zero. What a row has had only since there are results, or since decay can stand
/// still, counts when it says anything: rows of before have none of it, and keep their sums.
pub(in crate::store) fn rating_checksum(row: &RatingRow) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(row.user.as_bytes());
    sum.number(i64::from(row.set_id.0));
    for number in [row.rated.rating, row.rated.deviation, row.volatility] {
        sum.number((number + 0.0).to_bits().cast_signed());
    }
    sum.number(i64::from(row.matches));
    sum.number(to_ms(row.last));
    let Satisfaction { abandoned, scores, score_sum } = row.satisfaction;
    let later = [i64::from(row.streak), i64::from(abandoned), i64::from(scores), i64::from(score_sum)];
    if later != [0; 4] {
        later.into_iter().for_each(|number| sum.number(number));
    }
    if row.played != 0 {
        sum.number(i64::from(row.played));
    }
    sum.end()
}

/// Of a row of `rating_change`.
pub(in crate::store) fn change_checksum(change: &RatingChange) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(change.user.as_bytes());
    sum.bytes(change.match_id.as_bytes());
    let numbers = [change.set_id.0, slot(change.number), change.number, change.rank, change.sides];
    numbers.into_iter().for_each(|number| sum.number(i64::from(number)));
    sum.number(to_ms(change.at));
    for rated in [change.before, change.after] {
        sum.number((rated.rating + 0.0).to_bits().cast_signed());
        sum.number((rated.deviation + 0.0).to_bits().cast_signed());
    }
    sum.end()
}

/// Of a row of `score`.
pub(in crate::store) fn score_checksum(match_id: MatchId, user: UserKey, score: u8, at: UnixMs) -> i64 {
    let mut sum = Checksum::new();
    sum.bytes(match_id.as_bytes());
    sum.bytes(user.as_bytes());
    sum.number(i64::from(score));
    sum.number(to_ms(at));
    sum.end()
}
