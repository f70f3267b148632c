//! Fail points of the engine: a transaction that is cancelled when a client disconnects, and panics of tasks and passes.

use std::path::Path;
use std::time::Duration;

use crate::domain::id::SetId;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::store::{AdvertWrite, CommitResult, Store, StoreError};

/// Set in which passes panic at the fail point `panic_in_pass`.
const PANICKING_SET: SetId = SetId(11);

/// Panics in a pass of one set, or sleeps in each pass, if the fault is enabled: `slow_pass=sleep(MS)`.
pub(crate) fn fail_in_pass(set_id: SetId) {
    fail::fail_point!("slow_pass");
    fail::fail_point!("panic_in_pass", set_id == PANICKING_SET, |_| panic!("planted panic in a pass"));
}

/// Panics in the task of the advertisement writer, if the fault is enabled.
pub(crate) fn fail_in_advert_writer() {
    fail::fail_point!("panic_in_advert_writer", |_| panic!("planted panic in the advertisement writer"));
}

/// Panics in the task of the queue writer, if the fault is enabled.
pub(crate) fn fail_in_queue_writer() {
    fail::fail_point!("panic_in_queue_writer", |_| panic!("planted panic in the queue writer"));
}

/// Panics in the runner of a queue, if the fault is enabled.
pub(crate) fn fail_in_queue_runner() {
    fail::fail_point!("panic_in_queue_runner", |_| panic!("planted panic in a queue runner"));
}

/// Holds back what the queue feed has read, as on a server that is busy, while the file exists that the fault names.
pub(crate) async fn hold_queue_feed() {
    let marker = || -> Option<String> {
        fail::fail_point!("hold_queue_feed", |marker: Option<String>| marker);
        None
    };
    while marker().is_some_and(|marker| Path::new(&marker).exists()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether the fail point is on that ends a commit when a client disconnects.
fn cancels_commit_with_client() -> bool {
    fail::fail_point!("cancel_commit_with_client", |_| true);
    false
}

/// Commits a batch. With the fault enabled, the commit fails as soon as one client has disconnected.
pub(crate) async fn commit_unless_client_gone(
    store: &dyn Store,
    commands: &[AdvertWriterCommand],
    writes: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    if !cancels_commit_with_client() {
        return store.commit_adverts(writes).await;
    }
    let client_gone = async {
        while !commands.iter().any(is_reply_closed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        result = store.commit_adverts(writes) => result,
        () = client_gone => Err(StoreError::Unavailable("a client disconnected".into())),
    }
}

fn is_reply_closed(command: &AdvertWriterCommand) -> bool {
    match command {
        AdvertWriterCommand::Publish(_, reply, _) | AdvertWriterCommand::ExtendTtl(_, reply, _) => reply.is_closed(),
        AdvertWriterCommand::Delete(_, _, reply, _)
        | AdvertWriterCommand::ReleaseReservation(_, _, _, reply, _)
        | AdvertWriterCommand::ReleaseSeat(_, _, _, _, reply, _) => reply.is_closed(),
        AdvertWriterCommand::ReserveSeats(_, reply, _) => reply.is_closed(),
        AdvertWriterCommand::EraseUser(_, reply, _) => reply.is_closed(),
        AdvertWriterCommand::ExpireHold(..)
        | AdvertWriterCommand::ExpireAdvert(..)
        | AdvertWriterCommand::ApplyFeed(..)
        | AdvertWriterCommand::SetRulesets(..)
        | AdvertWriterCommand::Flush(_) => false,
    }
}
