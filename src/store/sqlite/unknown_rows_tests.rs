//! Rows of a newer server in the SQLite file: they are not loaded and not changed, and all other rows work.

use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;

use crate::domain::id::{AdvertisementId, MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::Ticket;
use crate::domain::time::UnixMs;
use crate::store::queues::TicketMembership;
use crate::store::queues::row_checksums::ticket_user_checksum;
use crate::store::queues::ticket_match_encoding::{MatchRow, TicketConstantColumns, TicketStateColumns};
use crate::store::queues::{QueueKey, QueueOutcome, QueueStore, QueueWrite};
use crate::store::rows::{AdvertisementRow, ReservationRow};
use crate::store::sqlite::SqliteStore;
use crate::store::{AdvertWrite, Reservation, ReservationState, Store, WriteOutcome};

const SESSION: &str = r#"{"h":5,"z":[1]}"#;
const SESSION_WITH_NEW_KEY: &str = r#"{"h":5,"z":[1],"zz":{"later":1}}"#;
const TICKET: &str = r#"{"q":{"z":[1]}}"#;
const TICKET_WITH_NEW_KEY: &str = r#"{"q":{"z":[1]},"zz":1}"#;
const MATCH: &str = r#"{"h":5,"q":0.5,"d":8}"#;
const MATCH_WITH_NEW_KEY: &str = r#"{"h":5,"q":0.5,"d":8,"zz":[]}"#;

/// Times of all rows lie before it.
const NOW: UnixMs = UnixMs(1_000);

fn advertisement_row(n: u8, kind: i64, expires_ms: i64, body: &'static str) -> AdvertisementRow<'static> {
    let (body, connect_data) = (body.into(), vec![n].into());
    AdvertisementRow {
        id: [n; 16],
        silo_id: 1,
        set_id: 1,
        kind,
        since_ms: 1,
        expires_ms,
        join_seats: 4,
        ttl_ms: None,
        beacon_vector: None,
        body,
        connect_data,
    }
}

fn ticket_row(n: u8, body: &'static str) -> TicketConstantColumns<'static> {
    TicketConstantColumns {
        id: [n; 16],
        silo_id: 1,
        set_id: 1,
        entered_ms: 1,
        request_digest: [n; 16],
        body: body.into(),
    }
}

fn state_row(state: i64, purge_at_ms: Option<i64>) -> TicketStateColumns {
    let (match_id, end_reason, expires_ms) = (None, None, 5_000);
    TicketStateColumns {
        state,
        match_id,
        end_reason,
        expires_ms,
        purge_at_ms,
        version: 1,
        acknowledged: 0,
        seat_vectors: None,
    }
}

fn match_row(n: u8, stage: i64, purge_at_ms: Option<i64>, body: &'static str) -> MatchRow<'static> {
    MatchRow { id: [n; 16], silo_id: 1, set_id: 1, proposed_ms: 1, version: 1, stage, purge_at_ms, body: body.into() }
}

async fn insert_advertisement(connection: &mut SqliteConnection, row: &AdvertisementRow<'_>) {
    let text = "insert into advertisement (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, \
                connect_data, checksum) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let query = sqlx::query(text).bind(row.id.to_vec()).bind(row.silo_id).bind(row.set_id).bind(row.kind);
    let query = query.bind(row.since_ms).bind(row.expires_ms).bind(row.join_seats).bind(row.body.to_string());
    query.bind(row.connect_data.to_vec()).bind(row.checksum()).execute(connection).await.unwrap();
}

async fn insert_ticket(connection: &mut SqliteConnection, row: &TicketConstantColumns<'_>, state: &TicketStateColumns) {
    let text = "insert into ticket (ticket_id, silo_id, set_id, entered_ms, request_digest, body, checksum, state, \
                expires_ms, purge_at_ms, version, state_checksum) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let query = sqlx::query(text).bind(row.id.to_vec()).bind(row.silo_id).bind(row.set_id).bind(row.entered_ms);
    let query = query.bind(row.request_digest.to_vec()).bind(row.body.to_string()).bind(row.checksum());
    let query = query.bind(state.state).bind(state.expires_ms).bind(state.purge_at_ms).bind(state.version);
    query.bind(state.checksum(&row.id)).execute(connection).await.unwrap();
}

async fn insert_match(connection: &mut SqliteConnection, row: &MatchRow<'_>) {
    let text = "insert into match (match_id, silo_id, set_id, proposed_ms, version, stage, purge_at_ms, body, checksum) \
                values (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let query = sqlx::query(text).bind(row.id.to_vec()).bind(row.silo_id).bind(row.set_id).bind(row.proposed_ms);
    let query = query.bind(row.version).bind(row.stage).bind(row.purge_at_ms).bind(row.body.to_string());
    query.bind(row.checksum()).execute(connection).await.unwrap();
}

fn user(n: u8) -> UserKey {
    UserKey::from_bytes([n; 16])
}

/// Row 1 of each table is known. Row 2 has an unknown number and is past its time, row 3 an unknown JSON key.
async fn insert_rows(connection: &mut SqliteConnection) {
    for row in [
        advertisement_row(1, 0, 5_000, SESSION),
        advertisement_row(2, 99, 5, SESSION),
        advertisement_row(3, 0, 5, SESSION_WITH_NEW_KEY),
        advertisement_row(4, 0, 5_000, SESSION),
    ] {
        insert_advertisement(connection, &row).await;
    }
    insert_ticket(connection, &ticket_row(1, TICKET), &state_row(0, None)).await;
    insert_ticket(connection, &ticket_row(2, TICKET), &state_row(99, Some(5))).await;
    insert_ticket(connection, &ticket_row(3, TICKET_WITH_NEW_KEY), &state_row(0, None)).await;
    insert_match(connection, &match_row(1, 0, None, MATCH)).await;
    insert_match(connection, &match_row(2, 99, Some(5), MATCH)).await;
    insert_match(connection, &match_row(3, 0, None, MATCH_WITH_NEW_KEY)).await;
    let queue = QueueKey { set_id: SetId(1), silo: SiloId(1) };
    let membership = TicketMembership { queue, ticket_id: TicketId::from_bytes([2; 16]), exclusive: true };
    sqlx::query("insert into ticket_user values (?, 1, 1, ?, 1, ?)")
        .bind(user(2).as_bytes().to_vec())
        .bind(vec![2; 16])
        .bind(ticket_user_checksum(user(2), &membership))
        .execute(&mut *connection)
        .await
        .unwrap();
    // A column of a later version, with a value.
    for text in ["alter table ticket add column later integer not null default 0", "update ticket set later = 7"] {
        sqlx::query(text).execute(&mut *connection).await.unwrap();
    }
    // Advertisement 4 has a reservation with an unknown state.
    let reservation = ReservationRow { state: 9, ..ReservationRow::encode(&reservation(4, 1)) };
    sqlx::query("insert into reservation values (?, ?, ?, ?, ?, ?, ?, ?, null, null, 0)")
        .bind(reservation.id.to_vec())
        .bind(reservation.advertisement_id.to_vec())
        .bind(reservation.seats)
        .bind(reservation.users.clone())
        .bind(reservation.request_digest.to_vec())
        .bind(reservation.state)
        .bind(reservation.deadline_ms)
        .bind(reservation.checksum())
        .execute(connection)
        .await
        .unwrap();
}

fn reservation(advertisement: u8, n: u8) -> Reservation {
    Reservation {
        id: crate::domain::id::ReservationId::from_bytes([n; 16]),
        advertisement_id: AdvertisementId::from_bytes([advertisement; 16]),
        seats: 1,
        users: vec![user(n)],
        request_digest: [n; 16],
        state: ReservationState::Held,
        has_joined: false,
        expires_or_purge_at: UnixMs(9_000),
        owner: None,
    }
}

/// All columns of the rows of a newer server.
async fn read_unknown_rows(store: &SqliteStore) -> Vec<String> {
    let mut connection = crate::store::sqlite::open::connect(&store.path).await.unwrap();
    let mut texts = Vec::new();
    for query in [
        "select json_group_array(json_array(hex(advertisement_id), silo_id, set_id, kind, since_ms, expires_ms, join_seats, \
         body, hex(connect_data), checksum)) from advertisement where hex(advertisement_id) not like '01%'",
        "select json_group_array(json_array(hex(reservation_id), seats, state, deadline_ms, checksum)) from reservation",
        "select json_group_array(json_array(hex(ticket_id), body, checksum, state, hex(match_id), end_reason, expires_ms, \
         purge_at_ms, version, state_checksum, later)) from ticket where hex(ticket_id) not like '01%'",
        "select json_group_array(json_array(hex(match_id), version, stage, purge_at_ms, body, checksum)) from match \
         where hex(match_id) not like '01%'",
    ] {
        texts.push(sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap());
    }
    texts
}

fn known_ticket() -> Arc<Ticket> {
    ticket_row(1, TICKET).decode(state_row(0, None)).unwrap().ticket
}

fn queue_writes() -> [QueueWrite; 4] {
    let heartbeat =
        |n| QueueWrite::Heartbeat { ticket_id: TicketId::from_bytes([n; 16]), expires_at: UnixMs(6_000), now: NOW };
    let mut other = (*known_ticket()).clone();
    other.id = TicketId::from_bytes([9; 16]);
    other.session.players = vec![crate::domain::session::Player::from_user(user(2))];
    let enters = QueueWrite::EnterQueue {
        ticket: Arc::new(other),
        seat_vectors: SeatBeaconVectors::default(),
        expires_at: UnixMs(6_000),
        request_digest: [9; 16],
        caller_user: None,
        consents: Vec::new(),
        max_tickets_per_user: None,
        now: NOW,
    };
    [heartbeat(1), heartbeat(2), heartbeat(3), enters]
}

fn advert_writes() -> [AdvertWrite; 4] {
    let publish = |n: u8| AdvertWrite::Publish {
        advertisement: Arc::new(advertisement_row(n, 0, 5_000, SESSION).decode().unwrap()),
        expires_at: UnixMs(6_000),
        confirmed_reservations: Vec::new(),
        joined_reservations: Vec::new(),
        owner: None,
        create_digest: None,
        now: NOW,
    };
    let delete =
        AdvertWrite::Delete { advertisement_id: AdvertisementId::from_bytes([3; 16]), tombstone_until: UnixMs(9_000) };
    let reserve = AdvertWrite::ReserveSeats { reservation: reservation(4, 7), limit: None, now: NOW };
    [publish(1), publish(2), delete, reserve]
}

fn assert_queue_outcomes(outcomes: &[QueueOutcome]) {
    let other_ticket = TicketId::from_bytes([2; 16]);
    assert!(matches!(&outcomes[0], QueueOutcome::CurrentTicket(stored) if stored.expires_at == UnixMs(6_000)));
    assert_eq!(outcomes[1..3], [QueueOutcome::UnknownRow, QueueOutcome::UnknownRow]);
    // The user of an unknown ticket is not free.
    assert_eq!(outcomes[3], QueueOutcome::AlreadyQueued { user: user(2), other_ticket });
    assert_eq!(outcomes.len(), 4);
}

/// R12: rows of a newer server are skipped by the load, refuse writes, and stay as they are; all other rows work.
#[tokio::test]
async fn rows_of_a_newer_server_are_neither_loaded_nor_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    insert_rows(store.connection_for_test().await.as_mut().unwrap()).await;
    let before = read_unknown_rows(&store).await;

    let adverts = store.load_advertisements(NOW).await.unwrap();
    let ids: Vec<AdvertisementId> = adverts.iter().map(|stored| stored.advertisement.id).collect();
    assert_eq!(ids, [AdvertisementId::from_bytes([1; 16])]);
    let data = store.purge_and_load_queues(NOW).await.unwrap();
    assert_eq!(data.tickets.iter().map(|stored| &stored.ticket).collect::<Vec<_>>(), [&known_ticket()]);
    assert_eq!(data.matches.iter().map(|found| found.id).collect::<Vec<_>>(), [MatchId::from_bytes([1; 16])]);
    assert_eq!(store.unknown_row_counts(), [("advertisement", 3), ("match", 2), ("result", 0), ("ticket", 2)]);
    // For the consistency check they are no rows.
    let all = [1, 2, 3, 4].map(|n| AdvertisementId::from_bytes([n; 16]));
    assert_eq!(store.read_advertisements(&all).await.unwrap().len(), 1);

    assert_queue_outcomes(&store.commit_queues(&queue_writes()).await.unwrap());
    let outcomes = store.commit_adverts(&advert_writes()).await.unwrap().outcomes;
    assert!(matches!(outcomes[0], WriteOutcome::Published { created: false, .. }));
    assert_eq!(outcomes[1..], [WriteOutcome::UnknownRow, WriteOutcome::UnknownRow, WriteOutcome::UnknownRow]);
    store.purge_tombstones_and_reservations(NOW).await.unwrap();
    store.purge_queues(NOW).await.unwrap();
    assert_eq!(read_unknown_rows(&store).await, before);
}

/// R12: a transaction that reads an unknown row before any load refuses the writes that touch it, and no others.
#[tokio::test]
async fn transactions_find_rows_of_a_newer_server_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    insert_rows(store.connection_for_test().await.as_mut().unwrap()).await;
    let before = read_unknown_rows(&store).await;
    assert_queue_outcomes(&store.commit_queues(&queue_writes()).await.unwrap());
    let reserve = AdvertWrite::ReserveSeats { reservation: reservation(4, 7), limit: None, now: NOW };
    assert_eq!(store.commit_adverts(&[reserve]).await.unwrap().outcomes, [WriteOutcome::UnknownRow]);
    assert_eq!(store.unknown_row_counts(), [("advertisement", 1), ("match", 0), ("result", 0), ("ticket", 2)]);
    assert!(store.read_match(MatchId::from_bytes([2; 16])).await.is_err());
    assert!(store.read_match(MatchId::from_bytes([1; 16])).await.unwrap().is_some());
    assert_eq!(read_unknown_rows(&store).await, before);
}
