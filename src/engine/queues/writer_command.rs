//! Commands in the queue writer's inbox, and the result of a match event.

use std::sync::Arc;

use crate::domain::id::MatchId;
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::event::{EventResult, MatchEvent};
use crate::engine::open_silos::SiloUse;
use crate::engine::writer_inbox::ReplySender;
use crate::store::queues::{QueueFeedBatch, QueueOutcome, QueueWrite};

/// Command for the queue writer.
#[derive(Debug)]
pub(crate) enum QueueWriterCommand {
    /// Write to commit.
    Write(Box<QueueWrite>, ReplySender<QueueOutcome>, Option<SiloUse>),
    /// Match event; answered with the resulting match.
    MatchEvent(Box<PendingEvent>),
    /// Changes of other replicas.
    ApplyFeed(Box<QueueFeedBatch>),
}

/// Match event and its reply channel.
#[derive(Debug)]
pub(crate) struct PendingEvent {
    pub(crate) match_id: MatchId,
    pub(crate) event: MatchEvent,
    pub(crate) reply: ReplySender<EventOutcome>,
    /// Attempts that conflicted with another replica.
    pub(crate) attempts: u8,
}

/// Result of a match event.
#[derive(Clone, Debug)]
pub(crate) struct EventOutcome {
    /// Result of the state machine.
    pub(crate) result: EventResult,
    /// Match after the event.
    pub(crate) match_after: Arc<Match>,
}

impl PendingEvent {
    /// Event for match `id`.
    pub(crate) fn new(match_id: MatchId, event: MatchEvent, reply: ReplySender<EventOutcome>) -> Self {
        Self { match_id, event, reply, attempts: 0 }
    }
}
