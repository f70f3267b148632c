//! Labels of the store: its operations, and the changes of its transactions.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder};

label! {
    /// Store operation.
    StoreOperation, "operation",
    /// Load all advertisements at startup.
    Load = "load",
    /// Commit a batch of advertisement changes.
    Commit = "commit",
    /// Delete expired rows.
    Purge = "purge",
    /// Flush and close the store.
    Close = "close",
    /// Load all queue data at startup.
    LoadQueues = "load_queues",
    /// Commit a batch of queue changes.
    CommitQueues = "commit_queues",
    /// Delete expired rows of queues.
    PurgeQueues = "purge_queues",
    /// Read a ticket that the feed has not brought.
    ReadTicket = "read_ticket",
}

label! {
    /// Kind of changes in a store transaction.
    TransactionKind, "transaction",
    /// Advertisements published.
    Publish = "publish",
    /// TTL of advertisements extended.
    Extend = "extend",
    /// Advertisements deleted.
    Delete = "delete",
    /// Advertisements expired.
    Expire = "expire",
    /// Seats reserved.
    Reserve = "reserve",
    /// Reservations released or expired.
    EndReservation = "end_reservation",
    /// More than one kind of advertisement change.
    Mixed = "mixed",
    /// Tickets created.
    Enter = "enter",
    /// TTL of tickets extended.
    TicketHeartbeat = "ticket_heartbeat",
    /// Round trips of tickets' players to beacons renewed.
    RenewVector = "renew_vector",
    /// Ready checks acknowledged by players.
    Acknowledge = "acknowledge",
    /// Consents taken or revoked.
    Consent = "consent",
    /// Block lists changed.
    BlockList = "block_list",
    /// Tickets ended while waiting.
    Leave = "leave",
    /// Matches proposed.
    Propose = "propose",
    /// Matches moved to their next stage.
    MatchTransition = "match_transition",
    /// Ratings imported.
    ImportRatings = "import_ratings",
    /// Match results recorded.
    RecordResult = "record_result",
    /// Players' feedback recorded.
    Feedback = "feedback",
    /// Users erased.
    EraseUser = "erase_user",
    /// Old ratings removed.
    RemoveRatings = "remove_ratings",
    /// More than one kind of queue change.
    MixedQueue = "mixed_queue",
}
