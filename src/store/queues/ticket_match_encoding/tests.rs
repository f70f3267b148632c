//! Round trips of ticket and match rows, and their checksums.

use proptest::prelude::*;

use super::*;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{AdvertisementId, RatingKey, ReservationId, RulesetHash, UserKey};
use crate::domain::latency::published_vector::{LeastPathExcess, PublishedFloor, PublishedVector};
use crate::domain::latency::round_trip_estimate::{EstimateSource, RoundTripEstimate};
use crate::domain::latency::worst_pair::WorstPair;
use crate::domain::lifecycle::session_start::SessionMatchStartByHost;
use crate::domain::lifecycle::side_reports::{PlayerReport, PlayerResultClaim, SideReports, SideReportsOutcome};
use crate::domain::lifecycle::{
    Assignment, KeptSkillOfErasedUser, MatchEndReason, MatchPlayer, MatchStage, MatchTicket,
};
use crate::domain::match_result::UserSatisfactionStatistics;
use crate::domain::queue::seat_vectors::SeatIndex;
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::rating::Skill;
use crate::domain::ruleset::probing::LatencyTrust;
use crate::domain::session::Session;
use crate::store::queues::RatingRow;
use crate::store::queues::row_checksums::rating_checksum;
use crate::store::rows::tests::{any_session, any_text, any_user_key, finite_number};

/// Numbers, including NaN, which JSON cannot represent.
fn number_or_nan() -> impl Strategy<Value = f64> {
    prop_oneof![8 => finite_number(), 4 => any::<u32>().prop_map(|n| 1.0 / f64::from(n.max(1))), 1 => Just(f64::NAN)]
}

fn any_time() -> impl Strategy<Value = UnixMs> {
    (0_u64..1 << 60).prop_map(UnixMs)
}

fn any_ticket() -> impl Strategy<Value = Ticket> {
    let player_rating =
        (number_or_nan(), number_or_nan()).prop_map(|(rating, deviation)| PlayerRating { rating, deviation });
    let columns = (any::<[u8; 16]>(), any::<u32>(), prop::option::of(any_user_key()), any_time());
    let users = || prop::collection::vec(any_user_key(), 0..4);
    let lists = (prop::collection::vec(player_rating, 0..4), users(), users());
    let rating_key = prop::option::of(any::<u64>().prop_map(RatingKey::of_pool_and_scale_digest));
    (columns, any_session(), lists, rating_key, any::<(bool, bool)>()).prop_map(
        |(
            (id, set_id, subject, entered_at),
            session,
            (player_ratings, blocked_users, self_answering),
            key,
            (exclusive, coarse),
        )| {
            Ticket {
                exact_round_trips_ms: coarse.then(|| {
                    session.region_latencies.iter().map(|latency| (latency.round_trip_ms + 3.5).min(60_000.0)).collect()
                }),
                id: TicketId::from_bytes(id),
                set_id: SetId(set_id),
                subject,
                entered_at,
                session,
                player_ratings,
                rating_digest_key: key,
                blocked_users,
                excludes_other_tickets: exclusive,
                self_answering_users: self_answering,
            }
        },
    )
}

fn any_ticket_state() -> impl Strategy<Value = TicketState> {
    let id = any::<[u8; 16]>().prop_map(MatchId::from_bytes);
    let end_reason = prop::sample::select(TICKET_END_REASONS.to_vec());
    prop_oneof![
        Just(TicketState::Waiting),
        id.clone().prop_map(TicketState::InMatch),
        (end_reason, prop::option::of(id), any_time())
            .prop_map(|(end_reason, match_id, purge_at)| TicketState::Ended { end_reason, match_id, purge_at }),
    ]
}

fn any_stage() -> impl Strategy<Value = MatchStage> {
    let game_server = (any::<[u8; 16]>(), any::<Option<[u8; 16]>>(), prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(advertisement, reservation, connect_data)| Assignment::GameServer {
            advertisement: AdvertisementId::from_bytes(advertisement),
            reservation: reservation.map(ReservationId::from_bytes),
            connect_data,
        });
    let hosted = prop_oneof![game_server.clone(), any_user_key().prop_map(|host| Assignment::PeerHost { host })];
    let assignment = prop_oneof![
        game_server,
        any_user_key().prop_map(|host| Assignment::PeerHost { host }),
        Just(Assignment::Unhosted)
    ];
    let end_reasons = [
        MatchEndReason::Played,
        MatchEndReason::TimedOut,
        MatchEndReason::Declined,
        MatchEndReason::NotAcceptedInTime,
        MatchEndReason::NoServer,
        MatchEndReason::ServerFailed,
        MatchEndReason::Cancelled,
        MatchEndReason::HostLost,
        MatchEndReason::Abandoned,
    ];
    prop_oneof![
        any_time().prop_map(|deadline| MatchStage::ReadyCheck { deadline }),
        any_time().prop_map(|deadline| MatchStage::Placing { deadline }),
        (hosted, any_time(), any_time()).prop_map(|(assignment, confirm_by, deadline)| MatchStage::Confirming {
            assignment,
            confirm_by,
            deadline
        }),
        (assignment.clone(), any_time(), any_time(), prop::option::of(any_time())).prop_map(
            |(assignment, started_at, times_out_at, host_lost_at)| MatchStage::Playing {
                assignment,
                started_at,
                times_out_at,
                host_lost_at
            }
        ),
        (
            prop::sample::select(end_reasons.to_vec()),
            prop::option::of(any_time()),
            prop::option::of(assignment),
            any_time()
        )
            .prop_map(|(end_reason, started_at, assignment, purge_at)| MatchStage::Ended {
                end_reason,
                started_at,
                assignment,
                purge_at
            }),
    ]
}

fn any_match() -> impl Strategy<Value = Match> {
    let left_at = prop::option::of(any_time());
    let match_player = (any_user_key(), any_user_key(), any::<Option<u16>>(), any::<Option<bool>>(), left_at)
        .prop_map(|(user, client, role, accepted, left_at)| MatchPlayer { user, client, role, accepted, left_at });
    let match_ticket = (any::<[u8; 16]>(), any_time(), any::<u16>(), prop::collection::vec(match_player, 0..3))
        .prop_map(|(ticket, entered_at, team, players)| MatchTicket {
            ticket_id: TicketId::from_bytes(ticket),
            entered_at,
            team,
            players,
        });
    let columns = (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<u32>(), any_time(), any::<u64>());
    let unconfirmed_servers = prop::collection::vec(any::<[u8; 16]>().prop_map(AdvertisementId::from_bytes), 0..3);
    let erased_skills = prop::collection::vec(any_erased_skill(), 0..3);
    let servers_and_reports = (unconfirmed_servers, any_side_reports(), erased_skills, any_session_start());
    let numbers = (number_or_nan(), any_worst_pair());
    let rest = (numbers, prop::option::of(any_text()), any::<Option<[u8; 16]>>(), servers_and_reports);
    (columns, any_stage(), prop::collection::vec(match_ticket, 0..4), rest).prop_map(
        |(
            (id, set_id, silo, ruleset_hash, proposed_at, version),
            stage,
            tickets,
            (
                (quality, worst_pair),
                region,
                backfilled_session,
                (unconfirmed_servers, side_reports, erased_skills, session_start),
            ),
        )| Match {
            id: MatchId::from_bytes(id),
            set_id: SetId(set_id),
            silo: SiloId(silo),
            ruleset_hash: RulesetHash(ruleset_hash),
            proposed_at,
            version,
            stage,
            tickets,
            quality,
            region,
            backfilled_session: backfilled_session.map(AdvertisementId::from_bytes),
            chosen_values: [ChosenValue { attribute: "maps".into(), value: "bay".into() }].into(),
            bots_by_team: [0, 3].into(),
            worst_pair,
            session_match_start_by_host: session_start,
            servers_that_did_not_confirm: unconfirmed_servers,
            side_reports,
            kept_skills_of_erased_users: erased_skills,
        },
    )
}

fn any_worst_pair() -> impl Strategy<Value = Option<WorstPair>> {
    let sources = [EstimateSource::Predicted, EstimateSource::Region, EstimateSource::Distance];
    let ms = || 0.0..20_000.0_f64;
    let estimate = (ms(), [ms(), ms()], prop::sample::select(sources.to_vec()))
        .prop_map(|(round_trip_ms, interval_ms, source)| RoundTripEstimate { round_trip_ms, interval_ms, source });
    let pair = (any::<[u16; 2]>(), prop::option::of(estimate));
    prop::option::of(pair.prop_map(|(parties, estimate)| WorstPair { party_indices: parties, estimate }))
}

fn any_session_start() -> impl Strategy<Value = Option<SessionMatchStartByHost>> {
    let reservation = any::<Option<[u8; 16]>>().prop_map(|id| id.map(ReservationId::from_bytes));
    let start = (any::<[u8; 16]>(), prop::collection::vec(reservation, 0..4), any::<[u8; 16]>());
    prop::option::of(start.prop_map(|(advertisement, reservations, request_digest)| SessionMatchStartByHost {
        advertisement: AdvertisementId::from_bytes(advertisement),
        reservations,
        request_digest,
    }))
}

fn any_erased_skill() -> impl Strategy<Value = KeptSkillOfErasedUser> {
    let numbers = [(); 3].map(|()| -1e9..1e9_f64);
    let counts = (any::<u32>(), prop::option::of(any_time()), any::<i32>(), any::<u32>());
    let key = prop_oneof![
        any::<u32>().prop_map(|set_id| RatingKey::of_set_on_first_scale(SetId(set_id))),
        any::<u64>().prop_map(RatingKey::of_pool_and_scale_digest)
    ];
    (any_user_key(), key, numbers, counts).prop_map(
        |(user, rating_key, [rating, deviation, volatility], (match_count, last_match_at, streak, active_periods))| {
            let estimate = PlayerRating { rating, deviation };
            let skill = Skill {
                estimate,
                volatility,
                match_count,
                last_match_at,
                streak,
                last_match_active_period: active_periods,
            };
            KeptSkillOfErasedUser { user, rating_key, skill }
        },
    )
}

fn any_side_reports() -> impl Strategy<Value = SideReports> {
    let user = || any::<[u8; 16]>().prop_map(UserKey::from_bytes);
    let claim = (prop::collection::vec(any::<u32>(), 0..4), prop::collection::vec(user(), 0..3), any::<Option<u64>>());
    let report = (user(), claim).prop_map(|(user, (ranks, disconnected, duration_ms))| PlayerReport {
        user,
        claim: PlayerResultClaim { ranks, disconnected, duration_ms },
    });
    let outcomes = [
        SideReportsOutcome::Settled,
        SideReportsOutcome::Held,
        SideReportsOutcome::Disputed,
        SideReportsOutcome::Unreported,
    ];
    let heard = prop::collection::vec(any::<[u8; 16]>().prop_map(TicketId::from_bytes), 0..3);
    let outcome = prop::option::of(prop::sample::select(outcomes.to_vec()));
    (prop::collection::vec(report, 0..4), heard, prop::option::of(any_time()), outcome).prop_map(
        |(reports, heard_tickets, window_ends_at, outcome)| SideReports {
            reports,
            heard_tickets,
            window_ends_at,
            outcome,
        },
    )
}

proptest! {
    /// `Debug` distinguishes -0.0 from 0.0 and shows NaN; `==` does neither.
    #[test]
    fn ticket_row_round_trips(
        ticket in any_ticket(),
        state in any_ticket_state(),
        expires_at in any_time(),
        version: u64,
        acknowledged: u64,
        steps in prop::collection::vec(0..9_u16, 0..3),
    ) {
        let vector = |(seat, steps): (u8, u16)| {
            let floors = vec![PublishedFloor { beacon_id: 7, steps }];
            let excess = LeastPathExcess { near_ms: 1.5, light_ms: 2.5 };
            (SeatIndex(seat), PublishedVector::new(floors, UnixMs(1), LatencyTrust::Observed, excess).unwrap())
        };
        let seat_vectors = SeatBeaconVectors::new((0..).zip(steps).map(vector));
        let request_digest = *ticket.id.as_bytes();
        let stored = StoredTicket { ticket: Arc::new(ticket), state, expires_at, version, request_digest, ready_check_delivered_mask: acknowledged, seat_vectors };
        let row = TicketConstantColumns::encode(&stored.ticket, stored.request_digest);
        let decoded = row.decode(TicketStateColumns::encode(&stored)).unwrap();
        prop_assert_eq!(format!("{decoded:?}"), format!("{stored:?}"));
    }

    #[test]
    fn match_row_round_trips(sample in any_match()) {
        let decoded = MatchRow::encode(&sample).decode().unwrap();
        prop_assert_eq!(format!("{decoded:?}"), format!("{sample:?}"));
    }
}

fn sample_ticket() -> Ticket {
    Ticket {
        id: TicketId::from_bytes([1; 16]),
        set_id: SetId(3),
        subject: None,
        entered_at: UnixMs(100),
        session: Session { party_sizes: [2].into(), ..Session::default() },
        player_ratings: vec![PlayerRating { rating: 1500.5, deviation: 0.1 }],
        exact_round_trips_ms: None,
        blocked_users: vec![],
        rating_digest_key: None,
        excludes_other_tickets: true,
        self_answering_users: Vec::new(),
    }
}

/// Rows of the sample ticket, which waits.
fn waiting_ticket_rows() -> (TicketConstantColumns<'static>, TicketStateColumns) {
    let state_row = TicketStateColumns {
        state: 0,
        match_id: None,
        end_reason: None,
        expires_ms: 0,
        purge_at_ms: None,
        version: 1,
        acknowledged: 0,
        seat_vectors: None,
    };
    (TicketConstantColumns::encode(&sample_ticket(), [0; 16]), state_row)
}

fn sample_match() -> Match {
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
            players: vec![MatchPlayer { user, client: user, role: None, accepted: Some(true), left_at: None }],
        }],
        quality: 0.5,
        region: None,
        backfilled_session: None,
        chosen_values: Box::default(),
        bots_by_team: Box::default(),
        worst_pair: None,
        session_match_start_by_host: None,
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    }
}

#[test]
fn queue_bodies_omit_absent_values() {
    let ticket = TicketConstantColumns::encode(&sample_ticket(), [0; 16]);
    assert_eq!(ticket.body, r#"{"q":{"z":[2]},"t":[[1500.5,0.1]],"a":true}"#);
    let on_digest_key = Ticket { rating_digest_key: Some(RatingKey::of_pool_and_scale_digest(5)), ..sample_ticket() };
    let body = TicketConstantColumns::encode(&on_digest_key, [0; 16]).body.into_owned();
    assert_eq!(body, r#"{"q":{"z":[2]},"t":[[1500.5,0.1]],"k":-9223372036854775803,"a":true}"#);
    let (one, ab) = ("01".repeat(16), "ab".repeat(16));
    let expected = format!(r#"{{"h":5,"m":[["{one}",100,0,[["{ab}","{ab}",null,true]]]],"q":0.5,"d":8}}"#);
    assert_eq!(MatchRow::encode(&sample_match()).body, expected);
}

/// R12: a value that only a newer server writes is reported as such, not as corruption.
#[test]
fn queue_values_of_a_newer_server_name_the_column() {
    type TicketChange = fn(&mut TicketConstantColumns<'static>, &mut TicketStateColumns);
    let changes: [(&str, TicketChange); 4] = [
        ("body", |row, _| row.body = r#"{"q":{"z":[2],"o":7}}"#.into()),
        ("body", |row, _| row.body = r#"{"q":{"z":[2]},"zz":1}"#.into()),
        ("state", |_, state_row| state_row.state = 99),
        ("end_reason", |_, state_row| {
            (state_row.state, state_row.end_reason, state_row.purge_at_ms) = (2, Some(99), Some(1));
        }),
    ];
    for (expected, change) in changes {
        let (mut row, mut state_row) = waiting_ticket_rows();
        change(&mut row, &mut state_row);
        match row.decode(state_row) {
            Err(StoreError::UnknownRow { table: "ticket", column, .. }) => assert_eq!(column, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    type MatchChange = fn(&mut MatchRow<'static>);
    let changes: [(&str, MatchChange); 3] = [
        ("stage", |row| row.stage = 99),
        ("body", |row| row.body.to_mut().insert_str(1, r#""zz":{"deep":[1]},"#)),
        ("body", |row| {
            (row.stage, row.purge_at_ms) = (3, Some(1));
            row.body.to_mut().insert_str(1, r#""o":99,"#);
        }),
    ];
    for (expected, change) in changes {
        let mut row = MatchRow::encode(&sample_match());
        change(&mut row);
        match row.decode() {
            Err(StoreError::UnknownRow { table: "match", column, .. }) => assert_eq!(column, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// R16: an invalid value is reported with its table and column.
#[test]
fn queue_row_corruption_names_the_column() {
    let column = |result: Result<StoreError, String>| match result.unwrap() {
        StoreError::CorruptRow { table, column, .. } => (table, column),
        other => panic!("{other}"),
    };
    type Corruption = fn(&mut TicketConstantColumns<'static>, &mut TicketStateColumns);
    let corruptions: [(&str, Corruption); 5] = [
        ("set_id", |row, _| row.set_id = -1),
        ("body", |row, _| row.body = "{".into()),
        ("match_id", |_, state_row| state_row.state = 1),
        ("end_reason", |_, state_row| (state_row.state, state_row.purge_at_ms) = (2, Some(1))),
        ("purge_at_ms", |_, state_row| (state_row.state, state_row.end_reason) = (2, Some(0))),
    ];
    for (expected, corrupt) in corruptions {
        let (mut row, mut state_row) = waiting_ticket_rows();
        corrupt(&mut row, &mut state_row);
        assert_eq!(
            column(row.decode(state_row).map_or_else(Ok, |decoded| Err(format!("{decoded:?}")))),
            ("ticket", expected)
        );
    }
    for body in [r#"{"h":5}"#, r#"{"h":5,"d":1,"m":[["short",1,0,[]]]}"#] {
        let mut row = MatchRow::encode(&sample_match());
        row.body = body.into();
        assert_eq!(column(row.decode().map_or_else(Ok, |decoded| Err(format!("{decoded:?}")))), ("match", "body"));
    }
    let ended = MatchRow { stage: 3, ..MatchRow::encode(&sample_match()) };
    assert_eq!(column(ended.decode().map_or_else(Ok, |decoded| Err(format!("{decoded:?}")))), ("match", "body"));
}

/// R16: the checksums cover every column and the boundaries between columns.
#[test]
fn queue_checksums_cover_every_column() {
    let ticket = TicketConstantColumns::encode(&sample_ticket(), [0; 16]);
    let corruptions: [fn(&mut TicketConstantColumns<'static>); 6] = [
        |row| row.id[3] ^= 1,
        |row| row.silo_id += 1,
        |row| row.set_id += 1,
        |row| row.entered_ms += 1,
        |row| row.request_digest[3] ^= 1,
        |row| row.body.to_mut().push(' '),
    ];
    for (index, corrupt) in corruptions.into_iter().enumerate() {
        let mut row = ticket.clone();
        corrupt(&mut row);
        assert_ne!(row.checksum(), ticket.checksum(), "ticket {index}");
    }
    let state_row = TicketStateColumns {
        state: 2,
        match_id: Some([1; 16]),
        end_reason: Some(0),
        expires_ms: 5,
        purge_at_ms: Some(6),
        version: 7,
        acknowledged: 0,
        seat_vectors: None,
    };
    let corruptions: [fn(&mut TicketStateColumns); 8] = [
        |row| row.state -= 1,
        |row| row.match_id = None,
        |row| row.match_id = Some([2; 16]),
        |row| row.end_reason = None,
        |row| row.expires_ms += 1,
        |row| row.purge_at_ms = Some(0),
        |row| row.version += 1,
        |row| (row.end_reason, row.purge_at_ms) = (row.purge_at_ms, row.end_reason),
    ];
    for (index, corrupt) in corruptions.into_iter().enumerate() {
        let mut row = state_row.clone();
        corrupt(&mut row);
        assert_ne!(row.checksum(&[9; 16]), state_row.checksum(&[9; 16]), "state {index}");
    }
    assert_ne!(state_row.checksum(&[8; 16]), state_row.checksum(&[9; 16]), "the checksum includes the ticket id");
    let sample = MatchRow::encode(&sample_match());
    let corruptions: [fn(&mut MatchRow<'static>); 8] = [
        |row| row.id[3] ^= 1,
        |row| row.silo_id += 1,
        |row| row.set_id += 1,
        |row| row.proposed_ms += 1,
        |row| row.version += 1,
        |row| row.stage += 1,
        |row| row.purge_at_ms = Some(0),
        |row| row.body.to_mut().push(' '),
    ];
    for (index, corrupt) in corruptions.into_iter().enumerate() {
        let mut row = sample.clone();
        corrupt(&mut row);
        assert_ne!(row.checksum(), sample.checksum(), "match {index}");
    }
    let rating = |rating| RatingRow {
        user: UserKey::from_bytes([1; 16]),
        key: RatingKey::of_set_on_first_scale(SetId(1)),
        rating: PlayerRating { rating, deviation: 0.0 },
        volatility: 0.0,
        rated_match_count: 1,
        last_match_at: UnixMs(1),
        streak: 0,
        satisfaction: UserSatisfactionStatistics::default(),
        last_match_active_period: 0,
    };
    assert_ne!(rating_checksum(&rating(0.1)), rating_checksum(&rating(0.1 + f64::EPSILON / 8.0)));
    assert_eq!(rating_checksum(&rating(0.0)), rating_checksum(&rating(-0.0)), "SQLite stores no sign of a zero");
}
