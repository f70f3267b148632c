//! Open sessions as input of a pass: who is in them, with ratings and teams, and which seats are promised already.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::attribute::AttributeValue;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::UserKey;
use crate::domain::lifecycle::{Assignment, Match, MatchPlayer, MatchStage, MatchTicket};
use crate::domain::player_details;
use crate::domain::queue::backfill::{OpenSession, SeatedParty};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{QualitySpec, QueueSpec};
use crate::domain::session::{Player, Session};
use crate::domain::time::UnixMs;
use crate::engine::adverts::adverts_for_queues::BackfillSession;
use crate::engine::party_values::PartyValueReader;
use crate::engine::queues::queue_predictions::VectorCompleter;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::QueueKey;

/// Players who are together in one team, before their ratings are read.
struct Party {
    users: Vec<UserKey>,
    player_count: u16,
    team: Option<u16>,
    /// Ratings at queue entry, or those that the host claims; `None` where nothing is known.
    ratings: Vec<Option<PlayerRating>>,
    /// Roles that each of its users plays or may play; empty where nothing is known.
    roles: Vec<Box<[u16]>>,
}

/// Player whom a host lists.
struct ListedPlayer {
    user: UserKey,
    team: Option<u16>,
    rating: Option<PlayerRating>,
    roles: Box<[u16]>,
}

/// Guests of a session who are still joining, and the roles of players in running matches.
struct GuestsAndPlayedRoles {
    guests: JoiningGuests,
    /// Role of each listed player in the match that the player plays.
    played_roles: BTreeMap<UserKey, u16>,
}

/// Sessions with open seats that the queue may fill.
pub(crate) fn open_sessions(
    shared: &SharedState,
    key: QueueKey,
    ruleset: &Ruleset,
    queue: &QueueSpec,
    predictions: Option<&VectorCompleter>,
    now: UnixMs,
) -> Vec<OpenSession> {
    let advertised = shared.adverts.find_backfill_sessions(key.set_id, key.silo, ruleset, now);
    if advertised.is_empty() {
        return Vec::new();
    }
    let known: Vec<GuestsAndPlayedRoles> = {
        let cache = shared.cache.read();
        let roles = PlayedRoleReader { shared, key, ruleset };
        let known_players = |session: &BackfillSession| {
            let guests = joining_guests(&cache, &roles, session);
            GuestsAndPlayedRoles { guests, played_roles: roles.of_listed(&cache, session) }
        };
        advertised.iter().map(known_players).collect()
    };
    let party_values = &shared.common.party_values;
    let to_open_session = |(session, known): (BackfillSession, GuestsAndPlayedRoles)| {
        let GuestsAndPlayedRoles { guests, played_roles } = known;
        let mut parties = listed_parties(party_values, ruleset, &session.advertisement.session, &played_roles);
        parties.extend(guests.parties.into_iter().map(|party| with_missing_ratings_read(party_values, ruleset, party)));
        OpenSession {
            parties: to_seated_parties(shared, ruleset, queue, parties),
            vector: predictions.and_then(|it| it.complete_session_vector(&session.advertisement.session)).map(Arc::new),
            blocked_users: session.users_blocked_by_players,
            advertisement: session.advertisement,
            attribute_values: session.attribute_values,
            promised_values: guests.promised_values.into(),
            expires_at: session.expires_at,
            open_seats: session.open_seats.saturating_sub(guests.unreserved_seats),
        }
    };
    advertised.into_iter().zip(known).map(to_open_session).collect()
}

/// Roles of players in matches of one queue, as roles of its current ruleset.
struct PlayedRoleReader<'a> {
    shared: &'a SharedState,
    key: QueueKey,
    ruleset: &'a Ruleset,
}

impl PlayedRoleReader<'_> {
    /// Role of each player whom the host of a session lists, in the match that the player plays. Empty if the ruleset has no roles.
    fn of_listed(&self, cache: &TicketMatchCache, session: &BackfillSession) -> BTreeMap<UserKey, u16> {
        if self.ruleset.teams.as_ref().is_none_or(|teams| teams.roles.is_empty()) {
            return BTreeMap::new();
        }
        let role_of = |user: UserKey| {
            let played = cache.match_by_id(cache.live_match_of([user])?)?;
            let is_of_queue = (played.set_id, played.silo) == (self.key.set_id, self.key.silo);
            let is_played = matches!(played.stage, MatchStage::Playing { .. });
            let mut players = played.tickets.iter().flat_map(|ticket| &ticket.players);
            let player = players.find(|player| player.user == user).filter(|_| is_of_queue && is_played)?;
            Some((user, self.role_in_current_ruleset(played, player.role?)?))
        };
        session.advertisement.session.players.iter().filter_map(|player| role_of(player.user)).collect()
    }

    /// Role of a match as a role of the current ruleset; `None` if it has been removed.
    fn role_in_current_ruleset(&self, found: &Match, role: u16) -> Option<u16> {
        let current = &self.ruleset.teams.as_ref()?.roles;
        if found.ruleset_hash == self.ruleset.hash {
            return (usize::from(role) < current.len()).then_some(role);
        }
        let MatchRulesetLookup::Known(former) = self.shared.common.ruleset_of_match(found.set_id, found.ruleset_hash)
        else {
            return None;
        };
        let name = &former.teams.as_ref()?.roles.get(usize::from(role))?.name;
        current.iter().position(|role| role.name == *name).and_then(|index| u16::try_from(index).ok())
    }
}

/// Guests who are still joining a session. Whom the host lists is not among them.
#[derive(Default)]
struct JoiningGuests {
    parties: Vec<Party>,
    /// Seats that are promised to them without a reservation.
    unreserved_seats: u16,
    /// Entries of the session's lists that they were told.
    promised_values: Vec<ChosenValue>,
}

fn joining_guests(cache: &TicketMatchCache, roles: &PlayedRoleReader<'_>, session: &BackfillSession) -> JoiningGuests {
    let listed = session.advertisement.session.sorted_users();
    let matches = cache
        .queue_index(roles.key)
        .map(|index| index.matches_filling_session(session.advertisement.id))
        .unwrap_or_default();
    let (mut guests, mut of_matches) = (JoiningGuests::default(), Vec::new());
    for backfill in matches.into_iter().filter_map(|id| cache.match_by_id(id)) {
        let reservation = match backfill.stage.assignment_since_confirming() {
            Some(Assignment::GameServer { reservation, .. }) => *reservation,
            Some(Assignment::PeerHost { .. } | Assignment::Unhosted) | None => None,
        };
        let is_joining = reservation.is_none_or(|id| session.reservations.iter().any(|reserved| reserved.id == id));
        if !is_joining {
            // They have joined: the host says who is in its session.
            continue;
        }
        of_matches.extend(reservation);
        let parties = joining_parties_of_match(cache, roles, backfill, &listed);
        if !parties.is_empty() {
            let values = &session.attribute_values;
            let chosen =
                backfill.chosen_values.iter().filter(|chosen| lists_chosen_value(roles.ruleset, values, chosen));
            let is_new =
                |chosen: &ChosenValue| guests.promised_values.iter().all(|it| it.attribute != chosen.attribute);
            let new: Vec<ChosenValue> = chosen.filter(|chosen| is_new(chosen)).cloned().collect();
            guests.promised_values.extend(new);
        }
        for party in parties {
            guests.unreserved_seats += if reservation.is_none() { party.player_count } else { 0 };
            guests.parties.push(party);
        }
    }
    for reserved in session.reservations.iter().filter(|reserved| !of_matches.contains(&reserved.id)) {
        let users: Vec<UserKey> =
            reserved.users.iter().copied().filter(|user| listed.binary_search(user).is_err()).collect();
        let player_count = reserved.seats.saturating_sub((reserved.users.len() - users.len()) as u16);
        if player_count > 0 {
            let ratings = vec![None; users.len()];
            guests.parties.push(Party { ratings, users, player_count, team: None, roles: Vec::new() });
        }
    }
    guests
}

/// Whether the session still lists an entry. A host that has taken it from its list does not play it.
fn lists_chosen_value(ruleset: &Ruleset, values: &AttributeValues, chosen: &ChosenValue) -> bool {
    let value = ruleset.attribute_index(&chosen.attribute).and_then(|index| values.get(index));
    matches!(value, Some(AttributeValue::StringList(list)) if list.binary_search(&chosen.value).is_ok())
}

/// Tickets of a match as parties, without players whom the host lists and those who left.
fn joining_parties_of_match(
    cache: &TicketMatchCache,
    roles: &PlayedRoleReader<'_>,
    backfill: &Match,
    listed: &[UserKey],
) -> Vec<Party> {
    let played_role = |player: &MatchPlayer| roles.role_in_current_ruleset(backfill, player.role?);
    let party = |ticket: &MatchTicket| {
        let stored = cache.ticket(ticket.ticket_id).map(|stored| &stored.ticket);
        let rating = |user: UserKey| {
            let stored = stored?;
            let index = stored.session.players.iter().position(|player| player.user == user)?;
            stored.player_ratings.get(index).copied()
        };
        let joining = ticket
            .players
            .iter()
            .filter(|player| player.left_at.is_none() && listed.binary_search(&player.user).is_err());
        let joining: Vec<&MatchPlayer> = joining.collect();
        let users: Vec<UserKey> = joining.iter().map(|player| player.user).collect();
        Party {
            ratings: users.iter().map(|user| rating(*user)).collect(),
            roles: joining.iter().map(|player| played_role(player).into_iter().collect()).collect(),
            player_count: users.len() as u16,
            users,
            team: Some(ticket.team),
        }
    };
    backfill.tickets.iter().map(party).filter(|party| party.player_count > 0).collect()
}

/// Parties that the host lists; a party in several teams counts as one in each. A player plays one of the roles that the host
/// states, or the role of the player's match.
fn listed_parties(
    party_values: &PartyValueReader,
    ruleset: &Ruleset,
    session: &Session,
    played_roles: &BTreeMap<UserKey, u16>,
) -> Vec<Party> {
    let ratings = party_values.player_ratings(ruleset, session);
    let stated_roles = player_details::wanted_roles_by_player(ruleset, session);
    let roles_of = |index: usize, user: UserKey| match stated_roles.get(index).filter(|roles| !roles.is_empty()) {
        Some(stated) => stated.clone(),
        None => played_roles.get(&user).copied().into_iter().collect(),
    };
    let listed = |(index, (player, rating)): (usize, (&Player, Option<PlayerRating>))| ListedPlayer {
        user: player.user,
        team: player.team,
        rating,
        roles: roles_of(index, player.user),
    };
    let mut players = session.players.iter().zip(ratings).enumerate().map(listed);
    let mut parties = Vec::new();
    for &size in &session.party_sizes {
        let listed: Vec<ListedPlayer> = players.by_ref().take(usize::from(size)).collect();
        if listed.is_empty() {
            let (users, ratings, roles) = (Vec::new(), Vec::new(), Vec::new());
            parties.push(Party { users, player_count: size.into(), team: None, ratings, roles });
            continue;
        }
        let mut by_team: BTreeMap<Option<u16>, Vec<ListedPlayer>> = BTreeMap::new();
        for player in listed {
            by_team.entry(player.team).or_default().push(player);
        }
        parties.extend(by_team.into_iter().map(|(team, players)| Party {
            player_count: players.len() as u16,
            users: players.iter().map(|player| player.user).collect(),
            team,
            ratings: players.iter().map(|player| player.rating).collect(),
            roles: players.into_iter().map(|player| player.roles).collect(),
        }));
    }
    parties
}

/// Reads the ratings that the party has not brought along.
fn with_missing_ratings_read(party_values: &PartyValueReader, ruleset: &Ruleset, mut party: Party) -> Party {
    if party.ratings.iter().any(Option::is_none)
        && let Some(current) = party_values.ratings_of_users(ruleset, &party.users)
    {
        party.ratings.iter_mut().zip(current).for_each(|(rating, current)| *rating = rating.or(Some(current)));
    }
    party
}

fn to_seated_parties(
    shared: &SharedState,
    ruleset: &Ruleset,
    queue: &QueueSpec,
    parties: Vec<Party>,
) -> Box<[SeatedParty]> {
    let mut ratings = shared.ratings.lock();
    let ranks = match queue.quality {
        QualitySpec::LeaderboardGauss { .. } => ratings.leaderboard_ranks(ruleset),
        _ => None,
    };
    let seated = |party: Party| {
        let known: Option<Vec<PlayerRating>> = party.ratings.iter().copied().collect();
        let known = known.filter(|known| known.len() == usize::from(party.player_count));
        let leaderboard_position = ranks
            .as_ref()
            .zip(known.as_ref())
            .map(|(ranks, known)| ranks.mean_rank(party.users.iter().copied().zip(known.iter().copied())));
        let mut seated = SeatedParty::new(party.users, party.player_count, party.team).with_ratings(ruleset, known);
        seated.leaderboard_position = leaderboard_position;
        seated.roles = party.roles.into();
        seated
    };
    parties.into_iter().map(seated).collect()
}
