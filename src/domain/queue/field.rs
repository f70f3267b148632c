//! Everyone who waits, as they stand at the moment of one pass: sorted, with their ranges, limits and regions by now; and
//! who of them may meet whom.

use std::cmp::Ordering;

use crate::domain::attribute::Value;
use crate::domain::filter::{Refusal, Seen, Waits};
use crate::domain::id::UserKey;
use crate::domain::queue::avoid::{self, Wary, shares};
use crate::domain::queue::columns::Columns;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::group;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::quality::Member;
use crate::domain::queue::region::{self, Names, Reached};
use crate::domain::queue::window::{self, Look};
use crate::domain::ruleset::queue::{Quality, Regions, SelectionMode};
use crate::domain::ruleset::{HardRule, MissingHard};

/// A ticket at the moment of a pass.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) entrant: &'a Entrant,
    /// As hard filters judge it.
    pub(super) waits: Waits<'a>,
    /// The entrant's, so that nobody need look there for each pair.
    pub(super) size: u16,
    pub(super) group: u16,
    pub(super) bucket: i64,
    pub(super) place: Option<f64>,
    /// Its user, if it has but one.
    lone: Option<UserKey>,
    /// How many buckets to either side of `centre` it looks by now.
    pub(super) range: u32,
    /// The bucket around which it looks.
    pub(super) centre: i64,
    /// How many groups further it looks by now.
    pub(super) neighbours: u16,
    /// Its regions by now.
    pub(super) reached: Reached<'a>,
    /// It has blocked somebody, or met somebody lately: whom it avoids must be asked.
    pub(super) wary: bool,
}

impl<'a> Row<'a> {
    pub(super) fn member(&self, team: u16) -> Member<'a> {
        let entrant = self.entrant;
        Member {
            seen: self.waits.seen,
            ratings: &entrant.ratings,
            rated: &entrant.ticket.ratings,
            place: self.place,
            waited_ms: self.waits.waited_ms,
            team,
        }
    }

    /// Where it looks by now.
    pub(super) fn look(&self) -> Look {
        Look { bucket: self.bucket, centre: self.centre, range: self.range }
    }

    pub(super) fn wary(&self) -> Wary<'a> {
        Wary { users: &self.entrant.users, blocked: &self.entrant.ticket.blocked }
    }

    /// Who is first among equals: who has waited longest, then the lesser id.
    pub(super) fn seniority(&self, other: &Row<'_>) -> Ordering {
        let (one, other) = (&self.entrant.ticket, &other.entrant.ticket);
        one.entered.cmp(&other.entered).then(one.id.cmp(&other.id))
    }
}

/// Everyone who waits, nearest to each other in order.
pub(super) struct Field<'a> {
    pub(super) input: &'a PassInput<'a>,
    /// By key, then by seniority; for windows, which go down, the senior of equals last.
    pub(super) rows: Vec<Row<'a>>,
    /// What nearness is measured in, row by row: the bucket or the rating, or the place on the leaderboard.
    pub(super) keys: Vec<f64>,
    /// The filters, laid out.
    pub(super) columns: Columns<'a>,
    pub(super) names: Names<'a>,
    /// Keys are ratings or their buckets, so that groups and buckets come in order too.
    pub(super) by_rating: bool,
    /// Keys are buckets.
    by_bucket: bool,
    /// How far any row looks from its own bucket, at most.
    pub(super) widest: u32,
}

impl<'a> Field<'a> {
    pub(super) fn of(input: &'a PassInput<'a>) -> Self {
        let queue = input.queue;
        let by_place = matches!(queue.quality, Quality::LeaderboardGauss { .. });
        // Windows go down from their highest, and of equals the senior comes first.
        let downwards = queue.selection.mode == SelectionMode::BestWindow;
        let by_rating = !by_place || downwards;
        let by_bucket = by_rating && !downwards && queue.window.is_some();
        let key = |it: &Entrant| match (by_rating, by_bucket) {
            (_, true) => it.bucket as f64,
            (true, false) => it.rating + 0.0,
            (false, false) => it.place.unwrap_or(f64::INFINITY),
        };
        // Of equals, who has waited longest comes first, then the lesser id; ids are looked at only when nothing else tells.
        let mut order: Vec<(u64, u64, u32)> = (0..input.entrants.len() as u32)
            .map(|place| {
                let entrant = input.entrants[place as usize];
                let entered = entrant.ticket.entered.0;
                (ordered_bits(key(entrant)), if downwards { !entered } else { entered }, place)
            })
            .collect();
        order.sort_unstable_by(|one, other| {
            let id = |place: u32| input.entrants[place as usize].ticket.id;
            let by_id = || if downwards { id(other.2).cmp(&id(one.2)) } else { id(one.2).cmp(&id(other.2)) };
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(by_id)
        });
        let names = match queue.regions {
            Some(Regions::Stage { .. } | Regions::Quality { .. }) => {
                Names::of(input.entrants.iter().map(|it| &*it.ticket.session.regions))
            }
            _ => Names::default(),
        };
        let entrants = order.iter().map(|&(_, _, place)| input.entrants[place as usize]);
        let rows: Vec<Row<'a>> = entrants.map(|it| row(input, &names, it)).collect();
        let keys = rows.iter().map(|row| key(row.entrant)).collect();
        let columns = Columns::of(input.ruleset, rows.iter().map(|row| row.waits).collect());
        let widest = rows.iter().map(|row| row.look().reach()).max().unwrap_or(0);
        Self { input, rows, keys, columns, names, by_rating, by_bucket, widest }
    }

    /// Lets two meet, or says which rule refuses; `one` is the one who asks.
    pub(super) fn meet(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (input, queue, places) = (self.input, self.input.queue, (one, other));
        let (one, other) = (&self.rows[one as usize], &self.rows[other as usize]);
        let same = match (one.lone, other.lone) {
            (Some(one), Some(other)) => one == other,
            _ => shares(&one.entrant.users, &other.entrant.users),
        };
        if same {
            return Err(Refusal::Own);
        }
        self.columns.meet(places.0, places.1)?;
        if queue.groups.is_some() {
            let reach = |row: &Row<'_>| (row.group, row.neighbours);
            group::may_meet(reach(one), reach(other)).then_some(()).ok_or(Refusal::Group)?;
        }
        if let Some(rule) = queue.regions {
            region::may_meet(rule, &one.reached, &other.reached).then_some(()).ok_or(Refusal::Region)?;
        }
        if let Some(window) = &queue.window {
            window::may_meet(window, one.look(), other.look()).then_some(()).ok_or(Refusal::Window)?;
        }
        if one.wary || other.wary {
            let avoided = avoid::judge(&queue.avoid, input.meetings, one.wary(), other.wary(), input.now);
            if avoided.never {
                return Err(Refusal::Avoid);
            }
        }
        Ok(())
    }

    /// Whether two must not be in one team.
    pub(super) fn apart(&self, one: u32, other: u32) -> bool {
        let (one, other) = (&self.rows[one as usize], &self.rows[other as usize]);
        let rules = &self.input.queue.avoid;
        (one.wary || other.wary)
            && avoid::judge(rules, self.input.meetings, one.wary(), other.wary(), self.input.now).apart
    }

    /// How far two are from each other by key: in buckets where there is a window, in ratings or places elsewhere. Two who have
    /// no place are at no distance that could be told, and so further than anybody.
    pub(super) fn nearness(&self, one: u32, other: u32) -> f64 {
        (self.keys[one as usize] - self.keys[other as usize]).abs()
    }

    /// Why `one` need not look at `other`, nor at anyone beyond: too far by group or by bucket. Only where keys are ratings,
    /// for only then do groups and buckets come in order.
    pub(super) fn beyond(&self, one: u32, other: u32) -> Option<Refusal> {
        if !self.by_rating {
            return None;
        }
        let (one, other) = (&self.rows[one as usize], &self.rows[other as usize]);
        // In one bucket groups are not in order.
        if self.input.queue.groups.is_some() && !self.by_bucket && one.neighbours < one.group.abs_diff(other.group) {
            return Some(Refusal::Group);
        }
        let window = self.input.queue.window.as_ref()?;
        let distance = one.bucket.abs_diff(other.bucket);
        (window::reach(window, one.look().reach(), self.widest) < distance).then_some(Refusal::Window)
    }

    /// The populations that never meet: rows with the same region, where regions are separate, and the same value of every
    /// attribute that a hard filter wants equal. Each in the order of the rows; the pools in the order of their values.
    pub(super) fn pools(&self) -> Vec<Vec<u32>> {
        let keys = self.partition_attributes();
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        if keys.is_empty() {
            return if order.is_empty() { Vec::new() } else { vec![order] };
        }
        let compare = |one: u32, other: u32| {
            let facts = |row: u32| &self.rows[row as usize].entrant.facts;
            let by_value = |&attribute: &usize| compare_values(facts(one).get(attribute), facts(other).get(attribute));
            keys.iter().map(by_value).find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
        };
        order.sort_by(|&one, &other| compare(one, other));
        order.chunk_by(|&one, &other| compare(one, other).is_eq()).map(<[u32]>::to_vec).collect()
    }

    /// Attributes that split the population. A filter that passes those who say nothing splits it only if everybody does say
    /// something.
    fn partition_attributes(&self) -> Vec<usize> {
        let complete = |attribute: usize| self.rows.iter().all(|row| row.entrant.facts.get(attribute).is_some());
        let equal = self.input.ruleset.hard.iter().filter_map(|hard| match hard.rule {
            HardRule::Equal { attribute, value: None } => {
                (hard.missing == MissingHard::Refuse || complete(attribute)).then_some(attribute)
            }
            _ => None,
        });
        let region = match self.input.queue.regions {
            Some(Regions::Separate { attribute }) => Some(attribute),
            _ => None,
        };
        region.into_iter().chain(equal).collect()
    }
}

fn row<'a>(input: &PassInput<'a>, names: &Names<'_>, entrant: &'a Entrant) -> Row<'a> {
    let (queue, session) = (input.queue, &entrant.ticket.session);
    let entered = entrant.ticket.entered;
    let waited_ms = input.now.since(entered);
    let seen = Seen { facts: &entrant.facts, locality: session.locality, regions: &session.regions };
    let met = || entrant.users.iter().any(|&user| input.meetings.knows(user));
    let reached = |rule| region::reached(input.ruleset, rule, names, &entrant.facts, &session.regions, waited_ms);
    Row {
        entrant,
        waits: Waits { seen, waited_ms },
        size: entrant.size,
        group: entrant.group,
        bucket: entrant.bucket,
        place: entrant.place,
        lone: if let [user] = entrant.users[..] { Some(user) } else { None },
        range: queue.window.as_ref().map_or(0, |it| {
            let range = window::range_of(it, entrant.rating, entered, input.now);
            entrant.widened(queue).map_or(range, |factor| window::widened(range, factor))
        }),
        centre: entrant.centre(queue),
        neighbours: queue.groups.as_ref().map_or(0, |groups| group::neighbours(groups, waited_ms)),
        reached: queue.regions.map_or_else(Reached::default, reached),
        wary: !queue.avoid.is_empty() && (!entrant.ticket.blocked.is_empty() || met()),
    }
}

/// Bits that sort as `f64::total_cmp` does.
pub(super) fn ordered_bits(number: f64) -> u64 {
    // -0 is 0: two ratings that are equal are in one place.
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn compare_values(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::Text(_) => 1,
        Value::Flag(_) => 2,
        Value::Texts(_) => 3,
    };
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => ordered_bits(*one).cmp(&ordered_bits(*other)),
        (Some(Value::Text(one)), Some(Value::Text(other))) => one.cmp(other),
        (Some(Value::Flag(one)), Some(Value::Flag(other))) => one.cmp(other),
        (Some(Value::Texts(one)), Some(Value::Texts(other))) => one.cmp(other),
        (one, other) => one.map(rank).cmp(&other.map(rank)),
    }
}
