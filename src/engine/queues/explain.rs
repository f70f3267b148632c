//! Why a ticket still waits, for operators.

use std::sync::Arc;

use crate::domain::advertisement::Kind;
use crate::domain::facts::Facts;
use crate::domain::filter::explain::{SearchExplanation, explain as explain_search};
use crate::domain::id::{SetId, TicketId};
use crate::domain::limit::PASS_LOOKS_MAX;
use crate::domain::queue::explain::{Explanation, Question, explain};
use crate::domain::queue::ticket::Rated;
use crate::domain::result::Satisfaction;
use crate::domain::session::Session;
use crate::engine::command::Caller;
use crate::engine::fault::Fault;
use crate::engine::queues::Queues;
use crate::engine::queues::command::{Explained, RatingGiven, SearchExplained};
use crate::engine::queues::picture::Entrants;
use crate::engine::seeker::{Seeker, field};
use crate::engine::shelf::{Record, listed};
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, RatingRow, TicketState};

impl Queues {
    /// Why a ticket still waits, by the rules in force. On a thread of its own: it may look at as many pairs as a pass.
    pub async fn explain(&self, id: TicketId, nearest: usize) -> Result<Explained, Fault> {
        let hall = &self.hall;
        let stored = hall.roster.read().ticket(id).cloned().ok_or(Fault::TicketNotFound)?;
        if stored.state != TicketState::Waiting {
            return Err(Fault::NotWaiting);
        }
        let key = QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo };
        let ruleset = hall.core.ruleset(key.set_id, None)?;
        if ruleset.queue.is_none() {
            return Err(Fault::NoQueue(key.set_id));
        }
        let (hall, rules) = (Arc::clone(hall), Arc::clone(&ruleset));
        let question = Question { ticket: id, nearest, looks_max: PASS_LOOKS_MAX };
        let explained = tokio::task::spawn_blocking(move || {
            let queue = rules.queue.as_ref()?;
            let picture = hall.picture(key, &rules, queue, &mut Entrants::default(), hall.core.clock.now());
            picture.look(|input| explain(input, &question))
        });
        let explanation: Option<Explanation> = explained.await.map_err(|_| Fault::Internal)?.flatten();
        // Who is not in the picture is passed over: a player of it is in a match.
        let explanation = explanation.ok_or(Fault::NotWaiting)?;
        Ok(Explained { set_id: key.set_id, ruleset, explanation })
    }

    /// Why a search by `session`, after it has been going on for `searching_for_ms`, finds what it finds. It looks at every
    /// advertisement of the set and silo, on a thread of its own.
    pub async fn explain_search(
        &self,
        set_id: SetId,
        session: Session,
        searching_for_ms: u64,
        nearest: usize,
    ) -> Result<SearchExplained, Fault> {
        let core = Arc::clone(&self.hall.core);
        let ruleset = core.ruleset(set_id, None)?;
        let (session, ignored) = core.placed(&Caller::default(), session)?;
        let seeker = Seeker::new(&ruleset, &Caller::default(), session, ignored)?;
        let explained = tokio::task::spawn_blocking(move || {
            let now = core.clock.now();
            let searcher = seeker.searcher(&[], searching_for_ms);
            let Some(shelf) = core.directory.shelf(set_id) else {
                return SearchExplained { ruleset, explanation: SearchExplanation::default() };
            };
            // Copied out: nobody waits for a sweep over a million rows.
            let records: Vec<Record> = {
                let shelf = shelf.read();
                let is_near = |record: &&Record| {
                    let advertisement = &record.advertisement;
                    advertisement.kind == Kind::Session && advertisement.session.silo == seeker.session.silo
                };
                shelf.records().filter(is_near).cloned().collect()
            };
            let facts: Vec<Facts> =
                records.iter().map(|record| Facts::of(&ruleset, &record.advertisement.session)).collect();
            let rows = records.iter().zip(&facts).map(|(record, facts)| listed(record, facts));
            let explanation = explain_search(&ruleset, &searcher, rows, nearest, now);
            SearchExplained { ruleset, explanation }
        });
        explained.await.map_err(|_| Fault::Internal)
    }

    /// Sets users' ratings in a set; durable when it is answered.
    pub async fn import_ratings(&self, set_id: SetId, given: Vec<RatingGiven>) -> Result<u32, Fault> {
        let ruleset = self.hall.core.ruleset(set_id, None)?;
        let Some(spec) = &ruleset.rating else {
            let what = format!("ruleset `{}` keeps no ratings: give it a <Rating>", ruleset.name);
            return Err(field("matchmaking_set_id", what));
        };
        let new = spec.newcomer();
        let now = self.hall.core.clock.now();
        let played = self.hall.ratings.lock().played(set_id).periods();
        let row = |given: &RatingGiven| RatingRow {
            user: given.user,
            set_id,
            rated: Rated { rating: given.rating, deviation: given.deviation.unwrap_or(new.rated.deviation) },
            volatility: given.volatility.unwrap_or(new.volatility),
            matches: given.matches,
            last: now,
            streak: 0,
            satisfaction: Satisfaction::default(),
            // Nobody has been idle since an import.
            played,
        };
        let rows: Vec<RatingRow> = given.iter().map(row).collect();
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        match self.hall.write(QueueWrite::Rate { rows }).await? {
            QueueOutcome::Rated => Ok(count),
            _ => Err(Fault::Internal),
        }
    }
}
