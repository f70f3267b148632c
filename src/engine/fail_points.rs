//! Fail point of the engine: a transaction that is cancelled when a client disconnects.

use std::time::Duration;

use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::store::{AdvertWrite, CommitResult, Store, StoreError};

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
        return store.commit(writes).await;
    }
    let client_gone = async {
        while !commands.iter().any(is_reply_closed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        result = store.commit(writes) => result,
        () = client_gone => Err(StoreError::Unavailable("a client disconnected".into())),
    }
}

fn is_reply_closed(command: &AdvertWriterCommand) -> bool {
    match command {
        AdvertWriterCommand::Publish(_, reply, _) | AdvertWriterCommand::ExtendTtl(_, reply, _) => reply.is_closed(),
        AdvertWriterCommand::Delete(_, _, reply, _) | AdvertWriterCommand::ReleaseReservation(_, _, _, reply, _) => {
            reply.is_closed()
        }
        AdvertWriterCommand::ReserveSeats(_, reply, _) => reply.is_closed(),
        AdvertWriterCommand::ExpireHold(..)
        | AdvertWriterCommand::ExpireAdvert(..)
        | AdvertWriterCommand::ApplyFeed(..)
        | AdvertWriterCommand::SetRulesets(..)
        | AdvertWriterCommand::Flush(_) => false,
    }
}
