//! JSON encoding of the parts of an advertisement or session without a column, with short keys.
//!
//! | key | content | | key | content |
//! |---|---|---|---|---|
//! | `h` | ruleset hash | | `s` | publisher, 32 hexadecimal digits |
//! | `z` | party sizes | | `p` | players: user, client key, stated skill or null |
//! | `n` | NAT type | | `g` | game in progress |
//! | `b` | big parties | | `l` | locality: x, y, z |
//! | `a` | attributes: name, value | | `r` | regions: name, round trip in ms |
//! | `w` | allowed ranges: attribute, min or null, max or null | | `o` | origin: 0 client, 1 game server |
//! | `e` | probe endpoint: address, port, key in hexadecimal | | `t` | teams of the players, or null |
//! | `i` | wishes, as in `wish_json.rs` | | `pa` | attributes of each player: name, value |
//! | `pr` | roles that each player wants | | | |
//!
//! Absent and empty values have no key. A new key says that servers must know it: a server that does not know a key
//! leaves the row to newer servers. A value that older servers may ignore gets a column with a default instead. Numbers
//! round-trip exactly. Domain types do not depend on this format.
//!
//! `h`, `s`, `w` and `e` belong to an advertisement. The other keys belong to a session, and are also used in a ticket's
//! body (`queues/ticket_body.rs`).

use std::fmt;
use std::net::IpAddr;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange, ProbeEndpoint};
use crate::domain::attribute::{AttributeValue, ShortString, ValueOrigin};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::locality::Locality;
use crate::domain::session::{Player, PlayerDetails, RegionLatency, Session, SessionDetails};
use crate::domain::time::UnixMs;
use crate::domain::wish::Wish;
use crate::store::adverts::wish_json::{WishJson, decode_wishes, encode_wish};

/// Body as decoded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct BodyToRead {
    #[serde(rename = "h")]
    ruleset_hash: Option<u32>,
    #[serde(rename = "s")]
    publisher: Option<HexKey>,
    #[serde(rename = "z")]
    party_sizes: Vec<u8>,
    #[serde(rename = "p", default)]
    players: Vec<(HexKey, HexKey, Option<f64>)>,
    #[serde(rename = "n")]
    nat_type: Option<i32>,
    #[serde(rename = "g")]
    game_in_progress: Option<bool>,
    #[serde(rename = "b")]
    big_party_count: Option<i32>,
    #[serde(rename = "l")]
    locality: Option<(f32, f32, f32)>,
    #[serde(rename = "a", default)]
    attributes: Vec<(ShortString, AttributeValueJson)>,
    #[serde(rename = "r", default)]
    region_latencies: Vec<(Box<str>, f32)>,
    #[serde(rename = "w", default)]
    allowed_ranges: Vec<(Box<str>, Option<f64>, Option<f64>)>,
    #[serde(rename = "o", default)]
    origin: u8,
    #[serde(rename = "e")]
    probe: Option<(IpAddr, u16, HexBytes)>,
    #[serde(rename = "t", default)]
    player_teams: Vec<Option<u16>>,
    #[serde(rename = "i", default)]
    wishes: Vec<WishJson>,
    #[serde(rename = "pa", default)]
    player_attributes: Vec<Vec<(ShortString, AttributeValueJson)>>,
    #[serde(rename = "pr", default)]
    player_roles: Vec<Vec<Box<str>>>,
}

/// Body to encode; borrows from the session. A batch has a thousand, and cloning would take longer than encoding.
#[derive(Serialize)]
pub(in crate::store) struct BodyToWrite<'a> {
    #[serde(rename = "h", skip_serializing_if = "Option::is_none")]
    ruleset_hash: Option<u32>,
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    publisher: Option<HexKey>,
    #[serde(rename = "z")]
    party_sizes: &'a [u8],
    #[serde(rename = "p", skip_serializing_if = "JsonList::is_empty")]
    players: JsonList<'a, Player, (HexKey, HexKey, Option<f64>)>,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    nat_type: Option<i32>,
    #[serde(rename = "g", skip_serializing_if = "Option::is_none")]
    game_in_progress: Option<bool>,
    #[serde(rename = "b", skip_serializing_if = "Option::is_none")]
    big_party_count: Option<i32>,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    locality: Option<(f32, f32, f32)>,
    #[serde(rename = "a", skip_serializing_if = "JsonList::is_empty")]
    attributes: JsonList<'a, (ShortString, AttributeValue), (&'a str, JsonValueToWrite<'a>)>,
    #[serde(rename = "r", skip_serializing_if = "JsonList::is_empty")]
    region_latencies: JsonList<'a, RegionLatency, (&'a str, f32)>,
    #[serde(rename = "w", skip_serializing_if = "JsonList::is_empty")]
    allowed_ranges: JsonList<'a, AllowedRange, (&'a str, Option<f64>, Option<f64>)>,
    #[serde(rename = "o", skip_serializing_if = "is_zero")]
    origin: u8,
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    probe: Option<(IpAddr, u16, HexBytesToWrite<'a>)>,
    #[serde(rename = "t", skip_serializing_if = "JsonList::is_empty")]
    player_teams: JsonList<'a, Player, Option<u16>>,
    #[serde(rename = "i", skip_serializing_if = "JsonList::is_empty")]
    wishes: JsonList<'a, Wish, WishJson>,
    #[serde(rename = "pa", skip_serializing_if = "JsonList::is_empty")]
    player_attributes: JsonList<'a, Player, JsonList<'a, NamedValue, (&'a str, JsonValueToWrite<'a>)>>,
    #[serde(rename = "pr", skip_serializing_if = "JsonList::is_empty")]
    player_roles: JsonList<'a, Player, &'a [Box<str>]>,
}

type NamedValue = (ShortString, AttributeValue);

/// JSON list of borrowed elements, each converted when it is written.
pub(in crate::store) struct JsonList<'a, T, As>(pub(in crate::store) &'a [T], pub(in crate::store) fn(&'a T) -> As);

impl<T, As> JsonList<'_, T, As> {
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T, As: Serialize> Serialize for JsonList<'_, T, As> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

/// Initial capacity; enough for the body of most sessions.
const BODY_CAPACITY_BYTES: usize = 512;

/// Encodes an advertisement as JSON text.
pub(in crate::store) fn encode_advertisement(advertisement: &Advertisement) -> String {
    to_json_text(&BodyToWrite {
        ruleset_hash: Some(advertisement.ruleset_hash.0),
        publisher: advertisement.publisher.map(HexKey::from_user_key),
        allowed_ranges: JsonList(&advertisement.allowed_ranges, encode_range),
        probe: advertisement.probe.as_deref().map(encode_probe),
        ..BodyToWrite::from_session(&advertisement.session)
    })
}

fn encode_probe(probe: &ProbeEndpoint) -> (IpAddr, u16, HexBytesToWrite<'_>) {
    (IpAddr::from(probe.address).to_canonical(), probe.port, HexBytesToWrite(&probe.key))
}

fn decode_probe((address, port, HexBytes(key)): (IpAddr, u16, HexBytes)) -> Box<ProbeEndpoint> {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    Box::new(ProbeEndpoint { address, port, key })
}

fn encode_range(range: &AllowedRange) -> (&str, Option<f64>, Option<f64>) {
    (&range.attribute, range.min, range.max)
}

/// Encodes a value as JSON text. The keys are strings and the numbers finite, so encoding cannot fail. If it did, the
/// empty text would be reported as a corrupt row at the next load.
pub(in crate::store) fn to_json_text(body: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(BODY_CAPACITY_BYTES);
    let written = serde_json::to_writer(&mut text, body);
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
}

impl<'a> BodyToWrite<'a> {
    /// Body of a session, without the values that have a column.
    pub(in crate::store) fn from_session(session: &'a Session) -> Self {
        let states_teams = session.players.iter().any(|player| player.team.is_some());
        let players_with_teams = if states_teams { &session.players[..] } else { &[] };
        let has_attributes = |player: &Player| player.details.as_ref().is_some_and(|it| !it.attributes.is_empty());
        let with_attributes = if session.players.iter().any(has_attributes) { &session.players[..] } else { &[] };
        let has_roles = |player: &Player| !player.wanted_roles().is_empty();
        let with_roles = if session.players.iter().any(has_roles) { &session.players[..] } else { &[] };
        Self {
            ruleset_hash: None,
            publisher: None,
            party_sizes: &session.party_sizes,
            players: JsonList(&session.players, |player| {
                (HexKey::from_user_key(player.user), HexKey::from_user_key(player.client_key), player.stated_skill)
            }),
            nat_type: session.nat_type,
            game_in_progress: session.game_in_progress,
            big_party_count: session.big_party_count,
            locality: session.locality.map(|position| (position.x, position.y, position.z)),
            attributes: JsonList(&session.attributes, encode_attribute),
            region_latencies: JsonList(&session.region_latencies, |latency| (&latency.region, latency.round_trip_ms)),
            allowed_ranges: JsonList(&[], encode_range),
            origin: match session.value_origin {
                ValueOrigin::Client => 0,
                ValueOrigin::GameServer => 1,
            },
            probe: None,
            player_teams: JsonList(players_with_teams, |player| player.team),
            wishes: JsonList(session.wishes(), encode_wish),
            player_attributes: JsonList(with_attributes, |player| {
                JsonList(player.details.as_ref().map_or(&[], |details| &details.attributes), encode_attribute)
            }),
            player_roles: JsonList(with_roles, Player::wanted_roles),
        }
    }
}

fn encode_attribute((name, value): &NamedValue) -> (&str, JsonValueToWrite<'_>) {
    (name, JsonValueToWrite(value))
}

/// Decodes an advertisement. The caller sets the values that have a column.
pub(in crate::store) fn decode_advertisement(text: &str) -> Result<Advertisement, serde_json::Error> {
    let mut body: BodyToRead = serde_json::from_str(text)?;
    let ruleset_hash = body.ruleset_hash.ok_or_else(|| serde_json::Error::missing_field("h"))?;
    let publisher = body.publisher.take();
    let allowed_ranges = std::mem::take(&mut body.allowed_ranges).into_iter();
    let probe = body.probe.take();
    Ok(Advertisement {
        id: AdvertisementId::from_bytes([0; 16]),
        set_id: SetId::default(),
        kind: AdvertisementKind::default(),
        publisher: publisher.map(HexKey::user_key),
        advertised_since: UnixMs::default(),
        ruleset_hash: RulesetHash(ruleset_hash),
        allowed_ranges: allowed_ranges.map(|(attribute, min, max)| AllowedRange { attribute, min, max }).collect(),
        connect_data: Box::default(),
        session: body.into_session()?,
        ttl_ms: None,
        probe: probe.map(decode_probe),
    })
}

impl BodyToRead {
    /// Converts to a session. The caller sets the values that have a column.
    pub(in crate::store) fn into_session(self) -> Result<Session, serde_json::Error> {
        let mut teams = self.player_teams.into_iter();
        let mut player_attributes = self.player_attributes.into_iter();
        let mut player_roles = self.player_roles.into_iter();
        let player = |(user, client_key, stated_skill): (HexKey, HexKey, Option<f64>)| Player {
            user: user.user_key(),
            client_key: client_key.user_key(),
            stated_skill,
            team: teams.next().flatten(),
            details: decode_player_details(player_attributes.next(), player_roles.next()),
        };
        Ok(Session {
            silo: SiloId::default(),
            party_sizes: self.party_sizes.into(),
            players: self.players.into_iter().map(player).collect(),
            nat_type: self.nat_type,
            game_in_progress: self.game_in_progress,
            big_party_count: self.big_party_count,
            offered_seats: 0,
            locality: self.locality.map(|(x, y, z)| Locality { x, y, z }),
            attributes: self.attributes.into_iter().map(|(name, value)| (name, value.0)).collect(),
            region_latencies: self
                .region_latencies
                .into_iter()
                .map(|(region, round_trip_ms)| RegionLatency { region, round_trip_ms })
                .collect(),
            value_origin: match self.origin {
                0 => ValueOrigin::Client,
                1 => ValueOrigin::GameServer,
                other => return Err(serde_json::Error::custom(format_args!("unknown origin {other}"))),
            },
            details: SessionDetails::from_wishes(decode_wishes(self.wishes)?),
        })
    }
}

fn decode_player_details(
    attributes: Option<Vec<(ShortString, AttributeValueJson)>>,
    wanted_roles: Option<Vec<Box<str>>>,
) -> Option<Box<PlayerDetails>> {
    let attributes: Vec<NamedValue> = attributes.into_iter().flatten().map(|(name, value)| (name, value.0)).collect();
    let wanted_roles = wanted_roles.unwrap_or_default();
    let is_empty = attributes.is_empty() && wanted_roles.is_empty();
    (!is_empty).then(|| Box::new(PlayerDetails { attributes, wanted_roles }))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Key of 16 bytes, mostly a user key, written as 32 hexadecimal digits.
#[derive(Clone, Copy)]
pub(in crate::store) struct HexKey(pub(in crate::store) [u8; 16]);

impl HexKey {
    pub(in crate::store) fn from_user_key(user: UserKey) -> Self {
        Self(*user.as_bytes())
    }

    pub(in crate::store) fn user_key(self) -> UserKey {
        UserKey::from_bytes(self.0)
    }
}

impl Serialize for HexKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.user_key().to_hex();
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for HexKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: &str = Deserialize::deserialize(deserializer)?;
        UserKey::parse(text)
            .map(Self::from_user_key)
            .ok_or_else(|| D::Error::custom("key is not 32 hexadecimal digits"))
    }
}

/// Bytes decoded from hexadecimal digits.
struct HexBytes(Box<[u8]>);

/// Bytes to write as hexadecimal digits.
struct HexBytesToWrite<'a>(&'a [u8]);

impl Serialize for HexBytesToWrite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}", HexDigits(self.0)))
    }
}

struct HexDigits<'a>(&'a [u8]);

impl fmt::Display for HexDigits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: &str = Deserialize::deserialize(deserializer)?;
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Box<[u8]>> = pairs.iter().map(byte).collect();
        let bytes = bytes.filter(|_| rest.is_empty());
        bytes.map(Self).ok_or_else(|| D::Error::custom("key is not a list of hexadecimal bytes"))
    }
}

/// Attribute value decoded from a JSON number, string, boolean or list of strings.
struct AttributeValueJson(AttributeValue);

/// Attribute value to encode as JSON.
struct JsonValueToWrite<'a>(&'a AttributeValue);

impl Serialize for JsonValueToWrite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttributeValue::Number(number) => serializer.serialize_f64(*number),
            AttributeValue::String(text) => serializer.serialize_str(text),
            AttributeValue::Bool(flag) => serializer.serialize_bool(*flag),
            AttributeValue::StringList(strings) => serializer.collect_seq(strings.iter()),
        }
    }
}

impl<'de> Deserialize<'de> for AttributeValueJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonValueVisitor).map(Self)
    }
}

struct JsonValueVisitor;

impl<'de> Visitor<'de> for JsonValueVisitor {
    type Value = AttributeValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, string, boolean or list of strings")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<AttributeValue, E> {
        Ok(AttributeValue::Number(number))
    }

    // JSON does not distinguish 5 from 5.0. This server writes 5.0; another writer might write 5.
    fn visit_u64<E: Error>(self, number: u64) -> Result<AttributeValue, E> {
        Ok(AttributeValue::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<AttributeValue, E> {
        Ok(AttributeValue::Number(number as f64))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<AttributeValue, E> {
        Ok(AttributeValue::Bool(flag))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AttributeValue, E> {
        Ok(AttributeValue::String(text.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<AttributeValue, E> {
        Err(E::custom("unknown type of an attribute value: null"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<AttributeValue, A::Error> {
        Err(A::Error::custom("unknown type of an attribute value: object"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<AttributeValue, A::Error> {
        let mut strings = Vec::new();
        while let Some(text) = sequence.next_element::<Box<str>>()? {
            strings.push(text);
        }
        Ok(AttributeValue::from_string_list(strings))
    }
}
