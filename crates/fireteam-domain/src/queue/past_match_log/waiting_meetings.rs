//! Recent meetings of waiting users with each other, kept from pass to pass: a pass costs only what has changed since the last.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::id::{BuildIdHasher, UserKey};
use crate::queue::avoidance::{Meeting, MeetingsByUser, UserMeetings};
use crate::time::UnixMs;

/// Recent meetings of the users of the last pass with each other.
#[derive(Debug, Default)]
pub(super) struct WaitingMeetings {
    /// Users of the last pass.
    users: HashMap<UserKey, WaitingUser, BuildIdHasher>,
    /// Shared with running passes; copied only if it changes while one runs.
    meetings_by_user: Arc<MeetingsByUser>,
    /// Age up to which a match was recent in the last pass, milliseconds.
    recent_ms: u64,
    /// Number of passes.
    pass: u64,
}

/// State of a user of the last pass.
#[derive(Debug, Default)]
struct WaitingUser {
    /// Number of the last pass with this user.
    last_pass: u64,
    /// Number of the pass that read the user's meetings from the log; `None` if the log has changed since.
    read_in_pass: Option<u64>,
}

impl WaitingMeetings {
    /// Takes over the users of a new pass, and returns their meetings with each other. Matches older than `recent_ms` at `now`
    /// may be missing. `all_meetings` returns all meetings of a user, earliest first.
    pub(super) fn update<'a>(
        &mut self,
        users: impl IntoIterator<Item = UserKey>,
        recent_ms: u64,
        now: UnixMs,
        all_meetings: impl Fn(UserKey) -> &'a [Meeting],
    ) -> Arc<MeetingsByUser> {
        if self.recent_ms < recent_ms {
            // Older matches have an effect now.
            self.users.values_mut().for_each(|user| user.read_in_pass = None);
        }
        self.recent_ms = recent_ms;
        self.pass += 1;
        let (unread, left) = self.replace_users(users);
        if unread.is_empty() && left.is_empty() {
            return Arc::clone(&self.meetings_by_user);
        }
        let meetings_by_user = Arc::make_mut(&mut self.meetings_by_user);
        left.iter().chain(&unread).for_each(|user| remove_user(meetings_by_user, *user));
        for user in unread {
            // A match is recent while less than `recent_ms` have passed since its start.
            let recent = all_meetings(user).iter().rev().take_while(|it| now.ms_since(it.started_at()) < recent_ms);
            let mut meetings = Vec::new();
            for &meeting in recent {
                let Some(other) = self.users.get(&meeting.other_user) else { continue };
                meetings.push(meeting);
                // Users who are read in this pass add the meeting themselves.
                if other.read_in_pass != Some(self.pass) {
                    let seen_by_other = Meeting::new(user, meeting.same_team(), meeting.started_at());
                    meetings_by_user.entry(meeting.other_user).or_default().insert(seen_by_other);
                }
            }
            if !meetings.is_empty() {
                meetings_by_user.insert(user, UserMeetings::from_unsorted(meetings));
            }
        }
        Arc::clone(&self.meetings_by_user)
    }

    /// Reads the user's meetings again in the next pass, because the log has changed.
    pub(super) fn mark_changed(&mut self, user: UserKey) {
        if let Some(user) = self.users.get_mut(&user) {
            user.read_in_pass = None;
        }
    }

    /// Takes over the users of this pass. Returns those whose meetings must be read, and those who wait no longer.
    fn replace_users(&mut self, users: impl IntoIterator<Item = UserKey>) -> (Vec<UserKey>, Vec<UserKey>) {
        let (mut unread, mut count) = (Vec::new(), 0);
        for key in users {
            let user = self.users.entry(key).or_default();
            if user.last_pass != self.pass {
                user.last_pass = self.pass;
                count += 1;
                if user.read_in_pass.is_none() {
                    user.read_in_pass = Some(self.pass);
                    unread.push(key);
                }
            }
        }
        let mut left = Vec::new();
        if count < self.users.len() {
            let pass = self.pass;
            left.extend(self.users.extract_if(|_, user| user.last_pass != pass).map(|(key, _)| key));
        }
        (unread, left)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.meetings_by_user.is_empty()
    }
}

/// Removes a user's meetings, at both users.
fn remove_user(meetings_by_user: &mut MeetingsByUser, user: UserKey) {
    let Some(removed) = meetings_by_user.remove(&user) else { return };
    for other in removed.met_users() {
        if let Some(meetings) = meetings_by_user.get_mut(&other) {
            meetings.remove_all_with(user);
            if meetings.len() == 0 {
                meetings_by_user.remove(&other);
            }
        }
    }
}
