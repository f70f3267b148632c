//! Digests of what a request asks for, to distinguish a reused idempotency key from a repeated request.
//!
//! They cover what the client decides, as it was sent: not what the server derives from it, and not what a client cannot
//! repeat exactly, because it measures or renews it: round trips, positions, consents, and the hash of its ruleset.

use crate::auth::token::HmacTokenSigner;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::id::UserKey;
use crate::domain::session::{PlayerDetails, Session};
use crate::domain::wish::{AcceptedValues, Wish};
use crate::engine::command::PublishOrHeartbeatAdvertCommand;
use crate::engine::queues::command::EnterQueueCommand;

/// Bytes of the values of a small party; more are allocated as needed.
const TYPICAL_BYTES: usize = 256;

/// Digest of a request that enters a party.
pub(crate) fn queue_entry_digest(caller: Option<UserKey>, enter: &EnterQueueCommand) -> [u8; 16] {
    let mut asked = DigestInput::new();
    asked.number(enter.set_id.0.into());
    asked.session(&enter.session);
    asked.number(enter.blocked_users.len() as u64);
    enter.blocked_users.iter().for_each(|user| asked.user(*user));
    HmacTokenSigner::request_digest(caller, &asked.0)
}

/// Digest of a request that creates an advertisement of `session`.
pub(crate) fn advert_creation_digest(
    caller: Option<UserKey>,
    session: &Session,
    update: &PublishOrHeartbeatAdvertCommand,
) -> [u8; 16] {
    let mut asked = DigestInput::new();
    asked.optional_number(update.set_id.map(|set_id| set_id.0.into()));
    asked.number(match update.kind.unwrap_or_default() {
        AdvertisementKind::Session => 0,
        AdvertisementKind::GameServer => 1,
    });
    asked.session(session);
    asked.optional_number(update.ttl_ms.map(u64::from));
    asked.bytes(&update.connect_data);
    asked.number(update.allowed_ranges.len() as u64);
    for range in &update.allowed_ranges {
        asked.bytes(range.attribute.as_bytes());
        asked.optional_number(range.min.map(f64::to_bits));
        asked.optional_number(range.max.map(f64::to_bits));
    }
    asked.optional_number(update.probe.as_ref().map(|probe| probe.port.into()));
    update.probe.iter().for_each(|probe| asked.bytes(&probe.key));
    HmacTokenSigner::request_digest(caller, &asked.0)
}

/// Values of a request, one after the other. Texts and lists have their length in front, so that different requests never
/// give the same bytes. Short, because each 64 bytes cost a round of the digest.
struct DigestInput(Vec<u8>);

impl DigestInput {
    fn new() -> Self {
        Self(Vec::with_capacity(TYPICAL_BYTES))
    }

    /// Seven bits a byte; the highest bit says that more follow.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn optional_number(&mut self, number: Option<u64>) {
        self.0.push(number.is_some().into());
        number.into_iter().for_each(|number| self.number(number));
    }

    fn user(&mut self, user: UserKey) {
        self.0.extend_from_slice(user.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn session(&mut self, session: &Session) {
        let Session {
            silo,
            party_sizes,
            players,
            nat_type,
            game_in_progress,
            big_party_count,
            offered_seats: join_seats,
            locality: _,
            attributes,
            region_latencies: _,
            value_origin: _,
            details: _,
        } = session;
        self.number(silo.0);
        self.bytes(party_sizes);
        // The order of the players says who is in which party. In one party it says nothing.
        let mut players: Vec<_> = players.iter().collect();
        if party_sizes.len() == 1 {
            players.sort_by_key(|player| (player.user, player.client_key));
        }
        self.number(players.len() as u64);
        for player in players {
            self.user(player.user);
            let has_details = player.details.is_some();
            self.0.push(u8::from(player.client_key != player.user) | u8::from(has_details) << 1);
            if player.client_key != player.user {
                self.user(player.client_key);
            }
            self.optional_number(player.stated_skill.map(f64::to_bits));
            self.optional_number(player.team.map(u64::from));
            player.details.iter().for_each(|details| self.player_details(details));
        }
        self.optional_number(nat_type.map(|nat_type| i64::from(nat_type).cast_unsigned()));
        self.optional_number(game_in_progress.map(u64::from));
        self.optional_number(big_party_count.map(|count| i64::from(count).cast_unsigned()));
        self.number((*join_seats).into());
        self.attributes(attributes);
        self.wishes(session.wishes());
    }

    fn player_details(&mut self, details: &PlayerDetails) {
        let PlayerDetails { attributes, wanted_roles } = details;
        self.attributes(attributes);
        self.number(wanted_roles.len() as u64);
        wanted_roles.iter().for_each(|role| self.bytes(role.as_bytes()));
    }

    fn attributes(&mut self, attributes: &[(ShortString, AttributeValue)]) {
        self.number(attributes.len() as u64);
        for (name, value) in attributes {
            self.bytes(name.as_bytes());
            self.attribute(value);
        }
    }

    /// Only of a request with wishes, so that others keep their digests; nothing else after a session begins like this.
    fn wishes(&mut self, wishes: &[Wish]) {
        if wishes.is_empty() {
            return;
        }
        self.number(u64::MAX);
        self.number(wishes.len() as u64);
        for wish in wishes {
            self.bytes(wish.subject_name.as_bytes());
            self.0.push(wish.accepts_missing.into());
            self.number(wish.steps().len() as u64);
            for step in wish.steps() {
                self.number(step.start_ms);
                self.accepted_values(&step.accepted);
            }
        }
    }

    fn accepted_values(&mut self, accepted: &AcceptedValues) {
        match accepted {
            AcceptedValues::Any => self.0.push(0),
            AcceptedValues::Numbers { min, max } => {
                self.0.push(1);
                self.optional_number(min.map(f64::to_bits));
                self.optional_number(max.map(f64::to_bits));
            }
            AcceptedValues::Strings(texts) => {
                self.0.push(2);
                self.number(texts.len() as u64);
                texts.iter().for_each(|text| self.bytes(text.as_bytes()));
            }
            AcceptedValues::Flag(flag) => self.0.extend([3, u8::from(*flag)]),
        }
    }

    fn attribute(&mut self, value: &AttributeValue) {
        match value {
            AttributeValue::Number(number) => {
                self.0.push(0);
                self.number(number.to_bits());
            }
            AttributeValue::String(text) => {
                self.0.push(1);
                self.bytes(text.as_bytes());
            }
            AttributeValue::Bool(flag) => self.0.extend([2, u8::from(*flag)]),
            AttributeValue::StringList(texts) => {
                self.0.push(3);
                self.number(texts.len() as u64);
                texts.iter().for_each(|text| self.bytes(text.as_bytes()));
            }
        }
    }
}
