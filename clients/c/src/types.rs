//! Structures of the interface. All are plain data of the caller; a pointer in one is borrowed until the function returns.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::status::FT_ERROR_VALUE;

/// Bytes of an id in a structure, with the zero byte at its end.
pub const FT_ID_BYTES: usize = 64;
/// Random bytes for `ft_matching_new`.
pub const FT_MATCHING_RANDOM_BYTES: usize = 32;
/// Random bytes for `ft_beacons_new`.
pub const FT_BEACONS_RANDOM_BYTES: usize = 32;
/// Random bytes for `ft_responder_new`: one half for the keys of cookies, one for the key of its probes.
pub const FT_RESPONDER_RANDOM_BYTES: usize = 64;
/// Capacity that is enough for each datagram and for each answer to one.
pub const FT_DATAGRAM_BYTES: usize = 1200;
/// Capacity that is enough for each answer of the matchmaking service, and for its error details.
pub const FT_ANSWER_BYTES: usize = 131_072;

/// Value of `ft_address.family`: no address.
pub const FT_NO_ADDRESS: u8 = 0;
/// Value of `ft_address.family`: an IPv4 address, in the first 4 bytes.
pub const FT_IPV4: u8 = 4;
/// Value of `ft_address.family`: an IPv6 address, in 16 bytes.
pub const FT_IPV6: u8 = 6;

/// IP address and UDP port.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtAddress {
    /// Address in network byte order.
    pub ip: [u8; 16],
    /// UDP port, in the byte order of the machine.
    pub port: u16,
    /// `FT_IPV4`, `FT_IPV6`, or `FT_NO_ADDRESS` where that is allowed.
    pub family: u8,
}

impl FtAddress {
    /// IP address; `None` if there is none.
    pub(crate) fn ip(&self) -> Result<Option<IpAddr>, i32> {
        let [a, b, c, d, ..] = self.ip;
        match self.family {
            FT_NO_ADDRESS => Ok(None),
            FT_IPV4 => Ok(Some(Ipv4Addr::new(a, b, c, d).into())),
            FT_IPV6 => Ok(Some(Ipv6Addr::from(self.ip).into())),
            _ => Err(FT_ERROR_VALUE),
        }
    }

    /// Source of a datagram.
    pub(crate) fn source(&self) -> Result<SocketAddr, i32> {
        Ok(SocketAddr::new(self.ip()?.ok_or(FT_ERROR_VALUE)?, self.port))
    }
}

impl From<SocketAddr> for FtAddress {
    fn from(address: SocketAddr) -> Self {
        let mut ip = [0; 16];
        let family = match address.ip() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                ip = [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                FT_IPV4
            }
            IpAddr::V6(v6) => {
                ip.copy_from_slice(&v6.octets());
                FT_IPV6
            }
        };
        Self { ip, port: address.port(), family }
    }
}

/// Place on Earth, degrees.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtPlace {
    /// -90 to 90, north positive.
    pub latitude: f64,
    /// -180 to 180, east positive.
    pub longitude: f64,
}

/// Session that this client hosts, or would host.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtHosting {
    /// Protobuf message `MatchmakingUpdateAdvertisementRequest`. Fields that are read: `session_composition` (required; its open seats in
    /// `max_allowed_join_reservation_count`), `kind` (GAME_SERVER only in `ft_matching_become_host`: it does not search), `connect_data`, `allowed_ranges`
    /// and `time_to_live_ms`.
    pub advertisement: *const u8,
    /// Bytes of `advertisement`.
    pub advertisement_length: usize,
    /// Address to publish for latency probes; family `FT_NO_ADDRESS` for the address that the server sees. Its port is not read.
    pub probe_address: FtAddress,
    /// UDP port at which this client answers latency probes; 0: none is published, as behind a strict NAT.
    pub probe_port: u16,
    /// 1 keeps the advertisement while the session is full, as a host needs it that starts matches; 0 deletes it.
    pub keep_when_full: u8,
}

/// Party and settings of a search loop. Set all bytes to zero first: zero is the default of each setting.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtMatchingOptions {
    /// Protobuf message `SessionCompositionData`: the searching party.
    pub party: *const u8,
    /// Bytes of `party`.
    pub party_length: usize,
    /// Data for the host's game in involved probes, such as build and map.
    pub game_data: *const u8,
    /// Bytes of `game_data`, at most 1134.
    pub game_data_length: usize,
    /// Session that this client may host; null: it only searches.
    pub hosting: *const FtHosting,
    /// Matchmaking set.
    pub set_id: u32,
    /// Hash of the client's ruleset, if `has_configuration_hash` is 1.
    pub configuration_hash: u32,
    /// Milliseconds for the game to connect to a host; 0: 10 s.
    pub connect_timeout_ms: u32,
    /// Milliseconds of searches without a join, or of an advertisement without guests, before another draw; 0: 30 s.
    pub redraw_after_ms: u32,
    /// Milliseconds from the start after which the loop ends without a session; 0: never.
    pub give_up_after_ms: u32,
    /// 1 if `configuration_hash` is set; 0: the server's current ruleset.
    pub has_configuration_hash: u8,
    /// 1: while this client hosts, involved probes with other data than `game_data` are answered as incompatible. 0: all data fits.
    pub compares_game_data: u8,
}

/// Call to make now, once. Its request is in the buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtCall {
    /// Number to return with the answer. Repeated attempts of a call have the same.
    pub id: u64,
    /// HTTP/2 path of the gRPC method, such as `/fireteam.v1.MatchmakingService/Search`: static text with a zero byte at its end.
    pub path: *const c_char,
    /// Deadline of the attempt, milliseconds.
    pub timeout_ms: u32,
}

/// Answer to a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtAnswer {
    /// Number of the call.
    pub call_id: u64,
    /// Milliseconds after which the server allows another attempt; negative if it gives none.
    pub retry_after_ms: i64,
    /// Value of `ErrorInfo.reason`, such as `SEATS_TAKEN`, with a zero byte at its end. Null: that of `body`, if it has one.
    pub reason: *const c_char,
    /// Status 0: the protobuf response. Else: protobuf `google.rpc.Status` from the trailer `grpc-status-details-bin`, after base64; may be
    /// empty.
    pub body: *const u8,
    /// Bytes of `body`.
    pub body_length: usize,
    /// gRPC status code, 0 (OK) to 16; 4 (DEADLINE_EXCEEDED) if no answer came, 14 (UNAVAILABLE) if the connection failed.
    pub status: i32,
}

/// Connect to a host now: ids, seats, `round_trip_ms`, `again`; the buffer has its connect data. Answer with `ft_matching_connected` or
/// `ft_matching_connect_failed`.
pub const FT_OUTCOME_CONNECT: u32 = 1;
/// Stop connecting: the time is over, or the player cancelled. Has `reservation_id`.
pub const FT_OUTCOME_ABANDON_CONNECT: u32 = 2;
/// The party is in the session: both ids.
pub const FT_OUTCOME_JOINED: u32 = 3;
/// The own session is open to others: `advertisement_id`; the buffer has the token, a secret.
pub const FT_OUTCOME_ADVERTISED: u32 = 4;
/// A party has reserved seats in the own session: `reservation_id`, `seats`.
pub const FT_OUTCOME_PARTY_COMING: u32 = 5;
/// A party released its seats, or they expired: `reservation_id`.
pub const FT_OUTCOME_PARTY_GONE: u32 = 6;
/// The own session has no open seat left.
pub const FT_OUTCOME_SESSION_FULL: u32 = 7;
/// The own session is not open to others any longer.
pub const FT_OUTCOME_WITHDRAWN: u32 = 8;
/// The loop has ended: `end_reason`. With `FT_END_FAILED` also `status` and `reason`, and the buffer has the message.
pub const FT_OUTCOME_ENDED: u32 = 9;

/// Ended by `ft_matching_cancel`.
pub const FT_END_CANCELLED: u32 = 1;
/// No session was joined within `give_up_after_ms`.
pub const FT_END_GAVE_UP: u32 = 2;
/// A call failed in a way that no repetition changes.
pub const FT_END_FAILED: u32 = 3;

/// Request to the game, or news for it. Fields that an outcome does not have are zero, and `round_trip_ms` is negative.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtOutcome {
    /// One of `FT_OUTCOME_*`.
    pub kind: u32,
    /// Number of seats.
    pub seats: u32,
    /// Round trip to the host, milliseconds; negative if unknown.
    pub round_trip_ms: f32,
    /// One of `FT_END_*`.
    pub end_reason: u32,
    /// gRPC status code of the failed call.
    pub status: i32,
    /// 1 if the party was in the session before.
    pub again: u8,
    /// Advertisement id of the session, with a zero byte at its end.
    pub advertisement_id: [c_char; FT_ID_BYTES],
    /// Reservation id, with a zero byte at its end.
    pub reservation_id: [c_char; FT_ID_BYTES],
    /// Reason of the failed call, such as `UNKNOWN_MATCHMAKING_SET`, with a zero byte at its end.
    pub reason: [c_char; FT_ID_BYTES],
}

/// State of `ft_matching_state`: before the start.
pub const FT_STATE_IDLE: i32 = 0;
/// Draws the next action.
pub const FT_STATE_CHOOSING: i32 = 1;
/// Searches.
pub const FT_STATE_SEARCHING: i32 = 2;
/// Probes many hosts.
pub const FT_STATE_QUICK: i32 = 3;
/// Probes the best hosts with the game's data.
pub const FT_STATE_INVOLVED: i32 = 4;
/// Reserves and connects.
pub const FT_STATE_JOINING: i32 = 5;
/// Waits for the next round.
pub const FT_STATE_WAITING: i32 = 6;
/// Hosts an open session.
pub const FT_STATE_ADVERTISING: i32 = 7;
/// In a session.
pub const FT_STATE_JOINED: i32 = 8;
/// Releases what it holds.
pub const FT_STATE_ENDING: i32 = 9;
/// Has ended.
pub const FT_STATE_ENDED: i32 = 10;

/// State of `ft_beacons_state`: before the start.
pub const FT_BEACONS_IDLE: i32 = 0;
/// Asks the server for the beacons.
pub const FT_BEACONS_LISTING: i32 = 1;
/// Exchanges packets with beacons.
pub const FT_BEACONS_MEASURING: i32 = 2;
/// Reports the receipts.
pub const FT_BEACONS_REPORTING: i32 = 3;
/// Waits for the time of the next measurement: the one before is over, with a token or without.
pub const FT_BEACONS_RESTING: i32 = 4;

/// Server and credentials of a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtClientOptions {
    /// `https://match.example:443`, or `http://…` without TLS, with a zero byte at its end.
    pub uri: *const c_char,
    /// CA certificates of the server, PEM. Required for `https`; not read for `http`.
    pub ca_certificates: *const u8,
    /// Bytes of `ca_certificates`.
    pub ca_certificates_length: usize,
    /// Name in the server's certificate, with a zero byte at its end; null: the host of the URI.
    pub server_name: *const c_char,
    /// Token that is sent with each call as `authorization: Bearer …`, with a zero byte at its end; null: none.
    pub token: *const c_char,
}
