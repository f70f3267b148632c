//! Inputs of passes that panicked, kept as files, so that a test can run the same pass again.
//!
//! A file is one JSON object: the ruleset's text, the tickets, open sessions and past matches of the pass, its time, its
//! seed and its limits. It names no account: users are numbered in the order of their keys, and only users of the pass
//! are listed. Attributes that the ruleset does not declare are left out. Ratings and rounded positions are there.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{AdvertisementId, SiloId, TicketId, UserKey};
use crate::domain::played_values::PlayedValues;
use crate::domain::queue::avoidance::{PastMatches, PlayedPair};
use crate::domain::queue::gate::GateCounts;
use crate::domain::queue::input::{OpenSession, PassInput};
use crate::domain::queue::prepared_ticket::PreparedTicket;
use crate::domain::queue::seated_party::SeatedParty;
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::{Player, Session};
use crate::domain::time::UnixMs;
use crate::store::adverts::row_body::{HexKey, decode_advertisement, encode_advertisement};
use crate::store::queues::ticket_body::{decode_ticket, encode_ticket};

/// Maximum number of files in the folder. The oldest is deleted for a new one.
pub const PASS_FAILURE_FILES_MAX: usize = 16;

/// Maximum size of a file, bytes. The input of a larger pass is not kept.
pub const PASS_FAILURE_FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Version of the format.
const FORMAT_VERSION: u32 = 2;

const FILE_PREFIX: &str = "pass-";
const FILE_SUFFIX: &str = ".json";

/// Folder for the inputs of passes that panicked. Clones name the same folder.
#[derive(Clone, Debug, Default)]
pub struct PassFailureFolder {
    folder: Option<PathBuf>,
}

impl PassFailureFolder {
    /// Keeps inputs in `folder`, which is created when it is needed; keeps none if it is `None`.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Whether inputs are kept.
    pub fn is_enabled(&self) -> bool {
        self.folder.is_some()
    }

    /// Keeps the input of a pass over the queue of `silo` that panicked with the message `panic`. Returns the file;
    /// `None` if inputs are not kept. Fails if the file is too large or cannot be written.
    pub fn save(&self, input: &PassInput<'_>, silo: SiloId, panic: &str) -> io::Result<Option<PathBuf>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let text = PassRecord::from_input(input, silo, panic).encode()?;
        if text.len() > PASS_FAILURE_FILE_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the input has {} bytes; at most {PASS_FAILURE_FILE_BYTES_MAX} are kept",
                text.len()
            )));
        }
        fs::create_dir_all(folder)?;
        delete_oldest_files(folder)?;
        let name = format!("{FILE_PREFIX}{:015}-{}-{silo}{FILE_SUFFIX}", input.now.0, input.ruleset.set_id);
        let path = folder.join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(Some(path))
    }
}

/// Deletes files until one more may be written. The time in a name makes the oldest the first.
fn delete_oldest_files(folder: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let is_record = |name: &str| name.starts_with(FILE_PREFIX) && name.ends_with(FILE_SUFFIX);
        if name.to_str().is_some_and(is_record) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let excess = (names.len() + 1).saturating_sub(PASS_FAILURE_FILES_MAX);
    names.iter().take(excess).try_for_each(|name| fs::remove_file(folder.join(name)))
}

/// Input of a pass, as in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRecord {
    format: u32,
    /// Message of the panic.
    pub panic: String,
    /// Text of the ruleset.
    pub ruleset_xml: String,
    silo: u64,
    now_ms: u64,
    rng_seed: u64,
    max_pair_checks: u64,
    connected_players: u32,
    active_matches: u32,
    tickets: Vec<TicketRecord>,
    open_sessions: Vec<SessionRecord>,
    /// Users by number, whether they were in the same team, and the start of their match.
    past_matches: Vec<(u32, u32, bool, u64)>,
    /// User by number, attribute, value played, and the start of the latest match. Files of earlier versions have none.
    #[serde(default)]
    plays: Vec<(u32, Box<str>, Box<str>, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketRecord {
    id: String,
    entered_ms: u64,
    leaderboard_position: Option<f64>,
    frustrated: bool,
    /// Files of earlier versions have none.
    #[serde(default)]
    wider_limits: bool,
    /// Body as in the table of tickets.
    body: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionRecord {
    id: String,
    advertised_ms: u64,
    expires_ms: u64,
    open_seats: u16,
    /// Users whom players of the session have blocked. Files of earlier versions have none.
    #[serde(default)]
    blocked_users: Vec<u32>,
    #[serde(default)]
    wider_limits: bool,
    /// Values that depend on the standing of the players, in the order of the ruleset's attributes.
    #[serde(default)]
    standing_numbers: Vec<Option<f64>>,
    /// Parties in the session, also those that its host does not list yet.
    #[serde(default)]
    parties: Vec<PartyRecord>,
    /// Attributes and entries that guests were told. Files of earlier versions have none.
    #[serde(default)]
    promised: Vec<(Box<str>, Box<str>)>,
    join_seats: u16,
    /// Body as in the table of advertisements.
    body: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartyRecord {
    /// Users by number.
    users: Vec<u32>,
    player_count: u16,
    team: Option<u16>,
    /// Rating and deviation of each player; null if one is unknown.
    ratings: Option<Vec<(f64, f64)>>,
    leaderboard_position: Option<f64>,
    /// Roles that each player plays. Files of earlier versions have none.
    #[serde(default)]
    roles: Vec<Vec<u16>>,
}

impl PartyRecord {
    fn decode(&self, ruleset: &Ruleset) -> SeatedParty {
        let users = self.users.iter().map(|number| numbered_key(*number)).collect();
        let rating = |&(rating, deviation): &(f64, f64)| PlayerRating { rating, deviation };
        let ratings = self.ratings.as_ref().map(|ratings| ratings.iter().map(rating).collect());
        let mut party = SeatedParty::new(users, self.player_count, self.team).with_ratings(ruleset, ratings);
        party.leaderboard_position = self.leaderboard_position;
        party.roles = self.roles.iter().map(|roles| roles.as_slice().into()).collect();
        party
    }
}

impl PassRecord {
    fn from_input(input: &PassInput<'_>, silo: SiloId, panic: &str) -> Self {
        let numbers = UserNumbers::of_input(input);
        let ticket = |prepared: &&PreparedTicket| TicketRecord {
            id: hex_text(*prepared.ticket.id.as_bytes()),
            entered_ms: prepared.ticket.entered_at.0,
            leaderboard_position: prepared.leaderboard_position,
            frustrated: prepared.frustrated,
            wider_limits: prepared.has_wider_limits(),
            body: encode_ticket(&Ticket {
                subject: None,
                session: numbers.anonymous_session(input.ruleset, &prepared.ticket.session),
                blocked_users: prepared.blocked_users.iter().filter_map(|user| numbers.anonymous_key(*user)).collect(),
                self_answering_users: Vec::new(),
                ..(*prepared.ticket).clone()
            }),
        };
        let past_match = |it: PlayedPair| {
            Some((numbers.number(it.user)?, numbers.number(it.other_user)?, it.same_team, it.started_at.0))
        };
        let play = |(user, played, started_at): (UserKey, &ChosenValue, UnixMs)| {
            Some((numbers.number(user)?, played.attribute.clone(), played.value.clone(), started_at.0))
        };
        Self {
            format: FORMAT_VERSION,
            panic: panic.to_owned(),
            ruleset_xml: input.ruleset.source_xml.to_string(),
            silo: silo.0,
            now_ms: input.now.0,
            rng_seed: input.rng_seed,
            max_pair_checks: input.max_pair_checks,
            connected_players: input.gate_counts.connected_players,
            active_matches: input.gate_counts.active_matches,
            tickets: input.tickets.iter().map(ticket).collect(),
            open_sessions: input.open_sessions.iter().map(|open| numbers.session_record(input.ruleset, open)).collect(),
            past_matches: input.past_matches.pairs().filter_map(past_match).collect(),
            plays: input.past_matches.played_values.iter().filter_map(play).collect(),
        }
    }

    fn encode(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }

    /// Decodes the text of a file. Fails if it has another format.
    pub fn decode(text: &str) -> io::Result<Self> {
        let record: Self = serde_json::from_str(text).map_err(io::Error::other)?;
        if record.format != FORMAT_VERSION {
            return Err(io::Error::other(format!(
                "format {} is unknown; this version reads {FORMAT_VERSION}",
                record.format
            )));
        }
        Ok(record)
    }

    /// Calls `run` with the input of the pass. `ruleset` is that of `ruleset_xml`. Fails if a ticket or session cannot be
    /// decoded, or if the ruleset has no queue.
    pub fn call_with_pass_input<T>(&self, ruleset: &Ruleset, run: impl FnOnce(&PassInput<'_>) -> T) -> io::Result<T> {
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            return Err(io::Error::other("the ruleset has no queue"));
        };
        let mut tickets = Vec::with_capacity(self.tickets.len());
        for record in &self.tickets {
            let ticket = Arc::new(self.decode_ticket(ruleset, record)?);
            let prepared = PreparedTicket::new(ruleset, queue, ticket, record.leaderboard_position);
            let prepared = PreparedTicket { frustrated: record.frustrated, ..prepared };
            tickets.push(prepared.with_limits_if_frustrated(ruleset, record.wider_limits));
        }
        let sessions: io::Result<Vec<OpenSession>> =
            self.open_sessions.iter().map(|record| self.decode_session(ruleset, record)).collect();
        let past_match = |&(user, other_user, same_team, started_ms): &(u32, u32, bool, u64)| PlayedPair {
            user: numbered_key(user),
            other_user: numbered_key(other_user),
            same_team,
            started_at: UnixMs(started_ms),
        };
        let play = |(user, attribute, value, started_ms): &(u32, Box<str>, Box<str>, u64)| {
            let played = ChosenValue { attribute: attribute.clone(), value: value.clone() };
            (numbered_key(*user), played, UnixMs(*started_ms))
        };
        let played = PlayedValues::from_plays_keeping_latest(self.plays.iter().map(play));
        Ok(run(&PassInput {
            ruleset,
            queue,
            teams,
            tickets: &tickets.iter().collect::<Vec<_>>(),
            open_sessions: &sessions?,
            past_matches: &PastMatches::from_pairs_keeping_latest(self.past_matches.iter().map(past_match))
                .with_played_values(played),
            gate_counts: GateCounts { connected_players: self.connected_players, active_matches: self.active_matches },
            now: UnixMs(self.now_ms),
            rng_seed: self.rng_seed,
            max_pair_checks: self.max_pair_checks,
        }))
    }

    fn decode_ticket(&self, ruleset: &Ruleset, record: &TicketRecord) -> io::Result<Ticket> {
        let mut ticket = decode_ticket(&record.body).map_err(io::Error::other)?;
        ticket.id = TicketId::parse(&record.id).ok_or_else(|| io::Error::other("invalid ticket id"))?;
        (ticket.set_id, ticket.entered_at) = (ruleset.set_id, UnixMs(record.entered_ms));
        ticket.session.silo = SiloId(self.silo);
        Ok(ticket)
    }

    fn decode_session(&self, ruleset: &Ruleset, record: &SessionRecord) -> io::Result<OpenSession> {
        let mut advertisement = decode_advertisement(&record.body).map_err(io::Error::other)?;
        let id = AdvertisementId::parse(&record.id).ok_or_else(|| io::Error::other("invalid advertisement id"))?;
        (advertisement.id, advertisement.set_id) = (id, ruleset.set_id);
        (advertisement.kind, advertisement.advertised_since) =
            (AdvertisementKind::Session, UnixMs(record.advertised_ms));
        (advertisement.session.silo, advertisement.session.offered_seats) = (SiloId(self.silo), record.join_seats);
        Ok(OpenSession {
            attribute_values: AttributeValues::from_session_without_standings(ruleset, &advertisement.session)
                .with_standing_numbers(ruleset, &record.standing_numbers)
                .with_frustration(ruleset, record.wider_limits),
            advertisement: Arc::new(advertisement),
            expires_at: UnixMs(record.expires_ms),
            open_seats: record.open_seats,
            vector: None,
            parties: record.parties.iter().map(|party| party.decode(ruleset)).collect(),
            blocked_users: record.blocked_users.iter().copied().map(numbered_key).collect(),
            promised_values: record
                .promised
                .iter()
                .cloned()
                .map(|(attribute, value)| ChosenValue { attribute, value })
                .collect(),
        })
    }
}

/// Numbers of the users of a pass, in the order of their keys. The order is kept, because ties may depend on it.
struct UserNumbers(BTreeMap<UserKey, u32>);

impl UserNumbers {
    fn of_input(input: &PassInput<'_>) -> Self {
        let sessions = input.open_sessions.iter().map(|open| &open.advertisement.session);
        let sessions = input.tickets.iter().map(|prepared| &prepared.ticket.session).chain(sessions);
        let seated = input.open_sessions.iter().flat_map(|open| &open.parties).flat_map(|party| party.users.iter());
        let users: BTreeMap<UserKey, u32> = sessions
            .flat_map(|session| session.players.iter().map(|player| player.user))
            .chain(seated.copied())
            .map(|user| (user, 0))
            .collect();
        Self(users.into_keys().zip(1..).collect())
    }

    fn number(&self, user: UserKey) -> Option<u32> {
        self.0.get(&user).copied()
    }

    /// Key with the user's number; `None` for a user who is not in the pass.
    fn anonymous_key(&self, user: UserKey) -> Option<UserKey> {
        self.number(user).map(numbered_key)
    }

    fn anonymous_session(&self, ruleset: &Ruleset, session: &Session) -> Session {
        let is_declared = |name: &str| ruleset.attribute_index(name).is_some();
        let roles = ruleset.teams.as_ref().map_or(&[][..], |teams| &teams.roles);
        let player = |player: &Player| {
            let user = self.anonymous_key(player.user).unwrap_or(player.user);
            let mut details = player.details.clone();
            for details in details.iter_mut() {
                details.attributes.retain(|(name, _)| is_declared(name));
                details.wanted_roles.retain(|name| roles.iter().any(|role| role.name == *name));
            }
            Player { user, client_key: user, details, ..player.clone() }
        };
        Session {
            players: session.players.iter().map(player).collect(),
            attributes: session.attributes.iter().filter(|(name, _)| is_declared(name)).cloned().collect(),
            ..session.clone()
        }
    }

    fn party_record(&self, party: &SeatedParty) -> PartyRecord {
        let ratings = party.ratings().map(|ratings| ratings.iter().map(|it| (it.rating, it.deviation)).collect());
        PartyRecord {
            users: party.users.iter().filter_map(|user| self.number(*user)).collect(),
            player_count: party.player_count,
            team: party.team,
            ratings,
            leaderboard_position: party.leaderboard_position,
            roles: party.roles.iter().map(|roles| roles.to_vec()).collect(),
        }
    }

    fn session_record(&self, ruleset: &Ruleset, open: &OpenSession) -> SessionRecord {
        let session = self.anonymous_session(ruleset, &open.advertisement.session);
        SessionRecord {
            id: hex_text(*open.advertisement.id.as_bytes()),
            advertised_ms: open.advertisement.advertised_since.0,
            expires_ms: open.expires_at.0,
            open_seats: open.open_seats,
            standing_numbers: open.attribute_values.standing_numbers(ruleset),
            wider_limits: open.attribute_values.limit_factor() != 1.0,
            blocked_users: open.blocked_users.iter().filter_map(|user| self.number(*user)).collect(),
            parties: open.parties.iter().map(|party| self.party_record(party)).collect(),
            promised: open.promised_values.iter().map(|it| (it.attribute.clone(), it.value.clone())).collect(),
            join_seats: session.offered_seats,
            body: encode_advertisement(&Advertisement {
                publisher: open.advertisement.publisher.and_then(|publisher| self.anonymous_key(publisher)),
                session,
                connect_data: Box::default(),
                ..(*open.advertisement).clone()
            }),
        }
    }
}

/// User key with a number: keys of higher numbers are higher.
fn numbered_key(number: u32) -> UserKey {
    UserKey::from_bytes(u128::from(number).to_be_bytes())
}

fn hex_text(bytes: [u8; 16]) -> String {
    String::from_utf8_lossy(&HexKey(bytes).user_key().to_hex()).into_owned()
}
