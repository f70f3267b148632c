//! Start of a searched session's match by its host: an ordinary match in play, with a ticket for each party.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::auth::token::{AdvertisementClaim, ConsentPurpose, HmacTokenSigner, TicketClaim};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{MatchId, ReservationId, UserKey};
use crate::domain::lifecycle::session_start::SessionMatchStartByHost;
use crate::domain::lifecycle::transition::session_match::{NewMatchStartedByHost, begin_match_started_by_host};
use crate::domain::lifecycle::{Assignment, Match, MatchTicket};
use crate::domain::limit::PLAYERS_PER_TICKET_MAX;
use crate::domain::queue::entry::EnteredSession;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::DEFAULT_HOST_LOSS_MS;
use crate::domain::session::{Player, Session};
use crate::domain::time::UnixMs;
use crate::domain::value_choice::{ValueChoiceContext, choose_values, seed_of_id};
use crate::engine::command::{Caller, PartyConsents};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_consent::{CheckedConsents, check_party_consents};
use crate::engine::queues::advertised_session_parties::{AdvertisedSessionParties, StartMatchParty};
use crate::engine::queues::plan_transition::other_waiting_tickets;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::start_match_command::{StartMatchAnswer, StartMatchCommand, StartMatchTeam};
use crate::engine::writer_inbox::{PendingAnswer, RETRY_AFTER_MS};
use crate::store::StoredAdvertisement;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Maximum attempts while players enter queues, or start other matches.
const ATTEMPTS_MAX: usize = 16;

/// Caller that hosts, and what it asks for.
struct CheckedStartMatch<'a> {
    caller: &'a Caller,
    claim: AdvertisementClaim,
    id: MatchId,
    teams: &'a [StartMatchTeam],
    /// Players of the host's own party, the host last; none for a game server.
    host_party: Vec<Player>,
    consents: &'a PartyConsents,
    request_digest: [u8; 16],
}

impl QueueEngine {
    /// Starts a match of a session with the players of its settled reservations, as its host. Durable when it is answered;
    /// dropping the answer does not cancel the start. Idempotent by its key.
    pub(crate) fn start_match(
        &self,
        caller: &Caller,
        command: StartMatchCommand,
    ) -> Result<PendingAnswer<StartMatchAnswer>, EngineError> {
        let claim = self.verify_host_advertisement_token(caller, &command.advertisement_token)?;
        if command.advertisement_id != Some(claim.advertisement_id) {
            return Err(EngineError::NotOwner);
        }
        if claim.kind != AdvertisementKind::Session {
            let problem = "is a game server that waits for matches of queues; advertise a session";
            return Err(field_error("advertisement_id", problem));
        }
        check_host_team(&command.teams, caller)?;
        let host_party = host_party(&command, caller)?;
        let (engine, caller) = (self.clone(), *caller);
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let signer = &engine.shared.common.token_signer;
            let teams = command.teams.iter().map(|team| (team.has_host_party, &*team.reservations));
            let host_users: Vec<UserKey> = host_party.iter().map(|player| player.user).collect();
            let start = CheckedStartMatch {
                caller: &caller,
                claim,
                id: signer.derive_session_match_id(claim.advertisement_id, &command.idempotency_key),
                teams: &command.teams,
                request_digest: HmacTokenSigner::keyless_start_match_digest(&host_users, teams),
                host_party,
                consents: &command.consents,
            };
            let _ = reply.send(engine.start_session_match(&start).await);
        });
        Ok(PendingAnswer::Pending(answer))
    }

    async fn start_session_match(&self, start: &CheckedStartMatch<'_>) -> Result<StartMatchAnswer, EngineError> {
        let common = &self.shared.common;
        if let Some(started) = self.cached_or_stored_match(start.id).await? {
            return self.start_answer(start, &started);
        }
        let set_id = start.claim.set_id;
        common.check_set_not_retiring(set_id)?;
        if !self.shared.all_servers_support_start_match() {
            return Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS });
        }
        let ruleset = common.current_or_cached_ruleset(set_id, None)?;
        common.check_ruleset_is_durable(&ruleset)?;
        let stored = self.stored_session(&start.claim).await?;
        let consents = self.host_party_consents(start, &ruleset)?;
        let mut parties =
            AdvertisedSessionParties::new(&stored).parties_of_named_teams(start.teams, &start.host_party)?;
        for _ in 0..ATTEMPTS_MAX {
            check_teams_have_players(start.teams, &parties)?;
            let write = self.plan_start(start, &ruleset, &stored, (&parties, &consents));
            match self.shared.submit_write(write).await? {
                QueueOutcome::MatchStarted { started, .. } => return self.start_answer(start, &started),
                QueueOutcome::ConsentUnavailable(spent) => return Err(consents.spent_error(spent)),
                QueueOutcome::UsersInMatch { users } => leave_out_busy_parties(&mut parties, &users)?,
                QueueOutcome::TicketsUnavailable { tickets } => {
                    // They have just been entered, perhaps at another server.
                    for id in tickets {
                        self.shared.wait_for_cached(|cache| cache.ticket(id).map(|_| ())).await;
                    }
                }
                _ => return Err(EngineError::Internal),
            }
        }
        Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Consents of the players in the host's own party, for this match.
    fn host_party_consents(
        &self,
        start: &CheckedStartMatch<'_>,
        ruleset: &Ruleset,
    ) -> Result<CheckedConsents, EngineError> {
        let common = &self.shared.common;
        let session = Session { players: start.host_party.clone(), ..Session::default() };
        let purpose = (ruleset, ConsentPurpose::Search);
        check_party_consents(common, start.caller, purpose, &session, start.consents, common.clock.now())
    }

    /// Match from memory or, since it may have been started at another server, from the store.
    async fn cached_or_stored_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        let cached = self.shared.cache.read().match_by_id(id).cloned();
        match cached {
            Some(known) => Ok(Some(known)),
            None => self.shared.common.store.read_match(id).await.map_err(|error| {
                tracing::warn!(%error, "read of a match failed");
                EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
            }),
        }
    }

    /// The session with its reservations, as they are in the store: memory may be older, and forgets who has joined.
    async fn stored_session(&self, claim: &AdvertisementClaim) -> Result<StoredAdvertisement, EngineError> {
        let common = &self.shared.common;
        let stored = common.store.read_advertisements(&[claim.advertisement_id]).await.map_err(|error| {
            tracing::warn!(%error, "read of an advertisement failed");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })?;
        let now = common.clock.now();
        let live = stored.into_iter().find(|stored| now < stored.expires_at);
        live.filter(|stored| stored.advertisement.set_id == claim.set_id).ok_or(EngineError::AdvertisementNotFound)
    }

    /// Write of the match, with the parties that have players.
    fn plan_start(
        &self,
        start: &CheckedStartMatch<'_>,
        ruleset: &Ruleset,
        stored: &StoredAdvertisement,
        (parties, consents): (&[StartMatchParty], &CheckedConsents),
    ) -> QueueWrite {
        let common = &self.shared.common;
        let now = common.clock.now();
        let playing = || parties.iter().filter(|party| !party.players.is_empty());
        let tickets: Vec<Arc<Ticket>> =
            playing().map(|party| Arc::new(self.party_ticket(start, ruleset, stored, party, now))).collect();
        let match_tickets: Vec<MatchTicket> = tickets
            .iter()
            .zip(playing())
            .map(|(ticket, party)| MatchTicket::from_ticket(ticket, party.team, &[]))
            .collect();
        let host_client = start.caller.user.and_then(|host| {
            let mut players = match_tickets.iter().flat_map(|ticket| &ticket.players);
            players.find(|player| player.user == host).map(|player| player.client)
        });
        let assignment = match host_client {
            Some(host) => Assignment::PeerHost { host },
            None => Assignment::GameServer {
                advertisement: start.claim.advertisement_id,
                reservation: None,
                connect_data: stored.advertisement.connect_data.to_vec(),
            },
        };
        let chosen = self.choose_values(ruleset, stored, &match_tickets, now);
        let new_match = NewMatchStartedByHost {
            id: start.id,
            set_id: start.claim.set_id,
            silo: stored.advertisement.session.silo,
            ruleset_hash: ruleset.hash,
            tickets: match_tickets,
            assignment,
            chosen,
            session_start: SessionMatchStartByHost {
                advertisement: start.claim.advertisement_id,
                reservations: playing().map(|party| party.reservation).collect(),
                request_digest: start.request_digest,
            },
        };
        let started = Arc::new(begin_match_started_by_host(&self.shared.lifecycle_rules(ruleset), new_match, now));
        QueueWrite::StartSessionMatch {
            other_tickets: other_waiting_tickets(&self.shared, &started),
            started,
            tickets,
            consents: consents.granted_consents(),
            expires_at: now.plus_ms(u64::from(ruleset.ticket_ttl_ms())),
            purge_at: now.plus_ms(common.settings.ended_ticket_retention_ms),
        }
    }

    /// Entries of the lists that the session publishes which the ruleset chooses for the players of its match.
    fn choose_values(
        &self,
        ruleset: &Ruleset,
        stored: &StoredAdvertisement,
        tickets: &[MatchTicket],
        now: UnixMs,
    ) -> Box<[ChosenValue]> {
        if !ruleset.chooses_values() {
            return Box::default();
        }
        let common = &self.shared.common;
        let session = &stored.advertisement.session;
        let users: Vec<UserKey> = tickets.iter().flat_map(|ticket| &ticket.players).map(|player| player.user).collect();
        let log = common.past_matches.get(QueueKey { set_id: ruleset.set_id, silo: session.silo });
        let log = log.filter(|_| ruleset.played_values_recent_ms().is_some());
        let played = &log.map(|log| log.lock().values_played_by(users.iter().copied())).unwrap_or_default();
        let seed = seed_of_id(stored.advertisement.id.as_bytes());
        let values = common.party_values.attribute_values(ruleset, session);
        let choice = ValueChoiceContext { seed, users: &users, played, promised: &[], now };
        choose_values(ruleset, std::iter::once(&values), choice).unwrap_or_default()
    }

    /// Ticket of a party. That of the host's own party belongs to the host, and each of its other players answers alone; the
    /// others belong to no one, so each player has the own seat.
    fn party_ticket(
        &self,
        start: &CheckedStartMatch<'_>,
        ruleset: &Ruleset,
        stored: &StoredAdvertisement,
        party: &StartMatchParty,
        now: UnixMs,
    ) -> Ticket {
        let common = &self.shared.common;
        let session = Session {
            silo: stored.advertisement.session.silo,
            party_sizes: [u8::try_from(party.players.len()).unwrap_or(u8::MAX)].into(),
            players: party.players.clone(),
            ..Session::default()
        };
        let mut self_answering: Vec<UserKey> = party.players.iter().map(|player| player.user).collect();
        self_answering.retain(|user| start.caller.user != Some(*user));
        self_answering.sort_unstable();
        let EnteredSession { session, player_ratings } = common.party_values.build_entered_session(ruleset, session);
        Ticket {
            id: common.token_signer.derive_session_match_ticket_id(start.id, party.reservation),
            set_id: start.claim.set_id,
            subject: start.caller.subject.filter(|_| party.reservation.is_none()),
            entered_at: now,
            session,
            exact_round_trips_ms: None,
            player_ratings,
            rating_digest_key: common.party_values.rating_key_unless_first_scale(ruleset),
            blocked_users: Vec::new(),
            excludes_other_tickets: false,
            self_answering_users: self_answering,
        }
    }

    /// Answer for a match that was started by this request, now or earlier.
    fn start_answer(
        &self,
        start: &CheckedStartMatch<'_>,
        started: &Arc<Match>,
    ) -> Result<StartMatchAnswer, EngineError> {
        let session_start = started.session_match_start_by_host.as_ref();
        let session_start = session_start.filter(|known| known.request_digest == start.request_digest);
        let Some(session_start) = session_start else { return Err(EngineError::IdempotencyKeyReused) };
        let common = &self.shared.common;
        let has_own_party = start.caller.user.is_some() && session_start.reservations.contains(&None);
        let own_ticket = has_own_party.then(|| {
            let ticket_id = common.token_signer.derive_session_match_ticket_id(started.id, None);
            let claim = TicketClaim { ticket_id, set_id: started.set_id, subject: start.caller.subject };
            (ticket_id, common.token_signer.sign(&claim))
        });
        let named = start.teams.iter().flat_map(|team| team.reservations.iter().copied());
        let unavailable: Vec<ReservationId> =
            named.filter(|id| !session_start.reservations.contains(&Some(*id))).collect();
        let ruleset = common.rulesets.ruleset_in_force(started.set_id);
        let default_interval_ms = u64::from(DEFAULT_HOST_LOSS_MS / 3);
        let next_beat_in_ms =
            ruleset.map_or(default_interval_ms, |ruleset| ruleset.hosting.play_heartbeat_interval_ms());
        let AdvertisementClaim { advertisement_id, set_id, .. } = start.claim;
        self.shared.adverts.schedule_beat_and_list_matches(
            advertisement_id,
            set_id,
            next_beat_in_ms,
            common.clock.now(),
        );
        Ok(StartMatchAnswer { hosted: self.shared.hosted_match(started), unavailable, own_ticket, next_beat_in_ms })
    }
}

/// Players of the host's own party, the host last. A game server has none.
fn host_party(command: &StartMatchCommand, caller: &Caller) -> Result<Vec<Player>, EngineError> {
    let others = &command.others_in_host_party;
    let Some(host) = caller.user else {
        let problem = "must be empty; only a player who hosts has a party of its own";
        return if others.is_empty() { Ok(Vec::new()) } else { Err(field_error("host_party", problem)) };
    };
    if let Some(index) = others.iter().position(|player| player.user == host) {
        let problem = "is the host; name only the other players of the host's own party";
        return Err(field_error(format!("host_party[{index}].user_id"), problem));
    }
    let max = PLAYERS_PER_TICKET_MAX - 1;
    if others.len() > max {
        return Err(field_error("host_party", format!("has {} entries; at most {max} are allowed", others.len())));
    }
    let others = others.iter().map(|player| Player { client_key: player.client_key, ..Player::from_user(player.user) });
    Ok(others.chain([Player::from_user(host)]).collect())
}

/// A player who hosts plays, so its party is in one team. A game server has no party.
fn check_host_team(teams: &[StartMatchTeam], caller: &Caller) -> Result<(), EngineError> {
    let mut with_host = (0..).zip(teams).filter(|(_, team)| team.has_host_party).map(|(index, _): (usize, _)| index);
    match (caller.user, with_host.next(), with_host.next()) {
        (Some(_), None, _) => Err(field_error("teams", "must have the host's own party in one; set its host_party")),
        (Some(_), _, Some(second)) => {
            Err(field_error(format!("teams[{second}].host_party"), "is a duplicate; set it for one team"))
        }
        (None, Some(index), _) => {
            let problem = "must not be set; only a player who hosts has a party of its own";
            Err(field_error(format!("teams[{index}].host_party"), problem))
        }
        (Some(_), Some(_), None) | (None, None, _) => Ok(()),
    }
}

/// Fails with the first team without a player who can play.
fn check_teams_have_players(teams: &[StartMatchTeam], parties: &[StartMatchParty]) -> Result<(), EngineError> {
    let has_player =
        |index: usize| parties.iter().any(|party| usize::from(party.team) == index && !party.players.is_empty());
    match (0..teams.len()).find(|index| !has_player(*index)) {
        None => Ok(()),
        Some(team_index) => Err(EngineError::TeamHasNoAvailablePlayers { team_index }),
    }
}

/// Leaves out the parties of which a player is in another match. Fails for the host's own party.
fn leave_out_busy_parties(parties: &mut [StartMatchParty], busy: &[UserKey]) -> Result<(), EngineError> {
    for party in parties {
        if party.players.iter().any(|player| busy.contains(&player.user)) {
            if party.reservation.is_none() {
                return Err(EngineError::HostPartyInMatch);
            }
            party.players.clear();
        }
    }
    Ok(())
}
