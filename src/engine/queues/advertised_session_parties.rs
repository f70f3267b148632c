//! Roster of a searched session: the players whom its host may name for a match, by party.
//!
//! Only reservations bring players in, since each of their players has consented to them, and the host's own party, whose players
//! consent to the match. What the session's list of players says can only leave a party's players out.

use std::collections::BTreeSet;

use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::ReservationId;
use crate::domain::limit::PLAYERS_PER_SESSION_MATCH_MAX;
use crate::domain::session::{Player, Session};
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::start_match_command::StartMatchTeam;
use crate::store::{Reservation, ReservationState, StoredAdvertisement};

/// Party of a session, named for a match.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartMatchParty {
    /// Team, an index into the named teams.
    pub(crate) team: u16,
    /// Reservation; `None` for the host's own party.
    pub(crate) reservation: Option<ReservationId>,
    /// Players who have not left the session. None: the party has left.
    pub(crate) players: Vec<Player>,
}

/// Players of an advertised session.
#[derive(Debug)]
pub(crate) struct AdvertisedSessionParties<'a> {
    session: &'a Session,
    reservations: &'a [Reservation],
}

impl<'a> AdvertisedSessionParties<'a> {
    /// Roster of a session as it is in the store.
    pub(crate) fn new(stored: &'a StoredAdvertisement) -> Self {
        Self { session: &stored.advertisement.session, reservations: &stored.reservations }
    }

    /// The parties of the named teams, with the host's own party, which has no player for a game server. Fails with each
    /// reservation that is not a settled one of this session, and with each player who is named twice.
    pub(crate) fn parties_of_named_teams(
        &self,
        teams: &[StartMatchTeam],
        host_party: &[Player],
    ) -> Result<Vec<StartMatchParty>, EngineError> {
        let (mut parties, mut problems) = (Vec::new(), Vec::new());
        let (mut named, mut users) = (BTreeSet::new(), BTreeSet::new());
        for (team, index) in teams.iter().zip(0_u16..) {
            if team.has_host_party {
                users.extend(host_party.iter().map(|player| player.user));
                parties.push(StartMatchParty { team: index, reservation: None, players: host_party.to_vec() });
            }
        }
        for (team, index) in teams.iter().zip(0_u16..) {
            for (id, position) in team.reservations.iter().zip(0..) {
                let path = || format!("teams[{index}].reservation_ids[{position}]");
                let mut add_problem =
                    |message: &str| problems.push(FieldProblem { path: path(), message: message.into() });
                if !named.insert(*id) {
                    add_problem("is a duplicate; name each reservation once");
                    continue;
                }
                let Some(players) = self.players_of_reservation(*id) else {
                    add_problem(
                        "is not a settled reservation of this session; confirm it first, with confirmed_reservation_ids",
                    );
                    continue;
                };
                if !players.iter().all(|player| users.insert(player.user)) {
                    add_problem("has a player of another party of the match; name the party that the player is in now");
                    continue;
                }
                parties.push(StartMatchParty { team: index, reservation: Some(*id), players });
            }
        }
        if !problems.is_empty() {
            return Err(EngineError::InvalidFields(problems));
        }
        let count: usize = parties.iter().map(|party| party.players.len()).sum();
        if count > PLAYERS_PER_SESSION_MATCH_MAX {
            let problem = format!("have {count} players; name parties of at most {PLAYERS_PER_SESSION_MATCH_MAX}");
            return Err(field_error("teams", problem));
        }
        // In the order of the teams, the host's own party first in its team.
        parties.sort_by_key(|party| (party.team, party.reservation.is_some()));
        Ok(parties)
    }

    /// Players of a reservation who have not left the session. Empty if the party has left; `None` if the reservation is
    /// unknown, or its party has not come yet.
    fn players_of_reservation(&self, id: ReservationId) -> Option<Vec<Player>> {
        let reservation = self.reservations.iter().find(|reservation| reservation.id == id)?;
        if reservation.state == ReservationState::Held {
            return None;
        }
        if !reservation.is_confirmed_or_joined() {
            return Some(Vec::new());
        }
        let listed = &self.session.players;
        let users = reservation.users.iter();
        let present = users.filter(|user| {
            !reservation.has_joined || listed.is_empty() || listed.iter().any(|player| player.user == **user)
        });
        Some(present.copied().map(Player::from_user).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::advertisement::{Advertisement, AdvertisementKind};
    use crate::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
    use crate::domain::time::UnixMs;
    use crate::store::AdvertVersion;

    fn user(n: u8) -> UserKey {
        UserKey::from_bytes([n; 16])
    }

    fn player(n: u8) -> Player {
        Player::from_user(user(n))
    }

    fn id(n: u8) -> ReservationId {
        ReservationId::from_bytes([n; 16])
    }

    fn reservation(n: u8, users: &[u8], state: ReservationState, has_joined: bool) -> Reservation {
        Reservation {
            id: id(n),
            advertisement_id: AdvertisementId::from_bytes([9; 16]),
            seats: users.len() as u16,
            users: users.iter().map(|n| user(*n)).collect(),
            request_digest: [0; 16],
            state,
            has_joined,
            expires_or_purge_at: UnixMs(9),
            owner: None,
        }
    }

    /// Host 1 with its friend 2. Party 10 has joined, 20 is confirmed, 30 holds seats, 40 has left. The host also lists 31, who
    /// has not come, and 41, who has left.
    fn stored() -> StoredAdvertisement {
        let listed = [1, 2, 10, 31, 41].map(|n| Player { stated_skill: Some(9.0), ..player(n) });
        let session = Session { players: listed.to_vec(), party_sizes: [5].into(), ..Session::default() };
        StoredAdvertisement {
            advertisement: std::sync::Arc::new(Advertisement {
                id: AdvertisementId::from_bytes([9; 16]),
                set_id: SetId(1),
                kind: AdvertisementKind::Session,
                publisher: Some(user(1)),
                advertised_since: UnixMs(1),
                ruleset_hash: RulesetHash(1),
                session,
                ttl_ms: None,
                allowed_ranges: Box::default(),
                connect_data: Box::default(),
                probe: None,
            }),
            expires_at: UnixMs(9),
            reservations: vec![
                reservation(10, &[10, 11], ReservationState::Ended, true),
                reservation(20, &[20], ReservationState::Confirmed, false),
                reservation(30, &[30, 31], ReservationState::Held, false),
                reservation(40, &[41], ReservationState::Ended, false),
            ],
            version: AdvertVersion::default(),
            is_heartbeat_owner: true,
        }
    }

    fn team(has_host_party: bool, reservations: &[u8]) -> StartMatchTeam {
        StartMatchTeam { has_host_party, reservations: reservations.iter().map(|n| id(*n)).collect() }
    }

    fn users_of(party: &StartMatchParty) -> Vec<UserKey> {
        party.players.iter().map(|player| player.user).collect()
    }

    #[test]
    fn session_roster_has_players_of_settled_reservations_only() {
        let stored = stored();
        let roster = AdvertisedSessionParties::new(&stored);
        let teams = [team(false, &[20, 40]), team(true, &[10])];
        let parties = roster.parties_of_named_teams(&teams, &[player(1), player(2)]).unwrap();
        let summary: Vec<_> = parties.iter().map(|party| (party.team, party.reservation, users_of(party))).collect();
        let expected = [
            (0, Some(id(20)), vec![user(20)]),
            (0, Some(id(40)), vec![]),
            (1, None, vec![user(1), user(2)]),
            // 11 is not listed any more.
            (1, Some(id(10)), vec![user(10)]),
        ];
        assert_eq!(summary, expected);
        assert!(parties.iter().flat_map(|party| &party.players).all(|player| player.stated_skill.is_none()));
    }

    #[test]
    fn session_roster_of_a_game_server_has_no_own_party() {
        let stored = stored();
        let parties =
            AdvertisedSessionParties::new(&stored).parties_of_named_teams(&[team(false, &[10])], &[]).unwrap();
        assert_eq!(parties.iter().map(users_of).collect::<Vec<_>>(), [vec![user(10)]]);
    }

    #[test]
    fn session_roster_refuses_unsettled_unknown_and_repeated_reservations() {
        let mut stored = stored();
        stored.reservations.push(reservation(50, &[20], ReservationState::Confirmed, false));
        let roster = AdvertisedSessionParties::new(&stored);
        let refused = |teams: &[StartMatchTeam]| match roster.parties_of_named_teams(teams, &[player(1)]) {
            Err(EngineError::InvalidFields(problems)) => {
                problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refused(&[team(true, &[]), team(false, &[30, 77])]),
            ["teams[1].reservation_ids[0]", "teams[1].reservation_ids[1]"]
        );
        assert_eq!(refused(&[team(true, &[10]), team(false, &[10])]), ["teams[1].reservation_ids[0]"]);
        assert_eq!(refused(&[team(true, &[20, 50])]), ["teams[0].reservation_ids[1]"]);
    }
}
