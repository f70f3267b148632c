//! The engine's planted fault: a transaction that ends with the first client who gives up.

use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::job::Job;
use crate::store::{Committed, StoreError, Write, mutant};

/// Has the store confirm a batch; as it would be if the handler of one of its calls did so itself.
pub(super) async fn commit(core: &Core, jobs: &[Job], writes: &[Write]) -> Result<Committed, StoreError> {
    if !mutant::is("transaction_in_the_handler") {
        return core.store.commit(writes).await;
    }
    let given_up = async {
        while !jobs.iter().any(is_given_up) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        committed = core.store.commit(writes) => committed,
        () = given_up => Err(StoreError::Unavailable("a client gave up".into())),
    }
}

fn is_given_up(job: &Job) -> bool {
    match job {
        Job::Publish(_, reply, _) | Job::Extend(_, reply, _) => reply.is_closed(),
        Job::Delete(_, _, reply, _) | Job::Release(_, _, _, reply, _) => reply.is_closed(),
        Job::Take(_, reply, _) => reply.is_closed(),
        Job::Lapse(..) | Job::Expire(..) | Job::News(..) | Job::Rules(..) | Job::Mark(_) => false,
    }
}
