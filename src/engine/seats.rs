//! Taking seats and giving them back: from a command to a job for the writer.

use tokio::sync::oneshot;

use crate::auth::token::{ReservationClaim, SearchClaim, Signer};
use crate::domain::advertisement::Kind;
use crate::domain::id::SetId;
use crate::engine::command::{Caller, Release, Reserve, ReserveAnswer};
use crate::engine::fault::Fault;
use crate::engine::job::{Job, Take};
use crate::engine::seeker::{Seeker, field};
use crate::engine::{Engine, Submitted};

impl Engine {
    /// Takes all the party's seats or none. The rules are judged again, those that the search went by, against the
    /// advertisement as it is when the writer comes to it.
    pub fn reserve(&self, caller: &Caller, reserve: Reserve) -> Result<Submitted<ReserveAnswer>, Fault> {
        let now = self.core.clock.now();
        if reserve.search_token.is_empty() {
            return Err(field("search_token", "is required: send the one of the search that found the session"));
        }
        let Some(searched) = self.core.signer.open::<SearchClaim>(&reserve.search_token) else {
            return Err(field("search_token", "is not one of this server's: search again"));
        };
        if reserve.set_id.is_some_and(|set_id| set_id != searched.set_id) {
            let what = format!("the search was in set {}", searched.set_id);
            return Err(field("matchmaking_set_id", what));
        }
        let set_id: SetId = searched.set_id;
        let ruleset = self.core.ruleset(set_id, Some(searched.hash))?;
        self.core.check_party(caller, &ruleset, &reserve.session, &reserve.consents, now)?;
        let (session, ignored) = self.core.placed(caller, reserve.session)?;
        let seeker = Seeker::new(&ruleset, caller, session, ignored)?;
        let claim = self.core.search_claim(&ruleset, &seeker, &reserve.search_token, now)?;
        let key = &reserve.idempotency_key;
        let id = self.core.signer.reservation_id(caller.subject, reserve.advertisement_id, key);
        let payload = Signer::party_digest(seeker.subject, &seeker.users, &seeker.session.party_sizes);
        let take = Take {
            id,
            advertisement_id: reserve.advertisement_id,
            kind: Kind::Session,
            set_id,
            silo: seeker.session.silo,
            ruleset,
            searching_since: claim.since,
            hold_ms: self.core.settings.hold_ms(reserve.hold_for_ms),
            payload,
            session: seeker.session,
            facts: seeker.facts,
            users: seeker.users,
            subject: seeker.subject,
        };
        let (reply, answer) = oneshot::channel();
        self.submit(Job::Take(Box::new(take), reply, self.core.flights.begin(reserve.advertisement_id)))?;
        Ok(Submitted::Waiting(answer))
    }

    /// Gives seats back. What has ended has ended: releasing twice succeeds.
    pub fn release(&self, caller: &Caller, release: Release) -> Result<Submitted<()>, Fault> {
        let claim = self.core.signer.open::<ReservationClaim>(&release.token).ok_or(Fault::NotYours)?;
        if claim.id != release.id || claim.subject != caller.subject {
            return Err(Fault::NotYours);
        }
        let (reply, answer) = oneshot::channel();
        let in_flight = self.core.flights.begin(claim.advertisement_id);
        self.submit(Job::Release(claim.id, claim.advertisement_id, claim.set_id, reply, in_flight))?;
        Ok(Submitted::Waiting(answer))
    }
}
