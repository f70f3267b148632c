//! What goes into a row comes out of it, to the last bit.

use proptest::prelude::*;

use super::*;
use crate::domain::advertisement::AllowedRange;
use crate::domain::attribute::{AttributeValue, ValueOrigin};
use crate::domain::id::RulesetHash;
use crate::domain::locality::Locality;
use crate::domain::session::{Player, RegionLatency, Session};

pub(super) fn key() -> impl Strategy<Value = UserKey> {
    any::<[u8; 16]>().prop_map(UserKey::from_bytes)
}

pub(super) fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(-0.0), Just(5.0), Just(0.1), Just(f64::MIN_POSITIVE), -1e12..1e12, -10.0..10.0]
}

pub(super) fn text() -> impl Strategy<Value = Box<str>> {
    prop_oneof!["[a-z]{1,8}", "\\PC{0,8}", Just("\"\\\u{0}\n\u{2028}é😀".to_owned())].prop_map(String::into_boxed_str)
}

fn value() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        number().prop_map(AttributeValue::Number),
        text().prop_map(AttributeValue::String),
        any::<bool>().prop_map(AttributeValue::Bool),
        prop::collection::vec(text(), 0..4).prop_map(AttributeValue::string_list),
    ]
}

pub(super) fn session() -> impl Strategy<Value = Session> {
    let players = prop::collection::vec((key(), key(), prop::option::of(number())), 0..4);
    let attributes = prop::collection::vec((text(), value()), 0..5);
    let regions = prop::collection::vec((text(), 0.0_f32..60_000.0), 0..4);
    let locality = prop::option::of((any::<f32>(), -4000.0_f32..4000.0, -4000.0_f32..4000.0));
    let small = (any::<Option<i32>>(), any::<Option<bool>>(), any::<Option<i32>>(), any::<u16>(), any::<bool>());
    let sizes = prop::collection::vec(any::<u8>(), 0..4);
    (any::<u64>(), sizes, players, attributes, regions, locality, small).prop_map(
        |(silo, party_sizes, players, attributes, regions, locality, (nat, game, big, seats, server))| Session {
            silo: SiloId(silo),
            party_sizes,
            players: players
                .into_iter()
                .map(|(user, player, skill)| Player { user, client_key: player, stated_skill: skill })
                .collect(),
            nat_type: nat,
            game_in_progress: game,
            big_party_count: big,
            join_seats: seats,
            locality: locality.filter(|(x, _, _)| x.is_finite()).map(|(x, y, z)| Locality { x, y, z }),
            attributes,
            region_latencies: regions
                .into_iter()
                .map(|(region, ms)| RegionLatency { region, round_trip_ms: ms })
                .collect(),
            origin: if server { ValueOrigin::GameServer } else { ValueOrigin::Client },
        },
    )
}

fn advertisement() -> impl Strategy<Value = Advertisement> {
    let names = (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), prop::option::of(key()), any::<u32>());
    let allowed = prop::collection::vec((text(), prop::option::of(number()), prop::option::of(number())), 0..3);
    let connect_data = prop::collection::vec(any::<u8>(), 0..40);
    (names, 0_u64..1 << 60, session(), allowed, connect_data).prop_map(
        |((id, set, server, subject, hash), since, session, allowed, connect_data)| Advertisement {
            id: AdvertisementId::from_bytes(id),
            set_id: SetId(set),
            kind: if server { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
            publisher: subject,
            advertised_since: UnixMs(since),
            ruleset_hash: RulesetHash(hash),
            session,
            allowed_ranges: allowed
                .into_iter()
                .map(|(attribute, min, max)| AllowedRange { attribute, min, max })
                .collect(),
            connect_data,
        },
    )
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(advertisement in advertisement()) {
        let row = AdvertisementRow::encode(&advertisement, UnixMs(7));
        // `Debug` tells -0.0 from 0.0, which `==` does not.
        prop_assert_eq!(format!("{:?}", row.decode().unwrap()), format!("{advertisement:?}"));
    }
}

#[test]
fn a_body_is_short_and_readable() {
    let mut advertisement = plain();
    assert_eq!(AdvertisementRow::encode(&advertisement, UnixMs(7)).body, r#"{"h":5,"z":[2]}"#);
    advertisement.session.nat_type = Some(1);
    advertisement.session.attributes = vec![("mode".into(), AttributeValue::String("control".into()))];
    let expected = r#"{"h":5,"z":[2],"n":1,"a":[["mode","control"]]}"#;
    assert_eq!(AdvertisementRow::encode(&advertisement, UnixMs(7)).body, expected);
}

/// A server that goes back a version reads what the newer one wrote.
#[test]
fn keys_that_are_not_known_are_passed_over() {
    let plain = plain();
    let mut row = AdvertisementRow::encode(&plain, UnixMs(7));
    row.body = r#"{"h":5,"z":[2],"zz":{"deep":[1]}}"#.into();
    assert_eq!(row.decode().unwrap(), plain);
}

#[test]
fn a_corrupt_column_is_named() {
    type Spoil = fn(&mut AdvertisementRow<'_>);
    let cases: [(&str, Spoil); 6] = [
        ("kind", |row| row.kind = 2),
        ("set_id", |row| row.set_id = -1),
        ("join_seats", |row| row.join_seats = 70_000),
        ("body", |row| row.body = "{".into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"o":9}"#.into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"s":"short"}"#.into()),
    ];
    for (expected, spoil) in cases {
        let plain = plain();
        let mut row = AdvertisementRow::encode(&plain, UnixMs(7));
        spoil(&mut row);
        match row.decode() {
            Err(StoreError::CorruptRow { table: "advertisement", column, .. }) => assert_eq!(column, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// R16: every column is under the checksum, and columns do not run into each other.
#[test]
fn every_column_counts_for_the_checksum() {
    type Spoil = fn(&mut AdvertisementRow<'_>);
    let cases: [Spoil; 10] = [
        |row| row.id[3] ^= 1,
        |row| row.silo_id += 1,
        |row| row.set_id += 1,
        |row| row.kind += 1,
        |row| row.since_ms += 1,
        |row| row.expires_ms += 1,
        |row| row.join_seats += 1,
        |row| row.body.to_mut().push(' '),
        |row| row.connect_data.to_mut().push(0),
        |row| row.connect_data = row.body.to_mut().pop().into_iter().map(|digit| digit as u8).collect(),
    ];
    let plain = plain();
    let sound = AdvertisementRow::encode(&plain, UnixMs(7));
    for (index, spoil) in cases.into_iter().enumerate() {
        let mut row = sound.clone();
        spoil(&mut row);
        assert_ne!(row.checksum(), sound.checksum(), "case {index}");
    }
}

fn plain() -> Advertisement {
    Advertisement {
        id: AdvertisementId::from_bytes([1; 16]),
        set_id: SetId(3),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(100),
        ruleset_hash: RulesetHash(5),
        session: Session { party_sizes: vec![2], join_seats: 4, ..Session::default() },
        allowed_ranges: Vec::new(),
        connect_data: Vec::new(),
    }
}
