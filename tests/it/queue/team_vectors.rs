//! Vectors of what a pass is made of: teams that are as even as can be, and pairs that are worth the most.

use fireteam::domain::matching::maximum_weight_matching;
use fireteam::domain::ruleset::teams::TeamsSpec;
use fireteam::domain::team::{TeamParty, TeamSplit, split_greedily, split_into_teams};
use serde::Deserialize;

#[derive(Deserialize)]
struct Splits {
    exact: Vec<Exact>,
    greedy: Vec<Greedy>,
    counts: Vec<Count>,
    skills: Vec<Skills>,
}

#[derive(Deserialize)]
struct Exact {
    ratings: Vec<f64>,
    objective: f64,
    optimal_splits: Vec<[Vec<f64>; 2]>,
    combinations: usize,
}

#[derive(Deserialize)]
struct Greedy {
    ratings: Vec<f64>,
    team_a: Vec<f64>,
    team_b: Vec<f64>,
}

#[derive(Deserialize)]
struct Count {
    players: usize,
    printed: usize,
    combinations: usize,
}

#[derive(Deserialize)]
struct Skills {
    team_size: u16,
    skills: Vec<f64>,
    best_abs_difference: f64,
}

fn splits() -> Splits {
    serde_json::from_str(include_str!("../../vectors/team_split.json")).unwrap()
}

fn two_teams(size: u16) -> TeamsSpec {
    let (roles, role_attribute) = (Box::default(), None);
    TeamsSpec { team_sizes: [size; 2].into(), max_party_size: 1, exact_up_to_size: 10, roles, role_attribute }
}

type How = fn(&TeamsSpec, &[TeamParty<'_>], &dyn Fn(usize, usize) -> bool) -> Option<TeamSplit>;

/// Splits players who come alone, in the order given.
fn divided(how: How, ratings: &[f64]) -> (TeamSplit, [Vec<f64>; 2]) {
    let parties: Vec<TeamParty<'_>> =
        ratings.chunks(1).map(|ratings| TeamParty { ratings, offered_roles: &[] }).collect();
    let split = how(&two_teams(ratings.len() as u16 / 2), &parties, &|_, _| false).unwrap();
    let team = |at: usize| {
        let mut team: Vec<f64> = split.teams[at].iter().map(|(party, _)| ratings[*party]).collect();
        team.sort_by(f64::total_cmp);
        team
    };
    let teams = [team(0), team(1)];
    (split, teams)
}

/// Every way to choose half of the players, the one at the end of the order among them.
fn ways(players: usize) -> impl Iterator<Item = u32> {
    (0..1_u32 << players).filter(move |chosen| chosen.count_ones() as usize == players / 2 && chosen & 1 == 1)
}

/// S4-10, B-20, B-23: the least difference that any split has, and one of the splits that have it. The seed's
/// objective, which takes the worst player's rating off everybody's and compares with half of the rest, is half of it.
#[test]
fn small_teams_are_split_as_evenly_as_can_be() {
    for case in splits().exact {
        let (split, mut teams) = divided(split_into_teams, &case.ratings);
        assert_eq!((split.rating_gap, split.is_optimal), (2.0 * case.objective, true), "{:?}", case.ratings);
        teams.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let is_it = |optimal: &[Vec<f64>; 2]| {
            let mut optimal = optimal.clone();
            optimal.sort_by(|a, b| a.partial_cmp(b).unwrap());
            optimal == teams
        };
        assert!(case.optimal_splits.iter().any(is_it), "{teams:?}");
        assert_eq!(ways(case.ratings.len()).count(), case.combinations);
        assert!((seeds_objective(&case.ratings) - case.objective).abs() < 1e-9);
    }
    for case in splits().skills {
        let (split, _) = divided(split_into_teams, &case.skills);
        assert_eq!(case.skills.len(), 2 * usize::from(case.team_size));
        assert!(
            (split.rating_gap - case.best_abs_difference).abs() < 1e-9,
            "{} for {:?}",
            split.rating_gap,
            case.skills
        );
    }
}

/// S4-10 as it is written, with B-20's absolute value: the least over all teams of the worst player.
fn seeds_objective(ratings: &[f64]) -> f64 {
    let mut sorted = ratings.to_vec();
    sorted.sort_by(f64::total_cmp);
    let worst = sorted[0];
    let others: Vec<f64> = sorted.iter().map(|rating| rating - worst).collect();
    let half = others.iter().sum::<f64>() / 2.0;
    let of = |chosen: u32| (0..others.len()).filter(|at| chosen >> at & 1 == 1).map(|at| others[at]).sum::<f64>();
    ways(others.len()).map(|chosen| (of(chosen) - half).abs()).fold(f64::INFINITY, f64::min)
}

/// S4-12, B-19: the printed numbers count the orders in which a team is chosen.
#[test]
fn the_printed_counts_are_of_ordered_choices() {
    for count in splits().counts {
        let orders: usize = (1..count.players / 2).product();
        assert_eq!(ways(count.players).count(), count.combinations);
        assert_eq!(count.combinations * orders, count.printed);
    }
}

/// S4-13: downwards, to the lower total, to B when level, until a team is full; and what large teams get is never less
/// even.
#[test]
fn large_teams_are_begun_greedily() {
    for case in splits().greedy {
        let (by_greed, teams) = divided(split_greedily, &case.ratings);
        let [mut a, mut b] = [case.team_a, case.team_b];
        a.sort_by(f64::total_cmp);
        b.sort_by(f64::total_cmp);
        assert_eq!(teams, [a, b]);
        let improved: How =
            |spec, parties, apart| split_into_teams(&TeamsSpec { exact_up_to_size: 0, ..spec.clone() }, parties, apart);
        assert!(divided(improved, &case.ratings).0.rating_gap <= by_greed.rating_gap);
    }
}

#[derive(Deserialize)]
struct Graphs {
    cases: Vec<Graph>,
}

#[derive(Deserialize)]
struct Graph {
    n: usize,
    max_weight: i64,
    edges: Vec<(u32, u32, i64)>,
}

/// What a matching is worth; every pair must be an edge, and mutual.
fn worth(edges: &[(u32, u32, i64)], matching: &[Option<u32>]) -> i64 {
    let mut worth = 0;
    for (node, partner) in (0..).zip(matching).filter_map(|(node, partner)| Some((node, (*partner)?))) {
        assert_eq!(matching[partner as usize], Some(node));
        let (low, high) = (node.min(partner), node.max(partner));
        if node == low {
            let edge = edges.iter().find(|(a, b, _)| (*a.min(b), *a.max(b)) == (low, high));
            worth += edge.expect("an edge").2;
        }
    }
    worth
}

#[test]
fn matchings_are_worth_what_the_vectors_say() {
    let graphs: Graphs = serde_json::from_str(include_str!("../../vectors/max_weight_matching.json")).unwrap();
    for graph in graphs.cases {
        assert_eq!(worth(&graph.edges, &maximum_weight_matching(graph.n, &graph.edges)), graph.max_weight);
    }
}

#[derive(Deserialize)]
struct Assignments {
    cases: Vec<Assignment>,
}

#[derive(Deserialize)]
struct Assignment {
    cost: Vec<Vec<i64>>,
    min_total: i64,
}

/// Who is to be given to whom at least cost is a matching too: of two sides, each pair worth more the less it costs,
/// and so much that nobody is left out.
#[test]
fn assignments_are_matchings_of_two_sides() {
    let assignments: Assignments = serde_json::from_str(include_str!("../../vectors/assignment.json")).unwrap();
    for Assignment { cost, min_total } in assignments.cases {
        let (rows, columns) = (cost.len(), cost[0].len());
        let dear = 1 + cost.iter().flatten().sum::<i64>();
        let costs = cost.iter().enumerate().flat_map(|(row, costs)| costs.iter().enumerate().map(move |it| (row, it)));
        let edges: Vec<(u32, u32, i64)> =
            costs.map(|(row, (column, cost))| (row as u32, (rows + column) as u32, dear - cost)).collect();
        let matching = maximum_weight_matching(rows + columns, &edges);
        assert_eq!(matching.iter().flatten().count(), 2 * rows.min(columns));
        assert_eq!(dear * rows.min(columns) as i64 - worth(&edges, &matching), min_total);
    }
}
