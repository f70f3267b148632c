//! The part of an advertisement that SQL never asks about, as one JSON text with short keys.
//!
//! | key | what | | key | what |
//! |---|---|---|---|---|
//! | `h` | ruleset hash | | `s` | subject, 32 hexadecimal digits |
//! | `z` | party sizes | | `p` | players: user, player, skill or null |
//! | `n` | NAT type | | `g` | game in progress |
//! | `b` | big parties | | `l` | locality: x, y, z |
//! | `a` | attributes: name, value | | `r` | regions: name, round trip in ms |
//! | `w` | allowed ranges: attribute, min or null, max or null | | `o` | origin: 0 client, 1 server |
//!
//! What is absent or empty has no key, and a key that is not known is passed over, so that the code before a new key can
//! still read the rows after it. Numbers come back to the last bit. Domain types know nothing of this.
//!
//! `h`, `s` and `w` are an advertisement's; the rest is a session's, and within a ticket's text (`queue_body.rs`) stands alone.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use crate::domain::attribute::{AttributeValue, ValueOrigin};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::locality::Locality;
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;

/// As it is read.
#[derive(Deserialize)]
pub(super) struct BodyToRead {
    h: Option<u32>,
    s: Option<HexKey>,
    z: Vec<u8>,
    #[serde(default)]
    p: Vec<(HexKey, HexKey, Option<f64>)>,
    n: Option<i32>,
    g: Option<bool>,
    b: Option<i32>,
    l: Option<(f32, f32, f32)>,
    #[serde(default)]
    a: Vec<(Box<str>, JsonValue)>,
    #[serde(default)]
    r: Vec<(Box<str>, f32)>,
    #[serde(default)]
    w: Vec<(Box<str>, Option<f64>, Option<f64>)>,
    #[serde(default)]
    o: u8,
}

/// As it is written, from where it is: a batch has a thousand, and a copy of each would take longer than its text.
#[derive(Serialize)]
pub(super) struct BodyToWrite<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    h: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<HexKey>,
    z: &'a [u8],
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    p: JsonList<'a, Player, (HexKey, HexKey, Option<f64>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    g: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<(f32, f32, f32)>,
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    a: JsonList<'a, (Box<str>, AttributeValue), (&'a str, JsonValueToWrite<'a>)>,
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    r: JsonList<'a, RegionLatency, (&'a str, f32)>,
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    w: JsonList<'a, AllowedRange, (&'a str, Option<f64>, Option<f64>)>,
    #[serde(skip_serializing_if = "is_zero")]
    o: u8,
}

/// A list, and what to write of each of its elements.
pub(super) struct JsonList<'a, T, As>(pub(super) &'a [T], pub(super) fn(&'a T) -> As);

impl<T, As> JsonList<'_, T, As> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T, As: Serialize> Serialize for JsonList<'_, T, As> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

/// Bytes that the text of most sessions fits in.
const BODY_CAPACITY_BYTES: usize = 512;

/// The text to keep.
pub(super) fn encode_advertisement(advertisement: &Advertisement) -> String {
    to_json_text(&BodyToWrite {
        h: Some(advertisement.ruleset_hash.0),
        s: advertisement.publisher.map(HexKey::from_user_key),
        w: JsonList(&advertisement.allowed_ranges, |it| (&it.attribute, it.min, it.max)),
        ..BodyToWrite::from_session(&advertisement.session)
    })
}

/// What is to be kept, as text. Text keys and finite numbers: there is nothing in it that JSON cannot say. Were there, an
/// empty text would be found corrupt by the next start rather than believed.
pub(super) fn to_json_text(said: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(BODY_CAPACITY_BYTES);
    let written = serde_json::to_writer(&mut text, said);
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
}

impl<'a> BodyToWrite<'a> {
    /// A session, but for what has a column of its own.
    pub(super) fn from_session(session: &'a Session) -> Self {
        Self {
            h: None,
            s: None,
            z: &session.party_sizes,
            p: JsonList(&session.players, |it| {
                (HexKey::from_user_key(it.user), HexKey::from_user_key(it.client_key), it.stated_skill)
            }),
            n: session.nat_type,
            g: session.game_in_progress,
            b: session.big_party_count,
            l: session.locality.map(|it| (it.x, it.y, it.z)),
            a: JsonList(&session.attributes, |(name, value)| (name, JsonValueToWrite(value))),
            r: JsonList(&session.region_latencies, |it| (&it.region, it.round_trip_ms)),
            w: JsonList(&[], |it| (&it.attribute, it.min, it.max)),
            o: match session.origin {
                ValueOrigin::Client => 0,
                ValueOrigin::GameServer => 1,
            },
        }
    }
}

/// The advertisement in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode_advertisement(text: &str) -> Result<Advertisement, serde_json::Error> {
    let mut body: BodyToRead = serde_json::from_str(text)?;
    let hash = body.h.ok_or_else(|| serde_json::Error::missing_field("h"))?;
    let subject = body.s.take();
    let allowed = std::mem::take(&mut body.w).into_iter();
    Ok(Advertisement {
        id: AdvertisementId::from_bytes([0; 16]),
        set_id: SetId::default(),
        kind: AdvertisementKind::default(),
        publisher: subject.map(HexKey::user_key),
        advertised_since: UnixMs::default(),
        ruleset_hash: RulesetHash(hash),
        allowed_ranges: allowed.map(|(attribute, min, max)| AllowedRange { attribute, min, max }).collect(),
        connect_data: Vec::new(),
        session: body.into_session()?,
    })
}

impl BodyToRead {
    /// The session, but for what has a column of its own: the caller puts that in.
    pub(super) fn into_session(self) -> Result<Session, serde_json::Error> {
        let player = |(user, player, skill): (HexKey, HexKey, Option<f64>)| Player {
            user: user.user_key(),
            client_key: player.user_key(),
            stated_skill: skill,
        };
        Ok(Session {
            silo: SiloId::default(),
            party_sizes: self.z,
            players: self.p.into_iter().map(player).collect(),
            nat_type: self.n,
            game_in_progress: self.g,
            big_party_count: self.b,
            join_seats: 0,
            locality: self.l.map(|(x, y, z)| Locality { x, y, z }),
            attributes: self.a.into_iter().map(|(name, value)| (name, value.0)).collect(),
            region_latencies: self
                .r
                .into_iter()
                .map(|(region, round_trip_ms)| RegionLatency { region, round_trip_ms })
                .collect(),
            origin: match self.o {
                0 => ValueOrigin::Client,
                1 => ValueOrigin::GameServer,
                other => return Err(serde_json::Error::custom(format_args!("{other} is no origin"))),
            },
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Sixteen bytes, a user's key mostly, as 32 hexadecimal digits.
#[derive(Clone, Copy)]
pub(super) struct HexKey(pub(super) [u8; 16]);

impl HexKey {
    pub(super) fn from_user_key(user: UserKey) -> Self {
        Self(*user.as_bytes())
    }

    pub(super) fn user_key(self) -> UserKey {
        UserKey::from_bytes(self.0)
    }
}

impl Serialize for HexKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.user_key().digits();
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for HexKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: &str = Deserialize::deserialize(deserializer)?;
        UserKey::parse(text)
            .map(Self::from_user_key)
            .ok_or_else(|| D::Error::custom("a name is not 32 hexadecimal digits"))
    }
}

/// An attribute's value as JSON's own number, text, flag or list of texts; as it is read.
struct JsonValue(AttributeValue);

/// And as it is written.
struct JsonValueToWrite<'a>(&'a AttributeValue);

impl Serialize for JsonValueToWrite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttributeValue::Number(number) => serializer.serialize_f64(*number),
            AttributeValue::String(text) => serializer.serialize_str(text),
            AttributeValue::Bool(flag) => serializer.serialize_bool(*flag),
            AttributeValue::StringList(texts) => serializer.collect_seq(texts.iter()),
        }
    }
}

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonValueVisitor).map(Self)
    }
}

struct JsonValueVisitor;

impl<'de> Visitor<'de> for JsonValueVisitor {
    type Value = AttributeValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, a text, a flag or a list of texts")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<AttributeValue, E> {
        Ok(AttributeValue::Number(number))
    }

    // JSON does not tell 5 from 5.0; we write the latter, another writer might not.
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<AttributeValue, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = sequence.next_element::<Box<str>>()? {
            texts.push(text);
        }
        Ok(AttributeValue::string_list(texts))
    }
}
