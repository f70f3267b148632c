//! Whom players would not meet again: those they blocked, and those they met lately (S1-96).

use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// Two users who were in one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// One of them.
    pub one: UserKey,
    /// The other.
    pub other: UserKey,
    /// Whether they were in one team.
    pub same_team: bool,
    /// When their match began.
    pub began: UnixMs,
}

/// Who met whom lately, as far back as the ruleset's rules ask.
#[derive(Clone, Debug, Default)]
pub struct Meetings {
    /// The lesser user first, sorted; of several meetings of two users the latest.
    list: Vec<Meeting>,
    /// All users of `list`, sorted.
    users: Vec<UserKey>,
}

impl Meetings {
    /// Of several meetings of two users only the latest is kept, as opponents and as teammates.
    pub fn of(meetings: impl IntoIterator<Item = Meeting>) -> Self {
        let ordered = |it: Meeting| {
            let (one, other) = if it.one <= it.other { (it.one, it.other) } else { (it.other, it.one) };
            Meeting { one, other, ..it }
        };
        let mut list: Vec<Meeting> = meetings.into_iter().map(ordered).collect();
        list.sort_unstable_by_key(|it| (it.one, it.other, it.same_team, std::cmp::Reverse(it.began)));
        list.dedup_by_key(|it| (it.one, it.other, it.same_team));
        let mut users: Vec<UserKey> = list.iter().flat_map(|it| [it.one, it.other]).collect();
        users.sort_unstable();
        users.dedup();
        Self { list, users }
    }

    /// When the last match of these two began in which they were opponents or, with `same_team`, teammates.
    pub fn last(&self, one: UserKey, other: UserKey, same_team: bool) -> Option<UnixMs> {
        let (one, other) = if one <= other { (one, other) } else { (other, one) };
        let at =
            self.list.binary_search_by_key(&(one, other, same_team), |it| (it.one, it.other, it.same_team)).ok()?;
        Some(self.list[at].began)
    }

    /// Whether a user met anybody.
    pub fn knows(&self, user: UserKey) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// Whether nobody met anybody.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
