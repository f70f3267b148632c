//! Goals PS and PU: search and updates of an index of a million advertisements.

mod sql;
mod updates;
mod world;

use std::sync::Arc;

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::index::InstructionSet;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::Session;

use crate::harness::{compare, machine, resident_bytes};
use crate::index::world::{Floor, ROWS, World};
use crate::population::{Dice, Rules, Spread, session};

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    let floor = Floor::new();
    println!("| PS | floor, GB/s | | {:.1} | | | | | | {} |", floor.bandwidth(), machine());
    if ["PS1", "PS2", "PS4", "PU1", "PU2", "PU3", "MEM"].iter().any(|goal| wanted(goal)) {
        even(wanted, &floor);
    }
    if wanted("PS4") {
        adversarial(&floor);
    }
    if ["PS5", "PS6"].iter().any(|goal| wanted(goal)) {
        sql::run(wanted);
    }
}

fn even(wanted: &dyn Fn(&str) -> bool, floor: &Floor) {
    let before = resident_bytes();
    let mut world = World::new(Rules { skill: 0.6, distance: 0.4, ..Rules::default() }, Spread::Globe);
    let bytes = (resident_bytes() - before) / ROWS;
    println!("| MEM | bytes for each of 1M advertisements | 1024 | {bytes} | | 1 | | | | {} |", machine());
    let ruleset = Arc::clone(&world.ruleset);
    world.judge(&ruleset);
    if wanted("PS1") {
        search(&world, &ruleset, floor, "PS1", "1M, top 50, p50", InstructionSet::Widest, 0.5);
        search(&world, &ruleset, floor, "PS1", "1M, top 50, p99", InstructionSet::Widest, 0.99);
        world.seats = 4;
        search(&world, &ruleset, floor, "PS1", "1M, 4 seats, p50", InstructionSet::Widest, 0.5);
        search(&world, &ruleset, floor, "PS1", "1M, 4 seats, p99", InstructionSet::Widest, 0.99);
        world.seats = 1;
    }
    if wanted("PS2") {
        search(&world, &ruleset, floor, "PS2", "1M, portable, p50", InstructionSet::Portable, 0.5);
    }
    if wanted("PS4") {
        for (name, skill, distance) in
            [("skill only", 1.0, 0.0), ("distance only", 0.0, 1.0), ("20:1", 20.0, 1.0), ("1:20", 1.0, 20.0)]
        {
            let ruleset = crate::population::ruleset(Rules { skill, distance, ..Rules::default() });
            world.judge(&ruleset);
            search(&world, &ruleset, floor, "PS4", name, InstructionSet::Widest, 0.5);
            search(&world, &ruleset, floor, "PS4", &format!("{name}, portable"), InstructionSet::Portable, 0.5);
        }
        let sessions = std::mem::take(&mut world.searchers);
        let far = |(mut session, _): (Session, AttributeValues)| {
            session.attributes.iter_mut().for_each(|(name, value)| {
                if **name == *"skill" {
                    *value = AttributeValue::Number(1e6);
                }
            });
            let facts = AttributeValues::from_session(&ruleset, &session);
            (session, facts)
        };
        world.searchers = sessions.into_iter().map(far).collect();
        world.judge(&ruleset);
        search(&world, &ruleset, floor, "PS4", "far query", InstructionSet::Widest, 0.5);
    }
    if ["PU1", "PU2", "PU3"].iter().any(|goal| wanted(goal)) {
        updates::run(world, wanted);
    }
}

fn search(world: &World, ruleset: &Ruleset, floor: &Floor, goal: &str, name: &str, path: InstructionSet, at: f64) {
    compare(goal, name, "floor", || world.search(ruleset, path, at), || floor.took());
}

fn adversarial(floor: &Floor) {
    let base = Rules { skill: 0.6, distance: 0.4, ..Rules::default() };
    for (name, rules, spread) in [
        ("duplicates", base, Spread::Duplicates),
        ("refused by all advertisers", Rules { limits: true, ..base }, Spread::Globe),
        ("1 % filter, not partitioned", Rules { mode: true, ..base }, Spread::Globe),
        ("a filter that nobody passes", Rules { nobody: true, ..base }, Spread::Globe),
        ("two filters that nobody passes both", Rules { torn: true, ..base }, Spread::Globe),
        ("1 % filter, partitioned", Rules { key: true, ..base }, Spread::Globe),
        ("refused by ranges of their own", base, Spread::Guarded),
        ("all one's own", base, Spread::Family),
    ] {
        let mut world = World::new(rules, spread);
        if matches!(spread, Spread::Guarded | Spread::Family) {
            world.searches = 3;
        }
        if spread == Spread::Family {
            world.users = session(&mut Dice(1), Spread::Family).sorted_users();
        }
        world.judge(&world.ruleset);
        search(&world, &world.ruleset, floor, "PS4", name, InstructionSet::Widest, 0.5);
        search(&world, &world.ruleset, floor, "PS4", &format!("{name}, portable"), InstructionSet::Portable, 0.5);
    }
}
