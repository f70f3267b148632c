//! Five matchmakers in one grammar: the queue systems that fireteam grew from, each written as a ruleset.

use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::queue::{Quality, SelectionMode, StartWith};
use fireteam::domain::ruleset::rating::RatingSystem;
use fireteam::rules;

fn parsed(inside: &str) -> Ruleset {
    let text = format!("<Ruleset Name='seed' SetId='1'>{inside}</Ruleset>");
    rules::parse("seed.xml", &text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// S0-13 to S0-17: Teiserver's suggested settings.
#[test]
fn buckets_that_widen() {
    let ruleset = parsed(
        "<Teams Count='2' Size='1'/>
         <Queue PassEveryMs='250'>
           <Window Rounding='round' Step='1' StepEveryMs='20000' Max='10' ReciprocalPercent='100' Clock='queue'/>
         </Queue>
         <ReadyCheck DeadlineMs='30000'/>
         <Rating System='trueskill'/>",
    );
    let queue = ruleset.queue.unwrap();
    let window = queue.window.unwrap();
    assert_eq!((queue.pass_every_ms, window.start, window.step, window.step_every_ms), (250, 0, 1, 20_000));
    assert_eq!((window.max, window.max_percent, window.reciprocal_percent), (Some(10), None, 100.0));
}

/// S2-3, S2-6 to S2-12: comprl's leaderboard distance, with the defaults of its server.
#[test]
fn a_leaderboard_and_a_gaussian() {
    let ruleset = parsed(
        "<Teams Count='2' Size='1'/>
         <Queue PassEveryMs='1000'>
           <Gate MinWaitingPercent='10' Rounding='up' MaxParallelMatches='100'/>
           <Quality><LeaderboardGauss Sigma='20' Scale='0.5' Threshold='0.3'/></Quality>
           <Selection Mode='weighted_sample'/>
           <WaitBonus PerMinute='0.1' FreeMinutes='1'/>
         </Queue>
         <Rating System='plackett_luce' Z='1'>
           <Decay EveryMs='900000' Deviation='0.5' MaxDeviation='8.333'/>
         </Rating>",
    );
    let queue = ruleset.queue.unwrap();
    assert_eq!(queue.quality, Quality::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold: 0.3 });
    assert_eq!(queue.selection.mode, SelectionMode::WeightedSample);
    assert_eq!((queue.gate.min_waiting_percent, queue.gate.max_parallel_matches), (10.0, Some(100)));
    let rating = ruleset.rating.unwrap();
    assert_eq!((rating.z, rating.decay.unwrap().every_ms), (1.0, 900_000));
    assert!(matches!(rating.system, RatingSystem::PlackettLuce { mu: 25.0, .. }));
}

/// S3-2, S3-3: OpenMatchmaking's seven leagues of 500, and neighbours that may meet after a while (B-30).
#[test]
fn leagues() {
    let names = ["bronze", "silver", "gold", "platinum", "diamond", "semi_pro", "professional"];
    let groups: String = names
        .iter()
        .zip(2..)
        .map(|(name, half)| format!("<Group Name='{name}' From='{}' To='{}'/>", half * 500, (half + 1) * 500))
        .collect();
    let ruleset = parsed(&format!(
        "<Teams Count='2' Size='5'/>
         <Queue PartyRating='mean'><Groups NeighbourEveryMs='60000' MaxNeighbours='1'>{groups}</Groups></Queue>
         <Rating System='elo' Initial='1000'/>"
    ));
    let groups = ruleset.queue.unwrap().groups.unwrap();
    assert_eq!(groups.groups.len(), 7);
    assert_eq!((groups.groups[6].from, groups.groups[6].to), (4_000.0, 4_500.0));
}

/// S4-5 to S4-9, S4-13, S4-14: the team challenge's windows, similarity, split and K.
#[test]
fn similar_players_and_even_teams() {
    let ruleset = parsed(
        "<Teams Count='2' Size='3' ExactUpToSize='10'/>
         <Queue>
           <Quality><CategorySimilarity Categories='13' CategoryWidth='200' RequiredPercent='95'/></Quality>
           <Selection Mode='best_window' StartWith='highest_rated'/>
         </Queue>
         <Rating System='elo' K='32' Scale='400'/>",
    );
    let queue = ruleset.queue.unwrap();
    assert_eq!(queue.selection.start_with, StartWith::HighestRated);
    assert!(matches!(queue.quality, Quality::CategorySimilarity { categories: 13, divisor: 13, .. }), "B-22: /13");
    assert_eq!(ruleset.teams.unwrap().match_size(), 6);
    assert_eq!(ruleset.rating.unwrap().system, RatingSystem::Elo { initial: 1500.0, k: 32.0, scale: 400.0 });
}

/// S1-61, S1-62: the thesis's Glicko, beside its rules for searching, which the shipped Control has.
#[test]
fn the_thesis_rates_by_glicko() {
    let rating = parsed("<Rating System='glicko'/>").rating.unwrap();
    let glicko =
        RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: 86_400_000 };
    assert_eq!(rating.system, glicko);
}
