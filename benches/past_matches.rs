//! Generated past matches of a queue, for passes that avoid recent opponents and teammates.

use fireteam::domain::id::{MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use fireteam::domain::lifecycle::side_reports::SideReports;
use fireteam::domain::lifecycle::{Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket};
use fireteam::domain::queue::past_match_log::PastMatchLog;
use fireteam::domain::time::UnixMs;

use crate::split_mix64::SplitMix64;

/// Time over which the matches began, milliseconds: the server remembers a match for an hour after its end.
const BEGAN_WITHIN_MS: u64 = 65 * 60 * 1_000;

/// Log of `matches` played matches of two teams of `team_size`, drawn from `users`, that began before `now`.
pub(crate) fn past_match_log(users: &[UserKey], matches: u64, team_size: u16, now: UnixMs) -> PastMatchLog {
    let mut rng = SplitMix64(11);
    let mut log = PastMatchLog::default();
    for number in 0..matches {
        let first = rng.below(users.len() as u64);
        let step = 1 + rng.below(users.len() as u64 / u64::from(2 * team_size) - 1);
        let seat = |seat: u16| {
            let user = users[((first + u64::from(seat) * step) % users.len() as u64) as usize];
            (user, seat % 2)
        };
        let started_at = UnixMs(now.0 - rng.below(BEGAN_WITHIN_MS));
        let id = u128::from(rng.next()) << 64 | u128::from(number);
        log.record_match_state(&played_match(id, (0..2 * team_size).map(seat), started_at));
    }
    log
}

fn played_match(id: u128, users: impl Iterator<Item = (UserKey, u16)>, started_at: UnixMs) -> Match {
    let player = |user| MatchPlayer { user, client: user, role: None, accepted: None, left_at: None };
    let ticket = |(user, team): (UserKey, u16)| MatchTicket {
        ticket_id: TicketId::from_bytes(*user.as_bytes()),
        entered_at: started_at,
        team,
        players: vec![player(user)],
    };
    Match {
        id: MatchId::from_bytes(id.to_be_bytes()),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        proposed_at: started_at,
        version: 1,
        stage: MatchStage::Ended {
            end_reason: MatchEndReason::Played,
            started_at: Some(started_at),
            assignment: None,
            purge_at: UnixMs(u64::MAX),
        },
        tickets: users.map(ticket).collect(),
        quality: 0.0,
        region: None,
        backfilled_session: None,
        chosen_values: Box::default(),
        bots_by_team: Box::default(),
        worst_pair: None,
        session_match_start_by_host: None,
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    }
}
