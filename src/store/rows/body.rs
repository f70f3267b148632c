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

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::advertisement::{Advertisement, AllowedRange, Kind};
use crate::domain::attribute::{Origin, Value};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::locality::Locality;
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;

#[derive(Serialize, Deserialize)]
struct Body {
    h: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<Key>,
    z: Vec<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    p: Vec<(Key, Key, Option<f64>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    g: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l: Option<(f32, f32, f32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    a: Vec<(Box<str>, Mirror)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    r: Vec<(Box<str>, f32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    w: Vec<(Box<str>, Option<f64>, Option<f64>)>,
    #[serde(default, skip_serializing_if = "is_zero")]
    o: u8,
}

/// The text to keep.
pub(super) fn encode(advertisement: &Advertisement) -> String {
    let session = &advertisement.session;
    let body = Body {
        h: advertisement.hash.0,
        s: advertisement.subject.map(Key),
        z: session.party_sizes.clone(),
        p: session.players.iter().map(|it| (Key(it.user), Key(it.player), it.skill)).collect(),
        n: session.nat_type,
        g: session.game_in_progress,
        b: session.big_party_count,
        l: session.locality.map(|it| (it.x, it.y, it.z)),
        a: session.attributes.iter().map(|(name, value)| (name.clone(), Mirror(value.clone()))).collect(),
        r: session.regions.iter().map(|it| (it.region.clone(), it.round_trip_ms)).collect(),
        w: advertisement.allowed.iter().map(|it| (it.attribute.clone(), it.min, it.max)).collect(),
        o: match session.origin {
            Origin::Client => 0,
            Origin::Server => 1,
        },
    };
    // Text keys and finite numbers: there is nothing in it that JSON cannot say. Were there, an empty text would be
    // found corrupt by the next start rather than believed.
    serde_json::to_string(&body).unwrap_or_default()
}

/// The advertisement in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode(text: &str) -> Result<Advertisement, serde_json::Error> {
    let body: Body = serde_json::from_str(text)?;
    let origin = match body.o {
        0 => Origin::Client,
        1 => Origin::Server,
        other => return Err(serde_json::Error::custom(format_args!("{other} is no origin"))),
    };
    let player = |(user, player, skill): (Key, Key, Option<f64>)| Player { user: user.0, player: player.0, skill };
    let session = Session {
        silo: SiloId::default(),
        party_sizes: body.z,
        players: body.p.into_iter().map(player).collect(),
        nat_type: body.n,
        game_in_progress: body.g,
        big_party_count: body.b,
        join_seats: 0,
        locality: body.l.map(|(x, y, z)| Locality { x, y, z }),
        attributes: body.a.into_iter().map(|(name, value)| (name, value.0)).collect(),
        regions: body.r.into_iter().map(|(region, round_trip_ms)| RegionLatency { region, round_trip_ms }).collect(),
        origin,
    };
    let allowed = |(attribute, min, max)| AllowedRange { attribute, min, max };
    Ok(Advertisement {
        id: AdvertisementId::from_bytes([0; 16]),
        set_id: SetId::default(),
        kind: Kind::default(),
        subject: body.s.map(|key| key.0),
        since: UnixMs::default(),
        hash: RulesetHash(body.h),
        session,
        allowed: body.w.into_iter().map(allowed).collect(),
        connect_data: Vec::new(),
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// A user's or player's key as 32 hexadecimal digits.
struct Key(UserKey);

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0.as_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: &str = Deserialize::deserialize(deserializer)?;
        UserKey::parse(text).map(Self).ok_or_else(|| D::Error::custom("a key is not 32 hexadecimal digits"))
    }
}

/// An attribute's value as JSON's own number, text, flag or list of texts.
struct Mirror(Value);

impl Serialize for Mirror {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Value::Number(number) => serializer.serialize_f64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Flag(flag) => serializer.serialize_bool(*flag),
            Value::Texts(texts) => serializer.collect_seq(texts.iter()),
        }
    }
}

impl<'de> Deserialize<'de> for Mirror {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MirrorVisitor).map(Self)
    }
}

struct MirrorVisitor;

impl<'de> Visitor<'de> for MirrorVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, a text, a flag or a list of texts")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    // JSON does not tell 5 from 5.0; we write the latter, another writer might not.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = sequence.next_element::<Box<str>>()? {
            texts.push(text);
        }
        Ok(Value::texts(texts))
    }
}
