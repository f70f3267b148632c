//! JSON encoding of the parts of a match without a column, with short keys and the rules of `ticket_body.rs`.
//!
//! | key | content |
//! |---|---|
//! | `h` | ruleset hash |
//! | `m` | tickets: id, entered, team, players; a player: user, client, role or null, acceptance or null |
//! | `q` | quality |
//! | `r` | region |
//! | `b` | advertisement that it backfills |
//! | `d` | deadline of the ready check, or of the search for a server |
//! | `k` | time until which the named host may confirm |
//! | `y` | game servers that did not confirm |
//! | `x` | players who left during play: user, time |
//! | `e`, `u` | start; time at which the match ends without a report |
//! | `z` | time at which the host is lost if it is not heard before |
//! | `v`, `c` | game server: advertisement and reservation; connect data in hexadecimal digits |
//! | `p` | peer: the host |
//! | `vs` | game server of a session's match, which has no reservation: advertisement |
//! | `bt` | bots by team |
//! | `ch` | chosen entries of string lists: attribute, entry |
//! | `wp` | worst pair: indices of its tickets; round trip, low and high end, index in `ESTIMATE_SOURCES`, or null |
//! | `bs` | begun by a session: advertisement, reservation of each ticket or null, digest of the request |
//! | `es` | skills of players who were erased before the result |
//! | `o` | end reason, as index in `MATCH_END_REASONS` |
//! | `n` | ended, and was not hosted by fireteam |
//!
//! The reports of the players have keys of two letters, as in `side_report_json.rs`.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{
    AdvertisementId, MatchId, RatingKey, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey,
};
use crate::domain::latency::round_trip_estimate::{EstimateSource, RoundTripEstimate};
use crate::domain::latency::worst_pair::WorstPair;
use crate::domain::lifecycle::session_start::SessionMatchStartByHost;
use crate::domain::lifecycle::side_reports::SideReports;
use crate::domain::lifecycle::{
    Assignment, KeptSkillOfErasedUser, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket,
};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::rating::Skill;
use crate::domain::time::UnixMs;
use crate::store::adverts::row_body::{HexKey, to_json_text};
use crate::store::queues::side_report_json::{
    PlayerResultReportJson, decode_player_result_reports, decode_reports_outcome, encode_player_result_reports,
    encode_reports_outcome,
};

type MatchPlayerBody = (HexKey, HexKey, Option<u16>, Option<bool>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchBody {
    #[serde(rename = "h")]
    ruleset_hash: u32,
    #[serde(rename = "m", default)]
    tickets: Vec<(HexKey, u64, u16, Vec<MatchPlayerBody>)>,
    #[serde(rename = "q")]
    quality: Option<f64>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    region: Option<Box<str>>,
    #[serde(rename = "b", skip_serializing_if = "Option::is_none")]
    backfilled_session: Option<HexKey>,
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(rename = "k", skip_serializing_if = "Option::is_none")]
    confirm_by_ms: Option<u64>,
    #[serde(rename = "y", default, skip_serializing_if = "Vec::is_empty")]
    unconfirmed_servers: Vec<HexKey>,
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    left_players: Vec<(HexKey, u64)>,
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    started_at_ms: Option<u64>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    times_out_at_ms: Option<u64>,
    #[serde(rename = "z", skip_serializing_if = "Option::is_none")]
    host_lost_at_ms: Option<u64>,
    #[serde(rename = "v", skip_serializing_if = "Option::is_none")]
    game_server: Option<(HexKey, HexKey)>,
    #[serde(rename = "vs", skip_serializing_if = "Option::is_none")]
    session_server: Option<HexKey>,
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    connect_data: Option<String>,
    #[serde(rename = "p", skip_serializing_if = "Option::is_none")]
    peer_host: Option<HexKey>,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    end_reason: Option<u8>,
    #[serde(rename = "n", default, skip_serializing_if = "std::ops::Not::not")]
    unhosted: bool,
    #[serde(rename = "sr", default, skip_serializing_if = "Vec::is_empty")]
    side_reports: Vec<PlayerResultReportJson>,
    #[serde(rename = "sh", default, skip_serializing_if = "Vec::is_empty")]
    heard_tickets: Vec<HexKey>,
    #[serde(rename = "sw", skip_serializing_if = "Option::is_none")]
    report_window_ends_at_ms: Option<u64>,
    #[serde(rename = "so", skip_serializing_if = "Option::is_none")]
    report_outcome: Option<u8>,
    #[serde(rename = "es", default, skip_serializing_if = "Vec::is_empty")]
    erased_skills: Vec<KeptSkillBody>,
    #[serde(rename = "ch", default, skip_serializing_if = "Vec::is_empty")]
    chosen: Vec<(Box<str>, Box<str>)>,
    #[serde(rename = "bt", default, skip_serializing_if = "<[u16]>::is_empty")]
    bots_by_team: Box<[u16]>,
    #[serde(rename = "wp", skip_serializing_if = "Option::is_none")]
    worst_pair: Option<WorstPairBody>,
    #[serde(rename = "bs", skip_serializing_if = "Option::is_none")]
    session_start: Option<SessionStartBody>,
}

/// Two indices of tickets; round trip, low end, high end, number of the source.
type WorstPairBody = (u16, u16, Option<(f64, f64, f64, u8)>);

/// Sources of estimates, in the order of their stored numbers.
const ESTIMATE_SOURCES: [EstimateSource; 3] =
    [EstimateSource::Predicted, EstimateSource::Region, EstimateSource::Distance];

/// Advertisement, reservation of each ticket or null, digest of the request.
type SessionStartBody = (HexKey, Vec<Option<HexKey>>, HexKey);

/// Erased player, key of the ratings, rating, deviation, volatility, number of matches, time of the last one, streak, active
/// periods.
type KeptSkillBody = (HexKey, i64, f64, f64, f64, u32, Option<u64>, i32, u32);

/// End reasons of matches, in the order of their stored numbers.
const MATCH_END_REASONS: [MatchEndReason; 9] = [
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

/// Stage of a match as column value, and the JSON text.
pub(in crate::store) fn encode_match(found: &Match) -> (i64, String) {
    let player = |player: &MatchPlayer| {
        (HexKey::from_user_key(player.user), HexKey::from_user_key(player.client), player.role, player.accepted)
    };
    let ticket = |ticket: &MatchTicket| {
        let players: Vec<MatchPlayerBody> = ticket.players.iter().map(player).collect();
        (HexKey(*ticket.ticket_id.as_bytes()), ticket.entered_at.0, ticket.team, players)
    };
    let mut body = MatchBody {
        ruleset_hash: found.ruleset_hash.0,
        tickets: found.tickets.iter().map(ticket).collect(),
        quality: Some(found.quality),
        region: found.region.clone(),
        backfilled_session: found.backfilled_session.map(|id| HexKey(*id.as_bytes())),
        deadline_ms: None,
        confirm_by_ms: None,
        unconfirmed_servers: found.servers_that_did_not_confirm.iter().map(|id| HexKey(*id.as_bytes())).collect(),
        left_players: left_players(found),
        host_lost_at_ms: None,
        started_at_ms: None,
        times_out_at_ms: None,
        game_server: None,
        session_server: None,
        connect_data: None,
        peer_host: None,
        end_reason: None,
        unhosted: false,
        side_reports: encode_player_result_reports(&found.side_reports),
        heard_tickets: found.side_reports.heard_tickets.iter().map(|id| HexKey(*id.as_bytes())).collect(),
        report_window_ends_at_ms: found.side_reports.window_ends_at.map(|ends_at| ends_at.0),
        report_outcome: found.side_reports.outcome.and_then(encode_reports_outcome),
        erased_skills: found.kept_skills_of_erased_users.iter().map(encode_kept_skill).collect(),
        chosen: found.chosen_values.iter().map(|chosen| (chosen.attribute.clone(), chosen.value.clone())).collect(),
        bots_by_team: found.bots_by_team.clone(),
        worst_pair: found.worst_pair.map(encode_worst_pair),
        session_start: found.session_match_start_by_host.as_ref().map(encode_session_start),
    };
    let stage = match &found.stage {
        MatchStage::ReadyCheck { deadline } => {
            body.deadline_ms = Some(deadline.0);
            0
        }
        MatchStage::Placing { deadline } => {
            body.deadline_ms = Some(deadline.0);
            1
        }
        MatchStage::Confirming { assignment, confirm_by, deadline } => {
            (body.confirm_by_ms, body.deadline_ms) = (Some(confirm_by.0), Some(deadline.0));
            body.set_assignment(assignment);
            4
        }
        MatchStage::Playing { assignment, started_at, times_out_at, host_lost_at } => {
            (body.started_at_ms, body.times_out_at_ms) = (Some(started_at.0), Some(times_out_at.0));
            body.host_lost_at_ms = host_lost_at.map(|lost_at| lost_at.0);
            body.set_assignment(assignment);
            2
        }
        MatchStage::Ended { end_reason, started_at, assignment, purge_at: _ } => {
            let index = MATCH_END_REASONS.iter().position(|reason| reason == end_reason);
            body.end_reason = index.and_then(|index| u8::try_from(index).ok());
            body.started_at_ms = started_at.map(|started_at| started_at.0);
            if let Some(assignment) = assignment {
                body.set_assignment(assignment);
                body.unhosted = *assignment == Assignment::Unhosted;
            }
            3
        }
    };
    (stage, to_json_text(&body))
}

fn encode_kept_skill(erased: &KeptSkillOfErasedUser) -> KeptSkillBody {
    let Skill { estimate, volatility, match_count, last_match_at, streak, last_match_active_period: active_periods } =
        erased.skill;
    let PlayerRating { rating, deviation } = estimate;
    let (user, last_match_ms) = (HexKey::from_user_key(erased.user), last_match_at.map(|at| at.0));
    let key = erased.rating_key.to_stored();
    (user, key, rating, deviation, volatility, match_count, last_match_ms, streak, active_periods)
}

fn decode_kept_skill(body: KeptSkillBody) -> Result<KeptSkillOfErasedUser, serde_json::Error> {
    let (user, key, rating, deviation, volatility, match_count, last_match_ms, streak, active_periods) = body;
    let unknown_key = || serde_json::Error::custom(format_args!("{key} is not a rating key"));
    Ok(KeptSkillOfErasedUser {
        user: user.user_key(),
        rating_key: RatingKey::from_stored(key).ok_or_else(unknown_key)?,
        skill: Skill {
            estimate: PlayerRating { rating, deviation },
            volatility,
            match_count,
            last_match_at: last_match_ms.map(UnixMs),
            streak,
            last_match_active_period: active_periods,
        },
    })
}

fn encode_worst_pair(WorstPair { party_indices: [one, other], estimate }: WorstPair) -> WorstPairBody {
    let body = |estimate: RoundTripEstimate| {
        let [low_ms, high_ms] = estimate.interval_ms;
        let source = ESTIMATE_SOURCES.iter().zip(0..).find(|(source, _)| **source == estimate.source);
        (estimate.round_trip_ms, low_ms, high_ms, source.map_or(u8::MAX, |(_, number)| number))
    };
    (one, other, estimate.map(body))
}

fn decode_worst_pair((one, other, estimate): WorstPairBody) -> Result<WorstPair, serde_json::Error> {
    let decode = |(round_trip_ms, low_ms, high_ms, number): (f64, f64, f64, u8)| {
        let source = ESTIMATE_SOURCES.get(usize::from(number)).copied();
        let source = source.ok_or_else(|| serde_json::Error::custom(format_args!("unknown source {number}")))?;
        Ok::<_, serde_json::Error>(RoundTripEstimate { round_trip_ms, interval_ms: [low_ms, high_ms], source })
    };
    Ok(WorstPair { party_indices: [one, other], estimate: estimate.map(decode).transpose()? })
}

fn encode_session_start(start: &SessionMatchStartByHost) -> SessionStartBody {
    let SessionMatchStartByHost { advertisement, reservations, request_digest } = start;
    let reservation = |id: &Option<ReservationId>| id.map(|id| HexKey(*id.as_bytes()));
    (HexKey(*advertisement.as_bytes()), reservations.iter().map(reservation).collect(), HexKey(*request_digest))
}

fn decode_session_start((advertisement, reservations, digest): SessionStartBody) -> SessionMatchStartByHost {
    let reservation = |id: Option<HexKey>| id.map(|id| ReservationId::from_bytes(id.0));
    SessionMatchStartByHost {
        advertisement: AdvertisementId::from_bytes(advertisement.0),
        reservations: reservations.into_iter().map(reservation).collect(),
        request_digest: digest.0,
    }
}

fn left_players(found: &Match) -> Vec<(HexKey, u64)> {
    let players = found.tickets.iter().flat_map(|ticket| &ticket.players);
    players.filter_map(|player| Some((HexKey::from_user_key(player.user), player.left_at?.0))).collect()
}

impl MatchBody {
    fn set_assignment(&mut self, assignment: &Assignment) {
        match assignment {
            Assignment::GameServer { advertisement, reservation, connect_data } => {
                let advertisement = HexKey(*advertisement.as_bytes());
                match reservation {
                    Some(reservation) => self.game_server = Some((advertisement, HexKey(*reservation.as_bytes()))),
                    None => self.session_server = Some(advertisement),
                }
                self.connect_data = Some(connect_data.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            Assignment::PeerHost { host } => self.peer_host = Some(HexKey::from_user_key(*host)),
            Assignment::Unhosted => {}
        }
    }

    /// Assignment, if there is one.
    fn take_assignment(&mut self) -> Result<Option<Assignment>, serde_json::Error> {
        let session_server = self.session_server.take().map(|advertisement| (advertisement, None));
        let game_server =
            self.game_server.take().map(|(advertisement, reservation)| (advertisement, Some(reservation)));
        Ok(match (game_server.or(session_server), self.peer_host.take()) {
            (Some((advertisement, reservation)), _) => Some(Assignment::GameServer {
                advertisement: AdvertisementId::from_bytes(advertisement.0),
                reservation: reservation.map(|reservation| ReservationId::from_bytes(reservation.0)),
                connect_data: decode_hex(&self.connect_data.take().unwrap_or_default())
                    .ok_or_else(|| serde_json::Error::custom("connect data is not hexadecimal"))?,
            }),
            (None, Some(host)) => Some(Assignment::PeerHost { host: host.user_key() }),
            (None, None) => None,
        })
    }
}

/// Decodes a match with the stage and purge time of its columns. The caller sets the other values that have a column.
pub(in crate::store) fn decode_match(
    text: &str,
    stage: i64,
    purge_at: Option<UnixMs>,
) -> Result<Match, serde_json::Error> {
    let mut body: MatchBody = serde_json::from_str(text)?;
    let left_players: BTreeMap<UserKey, UnixMs> =
        body.left_players.iter().map(|(user, left_at_ms)| (user.user_key(), UnixMs(*left_at_ms))).collect();
    let player = |(user, client, role, accepted): MatchPlayerBody| MatchPlayer {
        user: user.user_key(),
        client: client.user_key(),
        role,
        accepted,
        left_at: left_players.get(&user.user_key()).copied(),
    };
    let ticket = |(id, entered_at_ms, team, players): (HexKey, u64, u16, Vec<MatchPlayerBody>)| MatchTicket {
        ticket_id: TicketId::from_bytes(id.0),
        entered_at: UnixMs(entered_at_ms),
        team,
        players: players.into_iter().map(player).collect(),
    };
    let required_time =
        |key, time_ms: Option<u64>| time_ms.map(UnixMs).ok_or_else(|| serde_json::Error::missing_field(key));
    let stage = match stage {
        0 => MatchStage::ReadyCheck { deadline: required_time("d", body.deadline_ms)? },
        1 => MatchStage::Placing { deadline: required_time("d", body.deadline_ms)? },
        2 => MatchStage::Playing {
            assignment: body.take_assignment()?.unwrap_or(Assignment::Unhosted),
            started_at: required_time("e", body.started_at_ms)?,
            times_out_at: required_time("u", body.times_out_at_ms)?,
            host_lost_at: body.host_lost_at_ms.map(UnixMs),
        },
        3 => MatchStage::Ended {
            end_reason: decode_end_reason(body.end_reason)?,
            started_at: body.started_at_ms.map(UnixMs),
            assignment: body.take_assignment()?.or(body.unhosted.then_some(Assignment::Unhosted)),
            purge_at: purge_at.ok_or_else(|| serde_json::Error::custom("ended match without purge time"))?,
        },
        4 => MatchStage::Confirming {
            assignment: body.take_assignment()?.ok_or_else(|| serde_json::Error::missing_field("v"))?,
            confirm_by: required_time("k", body.confirm_by_ms)?,
            deadline: required_time("d", body.deadline_ms)?,
        },
        other => return Err(serde_json::Error::custom(format_args!("unknown stage {other}"))),
    };
    Ok(Match {
        id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        ruleset_hash: RulesetHash(body.ruleset_hash),
        proposed_at: UnixMs::default(),
        version: 0,
        stage,
        tickets: body.tickets.into_iter().map(ticket).collect(),
        quality: body.quality.unwrap_or(f64::NAN),
        region: body.region,
        side_reports: SideReports {
            reports: decode_player_result_reports(body.side_reports),
            heard_tickets: body.heard_tickets.iter().map(|id| TicketId::from_bytes(id.0)).collect(),
            window_ends_at: body.report_window_ends_at_ms.map(UnixMs),
            outcome: body.report_outcome.map(decode_reports_outcome).transpose()?,
        },
        kept_skills_of_erased_users: body.erased_skills.into_iter().map(decode_kept_skill).collect::<Result<_, _>>()?,
        backfilled_session: body.backfilled_session.map(|id| AdvertisementId::from_bytes(id.0)),
        chosen_values: body.chosen.into_iter().map(|(attribute, value)| ChosenValue { attribute, value }).collect(),
        bots_by_team: body.bots_by_team,
        worst_pair: body.worst_pair.map(decode_worst_pair).transpose()?,
        session_match_start_by_host: body.session_start.map(decode_session_start),
        servers_that_did_not_confirm: body
            .unconfirmed_servers
            .iter()
            .map(|id| AdvertisementId::from_bytes(id.0))
            .collect(),
    })
}

fn decode_end_reason(number: Option<u8>) -> Result<MatchEndReason, serde_json::Error> {
    let number = number.ok_or_else(|| serde_json::Error::missing_field("o"))?;
    let known = MATCH_END_REASONS.get(usize::from(number)).copied();
    known.ok_or_else(|| serde_json::Error::custom(format_args!("unknown end reason {number}")))
}

/// Decodes hexadecimal digits; `None` if the text has others or an odd length.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let to_byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(to_byte).collect() } else { None }
}
