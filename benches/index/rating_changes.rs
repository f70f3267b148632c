//! Goal PU4: searches of 100,000 advertisements of a set whose players' ratings change 1,000 times per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fireteam::domain::attribute::SourceField;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::id::UserKey;
use fireteam::domain::index::{AdvertisementIndex, SearchResult};
use fireteam::domain::player_standing::PlayerStanding;
use fireteam::domain::queue::ticket::PlayerRating;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::rating::{RatingSpec, RatingSystem};
use fireteam::domain::session::Session;
use parking_lot::RwLock;

use crate::harness::{clock, compare, machine, median, quantile};
use crate::index::world::{SEARCHES, World};
use crate::population::{PopulationKind, RuleOptions, entry, ruleset};
use crate::split_mix64::SplitMix64;

/// Number of advertisements.
const ADVERTISEMENTS: u64 = 100_000;
/// Changed ratings per second.
const CHANGES_PER_S: f64 = 1_000.0;
/// Time between two refreshes of the index, milliseconds, as in the engine.
const REFRESH_MS: u64 = 100;

pub(super) fn run() {
    let ruleset = Arc::new(rated_ruleset());
    let mut rng = SplitMix64(7);
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    let mut users: Vec<UserKey> = Vec::new();
    for number in 0..ADVERTISEMENTS {
        let mut entry = entry(&mut rng, &ruleset, number, PopulationKind::Uniform);
        let session = &entry.advertisement.session;
        users.extend(session.players.iter().map(|player| player.user));
        entry.attribute_values = values(&ruleset, session, random_rating(&mut rng));
        index.upsert(entry);
    }
    let mut world = World::of(Arc::clone(&ruleset), index);
    for (session, attribute_values) in &mut world.searchers {
        *attribute_values = values(&ruleset, session, random_rating(&mut rng));
    }
    world.check_against_oracle(&ruleset);
    under_changes(world, &users);
}

/// Ruleset whose `skill` is the server's rating.
fn rated_ruleset() -> Ruleset {
    let mut rated = ruleset(RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() });
    rated.rating = Some(RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 32.0, scale: 400.0 }));
    rated.attributes[0].source = SourceField::Skill;
    rated
}

fn random_rating(rng: &mut SplitMix64) -> f64 {
    (1500.0 + 350.0 * rng.normal()).clamp(0.0, 3000.0)
}

/// Values of a session of one player with this rating.
fn values(ruleset: &Ruleset, session: &Session, rating: f64) -> AttributeValues {
    let rating = PlayerRating { rating, deviation: 0.0 };
    let standing = PlayerStanding { rating, rated_match_count: 10, disputed_percent: 0.0, is_frustrated: false };
    AttributeValues::from_session_and_standings(ruleset, session, Some(&[standing]))
}

/// Searches while another thread replaces values under the engine's lock, all that are due at once.
fn under_changes(world: World, players: &[UserKey]) {
    let (shell, index) = world.take_index();
    let ruleset = Arc::clone(&shell.ruleset);
    let (lock, stop, changed) = (RwLock::new(index), AtomicBool::new(false), AtomicU64::new(0));
    let round = |at: f64| {
        let mut found = SearchResult::default();
        quantile(1_000 * SEARCHES, at, |number| {
            let index = lock.read();
            index.search(&shell.query(&ruleset, number), &mut found);
        })
    };
    let change = || {
        let (begin, mut rng) = (clock(), SplitMix64(5));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(REFRESH_MS));
            let due = (begin.elapsed().as_secs_f64() * CHANGES_PER_S) as u64 - changed.load(Ordering::Relaxed);
            let mut replaced = Vec::with_capacity(due as usize);
            {
                let index = lock.read();
                for _ in 0..due {
                    let user = players[rng.below(players.len() as u64) as usize];
                    for id in index.tracked_ids_of_user(user) {
                        let session = index.get(id).map(|entry| &entry.advertisement.session);
                        let rating = random_rating(&mut rng);
                        replaced.extend(session.map(|session| (id, values(&ruleset, session, rating))));
                    }
                }
            }
            let mut index = lock.write();
            for (id, values) in replaced {
                index.set_attribute_values(id, values);
            }
            changed.fetch_add(due, Ordering::Relaxed);
        }
    };
    for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
        let mut rates = Vec::new();
        let with_changes = || {
            stop.store(false, Ordering::Relaxed);
            changed.store(0, Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(change);
                let begin = clock();
                let took = round(at);
                rates.push(changed.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64());
                stop.store(true, Ordering::Relaxed);
                took
            })
        };
        let subject = format!("{name} under 1,000 changed ratings/s");
        compare("PU4", &subject, &format!("{name} idle"), with_changes, || round(at));
        println!(
            "| PU4 | search_during_rating_changes: changed ratings a second | 1000 | {:.0} | | | | | | {} |",
            median(rates),
            machine()
        );
    }
    let index = lock.into_inner();
    World { index, ..shell }.check_against_oracle(&ruleset);
}
