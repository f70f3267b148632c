//! Log of the played matches of one queue, for avoidance rules and for choices of what was played least recently. It changes with each match, so that a pass costs nothing
//! for matches of users who do not wait.

mod waiting_meetings;

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::chosen_value::ChosenValue;
use crate::id::{BuildIdHasher, MatchId, UserKey};
use crate::lifecycle::{Match, MatchStage};
use crate::played_values::PlayedValues;
use crate::queue::avoidance::{Meeting, PastMatches, UserMeetings, recency_limit_of};
use crate::queue::past_match_log::waiting_meetings::WaitingMeetings;
use crate::ruleset::queue::AvoidanceRule;
use crate::time::UnixMs;

/// Played matches of one queue, running or ended: who met whom and when, and the chosen values. It keeps nothing else of a match.
#[derive(Debug, Default)]
pub struct PastMatchLog {
    matches: HashMap<MatchId, LoggedMatch, BuildIdHasher>,
    /// Meetings of each user, earliest first: a pass reads only the recent ones at the end.
    meetings_by_user: HashMap<UserKey, Vec<Meeting>, BuildIdHasher>,
    /// Starts of each user's matches by the values chosen for them, earliest first.
    plays_by_user: HashMap<UserKey, BTreeMap<ChosenValue, Vec<UnixMs>>, BuildIdHasher>,
    /// Number of matches by start: of matches with opponents, and of matches with teammates.
    match_counts_by_start: [BTreeMap<UnixMs, u32>; 2],
    /// Ended matches by the time at which they may be purged.
    purge_order: BTreeSet<(UnixMs, MatchId)>,
    /// Meetings of the users of the last pass.
    waiting: WaitingMeetings,
}

/// Match in the log.
#[derive(Debug)]
struct LoggedMatch {
    started_at: UnixMs,
    /// Time after which the match may be purged; `None` while it is played.
    purge_at: Option<UnixMs>,
    /// Users with their teams.
    users: Box<[(UserKey, u16)]>,
    /// Values chosen for its players.
    chosen: Box<[ChosenValue]>,
}

impl LoggedMatch {
    /// Each ordered pair of users: the first with the meeting of the second.
    fn meetings(&self) -> impl Iterator<Item = (UserKey, Meeting)> + '_ {
        self.users.iter().enumerate().flat_map(move |(index, &(user, team))| {
            let others = self.users.iter().enumerate().filter(move |(other_index, _)| *other_index != index);
            others
                .map(move |(_, &(other, other_team))| (user, Meeting::new(other, team == other_team, self.started_at)))
        })
    }

    /// Whether any two users are opponents, and whether any two are teammates.
    fn pair_kinds(&self) -> [bool; 2] {
        let mut kinds = [false, false];
        for (index, &(_, team)) in self.users.iter().enumerate() {
            self.users[index + 1..].iter().for_each(|&(_, other)| kinds[usize::from(team == other)] = true);
        }
        kinds
    }
}

impl PastMatchLog {
    /// Takes over the current state of a match. A match that was not played is not kept.
    pub fn record_match_state(&mut self, current: &Match) {
        let Some(started_at) = current.stage.started_at() else { return self.remove(current.id) };
        let purge_at = match current.stage {
            MatchStage::Ended { purge_at, .. } => Some(purge_at),
            _ => None,
        };
        let users = current.tickets.iter().flat_map(|ticket| {
            let team = ticket.team;
            ticket.players.iter().map(move |player| (player.user, team))
        });
        // The users of a match change when one is erased.
        let is_known = self
            .matches
            .get(&current.id)
            .is_some_and(|known| known.started_at == started_at && users.clone().eq(known.users.iter().copied()));
        if !is_known {
            self.remove(current.id);
            let (users, chosen) = (users.collect(), current.chosen_values.clone());
            self.add(current.id, LoggedMatch { started_at, purge_at: None, users, chosen });
        }
        let Some(known) = self.matches.get_mut(&current.id) else { return };
        let before = std::mem::replace(&mut known.purge_at, purge_at);
        before.map(|time| self.purge_order.remove(&(time, current.id)));
        purge_at.map(|time| self.purge_order.insert((time, current.id)));
    }

    /// Removes a match, if it is there.
    pub fn remove(&mut self, id: MatchId) {
        let Some(removed) = self.matches.remove(&id) else { return };
        removed.purge_at.map(|time| self.purge_order.remove(&(time, id)));
        removed.users.iter().for_each(|(user, _)| self.waiting.mark_changed(*user));
        for (user, meeting) in removed.meetings() {
            let Some(meetings) = self.meetings_by_user.get_mut(&user) else { continue };
            // Two matches with the same users and start have equal entries; either may be removed.
            if let Ok(index) =
                meetings.binary_search_by_key(&meeting.start_sort_key(), |existing| existing.start_sort_key())
            {
                meetings.remove(index);
            }
            if meetings.is_empty() {
                self.meetings_by_user.remove(&user);
            }
        }
        self.remove_played_values(&removed);
        for (counts, _) in self.match_counts_by_start.iter_mut().zip(removed.pair_kinds()).filter(|(_, has)| *has) {
            if let Some(count) = counts.get_mut(&removed.started_at) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&removed.started_at);
                }
            }
        }
    }

    /// Removes what the players of a match played in it.
    fn remove_played_values(&mut self, removed: &LoggedMatch) {
        for value in &removed.chosen {
            for (user, _) in &removed.users {
                let Some(plays) = self.plays_by_user.get_mut(user) else { continue };
                let Some(starts) = plays.get_mut(value) else { continue };
                if let Ok(index) = starts.binary_search(&removed.started_at) {
                    starts.remove(index);
                }
                if starts.is_empty() {
                    plays.remove(value);
                }
                if plays.is_empty() {
                    self.plays_by_user.remove(user);
                }
            }
        }
    }

    /// Removes ended matches that may be purged at `before`.
    pub fn remove_matches_due_for_purge(&mut self, before: UnixMs) {
        while let Some(&(purge_at, id)) = self.purge_order.first()
            && purge_at <= before
        {
            self.remove(id);
        }
    }

    /// Removes matches that started before `newer_than` and are not listed.
    pub fn remove_unlisted_older_than(&mut self, listed: &BTreeSet<MatchId>, newer_than: UnixMs) {
        let older = self.matches.iter().filter(|(_, logged)| logged.started_at < newer_than);
        let ids: Vec<MatchId> = older.map(|(id, _)| *id).filter(|id| !listed.contains(id)).collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Whether two users have played a match of the log together, on one side or against each other.
    pub fn have_met(&self, user: UserKey, other: UserKey) -> bool {
        self.meetings_by_user
            .get(&user)
            .is_some_and(|meetings| meetings.iter().any(|meeting| meeting.other_user == other))
    }

    /// Whether no match is in the log.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Past matches of `users` with each other, as input of a pass under `rules` at `now`. It leaves out matches that are too
    /// old to have an effect. It costs little if these are almost the users of the last pass.
    pub fn recent_meetings_among(
        &mut self,
        users: impl IntoIterator<Item = UserKey>,
        rules: &[AvoidanceRule],
        now: UnixMs,
    ) -> PastMatches {
        let mut past_matches = PastMatches::default();
        let mut longest_recent_ms = None;
        for (recent_ms, team) in rules.iter().filter_map(recency_limit_of) {
            // A match is recent while less than `recent_ms` have passed since its start.
            let first_recent = UnixMs((now.0 + 1).saturating_sub(recent_ms));
            let next = self.match_counts_by_start[team].range(first_recent..).next();
            past_matches.starts_by_same_team[team].extend(next.map(|(started_at, _)| *started_at));
            longest_recent_ms = longest_recent_ms.max(Some(recent_ms));
        }
        if let Some(recent_ms) = longest_recent_ms {
            let all_meetings = |user| self.meetings_by_user.get(&user).map_or(&[][..], Vec::as_slice);
            past_matches.meetings_by_user = self.waiting.update(users, recent_ms, now, all_meetings);
        }
        past_matches
    }

    /// Past matches of `users` with anyone, as far as a rule can apply at `now`. For searches: the users keep nothing here.
    pub fn recent_meetings_of(&self, users: &[UserKey], rules: &[AvoidanceRule], now: UnixMs) -> PastMatches {
        let longest_recent_ms = rules.iter().filter_map(recency_limit_of).map(|(recent_ms, _)| recent_ms).max();
        let Some(recent_ms) = longest_recent_ms else { return PastMatches::default() };
        let recent = |user: &UserKey| {
            let meetings = self.meetings_by_user.get(user)?.iter().rev();
            let recent: Vec<Meeting> =
                meetings.take_while(|meeting| now.ms_since(meeting.started_at()) < recent_ms).copied().collect();
            (!recent.is_empty()).then(|| (*user, UserMeetings::from_unsorted(recent)))
        };
        PastMatches::from_meetings_by_user(users.iter().filter_map(recent).collect())
    }

    /// Values that `users` have played, each with the start of its latest match.
    pub fn values_played_by(&self, users: impl IntoIterator<Item = UserKey>) -> PlayedValues {
        let plays = users.into_iter().filter_map(|user| Some((user, self.plays_by_user.get(&user)?)));
        PlayedValues::from_plays_keeping_latest(plays.flat_map(|(user, plays)| {
            let latest = plays.iter().filter_map(|(value, starts)| Some((value.clone(), *starts.last()?)));
            latest.map(move |(value, started_at)| (user, value, started_at))
        }))
    }

    fn add(&mut self, id: MatchId, added: LoggedMatch) {
        added.users.iter().for_each(|(user, _)| self.waiting.mark_changed(*user));
        for (user, meeting) in added.meetings() {
            let meetings = self.meetings_by_user.entry(user).or_default();
            let index = meetings.partition_point(|existing| existing.start_sort_key() < meeting.start_sort_key());
            meetings.insert(index, meeting);
        }
        for value in &added.chosen {
            for (user, _) in &added.users {
                let starts = self.plays_by_user.entry(*user).or_default().entry(value.clone()).or_default();
                starts.insert(starts.partition_point(|start| *start < added.started_at), added.started_at);
            }
        }
        for (counts, _) in self.match_counts_by_start.iter_mut().zip(added.pair_kinds()).filter(|(_, has)| *has) {
            *counts.entry(added.started_at).or_default() += 1;
        }
        self.matches.insert(id, added);
    }
}

#[cfg(test)]
mod tests;
