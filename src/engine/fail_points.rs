//! The engine's planted fault: a transaction that ends with the first client who gives up.

use std::time::Duration;

use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::store::{AdvertWrite, CommitResult, StoreError, mutant};

/// Has the store confirm a batch; as it would be if the handler of one of its calls did so itself.
pub(super) async fn commit_unless_client_gone(
    core: &Core,
    jobs: &[AdvertWriterCommand],
    writes: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    if !mutant::is("transaction_in_the_handler") {
        return core.store.commit(writes).await;
    }
    let given_up = async {
        while !jobs.iter().any(is_reply_closed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        committed = core.store.commit(writes) => committed,
        () = given_up => Err(StoreError::Unavailable("a client gave up".into())),
    }
}

fn is_reply_closed(job: &AdvertWriterCommand) -> bool {
    match job {
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
