//! Gauges by matchmaking set. Callers count incrementally; here the counts of sets beyond the limit are added up, and sets that
//! have become empty are set to 0.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::domain::id::SetId;
use crate::telemetry::label::{AdvertisementKindLabel, MatchStageLabel, SeatStateLabel, SetLabel, TicketStateLabel};
use crate::telemetry::metric::Metrics;

/// Tickets, players and matches of a set that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Tickets, by `TicketStateLabel`.
    pub tickets: [u64; TicketStateLabel::ALL.len()],
    /// Players of waiting tickets.
    pub waiting_players: u64,
    /// Matches, by `MatchStageLabel`.
    pub matches: [u64; MatchStageLabel::ALL.len()],
}

impl AddAssign for QueueCounts {
    fn add_assign(&mut self, other: Self) {
        self.tickets.iter_mut().zip(other.tickets).for_each(|(sum, count)| *sum += count);
        self.waiting_players += other.waiting_players;
        self.matches.iter_mut().zip(other.matches).for_each(|(sum, count)| *sum += count);
    }
}

/// Advertisements of a set, by `AdvertisementKindLabel` and `SeatStateLabel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdvertisementCounts(pub [[u64; SeatStateLabel::ALL.len()]; AdvertisementKindLabel::ALL.len()]);

impl AdvertisementCounts {
    /// Count of a kind in a state, to change.
    pub fn count_mut(&mut self, kind: AdvertisementKindLabel, state: SeatStateLabel) -> &mut u64 {
        &mut self.0[kind as usize][state as usize]
    }
}

impl AddAssign for AdvertisementCounts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().flatten().zip(other.0.into_iter().flatten()).for_each(|(sum, count)| *sum += count);
    }
}

impl Metrics {
    /// Sets the gauges of tickets and matches to `counts`. Sets without counts have none.
    pub fn set_queue_counts(&self, counts: impl IntoIterator<Item = (SetId, QueueCounts)>) {
        for (set, counts) in self.counts_by_label(counts) {
            for state in TicketStateLabel::ALL {
                self.queue_tickets.get_or_create(&(set, *state)).set(to_gauge(counts.tickets[*state as usize]));
            }
            self.queue_waiting_players.get_or_create(&set).set(to_gauge(counts.waiting_players));
            for stage in MatchStageLabel::ALL {
                self.queue_matches.get_or_create(&(set, *stage)).set(to_gauge(counts.matches[*stage as usize]));
            }
        }
    }

    /// Sets the gauges of advertisements to `counts`. Sets without counts have none.
    pub fn set_advertisement_counts(&self, counts: impl IntoIterator<Item = (SetId, AdvertisementCounts)>) {
        for (set, counts) in self.counts_by_label(counts) {
            for (kind, by_state) in AdvertisementKindLabel::ALL.iter().zip(counts.0) {
                for (state, count) in SeatStateLabel::ALL.iter().zip(by_state) {
                    self.set_advertisements.get_or_create(&(set, (*kind, *state))).set(to_gauge(count));
                }
            }
        }
    }

    /// Counts by label, with 0 for each known set without any.
    fn counts_by_label<C: AddAssign + Default>(
        &self,
        counts: impl IntoIterator<Item = (SetId, C)>,
    ) -> BTreeMap<SetLabel, C> {
        let mut by_label: BTreeMap<SetLabel, C> = BTreeMap::new();
        for (set_id, count) in counts {
            *by_label.entry(self.known_sets.label(set_id)).or_default() += count;
        }
        for set in self.known_sets.labels() {
            by_label.entry(set).or_default();
        }
        by_label
    }
}

fn to_gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(tickets: u64) -> QueueCounts {
        QueueCounts { tickets: [tickets, 1], waiting_players: 2 * tickets, matches: [0, 0, 0, 3] }
    }

    fn assert_lines(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.render();
        lines.iter().for_each(|line| assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}"));
    }

    #[test]
    fn queue_gauges_of_a_set_that_has_become_empty_are_zero() {
        let metrics = Metrics::new();
        metrics.set_queue_counts([(SetId(7), waiting(5))]);
        assert_lines(
            &metrics,
            &[
                "fireteam_queue_tickets{set=\"7\",state=\"waiting\"} 5",
                "fireteam_queue_tickets{set=\"7\",state=\"in_match\"} 1",
                "fireteam_queue_waiting_players{set=\"7\"} 10",
                "fireteam_queue_matches{set=\"7\",stage=\"playing\"} 3",
                "fireteam_queue_matches{set=\"7\",stage=\"placing\"} 0",
            ],
        );
        metrics.set_queue_counts([]);
        assert_lines(
            &metrics,
            &[
                "fireteam_queue_tickets{set=\"7\",state=\"waiting\"} 0",
                "fireteam_queue_matches{set=\"7\",stage=\"playing\"} 0",
            ],
        );
    }

    /// 300 sets are 256 and `other`, in any order and again and again.
    #[test]
    fn set_gauges_tell_a_limited_number_of_sets_apart() {
        let metrics = Metrics::new();
        for _ in 0..2 {
            metrics.set_queue_counts((0..300).map(|set| (SetId(set), waiting(1))));
        }
        let mut open_session = AdvertisementCounts::default();
        *open_session.count_mut(AdvertisementKindLabel::Session, SeatStateLabel::Open) = 2;
        metrics.set_advertisement_counts((0..300).map(|set| (SetId(set), open_session)));
        assert_lines(
            &metrics,
            &[
                "fireteam_queue_tickets{set=\"other\",state=\"waiting\"} 44",
                "fireteam_queue_tickets{set=\"255\",state=\"waiting\"} 1",
                "fireteam_set_advertisements{set=\"other\",kind=\"session\",state=\"open\"} 88",
                "fireteam_set_advertisements{set=\"other\",kind=\"game_server\",state=\"full\"} 0",
            ],
        );
        let series =
            metrics.render().lines().filter(|line| line.starts_with("fireteam_queue_waiting_players{")).count();
        assert_eq!(series, 257);
    }
}
