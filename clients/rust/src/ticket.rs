//! Queue tickets: handle of a party in a queue, and a stream of ticket updates that reconnects.

use std::collections::BTreeMap;
use std::fmt;

use tokio::task::JoinSet;
use tonic::Streaming;

use crate::error::Error;
use crate::latency_tokens::{self, LatencyTokens};
use crate::pb;
use crate::random;
use crate::retrying_channel::RetryingChannel;
use crate::secret_length::debug_secret_length;

/// Ticket of a party in a queue. Dropping it does not leave the queue: the ticket expires, unless a stream watches it.
#[derive(Clone)]
pub struct Ticket {
    channel: RetryingChannel,
    token: Vec<u8>,
    latency_tokens: Option<LatencyTokens>,
    /// Status as of the last response.
    pub status: pb::TicketStatus,
    /// TTL without a heartbeat or a watch, milliseconds.
    pub ttl_ms: u64,
    /// Request fields that were ignored, because the ruleset does not trust their source.
    pub ignored_fields: Vec<String>,
}

impl Ticket {
    pub(crate) fn new(channel: RetryingChannel, response: pb::QueueEnterResponse) -> Result<Self, Error> {
        Ok(Self {
            channel,
            token: response.ticket_token,
            latency_tokens: None,
            status: response.status.ok_or(Error::MissingField("status"))?,
            ttl_ms: response.expires_in_ms,
            ignored_fields: response.ignored_fields,
        })
    }

    /// Ticket from `Client::own_tickets_and_cooldowns`. `expires_in_ms` is 0 until the first heartbeat.
    pub(crate) fn from_own_ticket(channel: RetryingChannel, own: pb::OwnTicket) -> Result<Self, Error> {
        Ok(Self {
            channel,
            token: own.ticket_token,
            latency_tokens: None,
            status: own.status.ok_or(Error::MissingField("status"))?,
            ttl_ms: 0,
            ignored_fields: Vec::new(),
        })
    }

    /// Channel of the client that entered the ticket.
    pub(crate) fn channel(&self) -> &RetryingChannel {
        &self.channel
    }

    /// Ticket id.
    pub fn id(&self) -> &str {
        &self.status.ticket_id
    }

    /// Ticket id and token, for `Client::watch_tickets` and `Client::heartbeat_tickets`.
    pub fn reference(&self) -> pb::TicketReference {
        pb::TicketReference {
            ticket_id: self.status.ticket_id.clone(),
            ticket_token: self.token.clone(),
            resume_token: Vec::new(),
        }
    }

    /// Renews the round trips of the client's own player before they expire: heartbeats from now on, and streams of [`Self::watch`],
    /// have the latest of these tokens.
    pub fn use_latency_tokens(&mut self, tokens: LatencyTokens) {
        self.latency_tokens = Some(tokens);
    }

    /// Streams the updates of this ticket.
    pub fn watch(&self) -> TicketStream {
        TicketStream::new(self.channel.clone(), vec![self.reference()], self.latency_tokens.clone())
    }

    /// Extends the ticket's TTL and returns its status.
    pub async fn heartbeat(&mut self) -> Result<&pb::TicketStatus, Error> {
        let latency_token = self.latency_tokens.as_ref().map_or_else(Vec::new, LatencyTokens::latest);
        let request =
            pb::QueueHeartbeatRequest { tickets: vec![self.reference()], latency_token, ..Default::default() };
        let response =
            self.channel.call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await }).await?;
        self.status = response.statuses.into_iter().next().ok_or(Error::MissingField("statuses"))?;
        Ok(&self.status)
    }

    /// Accepts or declines the match `match_id` for all players whom this client acts for.
    pub async fn respond_to_ready_check(&mut self, match_id: &str, accept: bool) -> Result<&pb::TicketStatus, Error> {
        self.respond_to_ready_check_for_players(match_id, accept, Vec::new()).await
    }

    /// Accepts or declines the match `match_id` for some players.
    pub async fn respond_to_ready_check_for_players(
        &mut self,
        match_id: &str,
        accept: bool,
        user_ids: Vec<String>,
    ) -> Result<&pb::TicketStatus, Error> {
        let request = pb::QueueRespondRequest {
            ticket_id: self.status.ticket_id.clone(),
            ticket_token: self.token.clone(),
            match_id: match_id.to_owned(),
            accept,
            user_ids,
        };
        self.status = self
            .channel
            .call_queue(request, |mut stub, request| async move { stub.respond(request).await })
            .await?
            .status
            .ok_or(Error::MissingField("status"))?;
        Ok(&self.status)
    }

    /// Takes the party out of the queue or of its match, in every stage. Returns whether the ticket has ended, which is
    /// always so for a whole party.
    pub async fn leave(&mut self) -> Result<bool, Error> {
        self.leave_for_players(Vec::new()).await
    }

    /// Takes some players out of the match that is being played. Before play, the ticket ends for the whole party.
    /// Returns whether the ticket has ended.
    pub async fn leave_for_players(&mut self, user_ids: Vec<String>) -> Result<bool, Error> {
        use pb::queue_leave_response::Result as LeaveResult;
        let request = pb::QueueLeaveRequest {
            ticket_id: self.status.ticket_id.clone(),
            ticket_token: self.token.clone(),
            user_ids,
        };
        let (left, status) = match self
            .channel
            .call_queue(request, |mut stub, request| async move { stub.leave(request).await })
            .await?
            .result
        {
            Some(LeaveResult::Ended(status)) => (true, status),
            Some(LeaveResult::Matched(status)) => (false, status),
            None => return Err(Error::MissingField("result")),
        };
        self.status = status;
        Ok(left)
    }

    /// Ends the match `match_id`, which no game server hosts. `failed` reports that the match never started.
    pub async fn end_match(&self, match_id: &str, failed: bool) -> Result<pb::MatchEndReason, Error> {
        let request = pb::QueueEndMatchRequest {
            match_id: match_id.to_owned(),
            ticket_token: self.token.clone(),
            failed,
            ..Default::default()
        };
        Ok(self
            .channel
            .call_queue(request, |mut stub, request| async move { stub.end_match(request).await })
            .await?
            .end_reason())
    }
}

impl fmt::Debug for Ticket {
    /// Prints no token and no credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("token", &debug_secret_length(&self.token))
            .field("status", &self.status)
            .field("ttl_ms", &self.ttl_ms)
            .field("ignored_fields", &self.ignored_fields)
            .finish_non_exhaustive()
    }
}

/// Stream of ticket updates. After a failure it reconnects and resumes where it stopped, as the client's
/// [`RetryPolicy`](crate::RetryPolicy) allows.
#[derive(Debug)]
pub struct TicketStream {
    channel: RetryingChannel,
    /// Tickets that have not ended, by id, with the resume token of their last update.
    tickets: BTreeMap<String, pb::TicketReference>,
    stream: Option<Streaming<pb::QueueWatchResponse>>,
    latency_tokens: Option<LatencyTokens>,
    /// Heartbeat with the latest token. The stream does not wait for it.
    renewal: JoinSet<()>,
    failed_attempts: u32,
}

impl TicketStream {
    pub(crate) fn new(
        channel: RetryingChannel,
        tickets: Vec<pb::TicketReference>,
        latency_tokens: Option<LatencyTokens>,
    ) -> Self {
        let tickets = tickets.into_iter().map(|ticket| (ticket.ticket_id.clone(), ticket)).collect();
        Self { channel, tickets, stream: None, latency_tokens, renewal: JoinSet::new(), failed_attempts: 0 }
    }

    /// Waits for the next update of any ticket; `None` after all tickets have ended and no result is awaited.
    pub async fn next(&mut self) -> Result<Option<pb::TicketStatus>, Error> {
        while !self.tickets.is_empty() {
            let error = match self.receive().await {
                Ok(Some(status)) => {
                    self.failed_attempts = 0;
                    self.record_status(&status);
                    return Ok(Some(status));
                }
                // The server ends the stream when it has none of the remaining tickets any more.
                Ok(None) => return Ok(None),
                Err(error) => error,
            };
            self.stream = None;
            // A stream ends at its byte limit. Another one goes on at once; if that tells no status, it has failed.
            if self.failed_attempts == 0 && is_stream_byte_limit(&error) {
                self.failed_attempts = 1;
                continue;
            }
            self.failed_attempts += 1;
            match self.channel.retry_policy.pause_after_error(self.failed_attempts, &error, random::jitter_fraction()) {
                Some(backoff) => tokio::time::sleep(backoff).await,
                None => return Err(error),
            }
        }
        Ok(None)
    }

    async fn receive(&mut self) -> Result<Option<pb::TicketStatus>, Error> {
        if self.stream.is_none() {
            let latency_token = self.latency_tokens.as_mut().map_or_else(Vec::new, LatencyTokens::take_latest);
            let request = pb::QueueWatchRequest { tickets: self.tickets.values().cloned().collect(), latency_token };
            self.stream = Some(self.channel.open_watch_stream_once(request).await?);
        }
        loop {
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let latency_token = tokio::select! {
                update = stream.message() => return match update? {
                    None => Ok(None),
                    Some(update) => Ok(Some(update.status.ok_or(Error::MissingField("status"))?)),
                },
                token = latency_tokens::next_token_or_pending(&mut self.latency_tokens) => token,
            };
            if !latency_token.is_empty() {
                self.renew_round_trips(latency_token);
            }
        }
    }

    /// Sends a latency token for the tickets, instead of an earlier one. One that is lost is replaced by the next.
    fn renew_round_trips(&mut self, latency_token: Vec<u8>) {
        let (channel, tickets) = (self.channel.clone(), self.tickets.values().cloned().collect());
        let request = pb::QueueHeartbeatRequest { tickets, latency_token, ..Default::default() };
        self.renewal = JoinSet::new();
        self.renewal.spawn(async move {
            let _ = channel.call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await }).await;
        });
    }

    fn record_status(&mut self, status: &pb::TicketStatus) {
        let reports = status.found_match.as_ref().and_then(|found| found.reports.as_ref());
        // The players still report the result: further updates tell what becomes of it.
        let awaits_reports = reports.is_some_and(|reports| reports.state() == pb::ReportState::Waiting);
        if status.state() == pb::TicketState::Ended && !awaits_reports {
            self.tickets.remove(&status.ticket_id);
        } else if let Some(ticket) = self.tickets.get_mut(&status.ticket_id) {
            ticket.resume_token = status.resume_token.clone();
        }
    }
}

/// Whether the server has ended a stream because it has sent as many bytes as one stream may.
fn is_stream_byte_limit(error: &Error) -> bool {
    let reason = error.as_server_error().and_then(|failure| failure.reason.as_deref());
    reason == pb::ErrorReason::StreamLimitReached.as_str_name().strip_prefix("ERROR_REASON_")
}
