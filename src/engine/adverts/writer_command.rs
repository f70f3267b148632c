//! Commands in the advertisement writer's inbox, each with its reply channel.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::id::{AdvertisementId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::probe_result::ProbeResult;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::in_flight_changes::InFlightGuard;
use crate::engine::adverts::seat_measures::SeatMeasures;
use crate::engine::adverts::update_answer::TokenWithClaim;
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::command::{ReserveAnswer, UpdateAdvertAnswer};
use crate::engine::joining_ticket::JoiningTicket;
use crate::engine::open_silos::SiloUse;
use crate::engine::writer_inbox::ReplySender;
use crate::store::{AdvertOwner, FeedBatch, LimitPerClientAndAccount, ReservationOwner};

/// Publishes or replaces an advertisement.
#[derive(Debug)]
pub(crate) struct PublishAdvert {
    pub(crate) advertisement: Arc<Advertisement>,
    /// Ruleset under which it is published.
    pub(crate) ruleset: Arc<Ruleset>,
    /// Signed before the command is queued. Discarded if the store has another `since`.
    pub(crate) token_to_return: TokenWithClaim,
    pub(crate) ttl_ms: u32,
    pub(crate) confirmed_reservations: Vec<ReservationId>,
    pub(crate) joined_reservations: Vec<ReservationId>,
    pub(crate) ignored_fields: Vec<String>,
    /// Keeps the silo open until the advertisement is in memory.
    pub(crate) silo_use: SiloUse,
    /// Owner, if a limit applies to the caller.
    pub(crate) owner: Option<AdvertOwner>,
    /// Digest of the request, if it creates the advertisement with an idempotency key.
    pub(crate) create_digest: Option<[u8; 16]>,
}

/// Extends an advertisement's TTL through the store.
#[derive(Debug)]
pub(crate) struct ExtendAdvertTtl {
    pub(crate) id: AdvertisementId,
    /// Token that the host sent, if it can be returned unchanged.
    pub(crate) token_to_return: Option<TokenWithClaim>,
    pub(crate) set_id: SetId,
    /// `None` keeps the current TTL.
    pub(crate) ttl_ms: Option<u32>,
    pub(crate) confirmed_reservations: Vec<ReservationId>,
    pub(crate) joined_reservations: Vec<ReservationId>,
    /// Digest of the request, if it repeats the creation of the advertisement.
    pub(crate) create_digest: Option<[u8; 16]>,
    /// Ignored fields of that request.
    pub(crate) ignored_fields: Vec<String>,
}

/// Reserves seats for a party that has searched, or for a match.
#[derive(Debug)]
pub(crate) struct ReserveSeats {
    pub(crate) reservation_id: ReservationId,
    pub(crate) advertisement_id: AdvertisementId,
    /// Required kind. A game server is checked only for kind, silo and expiry.
    pub(crate) required_kind: AdvertisementKind,
    pub(crate) set_id: SetId,
    pub(crate) silo: SiloId,
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) session: Session,
    pub(crate) attribute_values: AttributeValues,
    pub(crate) users: Vec<UserKey>,
    pub(crate) subject: Option<UserKey>,
    pub(crate) searching_since: UnixMs,
    /// Results of the party's probes in its search.
    pub(crate) probes: Box<[ProbeResult]>,
    /// Predictor of the party's round trips.
    pub(crate) predictor: Option<Box<PartyPredictor>>,
    pub(crate) hold_ms: u32,
    pub(crate) request_digest: [u8; 16],
    /// Owner and its limit, if one applies to the caller.
    pub(crate) owner: Option<(ReservationOwner, LimitPerClientAndAccount)>,
    /// Whether the party has searched itself. A match that reserves has not.
    pub(crate) is_of_search: bool,
    /// Measures of the session for a party that has searched; set when the writer checks the rules.
    pub(crate) measures: Option<SeatMeasures>,
    /// Tickets of a match that joins a session: each is admitted as in its pass. `None` for a party that has searched, and for a match
    /// on a game server.
    pub(crate) joining_tickets: Option<Box<[JoiningTicket]>>,
}

/// Erases a user from an advertisement and its reservations.
#[derive(Debug)]
pub(crate) struct EraseAdvertUser {
    pub(crate) advertisement_id: AdvertisementId,
    /// Set of the advertisement; any if it is not in memory.
    pub(crate) set_id: SetId,
    pub(crate) user: UserKey,
    /// Random bytes that the keys in the user's place are made of.
    pub(crate) seed: [u8; 16],
}

/// Command for the advertisement writer.
#[derive(Debug)]
pub(crate) enum AdvertWriterCommand {
    /// Publishes or replaces an advertisement.
    Publish(Box<PublishAdvert>, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
    /// Extends an advertisement's TTL.
    ExtendTtl(Box<ExtendAdvertTtl>, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
    /// Deletes an advertisement.
    Delete(AdvertisementId, SetId, ReplySender<()>, InFlightGuard),
    /// Reserves seats.
    ReserveSeats(Box<ReserveSeats>, ReplySender<ReserveAnswer>, InFlightGuard),
    /// Releases a reservation.
    ReleaseReservation(ReservationId, AdvertisementId, SetId, ReplySender<()>, InFlightGuard),
    /// Releases the seat of a user in a reservation.
    ReleaseSeat(UserKey, ReservationId, AdvertisementId, SetId, ReplySender<()>, InFlightGuard),
    /// Erases a user from an advertisement and its reservations. Answered with whether they named the user.
    EraseUser(Box<EraseAdvertUser>, ReplySender<bool>, InFlightGuard),
    /// Ends a hold whose deadline has passed; sent by the sweep.
    ExpireHold(ReservationId, AdvertisementId, SetId),
    /// Removes an expired advertisement; sent by the sweep. The record is restored to memory if the commit fails.
    ExpireAdvert(AdvertisementId, SetId, Option<Box<AdvertRecord>>),
    /// Applies other replicas' changes, read after the given local batch.
    ApplyFeed(Box<FeedBatch>, u64),
    /// Replaces the indexed rulesets; answered when every set has the indexes.
    SetRulesets(Vec<Arc<Ruleset>>, oneshot::Sender<()>),
    /// Answered when all commands before it, and the changes of ratings, are applied to memory.
    Flush(oneshot::Sender<()>),
}

impl AdvertWriterCommand {
    /// Advertisement and set that the command changes, if any.
    pub(crate) fn advert_and_set_id(&self) -> Option<(AdvertisementId, SetId)> {
        match self {
            AdvertWriterCommand::Publish(publish, ..) => Some((publish.advertisement.id, publish.advertisement.set_id)),
            AdvertWriterCommand::ExtendTtl(extend, ..) => Some((extend.id, extend.set_id)),
            AdvertWriterCommand::ReserveSeats(reserve, ..) => Some((reserve.advertisement_id, reserve.set_id)),
            AdvertWriterCommand::EraseUser(erase, ..) => Some((erase.advertisement_id, erase.set_id)),
            AdvertWriterCommand::Delete(id, set_id, ..)
            | AdvertWriterCommand::ReleaseReservation(_, id, set_id, ..)
            | AdvertWriterCommand::ReleaseSeat(_, _, id, set_id, ..)
            | AdvertWriterCommand::ExpireHold(_, id, set_id)
            | AdvertWriterCommand::ExpireAdvert(id, set_id, _) => Some((*id, *set_id)),
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => None,
        }
    }
}
