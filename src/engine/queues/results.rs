//! What came of matches: taken from whoever hosted them, written down once, followed by ratings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::auth::token::{AdvertisementClaim, TicketClaim};
use crate::domain::facts::FieldProblem;
use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::life::event::{Effect, Event};
use crate::domain::life::rules::LifeRules;
use crate::domain::life::step::step;
use crate::domain::life::{Match, Member, Outcome, Place, Stage};
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::rating::Skill;
use crate::domain::result::{Placed, RatingChange, Report, Wanted, dense};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::fault::Fault;
use crate::engine::queues::Queues;
use crate::engine::queues::hall::{Hall, RETRY_AFTER_MS};
use crate::engine::queues::writer::{Moved, is_open, moved};
use crate::engine::ratings::command::{
    BoardPage, LookAtBoard, Ranks, RatingView, ReportAnswer, ReportResult, Reporter, ScoreMatch,
};
use crate::store::queues::{Finished, QueueOutcome, QueueWrite};

/// How often a report is judged anew because the match has changed meanwhile.
const ATTEMPTS_MAX: usize = 16;

impl Queues {
    /// Takes what came of a match: durable when it is answered, and once, however often it is said. A match that is still
    /// played is over by it.
    pub async fn report_result(&self, caller: &Caller, said: &ReportResult) -> Result<ReportAnswer, Fault> {
        let hall = &self.hall;
        let by_operator = matches!(said.by, Reporter::Operator);
        let play = hall.any_play(said.match_id).await?;
        let mut play = play.ok_or(if by_operator { Fault::NoSuchMatch } else { Fault::NotYours })?;
        for _ in 0..ATTEMPTS_MAX {
            let (shown, by) = self.may_report(caller, &play, &said.by)?;
            let ruleset = hall.rules(play.set_id, play.hash).ok_or(Fault::UnknownSet(play.set_id))?;
            let spec = hall.rating_of(&play);
            let now = hall.core.clock.now();
            let report = Arc::new(hall.judged(&play, spec.as_ref(), said, now)?);
            let ends = hall.end_of(&play, &ruleset, by, now);
            let effects: Vec<Effect> = ends.as_ref().map_or_else(Vec::new, |ends| ends.effects.clone());
            let write = QueueWrite::Conclude {
                payload: report.digest(said.duration_ms),
                edition: play.edition,
                ends: ends.map(|ends| Box::new(ends.write)),
                spec,
                report,
                now,
            };
            match hall.write(write).await? {
                QueueOutcome::Concluded { result, replayed, .. } => {
                    if !replayed {
                        hall.give_back_all(&play, &effects);
                    }
                    let signer = &hall.core.signer;
                    let named = result.changes.iter().filter(|it| shown.is_none_or(|id| is_of(&play, id, it.user)));
                    let changes = named.map(|it| (signer.player_key(play.id, it.user), *it)).collect();
                    return Ok(ReportAnswer { result, replayed, changes });
                }
                QueueOutcome::Contradicted(first) => {
                    return Err(Fault::AlreadyReported { first: first.report.in_words() });
                }
                QueueOutcome::Stale(Some(now_so)) => play = now_so,
                QueueOutcome::Unratable(why) => {
                    tracing::error!(why, play = %play.id, "rate a match");
                    return Err(Fault::Internal);
                }
                _ => return Err(Fault::NoSuchMatch),
            }
        }
        Err(Fault::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Notes what a player thought of a match. Once; the same again changes nothing.
    pub async fn score_match(&self, caller: &Caller, said: &ScoreMatch) -> Result<(), Fault> {
        let hall = &self.hall;
        let claim = hall.core.signer.open::<TicketClaim>(&said.ticket_token).ok_or(Fault::NotYours)?;
        let play = hall.any_play(said.match_id).await?.ok_or(Fault::NotYours)?;
        let member = member_of(&play, &claim, caller)?;
        let users: Vec<UserKey> = member.players.iter().map(|seat| seat.user).collect();
        let user = match (said.player, &*users) {
            (Some(key), _) => users.iter().copied().find(|user| hall.core.signer.player_key(play.id, *user) == key),
            (None, [only]) => Some(*only),
            (None, several) => caller.user.filter(|own| several.contains(own)),
        };
        let user = user.ok_or_else(|| {
            let what = "must name one of the ticket's own players in this match: it has several";
            problem("player_key", what)
        })?;
        if caller.user.is_some_and(|own| own != user) {
            return Err(Fault::NotYours);
        }
        if play.stage.was_at().is_none() {
            return Err(Fault::NotPlayed);
        }
        let (spec, now) = (hall.rating_of(&play), hall.core.clock.now());
        let write = QueueWrite::Score { match_id: play.id, set_id: play.set_id, user, score: said.score, spec, now };
        match hall.write(write).await? {
            QueueOutcome::Scored(_) => Ok(()),
            QueueOutcome::ScoredBefore { score } if score == said.score => Ok(()),
            QueueOutcome::ScoredBefore { score } => Err(Fault::AlreadyScored { score }),
            _ => Err(Fault::Internal),
        }
    }

    /// How good users are in a set.
    pub fn ratings(&self, set_id: SetId, users: &[UserKey]) -> Result<Vec<RatingView>, Fault> {
        let (spec, now) = (self.rating_spec(set_id)?, self.hall.core.clock.now());
        let mut ratings = self.hall.ratings.lock();
        Ok(users.iter().map(|user| ratings.view(set_id, &spec, *user, now)).collect())
    }

    /// A part of a set's leaderboard.
    pub fn leaderboard(&self, look: LookAtBoard) -> Result<BoardPage, Fault> {
        let spec = self.rating_spec(look.set_id)?;
        Ok(self.hall.ratings.lock().look_at(&spec, look))
    }

    /// The chances of sides of users in a match of a set that began now.
    pub fn predict(&self, set_id: SetId, sides: &[Vec<UserKey>]) -> Result<Vec<f64>, Fault> {
        let (spec, now) = (self.rating_spec(set_id)?, self.hall.core.clock.now());
        let skills = self.hall.ratings.lock().sides(set_id, &spec, sides, now);
        spec.win_chances(&skills).map_err(|error| problem("sides", error.to_string()))
    }

    /// The latest changes of a user's rating in a set, latest first.
    pub async fn rating_changes(&self, set_id: SetId, user: UserKey) -> Result<Vec<RatingChange>, Fault> {
        self.rating_spec(set_id)?;
        self.hall.core.store.rating_changes(user, set_id).await.map_err(|error| out_of_reach(&error))
    }

    /// Finished matches in the order in which they were reported, after `after`.
    pub async fn finished(&self, after: (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, Fault> {
        self.hall.core.store.finished(after, most).await.map_err(|error| out_of_reach(&error))
    }

    fn rating_spec(&self, set_id: SetId) -> Result<RatingSpec, Fault> {
        self.hall.core.ruleset(set_id, None)?.rating.ok_or(Fault::NoRatings(set_id))
    }

    /// Whether a reporter may speak for the match: of whose ratings it hears, and which of the players it is.
    fn may_report(
        &self,
        caller: &Caller,
        play: &Match,
        by: &Reporter,
    ) -> Result<(Option<TicketId>, Option<UserKey>), Fault> {
        let signer = &self.hall.core.signer;
        let told = match by {
            Reporter::Operator => (None, None),
            Reporter::Server(token) => {
                let claim = signer.open::<AdvertisementClaim>(token).ok_or(Fault::NotYours)?;
                let here = play.stage.was_at().is_some_and(|place| place.is_at(claim.id));
                if claim.subject != caller.subject || !here {
                    return Err(Fault::NotYours);
                }
                (None, None)
            }
            Reporter::Ticket(token) => {
                let claim = signer.open::<TicketClaim>(token).ok_or(Fault::NotYours)?;
                let member = member_of(play, &claim, caller)?;
                let by = match play.stage.was_at() {
                    Some(Place::Server { .. }) => return Err(Fault::NotYours),
                    Some(Place::Peer { host }) => member.players.iter().find(|seat| seat.player == *host),
                    // Where nobody hosts, a backend that entered the ticket may say so, and no player's game.
                    Some(Place::Nowhere) if caller.user.is_some() => None,
                    Some(Place::Nowhere) | None => member.players.first(),
                };
                (Some(member.ticket), Some(by.ok_or(Fault::NotYours)?.user))
            }
        };
        match play.stage {
            Stage::Playing { .. } | Stage::Over { outcome: Outcome::Played | Outcome::Lapsed, .. } => Ok(told),
            Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { .. } => Err(Fault::NotPlayed),
        }
    }
}

impl Hall {
    /// A match, from memory, or from the store if it is over and memory has let it go.
    async fn any_play(&self, id: MatchId) -> Result<Option<Arc<Match>>, Fault> {
        let known = self.soon(|roster| roster.play(id).cloned()).await;
        match known {
            Some(play) => Ok(Some(play)),
            None => self.core.store.look_match(id).await.map_err(|error| out_of_reach(&error)),
        }
    }

    /// How ratings follow a match, where they do. A match lives by the rules that made it; ratings by those in force, whose scale
    /// they are on (B-32).
    fn rating_of(&self, play: &Match) -> Option<RatingSpec> {
        let current = self.core.catalog.current(play.set_id);
        current.or_else(|| self.rules(play.set_id, play.hash)).and_then(|ruleset| ruleset.rating)
    }

    /// The change that ends a match, if it is still played.
    fn end_of(&self, play: &Match, ruleset: &Ruleset, by: Option<UserKey>, now: UnixMs) -> Option<Moved> {
        if !matches!(play.stage, Stage::Playing { .. }) {
            return None;
        }
        let step = {
            let roster = self.roster.read();
            step(&LifeRules::of(ruleset), play, Event::Reported { by }, &|id| is_open(&roster, id), now)
        };
        moved(self, ruleset, step, now)
    }

    /// What is said, held against the match that it is said of.
    fn judged(
        &self,
        play: &Match,
        spec: Option<&RatingSpec>,
        said: &ReportResult,
        now: UnixMs,
    ) -> Result<Report, Fault> {
        let seats =
            || play.members.iter().flat_map(|member| member.players.iter().map(|seat| (member.team, seat.user)));
        let names: BTreeMap<UserKey, (u16, UserKey)> =
            seats().map(|(team, user)| (self.core.signer.player_key(play.id, user), (team, user))).collect();
        let mut teams: BTreeMap<u16, Vec<UserKey>> = BTreeMap::new();
        seats().for_each(|(team, user)| teams.entry(team).or_default().push(user));
        let sides = match &said.ranks {
            Ranks::Teams(ranks) => by_team(&teams, ranks)?,
            Ranks::Players(ranks) => by_player(&teams, &names, ranks)?,
        };
        let mut disconnected = Vec::with_capacity(said.disconnected.len());
        for (index, key) in said.disconnected.iter().enumerate() {
            let path = format!("disconnected_player_keys[{index}]");
            disconnected.push(names.get(key).ok_or_else(|| problem(path, NOBODY))?.1);
        }
        disconnected.sort_unstable();
        disconnected.dedup();
        let (began, duration_ms) = match play.stage {
            Stage::Playing { began, .. } => (began, said.duration_ms.or_else(|| Some(now.since(began)))),
            Stage::Over { began: Some(began), .. } => (began, said.duration_ms),
            Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { began: None, .. } => {
                return Err(Fault::NotPlayed);
            }
        };
        let wanted = self.wanted(play, spec, &sides, began);
        Ok(Report {
            match_id: play.id,
            set_id: play.set_id,
            silo: play.silo,
            hash: play.hash,
            sides,
            disconnected,
            began,
            duration_ms,
            wanted,
        })
    }

    /// What was known of a match when it was made: by the ratings that its players entered with, as far as their tickets are
    /// still in memory.
    fn wanted(&self, play: &Match, spec: Option<&RatingSpec>, sides: &[Placed], began: UnixMs) -> Wanted {
        let tickets: Vec<Option<Arc<Ticket>>> = {
            let roster = self.roster.read();
            let ticket = |member: &Member| roster.ticket(member.ticket).map(|stored| Arc::clone(&stored.ticket));
            play.members.iter().map(ticket).collect()
        };
        let entered_with: BTreeMap<UserKey, Rated> = tickets
            .iter()
            .flatten()
            .flat_map(|ticket| {
                ticket.session.players.iter().map(|player| player.user).zip(ticket.ratings.iter().copied())
            })
            .collect();
        let skills: Vec<Vec<Skill>> = spec.map_or_else(Vec::new, |spec| {
            let ratings = self.ratings.lock();
            let skill = |user: &UserKey| {
                let known = ratings.skill(play.set_id, spec, *user, began);
                Skill { rated: entered_with.get(user).copied().unwrap_or(known.rated), ..known }
            };
            sides.iter().map(|side| side.users.iter().map(skill).collect()).collect()
        });
        let mean = |side: &Vec<Skill>| side.iter().map(|it| it.rated.rating).sum::<f64>() / side.len().max(1) as f64;
        let means = || skills.iter().map(mean);
        let gap = means().fold(f64::NEG_INFINITY, f64::max) - means().fold(f64::INFINITY, f64::min);
        let round_trip = |ticket: &Option<Arc<Ticket>>| {
            let met_at = play.region.as_deref()?;
            let regions = ticket.as_ref()?.session.regions.clone();
            regions.iter().find(|it| &*it.region == met_at).map(|it| it.round_trip_ms)
        };
        Wanted {
            quality: play.quality,
            chances: spec.and_then(|spec| spec.win_chances(&skills).ok()).unwrap_or_default(),
            gap: if gap.is_finite() { gap } else { 0.0 },
            waits_ms: play.members.iter().map(|member| began.since(member.entered)).collect(),
            round_trips_ms: tickets.iter().map(round_trip).collect(),
            region: play.region.clone(),
        }
    }
}

/// What is said of a name that nobody in the match has.
const NOBODY: &str = "is nobody in this match: give the player_key that the match was told with";

/// Sides of teams, each of which is ranked once.
fn by_team(teams: &BTreeMap<u16, Vec<UserKey>>, ranks: &[(u16, u32)]) -> Result<Vec<Placed>, Fault> {
    let mut ranked = BTreeMap::new();
    for (index, (team, rank)) in ranks.iter().enumerate() {
        if !teams.contains_key(team) {
            let there = teams.keys().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(problem(format!("team_ranks[{index}].team"), format!("is {team}; this match has {there}")));
        }
        if ranked.insert(*team, *rank).is_some() {
            return Err(problem(format!("team_ranks[{index}].team"), "is here a second time: each team once"));
        }
    }
    if let Some(missing) = teams.keys().find(|team| !ranked.contains_key(*team)) {
        return Err(problem("team_ranks", format!("lacks team {missing}: every team came in somewhere")));
    }
    let dense = dense(&ranked.values().copied().collect::<Vec<_>>());
    let side = |((team, users), rank): ((&u16, &Vec<UserKey>), u32)| Placed { team: *team, users: users.clone(), rank };
    Ok(teams.iter().zip(dense).map(side).collect())
}

/// Sides of players, each of whom is ranked once: their teams, where there are several; else every player alone.
fn by_player(
    teams: &BTreeMap<u16, Vec<UserKey>>,
    names: &BTreeMap<UserKey, (u16, UserKey)>,
    ranks: &[(UserKey, u32)],
) -> Result<Vec<Placed>, Fault> {
    let mut ranked: BTreeMap<UserKey, u32> = BTreeMap::new();
    for (index, (key, rank)) in ranks.iter().enumerate() {
        let path = || format!("player_ranks[{index}].player_key");
        let (_, user) = names.get(key).ok_or_else(|| problem(path(), NOBODY))?;
        if ranked.insert(*user, *rank).is_some() {
            return Err(problem(path(), "is here a second time: each player once"));
        }
    }
    let missing = names.values().find(|(_, user)| !ranked.contains_key(user));
    if let Some((team, _)) = missing {
        return Err(problem("player_ranks", format!("lacks a player of team {team}: everybody came in somewhere")));
    }
    if let [(team, users)] = &*teams.iter().collect::<Vec<_>>() {
        let dense = dense(&users.iter().map(|user| ranked[user]).collect::<Vec<_>>());
        let side = |(user, rank): (&UserKey, u32)| Placed { team: **team, users: vec![*user], rank };
        return Ok(users.iter().zip(dense).map(side).collect());
    }
    let mut of_teams = Vec::with_capacity(teams.len());
    for (team, users) in teams {
        let mut all = users.iter().map(|user| ranked[user]);
        let first = all.next().unwrap_or(1);
        if let Some(other) = all.find(|rank| *rank != first) {
            let what = format!("say that players of team {team} came in {first} and {other}: a team comes in together");
            return Err(problem("player_ranks", what));
        }
        of_teams.push((*team, first));
    }
    by_team(teams, &of_teams)
}

/// The caller's own ticket in a match.
fn member_of<'a>(play: &'a Match, claim: &TicketClaim, caller: &Caller) -> Result<&'a Member, Fault> {
    let member = play.members.iter().find(|member| member.ticket == claim.id);
    member.filter(|_| claim.subject == caller.subject).ok_or(Fault::NotYours)
}

fn is_of(play: &Match, ticket: TicketId, user: UserKey) -> bool {
    let own = play.members.iter().find(|member| member.ticket == ticket);
    own.is_some_and(|member| member.players.iter().any(|seat| seat.user == user))
}

fn problem(path: impl Into<String>, what: impl Into<String>) -> Fault {
    Fault::Fields(vec![FieldProblem { path: path.into(), what: what.into() }])
}

fn out_of_reach(error: &crate::store::StoreError) -> Fault {
    tracing::error!(%error, "read what came of matches");
    Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}
