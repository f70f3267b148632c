//! Everyone who waits, as they stand at the moment of one pass: sorted, with their ranges, limits and regions by now; and
//! who of them may meet whom.

use std::cmp::Ordering;

use crate::attribute::AttributeValue;
use crate::filter::{Refusal, SessionView, WaitingSession};
use crate::id::UserKey;
use crate::queue::avoidance::{self, AvoidanceSide, have_common_user};
use crate::queue::filter_columns::FilterColumns;
use crate::queue::pass::PassInput;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::quality::QualityInput;
use crate::queue::rating_group;
use crate::queue::region::{self, ReachableRegions, RegionNames};
use crate::queue::window::{self, BucketRange};
use crate::ruleset::queue::{QualitySpec, RegionMode, SelectionMode};
use crate::ruleset::{HardMissingPolicy, HardRule};

/// A ticket at the moment of a pass.
#[derive(Clone, Debug)]
pub(super) struct PassTicket<'a> {
    pub(super) prepared: &'a PreparedTicket,
    /// As hard filters judge it.
    pub(super) waiting_session: WaitingSession<'a>,
    /// The entrant's, so that nobody need look there for each pair.
    pub(super) player_count: u16,
    pub(super) rating_group: u16,
    pub(super) rating_bucket: i64,
    pub(super) leaderboard_position: Option<f64>,
    /// Its user, if it has but one.
    only_user: Option<UserKey>,
    /// How many buckets to either side of `centre` it looks by now.
    pub(super) window_range: u32,
    /// The bucket around which it looks.
    pub(super) window_center: i64,
    /// How many groups further it looks by now.
    pub(super) extra_groups: u16,
    /// Its regions by now.
    pub(super) reachable_regions: ReachableRegions<'a>,
    /// It has blocked somebody, or met somebody lately: whom it avoids must be asked.
    pub(super) has_avoidances: bool,
}

impl<'a> PassTicket<'a> {
    pub(super) fn quality_input(&self, team: u16) -> QualityInput<'a> {
        let entrant = self.prepared;
        QualityInput {
            session: self.waiting_session.session,
            finite_ratings: &entrant.player_ratings,
            player_ratings: &entrant.ticket.player_ratings,
            leaderboard_position: self.leaderboard_position,
            waited_ms: self.waiting_session.waited_ms,
            team,
        }
    }

    /// Where it looks by now.
    pub(super) fn bucket_range(&self) -> BucketRange {
        BucketRange { bucket: self.rating_bucket, center: self.window_center, range: self.window_range }
    }

    pub(super) fn avoidance_side(&self) -> AvoidanceSide<'a> {
        AvoidanceSide { users: &self.prepared.users, blocked_users: &self.prepared.ticket.blocked_users }
    }

    /// Who is first among equals: who has waited longest, then the lesser id.
    pub(super) fn compare_seniority(&self, other: &PassTicket<'_>) -> Ordering {
        let (one, other) = (&self.prepared.ticket, &other.prepared.ticket);
        one.entered_at.cmp(&other.entered_at).then(one.id.cmp(&other.id))
    }
}

/// Everyone who waits, nearest to each other in order.
pub(super) struct PassState<'a> {
    pub(super) input: &'a PassInput<'a>,
    /// By key, then by seniority; for windows, which go down, the senior of equals last.
    pub(super) tickets: Vec<PassTicket<'a>>,
    /// What nearness is measured in, row by row: the bucket or the rating, or the place on the leaderboard.
    pub(super) sort_keys: Vec<f64>,
    /// The filters, laid out.
    pub(super) filter_columns: FilterColumns<'a>,
    pub(super) region_names: RegionNames<'a>,
    /// Keys are ratings or their buckets, so that groups and buckets come in order too.
    pub(super) sorted_by_rating: bool,
    /// Keys are buckets.
    sorted_by_bucket: bool,
    /// How far any row looks from its own bucket, at most.
    pub(super) max_window_reach: u32,
}

impl<'a> PassState<'a> {
    pub(super) fn new(input: &'a PassInput<'a>) -> Self {
        let queue = input.queue;
        let by_place = matches!(queue.quality, QualitySpec::LeaderboardGauss { .. });
        // Windows go down from their highest, and of equals the senior comes first.
        let downwards = queue.selection.mode == SelectionMode::BestWindow;
        let by_rating = !by_place || downwards;
        let by_bucket = by_rating && !downwards && queue.window.is_some();
        let key = |it: &PreparedTicket| match (by_rating, by_bucket) {
            (_, true) => it.rating_bucket as f64,
            (true, false) => it.party_rating + 0.0,
            (false, false) => it.leaderboard_position.unwrap_or(f64::INFINITY),
        };
        // Of equals, who has waited longest comes first, then the lesser id; ids are looked at only when nothing else tells.
        let mut order: Vec<(u64, u64, u32)> = (0..input.tickets.len() as u32)
            .map(|place| {
                let entrant = input.tickets[place as usize];
                let entered = entrant.ticket.entered_at.0;
                (ordered_bits(key(entrant)), if downwards { !entered } else { entered }, place)
            })
            .collect();
        order.sort_unstable_by(|one, other| {
            let id = |place: u32| input.tickets[place as usize].ticket.id;
            let by_id = || if downwards { id(other.2).cmp(&id(one.2)) } else { id(one.2).cmp(&id(other.2)) };
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(by_id)
        });
        let names = match queue.regions {
            Some(RegionMode::Stage { .. } | RegionMode::Quality { .. }) => {
                RegionNames::from_measurements(input.tickets.iter().map(|it| &*it.ticket.session.region_latencies))
            }
            _ => RegionNames::default(),
        };
        let entrants = order.iter().map(|&(_, _, place)| input.tickets[place as usize]);
        let rows: Vec<PassTicket<'a>> = entrants.map(|it| prepare_pass_ticket(input, &names, it)).collect();
        let keys = rows.iter().map(|row| key(row.prepared)).collect();
        let columns = FilterColumns::new(input.ruleset, rows.iter().map(|row| row.waiting_session).collect());
        let widest = rows.iter().map(|row| row.bucket_range().max_distance()).max().unwrap_or(0);
        Self {
            input,
            tickets: rows,
            sort_keys: keys,
            filter_columns: columns,
            region_names: names,
            sorted_by_rating: by_rating,
            sorted_by_bucket: by_bucket,
            max_window_reach: widest,
        }
    }

    /// Lets two meet, or says which rule refuses; `one` is the one who asks.
    pub(super) fn check_pair(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (input, queue, places) = (self.input, self.input.queue, (one, other));
        let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
        let same = match (one.only_user, other.only_user) {
            (Some(one), Some(other)) => one == other,
            _ => have_common_user(&one.prepared.users, &other.prepared.users),
        };
        if same {
            return Err(Refusal::OwnSession);
        }
        self.filter_columns.check_pair(places.0, places.1)?;
        if queue.groups.is_some() {
            let reach = |row: &PassTicket<'_>| (row.rating_group, row.extra_groups);
            rating_group::groups_may_meet(reach(one), reach(other)).then_some(()).ok_or(Refusal::RatingGroup)?;
        }
        if let Some(rule) = queue.regions {
            region::regions_may_meet(rule, &one.reachable_regions, &other.reachable_regions)
                .then_some(())
                .ok_or(Refusal::NoCommonRegion)?;
        }
        if let Some(window) = &queue.window {
            window::windows_may_meet(window, one.bucket_range(), other.bucket_range())
                .then_some(())
                .ok_or(Refusal::RatingWindow)?;
        }
        if one.has_avoidances || other.has_avoidances {
            let avoided = avoidance::evaluate_avoidance(
                &queue.avoid,
                input.past_matches,
                one.avoidance_side(),
                other.avoidance_side(),
                input.now,
            );
            if avoided.never_meet {
                return Err(Refusal::AvoidedPlayer);
            }
        }
        Ok(())
    }

    /// Whether two must not be in one team.
    pub(super) fn must_be_in_different_teams(&self, one: u32, other: u32) -> bool {
        let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
        let rules = &self.input.queue.avoid;
        (one.has_avoidances || other.has_avoidances)
            && avoidance::evaluate_avoidance(
                rules,
                self.input.past_matches,
                one.avoidance_side(),
                other.avoidance_side(),
                self.input.now,
            )
            .separate_teams
    }

    /// How far two are from each other by key: in buckets where there is a window, in ratings or places elsewhere. Two who have
    /// no place are at no distance that could be told, and so further than anybody.
    pub(super) fn key_distance(&self, one: u32, other: u32) -> f64 {
        (self.sort_keys[one as usize] - self.sort_keys[other as usize]).abs()
    }

    /// Why `one` need not look at `other`, nor at anyone beyond: too far by group or by bucket. Only where keys are ratings,
    /// for only then do groups and buckets come in order.
    pub(super) fn out_of_reach(&self, one: u32, other: u32) -> Option<Refusal> {
        if !self.sorted_by_rating {
            return None;
        }
        let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
        // In one bucket groups are not in order.
        if self.input.queue.groups.is_some()
            && !self.sorted_by_bucket
            && one.extra_groups < one.rating_group.abs_diff(other.rating_group)
        {
            return Some(Refusal::RatingGroup);
        }
        let window = self.input.queue.window.as_ref()?;
        let distance = one.rating_bucket.abs_diff(other.rating_bucket);
        (window::reach(window, one.bucket_range().max_distance(), self.max_window_reach) < distance)
            .then_some(Refusal::RatingWindow)
    }

    /// The populations that never meet: rows with the same region, where regions are separate, and the same value of every
    /// attribute that a hard filter wants equal. Each in the order of the rows; the pools in the order of their values.
    pub(super) fn partition_into_pools(&self) -> Vec<Vec<u32>> {
        let keys = self.partition_attributes();
        let mut order: Vec<u32> = (0..self.tickets.len() as u32).collect();
        if keys.is_empty() {
            return if order.is_empty() { Vec::new() } else { vec![order] };
        }
        let compare = |one: u32, other: u32| {
            let facts = |row: u32| &self.tickets[row as usize].prepared.attribute_values;
            let by_value =
                |&attribute: &usize| compare_attribute_values(facts(one).get(attribute), facts(other).get(attribute));
            keys.iter().map(by_value).find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
        };
        order.sort_by(|&one, &other| compare(one, other));
        order.chunk_by(|&one, &other| compare(one, other).is_eq()).map(<[u32]>::to_vec).collect()
    }

    /// Attributes that split the population. A filter that passes those who say nothing splits it only if everybody does say
    /// something.
    fn partition_attributes(&self) -> Vec<usize> {
        let complete =
            |attribute: usize| self.tickets.iter().all(|row| row.prepared.attribute_values.get(attribute).is_some());
        let equal = self.input.ruleset.hard_filters.iter().filter_map(|hard| match hard.rule {
            HardRule::Equal { attribute, value: None } => {
                (hard.missing == HardMissingPolicy::Refuse || complete(attribute)).then_some(attribute)
            }
            _ => None,
        });
        let region = match self.input.queue.regions {
            Some(RegionMode::Separate { attribute }) => Some(attribute),
            _ => None,
        };
        region.into_iter().chain(equal).collect()
    }
}

fn prepare_pass_ticket<'a>(
    input: &PassInput<'a>,
    names: &RegionNames<'_>,
    entrant: &'a PreparedTicket,
) -> PassTicket<'a> {
    let (queue, session) = (input.queue, &entrant.ticket.session);
    let entered = entrant.ticket.entered_at;
    let waited_ms = input.now.ms_since(entered);
    let seen = SessionView {
        attribute_values: &entrant.attribute_values,
        locality: session.locality,
        region_latencies: &session.region_latencies,
    };
    let met = || entrant.users.iter().any(|&user| input.past_matches.includes_user(user));
    let reached = |rule| {
        region::reachable_regions(
            input.ruleset,
            rule,
            names,
            &entrant.attribute_values,
            &session.region_latencies,
            waited_ms,
        )
    };
    PassTicket {
        prepared: entrant,
        waiting_session: WaitingSession { session: seen, waited_ms },
        player_count: entrant.player_count,
        rating_group: entrant.rating_group,
        rating_bucket: entrant.rating_bucket,
        leaderboard_position: entrant.leaderboard_position,
        only_user: if let [user] = entrant.users[..] { Some(user) } else { None },
        window_range: queue.window.as_ref().map_or(0, |it| {
            let range = window::range_at(it, entrant.party_rating, entered, input.now);
            entrant.range_factor(queue).map_or(range, |factor| window::scale_range(range, factor))
        }),
        window_center: entrant.window_center(queue),
        extra_groups: queue.groups.as_ref().map_or(0, |groups| rating_group::extra_groups(groups, waited_ms)),
        reachable_regions: queue.regions.map_or_else(ReachableRegions::default, reached),
        has_avoidances: !queue.avoid.is_empty() && (!entrant.ticket.blocked_users.is_empty() || met()),
    }
}

/// Bits that sort as `f64::total_cmp` does.
pub(super) fn ordered_bits(number: f64) -> u64 {
    // -0 is 0: two ratings that are equal are in one place.
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn compare_attribute_values(one: Option<&AttributeValue>, other: Option<&AttributeValue>) -> Ordering {
    let rank = |value: &AttributeValue| match value {
        AttributeValue::Number(_) => 0,
        AttributeValue::String(_) => 1,
        AttributeValue::Bool(_) => 2,
        AttributeValue::StringList(_) => 3,
    };
    match (one, other) {
        (Some(AttributeValue::Number(one)), Some(AttributeValue::Number(other))) => {
            ordered_bits(*one).cmp(&ordered_bits(*other))
        }
        (Some(AttributeValue::String(one)), Some(AttributeValue::String(other))) => one.cmp(other),
        (Some(AttributeValue::Bool(one)), Some(AttributeValue::Bool(other))) => one.cmp(other),
        (Some(AttributeValue::StringList(one)), Some(AttributeValue::StringList(other))) => one.cmp(other),
        (one, other) => one.map(rank).cmp(&other.map(rank)),
    }
}
