//! Goals PS and PU: search and updates of an index of a million advertisements, and of one whose ratings change.

mod predicted;
mod rating_changes;
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
use crate::index::world::{MemoryFloor, ROWS, World};
use crate::population::{PopulationKind, RuleOptions, session};
use crate::split_mix64::SplitMix64;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    let floor = MemoryFloor::new();
    println!("| PS | memory_floor: GB/s | | {:.1} | | | | | | {} |", floor.bandwidth(), machine());
    if ["PS1", "PS2", "PS4", "PU1", "PU2", "PU3", "MEM"].iter().any(|goal| wanted(goal)) {
        even(wanted, &floor);
    }
    if wanted("PS4") {
        adversarial(&floor);
    }
    if wanted("PS7") {
        predicted::run();
    }
    if wanted("PU4") {
        rating_changes::run();
    }
    if ["PS5", "PS6"].iter().any(|goal| wanted(goal)) {
        sql::run(wanted);
    }
}

fn even(wanted: &dyn Fn(&str) -> bool, floor: &MemoryFloor) {
    let before = resident_bytes();
    let mut world =
        World::new(RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() }, PopulationKind::Uniform);
    let bytes = (resident_bytes() - before) / ROWS;
    println!(
        "| MEM | memory_per_advertisement: bytes for each of 1M advertisements | 1024 | {bytes} | | 1 | | | | {} |",
        machine()
    );
    let ruleset = Arc::clone(&world.ruleset);
    world.check_against_oracle(&ruleset);
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
            let ruleset = crate::population::ruleset(RuleOptions { skill, distance, ..RuleOptions::default() });
            world.check_against_oracle(&ruleset);
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
            let facts = AttributeValues::from_session_without_standings(&ruleset, &session);
            (session, facts)
        };
        world.searchers = sessions.into_iter().map(far).collect();
        world.check_against_oracle(&ruleset);
        search(&world, &ruleset, floor, "PS4", "far query", InstructionSet::Widest, 0.5);
    }
    if ["PU1", "PU2", "PU3"].iter().any(|goal| wanted(goal)) {
        updates::run(world, wanted);
    }
}

fn search(
    world: &World,
    ruleset: &Ruleset,
    floor: &MemoryFloor,
    goal: &str,
    name: &str,
    path: InstructionSet,
    at: f64,
) {
    compare(goal, name, "floor", || world.search(ruleset, path, at), || floor.time());
}

fn adversarial(floor: &MemoryFloor) {
    let base = RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() };
    for (name, rules, spread) in [
        ("duplicates", base, PopulationKind::Duplicates),
        ("refused by all advertisers", RuleOptions { limits: true, ..base }, PopulationKind::Uniform),
        ("1 % filter, not partitioned", RuleOptions { mode: true, ..base }, PopulationKind::Uniform),
        ("a filter that no row passes", RuleOptions { impossible: true, ..base }, PopulationKind::Uniform),
        ("two filters that no row passes both", RuleOptions { contradictory: true, ..base }, PopulationKind::Uniform),
        ("1 % filter, partitioned", RuleOptions { key: true, ..base }, PopulationKind::Uniform),
        ("refused by ranges of their own", base, PopulationKind::UnreachableRanges),
        ("all rows are the searcher's own", base, PopulationKind::SameUser),
    ] {
        let mut world = World::new(rules, spread);
        if matches!(spread, PopulationKind::UnreachableRanges | PopulationKind::SameUser) {
            world.searches = 3;
        }
        if spread == PopulationKind::SameUser {
            world.users = session(&mut SplitMix64(1), PopulationKind::SameUser).sorted_users();
        }
        world.check_against_oracle(&world.ruleset);
        search(&world, &world.ruleset, floor, "PS4", name, InstructionSet::Widest, 0.5);
        search(&world, &world.ruleset, floor, "PS4", &format!("{name}, portable"), InstructionSet::Portable, 0.5);
    }
}
