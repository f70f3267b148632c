//! Vectors for team splits and maximum weight matching.

use fireteam::domain::matching::maximum_weight_matching;
use fireteam::domain::ruleset::teams::{TeamOrderInMatch, TeamsSpec};
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
    TeamsSpec {
        team_sizes: [size; 2].into(),
        max_party_size: 1,
        exact_up_to_team_size: 10,
        roles,
        order: TeamOrderInMatch::Split,
        offered_roles_attribute: role_attribute,
        bots: None,
    }
}

type SplitFunction = fn(&TeamsSpec, &[TeamParty<'_>], &dyn Fn(usize, usize) -> bool) -> Option<TeamSplit>;

/// Splits single players in the given order.
fn split_players(split_with: SplitFunction, ratings: &[f64]) -> (TeamSplit, [Vec<f64>; 2]) {
    let parties: Vec<TeamParty<'_>> =
        ratings.chunks(1).map(|ratings| TeamParty { ratings, offered_roles: &[], wanted_roles: &[] }).collect();
    let split = split_with(&two_teams(ratings.len() as u16 / 2), &parties, &|_, _| false).unwrap();
    let team = |at: usize| {
        let mut team: Vec<f64> = split.teams[at].iter().map(|(party, _)| ratings[*party]).collect();
        team.sort_by(f64::total_cmp);
        team
    };
    let teams = [team(0), team(1)];
    (split, teams)
}

/// Every choice of half of the players that includes the first of the order.
fn halves(players: usize) -> impl Iterator<Item = u32> {
    (0..1_u32 << players).filter(move |chosen| chosen.count_ones() as usize == players / 2 && chosen & 1 == 1)
}

/// S4-10, B-20, B-23: the smallest gap of any split, and one of the splits that have it. The document's objective,
/// which subtracts the worst player's rating from all and compares with half of the rest, is half of the gap.
#[test]
fn team_split_of_small_teams_is_optimal() {
    for case in splits().exact {
        let (split, mut teams) = split_players(split_into_teams, &case.ratings);
        assert_eq!((split.rating_gap, split.is_optimal), (2.0 * case.objective, true), "{:?}", case.ratings);
        teams.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let equals_split = |optimal: &[Vec<f64>; 2]| {
            let mut optimal = optimal.clone();
            optimal.sort_by(|a, b| a.partial_cmp(b).unwrap());
            optimal == teams
        };
        assert!(case.optimal_splits.iter().any(equals_split), "{teams:?}");
        assert_eq!(halves(case.ratings.len()).count(), case.combinations);
        assert!((documented_objective(&case.ratings) - case.objective).abs() < 1e-9);
    }
    for case in splits().skills {
        let (split, _) = split_players(split_into_teams, &case.skills);
        assert_eq!(case.skills.len(), 2 * usize::from(case.team_size));
        assert!(
            (split.rating_gap - case.best_abs_difference).abs() < 1e-9,
            "{} for {:?}",
            split.rating_gap,
            case.skills
        );
    }
}

/// Objective of S4-10 as documented, with B-20's absolute value: the minimum over all teams of the worst player.
fn documented_objective(ratings: &[f64]) -> f64 {
    let mut sorted = ratings.to_vec();
    sorted.sort_by(f64::total_cmp);
    let worst = sorted[0];
    let others: Vec<f64> = sorted.iter().map(|rating| rating - worst).collect();
    let half = others.iter().sum::<f64>() / 2.0;
    let of = |chosen: u32| (0..others.len()).filter(|at| chosen >> at & 1 == 1).map(|at| others[at]).sum::<f64>();
    halves(others.len()).map(|chosen| (of(chosen) - half).abs()).fold(f64::INFINITY, f64::min)
}

/// S4-12, B-19: the document's printed numbers count ordered choices of a team.
#[test]
fn team_split_counts_of_the_document_are_ordered() {
    for count in splits().counts {
        let orders: usize = (1..count.players / 2).product();
        assert_eq!(halves(count.players).count(), count.combinations);
        assert_eq!(count.combinations * orders, count.printed);
    }
}

/// S4-13: from the highest rating down, to the team with the lower total, to B if equal, until a team is full; the
/// local search never makes it less even.
#[test]
fn team_split_of_large_teams_starts_greedily() {
    for case in splits().greedy {
        let (greedy, teams) = split_players(split_greedily, &case.ratings);
        let [mut a, mut b] = [case.team_a, case.team_b];
        a.sort_by(f64::total_cmp);
        b.sort_by(f64::total_cmp);
        assert_eq!(teams, [a, b]);
        let improved: SplitFunction = |spec, parties, apart| {
            split_into_teams(&TeamsSpec { exact_up_to_team_size: 0, ..spec.clone() }, parties, apart)
        };
        assert!(split_players(improved, &case.ratings).0.rating_gap <= greedy.rating_gap);
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

/// Weight of a matching; each pair must be an edge, and mutual.
fn weight(edges: &[(u32, u32, i64)], matching: &[Option<u32>]) -> i64 {
    let mut weight = 0;
    for (node, partner) in (0..).zip(matching).filter_map(|(node, partner)| Some((node, (*partner)?))) {
        assert_eq!(matching[partner as usize], Some(node));
        let (low, high) = (node.min(partner), node.max(partner));
        if node == low {
            let edge = edges.iter().find(|(a, b, _)| (*a.min(b), *a.max(b)) == (low, high));
            weight += edge.expect("an edge").2;
        }
    }
    weight
}

#[test]
fn maximum_weight_matching_has_the_vectors_weight() {
    let graphs: Graphs = serde_json::from_str(include_str!("../../vectors/max_weight_matching.json")).unwrap();
    for graph in graphs.cases {
        assert_eq!(weight(&graph.edges, &maximum_weight_matching(graph.n, &graph.edges)), graph.max_weight);
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

/// Minimum-cost assignment as a matching of two sides: an edge's weight falls with its cost, and is large enough that
/// every node is matched.
#[test]
fn assignment_is_a_matching_of_two_sides() {
    let assignments: Assignments = serde_json::from_str(include_str!("../../vectors/assignment.json")).unwrap();
    for Assignment { cost, min_total } in assignments.cases {
        let (rows, columns) = (cost.len(), cost[0].len());
        let base_weight = 1 + cost.iter().flatten().sum::<i64>();
        let costs = cost.iter().enumerate().flat_map(|(row, costs)| costs.iter().enumerate().map(move |it| (row, it)));
        let edges: Vec<(u32, u32, i64)> =
            costs.map(|(row, (column, cost))| (row as u32, (rows + column) as u32, base_weight - cost)).collect();
        let matching = maximum_weight_matching(rows + columns, &edges);
        assert_eq!(matching.iter().flatten().count(), 2 * rows.min(columns));
        assert_eq!(base_weight * rows.min(columns) as i64 - weight(&edges, &matching), min_total);
    }
}
