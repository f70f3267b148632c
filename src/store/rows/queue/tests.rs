//! What goes into a ticket's or match's row comes out of it, to the last bit.

use proptest::prelude::*;

use super::*;
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash, UserKey};
use crate::domain::lifecycle::{Assignment, MatchEndReason, MatchPlayer, MatchStage, MatchTicket};
use crate::domain::match_result::SatisfactionStats;
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::session::Session;
use crate::store::queues::RatingRow;
use crate::store::rows::queue_checksums::rating_checksum;
use crate::store::rows::tests::{key, number, session, text};

/// Numbers, and one that JSON has no word for.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => number(), 4 => any::<u32>().prop_map(|n| 1.0 / f64::from(n.max(1))), 1 => Just(f64::NAN)]
}

fn moment() -> impl Strategy<Value = UnixMs> {
    (0_u64..1 << 60).prop_map(UnixMs)
}

fn ticket() -> impl Strategy<Value = Ticket> {
    let rated = (any_number(), any_number()).prop_map(|(rating, deviation)| PlayerRating { rating, deviation });
    let names = (any::<[u8; 16]>(), any::<u32>(), prop::option::of(key()), moment());
    let lists = (prop::collection::vec(rated, 0..4), prop::collection::vec(key(), 0..4));
    (names, session(), lists, any::<bool>()).prop_map(
        |((id, set, subject, entered), session, (ratings, blocked), alone)| Ticket {
            id: TicketId::from_bytes(id),
            set_id: SetId(set),
            subject,
            entered_at: entered,
            session,
            player_ratings: ratings,
            blocked_users: blocked,
            exclusive: alone,
        },
    )
}

fn state() -> impl Strategy<Value = TicketState> {
    let id = any::<[u8; 16]>().prop_map(MatchId::from_bytes);
    let ending = prop::sample::select(TICKET_END_REASONS.to_vec());
    prop_oneof![
        Just(TicketState::Waiting),
        id.clone().prop_map(TicketState::InMatch),
        (ending, prop::option::of(id), moment()).prop_map(|(how, by, forget_at)| TicketState::Ended {
            end_reason: how,
            match_id: by,
            purge_at: forget_at
        }),
    ]
}

fn stage() -> impl Strategy<Value = MatchStage> {
    let server = (any::<[u8; 16]>(), any::<[u8; 16]>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
        |(advertisement, reservation, connect_data)| Assignment::GameServer {
            advertisement: AdvertisementId::from_bytes(advertisement),
            reservation: ReservationId::from_bytes(reservation),
            connect_data,
        },
    );
    let place = prop_oneof![server, key().prop_map(|host| Assignment::PeerHost { host }), Just(Assignment::Unhosted)];
    let outcomes = [
        MatchEndReason::Played,
        MatchEndReason::TimedOut,
        MatchEndReason::Declined,
        MatchEndReason::NotAcceptedInTime,
        MatchEndReason::NoServer,
        MatchEndReason::ServerFailed,
        MatchEndReason::Cancelled,
    ];
    prop_oneof![
        moment().prop_map(|deadline| MatchStage::ReadyCheck { deadline }),
        moment().prop_map(|deadline| MatchStage::Placing { deadline }),
        (place.clone(), moment(), moment()).prop_map(|(place, began, until)| MatchStage::Playing {
            assignment: place,
            started_at: began,
            times_out_at: until
        }),
        (prop::sample::select(outcomes.to_vec()), prop::option::of(moment()), prop::option::of(place), moment())
            .prop_map(|(outcome, began, place, forget_at)| MatchStage::Ended {
                end_reason: outcome,
                began,
                place,
                purge_at: forget_at
            }),
    ]
}

fn play() -> impl Strategy<Value = Match> {
    let seat = (key(), key(), any::<Option<u16>>(), any::<Option<bool>>())
        .prop_map(|(user, player, role, answer)| MatchPlayer { user, client: player, role, accepted: answer });
    let member = (any::<[u8; 16]>(), moment(), any::<u16>(), prop::collection::vec(seat, 0..3)).prop_map(
        |(ticket, entered, team, players)| MatchTicket {
            ticket_id: TicketId::from_bytes(ticket),
            entered_at: entered,
            team,
            players,
        },
    );
    let names = (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<u32>(), moment(), any::<u64>());
    let rest = (any_number(), prop::option::of(text()), any::<Option<[u8; 16]>>());
    (names, stage(), prop::collection::vec(member, 0..4), rest).prop_map(
        |((id, set, silo, hash, proposed, edition), stage, members, (quality, region, backfills))| Match {
            id: MatchId::from_bytes(id),
            set_id: SetId(set),
            silo: SiloId(silo),
            ruleset_hash: RulesetHash(hash),
            proposed_at: proposed,
            version: edition,
            stage,
            tickets: members,
            quality,
            region,
            backfilled_session: backfills.map(AdvertisementId::from_bytes),
        },
    )
}

proptest! {
    /// `Debug` tells -0.0 from 0.0, and what is no number from itself, which `==` does not.
    #[test]
    fn a_ticket_that_goes_in_comes_out(ticket in ticket(), state in state(), expires in moment(), edition: u64) {
        let payload = *ticket.id.as_bytes();
        let stored = StoredTicket { ticket: Arc::new(ticket), state, expires_at: expires, version: edition, request_digest: payload };
        let read = TicketRow::encode(&stored.ticket, stored.request_digest).decode(TicketStateRow::encode(&stored)).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{stored:?}"));
    }

    #[test]
    fn a_match_that_goes_in_comes_out(play in play()) {
        let read = MatchRow::encode(&play).decode().unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{play:?}"));
    }
}

fn plain_ticket() -> Ticket {
    Ticket {
        id: TicketId::from_bytes([1; 16]),
        set_id: SetId(3),
        subject: None,
        entered_at: UnixMs(100),
        session: Session { party_sizes: vec![2], ..Session::default() },
        player_ratings: vec![PlayerRating { rating: 1500.5, deviation: 0.1 }],
        blocked_users: vec![],
        exclusive: true,
    }
}

fn plain_match() -> Match {
    let user = UserKey::from_bytes([0xab; 16]);
    Match {
        id: MatchId::from_bytes([2; 16]),
        set_id: SetId(3),
        silo: SiloId(4),
        ruleset_hash: RulesetHash(5),
        proposed_at: UnixMs(6),
        version: 7,
        stage: MatchStage::ReadyCheck { deadline: UnixMs(8) },
        tickets: vec![MatchTicket {
            ticket_id: TicketId::from_bytes([1; 16]),
            entered_at: UnixMs(100),
            team: 0,
            players: vec![MatchPlayer { user, client: user, role: None, accepted: Some(true) }],
        }],
        quality: 0.5,
        region: None,
        backfilled_session: None,
    }
}

#[test]
fn bodies_are_short_and_readable() {
    let ticket = TicketRow::encode(&plain_ticket(), [0; 16]);
    assert_eq!(ticket.body, r#"{"q":{"z":[2]},"t":[[1500.5,0.1]],"a":true}"#);
    let (one, ab) = ("01".repeat(16), "ab".repeat(16));
    let expected = format!(r#"{{"h":5,"m":[["{one}",100,0,[["{ab}","{ab}",null,true]]]],"q":0.5,"d":8}}"#);
    assert_eq!(MatchRow::encode(&plain_match()).body, expected);
}

/// A server that goes back a version reads what the newer one wrote.
#[test]
fn keys_of_queues_that_are_not_known_are_passed_over() {
    let plain = plain_match();
    let mut row = MatchRow::encode(&plain);
    row.body.to_mut().insert_str(1, r#""zz":{"deep":[1]},"#);
    assert_eq!(*row.decode().unwrap(), plain);
}

/// R16: what cannot be names its table and column.
#[test]
fn a_corrupt_column_of_queues_is_named() {
    let column = |refused: Result<StoreError, String>| match refused.unwrap() {
        StoreError::CorruptRow { table, column, .. } => (table, column),
        other => panic!("{other}"),
    };
    type Spoil = fn(&mut TicketRow<'static>, &mut TicketStateRow);
    let spoils: [(&str, Spoil); 6] = [
        ("set_id", |row, _| row.set_id = -1),
        ("body", |row, _| row.body = "{".into()),
        ("body", |row, _| row.body = r#"{"q":{"z":[2],"o":7}}"#.into()),
        ("state", |_, standing| standing.state = 1),
        ("ending", |_, standing| (standing.state, standing.forget_at_ms) = (2, Some(1))),
        ("forget_at_ms", |_, standing| (standing.state, standing.ending) = (2, Some(0))),
    ];
    for (expected, spoil) in spoils {
        let mut row = TicketRow::encode(&plain_ticket(), [0; 16]);
        let mut standing =
            TicketStateRow { state: 0, match_id: None, ending: None, expires_ms: 0, forget_at_ms: None, version: 1 };
        spoil(&mut row, &mut standing);
        assert_eq!(column(row.decode(standing).map_or_else(Ok, |it| Err(format!("{it:?}")))), ("ticket", expected));
    }
    for body in [r#"{"h":5}"#, r#"{"h":5,"d":1,"m":[["short",1,0,[]]]}"#] {
        let mut row = MatchRow::encode(&plain_match());
        row.body = body.into();
        assert_eq!(column(row.decode().map_or_else(Ok, |it| Err(format!("{it:?}")))), ("match", "body"));
    }
    let over = MatchRow { stage: 3, ..MatchRow::encode(&plain_match()) };
    assert_eq!(column(over.decode().map_or_else(Ok, |it| Err(format!("{it:?}")))), ("match", "body"));
}

/// R16: every column is under a checksum, and columns do not run into each other.
#[test]
fn every_column_of_queues_counts_for_a_checksum() {
    let ticket = TicketRow::encode(&plain_ticket(), [0; 16]);
    let spoils: [fn(&mut TicketRow<'static>); 6] = [
        |row| row.id[3] ^= 1,
        |row| row.silo_id += 1,
        |row| row.set_id += 1,
        |row| row.entered_ms += 1,
        |row| row.payload[3] ^= 1,
        |row| row.body.to_mut().push(' '),
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut row = ticket.clone();
        spoil(&mut row);
        assert_ne!(row.checksum(), ticket.checksum(), "ticket {index}");
    }
    let standing = TicketStateRow {
        state: 2,
        match_id: Some([1; 16]),
        ending: Some(0),
        expires_ms: 5,
        forget_at_ms: Some(6),
        version: 7,
    };
    let spoils: [fn(&mut TicketStateRow); 8] = [
        |row| row.state -= 1,
        |row| row.match_id = None,
        |row| row.match_id = Some([2; 16]),
        |row| row.ending = None,
        |row| row.expires_ms += 1,
        |row| row.forget_at_ms = Some(0),
        |row| row.version += 1,
        |row| (row.ending, row.forget_at_ms) = (row.forget_at_ms, row.ending),
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut row = standing;
        spoil(&mut row);
        assert_ne!(row.checksum(&[9; 16]), standing.checksum(&[9; 16]), "standing {index}");
    }
    assert_ne!(standing.checksum(&[8; 16]), standing.checksum(&[9; 16]), "it is of one ticket");
    let play = MatchRow::encode(&plain_match());
    let spoils: [fn(&mut MatchRow<'static>); 8] = [
        |row| row.id[3] ^= 1,
        |row| row.silo_id += 1,
        |row| row.set_id += 1,
        |row| row.proposed_ms += 1,
        |row| row.version += 1,
        |row| row.stage += 1,
        |row| row.forget_at_ms = Some(0),
        |row| row.body.to_mut().push(' '),
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut row = play.clone();
        spoil(&mut row);
        assert_ne!(row.checksum(), play.checksum(), "match {index}");
    }
    let rating = |rating| RatingRow {
        user: UserKey::from_bytes([1; 16]),
        set_id: SetId(1),
        rating: PlayerRating { rating, deviation: 0.0 },
        volatility: 0.0,
        match_count: 1,
        last_match_at: UnixMs(1),
        streak: 0,
        satisfaction: SatisfactionStats::default(),
        periods_played: 0,
    };
    assert_ne!(rating_checksum(&rating(0.1)), rating_checksum(&rating(0.1 + f64::EPSILON / 8.0)));
    assert_eq!(rating_checksum(&rating(0.0)), rating_checksum(&rating(-0.0)), "as the file keeps it");
}
