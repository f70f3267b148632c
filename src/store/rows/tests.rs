//! Round trips of advertisement rows, and their checksums.

use proptest::prelude::*;

use super::*;
use crate::domain::advertisement::{AllowedRange, ProbeEndpoint};
use crate::domain::attribute::{AttributeValue, ShortString, ValueOrigin};
use crate::domain::id::RulesetHash;
use crate::domain::latency::published_vector::{LeastPathExcess, PublishedFloor, PublishedVector};
use crate::domain::locality::Locality;
use crate::domain::ruleset::probing::LatencyTrust;
use crate::domain::session::{Player, PlayerDetails, RegionLatency, Session, SessionDetails};
use crate::domain::wish::{AcceptedValues, Wish, WishStep};

pub(in crate::store) fn any_user_key() -> impl Strategy<Value = UserKey> {
    any::<[u8; 16]>().prop_map(UserKey::from_bytes)
}

pub(in crate::store) fn finite_number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(-0.0), Just(5.0), Just(0.1), Just(f64::MIN_POSITIVE), -1e12..1e12, -10.0..10.0]
}

pub(in crate::store) fn any_text() -> impl Strategy<Value = Box<str>> {
    prop_oneof!["[a-z]{1,8}", "\\PC{0,8}", Just("\"\\\u{0}\n\u{2028}é😀".to_owned())].prop_map(String::into_boxed_str)
}

/// The same, and some that are too long for the place of a short one.
fn any_short_string() -> impl Strategy<Value = ShortString> {
    prop_oneof![any_text().prop_map(|text| ShortString::from(&*text)), "[a-z]{14,20}".prop_map(ShortString::from)]
}

fn any_attribute_value() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        finite_number().prop_map(AttributeValue::Number),
        any_short_string().prop_map(AttributeValue::String),
        any::<bool>().prop_map(AttributeValue::Bool),
        prop::collection::vec(any_text(), 0..4).prop_map(AttributeValue::from_string_list),
    ]
}

/// Attributes and roles of a player, or none. Empty ones are stored as none.
fn any_player_details() -> impl Strategy<Value = Option<Box<PlayerDetails>>> {
    let attributes = prop::collection::vec((any_short_string(), any_attribute_value()), 0..3);
    (attributes, prop::collection::vec(any_text(), 0..3)).prop_map(|(attributes, wanted_roles)| {
        let is_empty = attributes.is_empty() && wanted_roles.is_empty();
        (!is_empty).then(|| Box::new(PlayerDetails { attributes, wanted_roles }))
    })
}

pub(in crate::store) fn any_session() -> impl Strategy<Value = Session> {
    let skill = prop::option::of(finite_number());
    let player = (any_user_key(), any_user_key(), skill, any::<Option<u16>>(), any_player_details());
    let players = prop::collection::vec(player, 0..4);
    let attributes = prop::collection::vec((any_short_string(), any_attribute_value()), 0..5);
    let latencies = prop::collection::vec((any_text(), 0.0_f32..60_000.0), 0..4);
    let locality = prop::option::of((any::<f32>(), -4000.0_f32..4000.0, -4000.0_f32..4000.0));
    let options = (any::<Option<i32>>(), any::<Option<bool>>(), any::<Option<i32>>(), any::<u16>(), any::<bool>());
    let sizes = prop::collection::vec(any::<u8>(), 0..4);
    (any::<u64>(), sizes, players, attributes, latencies, locality, options, any_details()).prop_map(
        |(
            silo,
            party_sizes,
            players,
            attributes,
            latencies,
            locality,
            (nat_type, game_in_progress, big_party_count, join_seats, is_game_server),
            details,
        )| Session {
            silo: SiloId(silo),
            party_sizes: party_sizes.into(),
            players: players
                .into_iter()
                .map(|(user, client_key, stated_skill, team, details)| Player {
                    user,
                    client_key,
                    stated_skill,
                    team,
                    details,
                })
                .collect(),
            nat_type,
            game_in_progress,
            big_party_count,
            offered_seats: join_seats,
            locality: locality.filter(|(x, _, _)| x.is_finite()).map(|(x, y, z)| Locality { x, y, z }),
            attributes,
            region_latencies: latencies
                .into_iter()
                .map(|(region, ms)| RegionLatency { region, round_trip_ms: ms })
                .collect(),
            value_origin: if is_game_server { ValueOrigin::GameServer } else { ValueOrigin::Client },
            details,
        },
    )
}

fn any_details() -> impl Strategy<Value = Option<Box<SessionDetails>>> {
    let bound = || prop::option::of(finite_number());
    let strings = prop::collection::vec(any_text(), 1..3);
    let accepted = prop_oneof![
        (bound(), bound()).prop_map(|(min, max)| AcceptedValues::Numbers { min, max }),
        strings.prop_map(|strings| AcceptedValues::Strings(strings.into())),
        any::<bool>().prop_map(AcceptedValues::Flag),
    ];
    let wish = (any_text(), any::<bool>(), accepted, 1_u64..1 << 30).prop_map(|(name, missing, accepted, start_ms)| {
        let any = WishStep { start_ms, accepted: AcceptedValues::Any };
        Wish::new(&name, missing, vec![WishStep { start_ms: 0, accepted }, any]).unwrap()
    });
    let wishes = prop::option::of(prop::collection::vec(wish, 1..3));
    wishes.prop_map(|wishes| SessionDetails::from_wishes(wishes.unwrap_or_default()))
}

fn any_advertisement() -> impl Strategy<Value = Advertisement> {
    let columns = (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), prop::option::of(any_user_key()), any::<u32>());
    let allowed_ranges =
        prop::collection::vec((any_text(), prop::option::of(finite_number()), prop::option::of(finite_number())), 0..3);
    let connect_data = prop::collection::vec(any::<u8>(), 0..40);
    let probe = prop::option::of((any::<[u8; 16]>(), 1_u16.., prop::collection::vec(any::<u8>(), 16..33)));
    let vector = prop::option::of((any::<u16>(), any::<u64>()));
    (columns, (0_u64..1 << 60, any::<u32>()), (any_session(), vector), allowed_ranges, (connect_data, probe)).prop_map(
        |(
            (id, set_id, is_game_server, publisher, ruleset_hash),
            (advertised_since_ms, ttl_ms),
            (mut session, vector),
            allowed_ranges,
            (connect_data, probe),
        )| {
            session.set_published_beacon_vector(vector.and_then(|(steps, measured_ms)| {
                let floors = vec![PublishedFloor { beacon_id: 1, steps }];
                PublishedVector::new(
                    floors,
                    UnixMs(measured_ms),
                    LatencyTrust::Observed,
                    LeastPathExcess { near_ms: -1.5, light_ms: 0.25 },
                )
            }));
            Advertisement {
                id: AdvertisementId::from_bytes(id),
                set_id: SetId(set_id),
                kind: if is_game_server { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
                publisher,
                advertised_since: UnixMs(advertised_since_ms),
                ruleset_hash: RulesetHash(ruleset_hash),
                session,
                ttl_ms: NonZeroU32::new(ttl_ms),
                allowed_ranges: allowed_ranges
                    .into_iter()
                    .map(|(attribute, min, max)| AllowedRange { attribute, min, max })
                    .collect(),
                connect_data: connect_data.into(),
                probe: probe.map(|(address, port, key)| Box::new(ProbeEndpoint { address, port, key: key.into() })),
            }
        },
    )
}

proptest! {
    #[test]
    fn advertisement_row_round_trips(advertisement in any_advertisement()) {
        let row = AdvertisementRow::encode(&advertisement, UnixMs(7));
        // `Debug` distinguishes -0.0 from 0.0; `==` does not.
        prop_assert_eq!(format!("{:?}", row.decode().unwrap()), format!("{advertisement:?}"));
    }
}

#[test]
fn advertisement_body_omits_absent_values() {
    let mut advertisement = minimal_advertisement();
    assert_eq!(AdvertisementRow::encode(&advertisement, UnixMs(7)).body, r#"{"h":5,"z":[2]}"#);
    advertisement.session.nat_type = Some(1);
    advertisement.session.attributes = vec![("mode".into(), AttributeValue::String("control".into()))];
    let expected = r#"{"h":5,"z":[2],"n":1,"a":[["mode","control"]]}"#;
    assert_eq!(AdvertisementRow::encode(&advertisement, UnixMs(7)).body, expected);
}

/// R12: a value that only a newer server writes is reported as such, not as corruption.
#[test]
fn advertisement_values_of_a_newer_server_name_the_column() {
    type Change = fn(&mut AdvertisementRow<'_>);
    let cases: [(&str, Change); 5] = [
        ("kind", |row| row.kind = 2),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"zz":{"deep":[1]}}"#.into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"o":9}"#.into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"a":[["mode",{"deep":1}]]}"#.into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"a":[["mode",null]]}"#.into()),
    ];
    for (expected, change) in cases {
        let advertisement = minimal_advertisement();
        let mut row = AdvertisementRow::encode(&advertisement, UnixMs(7));
        change(&mut row);
        match row.decode() {
            Err(StoreError::UnknownRow { table: "advertisement", column, .. }) => assert_eq!(column, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn advertisement_row_corruption_names_the_column() {
    type Corruption = fn(&mut AdvertisementRow<'_>);
    let cases: [(&str, Corruption); 4] = [
        ("set_id", |row| row.set_id = -1),
        ("join_seats", |row| row.join_seats = 70_000),
        ("body", |row| row.body = "{".into()),
        ("body", |row| row.body = r#"{"h":5,"z":[2],"s":"short"}"#.into()),
    ];
    for (expected, corrupt) in cases {
        let advertisement = minimal_advertisement();
        let mut row = AdvertisementRow::encode(&advertisement, UnixMs(7));
        corrupt(&mut row);
        match row.decode() {
            Err(StoreError::CorruptRow { table: "advertisement", column, .. }) => assert_eq!(column, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// R16: the checksum covers every column and the boundaries between columns.
#[test]
fn advertisement_checksum_covers_every_column() {
    type Corruption = fn(&mut AdvertisementRow<'_>);
    let cases: [Corruption; 10] = [
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
    let advertisement = minimal_advertisement();
    let original = AdvertisementRow::encode(&advertisement, UnixMs(7));
    for (index, corrupt) in cases.into_iter().enumerate() {
        let mut row = original.clone();
        corrupt(&mut row);
        assert_ne!(row.checksum(), original.checksum(), "case {index}");
    }
}

fn minimal_advertisement() -> Advertisement {
    Advertisement {
        id: AdvertisementId::from_bytes([1; 16]),
        set_id: SetId(3),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(100),
        ruleset_hash: RulesetHash(5),
        session: Session { party_sizes: [2].into(), offered_seats: 4, ..Session::default() },
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: Box::default(),
        probe: None,
    }
}
