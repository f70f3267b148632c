//! States of a search loop, and what each of them waits for.

use std::fmt;

use crate::matching::advertising::Advertising;
use crate::matching::call::CallId;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::options::HostedSession;
use crate::matching::outcome::EndReason;
use crate::matching::probe_phase::ProbePhase;
use crate::matching::round::Round;
use crate::pb;

/// State of a search loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchingState {
    /// Not started.
    Idle,
    /// The server draws whether the party searches or advertises, or tells its current ruleset.
    Choosing,
    /// A search is underway.
    Searching,
    /// The best candidates are probed by a few packets, or the result is being reported.
    Quick,
    /// The best candidates are probed with data of the game, or the result is being reported.
    Involved,
    /// Seats are being reserved, or the game connects.
    Joining,
    /// No candidate is left. The next search follows when limits have relaxed.
    Waiting,
    /// The own session is open to others.
    Advertising,
    /// In a session.
    Joined,
    /// Seats are being released, and the advertisement is being deleted.
    Ending,
    /// Ended.
    Ended,
}

/// State with its data.
#[derive(Debug)]
pub(super) enum Stage {
    Idle,
    Choosing {
        call: CallId,
    },
    Configuring {
        call: CallId,
    },
    Searching {
        call: CallId,
    },
    Quick {
        round: Box<Round>,
        step: ProbeStep,
    },
    Involved {
        round: Box<Round>,
        step: ProbeStep,
    },
    /// `until`: the order is too old then.
    Joining {
        round: Box<Round>,
        step: JoinStep,
        until: MonotonicTime,
    },
    Waiting {
        until: MonotonicTime,
    },
    Advertising(Box<Advertising>),
    JoinedAsGuest(Box<ReservedSeats>),
    HostingFullSession(Box<HostedSession>),
    /// Without seats of its own on the server: another client hosts now.
    JoinedAsFormerHost,
    Ending {
        reason: EndReason,
        until: MonotonicTime,
    },
    Ended,
}

/// Step of a probe phase.
#[derive(Debug)]
pub(super) enum ProbeStep {
    Probing(ProbePhase),
    Reporting { call: CallId },
}

/// Step of joining.
#[derive(Debug)]
pub(super) enum JoinStep {
    Reserving { call: CallId, advertisement_id: String },
    Connecting { seat: ReservedSeats, until: MonotonicTime },
}

/// Reserved seats.
#[derive(Clone)]
pub(super) struct ReservedSeats {
    pub(super) advertisement_id: String,
    pub(super) reservation: pb::Reservation,
    pub(super) connect_data: Vec<u8>,
    pub(super) round_trip_ms: Option<f32>,
}

impl fmt::Debug for ReservedSeats {
    /// Prints no connect data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedSeats")
            .field("advertisement_id", &self.advertisement_id)
            .field("reservation", &self.reservation)
            .finish_non_exhaustive()
    }
}

impl Stage {
    /// The state.
    pub(super) fn state(&self) -> MatchingState {
        match self {
            Stage::Idle => MatchingState::Idle,
            Stage::Choosing { .. } | Stage::Configuring { .. } => MatchingState::Choosing,
            Stage::Searching { .. } => MatchingState::Searching,
            Stage::Quick { .. } => MatchingState::Quick,
            Stage::Involved { .. } => MatchingState::Involved,
            Stage::Joining { .. } => MatchingState::Joining,
            Stage::Waiting { .. } => MatchingState::Waiting,
            Stage::Advertising(_) => MatchingState::Advertising,
            Stage::JoinedAsGuest(_) | Stage::HostingFullSession(_) | Stage::JoinedAsFormerHost => MatchingState::Joined,
            Stage::Ending { .. } => MatchingState::Ending,
            Stage::Ended => MatchingState::Ended,
        }
    }

    /// Call whose answer the state waits for.
    pub(super) fn awaited_call(&self) -> Option<CallId> {
        match self {
            Stage::Choosing { call }
            | Stage::Configuring { call }
            | Stage::Searching { call }
            | Stage::Quick { step: ProbeStep::Reporting { call }, .. }
            | Stage::Involved { step: ProbeStep::Reporting { call }, .. }
            | Stage::Joining { step: JoinStep::Reserving { call, .. }, .. } => Some(*call),
            Stage::Advertising(advertising) => advertising.awaited_call(),
            _ => None,
        }
    }

    /// Reservation that the state holds.
    pub(super) fn seat(&self) -> Option<&ReservedSeats> {
        match self {
            Stage::Joining { step: JoinStep::Connecting { seat, .. }, .. } => Some(seat),
            Stage::JoinedAsGuest(seat) => Some(seat),
            _ => None,
        }
    }
}
