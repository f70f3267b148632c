//! A party that waits in a queue, and news of it that outlive the server they come from.

use std::collections::BTreeMap;

use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;
use crate::pb;
use crate::random;

/// One ticket. Dropping it leaves nothing: the ticket lapses, unless somebody watches it.
#[derive(Clone, Debug)]
pub struct Ticket {
    client: Client,
    token: Vec<u8>,
    /// How it stood when this handle last heard of it.
    pub status: pb::TicketStatus,
    /// How long it is kept without a heartbeat or a watch; milliseconds.
    pub expires_in_ms: u32,
    /// Fields that were given by a source that the ruleset does not trust.
    pub ignored_fields: Vec<String>,
}

impl Ticket {
    pub(crate) fn new(client: Client, entered: pb::QueueEnterResponse) -> Result<Self, Error> {
        Ok(Self {
            client,
            token: entered.ticket_token,
            status: entered.status.ok_or(Error::MissingField("status"))?,
            expires_in_ms: entered.expires_in_ms,
            ignored_fields: entered.ignored_fields,
        })
    }

    /// The client that entered it.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The ticket's name.
    pub fn id(&self) -> &str {
        &self.status.ticket_id
    }

    /// The ticket with its proof, for [`Client::watch`] and [`Client::heartbeat`].
    pub fn reference(&self) -> pb::TicketReference {
        pb::TicketReference {
            ticket_id: self.status.ticket_id.clone(),
            ticket_token: self.token.clone(),
            resume_token: Vec::new(),
        }
    }

    /// News of this ticket alone.
    pub fn watch(&self) -> TicketStream {
        self.client.watch([self.reference()])
    }

    /// Says that the party still waits, and hears how it stands.
    pub async fn heartbeat(&mut self) -> Result<&pb::TicketStatus, Error> {
        let request = pb::QueueHeartbeatRequest { tickets: vec![self.reference()], ..Default::default() };
        let answer = self.client.heartbeat(request).await?;
        self.status = answer.statuses.into_iter().next().ok_or(Error::MissingField("statuses"))?;
        Ok(&self.status)
    }

    /// Agrees to the match `match_id`, or declines it, for all of the party.
    pub async fn respond(&mut self, match_id: &str, accept: bool) -> Result<&pb::TicketStatus, Error> {
        let request = pb::QueueRespondRequest {
            ticket_id: self.status.ticket_id.clone(),
            ticket_token: self.token.clone(),
            match_id: match_id.to_owned(),
            accept,
            user_ids: Vec::new(),
        };
        self.status = self.client.respond(request).await?.status.ok_or(Error::MissingField("status"))?;
        Ok(&self.status)
    }

    /// No longer waits; `false` when it is too late, and `status` says which match it has.
    pub async fn leave(&mut self) -> Result<bool, Error> {
        use pb::queue_leave_response::Result as Left;
        let request =
            pb::QueueLeaveRequest { ticket_id: self.status.ticket_id.clone(), ticket_token: self.token.clone() };
        let (left, status) = match self.client.leave(request).await?.result {
            Some(Left::Ended(status)) => (true, status),
            Some(Left::Matched(status)) => (false, status),
            None => return Err(Error::MissingField("result")),
        };
        self.status = status;
        Ok(left)
    }

    /// Says that the match `match_id`, which no game server hosts, is over; or with `failed` that it never began.
    pub async fn end_match(&self, match_id: &str, failed: bool) -> Result<pb::MatchEndReason, Error> {
        let request = pb::QueueEndMatchRequest {
            match_id: match_id.to_owned(),
            ticket_token: self.token.clone(),
            failed,
            ..Default::default()
        };
        Ok(self.client.end_match(request).await?.end_reason())
    }
}

/// News of tickets. When the stream breaks it is opened again, where it broke off, as often as the client's
/// [`Retries`](crate::Retries) have it.
#[derive(Debug)]
pub struct TicketStream {
    client: Client,
    /// Tickets that are not over, by their names, with what was last heard of each.
    tickets: BTreeMap<String, pb::TicketReference>,
    stream: Option<Streaming<pb::QueueWatchResponse>>,
    failed_attempts: u32,
}

impl TicketStream {
    pub(crate) fn new(client: Client, tickets: Vec<pb::TicketReference>) -> Self {
        let tickets = tickets.into_iter().map(|ticket| (ticket.ticket_id.clone(), ticket)).collect();
        Self { client, tickets, stream: None, failed_attempts: 0 }
    }

    /// The next news of any of the tickets; `None` when all of them are over.
    pub async fn next(&mut self) -> Result<Option<pb::TicketStatus>, Error> {
        while !self.tickets.is_empty() {
            let error = match self.receive().await {
                Ok(Some(status)) => {
                    self.failed_attempts = 0;
                    self.record_status(&status);
                    return Ok(Some(status));
                }
                // The server has said all that it knows: whatever is left it knows no more.
                Ok(None) => return Ok(None),
                Err(error) => error,
            };
            self.stream = None;
            self.failed_attempts += 1;
            match self.client.retry_policy().backoff_after(self.failed_attempts, &error, random::jitter()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
        Ok(None)
    }

    async fn receive(&mut self) -> Result<Option<pb::TicketStatus>, Error> {
        if self.stream.is_none() {
            let tickets = self.tickets.values().cloned().collect();
            self.stream = Some(self.client.open_watch_stream(pb::QueueWatchRequest { tickets }).await?);
        }
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match stream.message().await? {
            None => Ok(None),
            Some(news) => Ok(Some(news.status.ok_or(Error::MissingField("status"))?)),
        }
    }

    fn record_status(&mut self, status: &pb::TicketStatus) {
        if status.state() == pb::TicketState::Ended {
            self.tickets.remove(&status.ticket_id);
        } else if let Some(ticket) = self.tickets.get_mut(&status.ticket_id) {
            ticket.resume_token = status.resume_token.clone();
        }
    }
}
