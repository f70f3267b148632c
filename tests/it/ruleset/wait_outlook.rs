//! Wait outlook of a queue, as `fireteam check` prints it, and the tables and rulesets of the documents.

use std::path::Path;

use fireteam::cli::check::check_rulesets;
use fireteam::domain::queue::quality::{bonus_for_waiting, leaderboard_distance_quality};
use fireteam::domain::queue::window::{bucket_of, range_at, scale_range};
use fireteam::domain::ruleset::queue::{QualitySpec, QueueSpec};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Lines printed about a file, without the first.
fn printed_lines(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.xml");
    std::fs::write(&file, text).unwrap();
    let mut out = Vec::new();
    assert!(check_rulesets(&[file], &mut out), "{}", String::from_utf8_lossy(&out));
    let out = String::from_utf8(out).unwrap();
    out.lines().filter_map(|line| line.strip_prefix("      ")).map(str::to_owned).collect()
}

/// Lines printed about the queue of a file.
fn queue_lines(text: &str) -> Vec<String> {
    let mut lines = printed_lines(text);
    lines.retain(|line| {
        !line.contains(" weigh as much as ") && !line.starts_with("its ratings ") && !line.starts_with("it uses the ")
    });
    lines
}

#[track_caller]
fn check_file(name: &str, lines: &[&str]) {
    let text = std::fs::read_to_string(root().join("rulesets").join(name)).unwrap();
    assert_eq!(queue_lines(&text), lines, "{name}");
}

/// S0-14, S0-15, S1-35, S2-11, S3-8, S4-16, B-30, B-33: the wait after which limits no longer grow, per shipped file.
#[test]
fn wait_outlook_of_shipped_files() {
    check_file(
        "casual_quickplay.xml",
        &[
            "its queue makes matches of 8 against 8, every 250 ms",
            "a party waits at most 15 s until its limits are at their widest: 60000 ms of round trip",
            "when its parties have waited 540 s together, any match is good enough",
        ],
    );
    check_file(
        "destiny_control_6v6.xml",
        &[
            "its queue makes matches of 6 against 6, every 100 ms",
            "a party waits at most 50 s until its limits are at their widest: 2000 of skill, 400 ms of round trip",
        ],
    );
    check_file(
        "teiserver_duel.xml",
        &[
            "its queue makes matches of 1 against 1, every 250 ms",
            "a party waits at most 200 s until its limits are at their widest: 10 of rating",
        ],
    );
    check_file(
        "comprl_ladder.xml",
        &[
            "its queue makes matches of 1 against 1, every 1 s",
            "when its parties have waited 240 s together, any match is good enough",
            "note: its gate counts connected players only if their heartbeat names set 12 in \
             connected_matchmaking_set_ids; else it counts only the players of waiting tickets",
        ],
    );
    check_file(
        "openmatchmaking_leagues.xml",
        &[
            "its queue makes matches of 5 against 5, every 1 s",
            "a party waits at most 60 s until its limits are at their widest: a region within 400 ms, 1 group further",
            "a match that is not good enough does not become so by waiting",
            "a player who lost 5 in a row searches with limits 1.5 times as wide",
        ],
    );
    check_file(
        "challenge_5v5.xml",
        &[
            "its queue makes matches of 5 against 5, every 250 ms",
            "a match that is not good enough does not become so by waiting",
            "a ticket that waits 60 s is offered set 2",
        ],
    );
}

#[test]
fn wait_outlook_tells_fixed_limits_from_unlimited_ones() {
    let queue = |inside: &str| {
        printed_lines(&format!(
            "<Ruleset Name='a' SetId='1'><Teams Count='8' Size='1'/><Queue>{inside}</Queue></Ruleset>"
        ))
    };
    let first = "its queue makes matches of 8 teams of 1, every 250 ms";
    assert_eq!(queue(""), [first, "any two tickets may meet at once"]);
    assert_eq!(queue("<RatingWindow Start='3' Step='0'/>"), [first, "its limits never grow: 3 of rating"]);
    assert_eq!(queue("<RatingWindow/>"), [first, "its limits grow without end"]);
    assert_eq!(
        queue("<RatingWindow Max='5' MaxPercent='10' Combine='larger'/>"),
        [first, "its limits grow without end, or by a party's own rating: 5 or 10 % of rating"]
    );
}

/// S2-4: the largest rating gap that a draw threshold allows, and the guide's table of draw probabilities.
#[test]
fn wait_outlook_names_the_largest_gap_for_draws() {
    let lines = |size: u16, more: &str| {
        let quality = "<Quality><DrawProbability Threshold='0.3'/></Quality>";
        let rating = "<Rating System='plackett_luce' Beta='4.166666666666667'/>";
        let queue = format!("<Queue>{quality}{more}</Queue>{rating}");
        queue_lines(&format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='{size}'/>{queue}</Ruleset>"))
    };
    let limit = "points apart; a team further above all others finds no match";
    let certain = "teams whose ratings are certain may add up to";
    let never = "a match that is not good enough does not become so by waiting".to_owned();
    assert_eq!(lines(1, "")[1..], [never, format!("{certain} 9.1 {limit}")]);
    assert_eq!(lines(4, "<WaitBonus/>")[2], format!("{certain} 18.3 {limit} except by waiting"));

    let beta = 25.0 / 6.0;
    let draw = |gap: f64, sigma: f64| {
        let (luck, variance): (f64, f64) = (2.0 * beta * beta, 2.0 * (beta * beta + sigma * sigma));
        (luck / variance).sqrt() * (-gap * gap / (2.0 * variance)).exp()
    };
    let sigmas = [0.0, 2.0, 4.0, 25.0 / 3.0];
    for (start, gap) in [("| equal |", 0.0), ("| 5 points", 5.0), ("| 10 points", 10.0)] {
        assert_eq!(rows(start)[0].1, sigmas.map(|sigma| format!("{:.3}", draw(gap, sigma))), "{start}");
    }
    let furthest = |sigma: f64| {
        let tenths = (0..1_000_u32).take_while(|tenths| 0.3 <= draw(f64::from(*tenths) / 10.0, sigma)).last().unwrap();
        format!("{:.1}", f64::from(tenths) / 10.0)
    };
    assert_eq!(rows("| furthest")[0].1, sigmas.map(furthest));
}

/// S1-97: the players that satisfaction applies to, and its effects.
#[test]
fn wait_outlook_names_the_effects_of_satisfaction() {
    let line = |attributes: &str| {
        let queue = format!("<Queue><RatingWindow/><Satisfaction {attributes}/></Queue><Rating System='elo'/>");
        queue_lines(&format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/>{queue}</Ruleset>")).pop().unwrap()
    };
    assert_eq!(line("LosingStreak='3' Widen='2'"), "a player who lost 3 in a row searches 2 times as far");
    assert_eq!(
        line("LosingStreak='3' AbandonedPercent='20' FeedbackBelow='2.5' MinMatches='8' Widen='1.5' ShiftDown='50'"),
        "a player who lost 3 in a row or left 20 % of 8 matches or more or rated 8 matches or more below 2.5 on average \
         searches 1.5 times as far, around a rating 50 points lower"
    );
    assert_eq!(
        line("FeedbackBelow='2' ShiftDown='50'"),
        "a player who rated 5 matches or more below 2 on average searches around a rating 50 points lower"
    );
    assert_eq!(
        line("FeedbackBelow='2' Widen='1'"),
        "a player who rated 5 matches or more below 2 on average searches as far as others"
    );
}

/// S1-97: the guide's table of search ranges with satisfaction equals the computed ranges.
#[test]
fn guide_table_of_satisfaction_equals_the_code() {
    let text = designers_guide();
    let (_, section) = text.split_once("### Who is looked after?").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.ends_with(" |") && line.contains(['−', '+']))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 5);
    let signed = |number: i64| if number < 0 { format!("−{}", -number) } else { format!("+{number}") };
    for row in rows {
        let attributes = row[0].trim_matches('`');
        let effects = if attributes.contains('=') { attributes } else { "Widen='1'" };
        let steps = "<RatingWindow BucketWidth='25' Start='4' Step='0'/>";
        let queue = format!("<Queue>{steps}<Satisfaction LosingStreak='3' {effects}/></Queue><Rating System='elo'/>");
        let text = format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/>{queue}</Ruleset>");
        let queue = rules::parse_ruleset("a.xml", &text).unwrap_or_else(|it| panic!("{it:#?}")).queue.unwrap();
        let (window, rule) = (queue.window.unwrap(), queue.frustrated_player_window.unwrap());
        let centre = bucket_of(&window, 1500.0 - rule.window_shift_down_points) - bucket_of(&window, 1500.0);
        let range = i64::from(scale_range(range_at(&window, 1500.0, UnixMs(0), UnixMs(0)), rule.window_widen_factor));
        assert_eq!([row[1], row[2]], [signed(centre - range), signed(centre + range)], "{attributes}");
    }
}

/// Each ruleset in the documents is valid, and `fireteam check` prints the lines shown below it.
#[test]
fn document_rulesets_are_valid_and_print_the_shown_lines() {
    let mut shown = 0;
    for document in ["docs/SYSTEMS.md", "docs/RULESETS.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        for block in text.split("```xml\n").skip(1) {
            let (block, rest) = block.split_once("```").expect("a block ends");
            if !block.starts_with("<Ruleset") {
                continue;
            }
            let ruleset =
                rules::parse_ruleset(document, block).unwrap_or_else(|problems| panic!("{problems:#?}\n{block}"));
            shown += 1;
            let Some((_, console)) = rest.split_once("```console\nok  ") else { continue };
            let (console, _) = console.split_once("```").expect("a block ends");
            let (first, lines) = console.split_once('\n').expect("more than one line");
            let file = ruleset.name.to_lowercase().replace(' ', "_");
            assert!(
                first.starts_with(&format!("{file}.xml: `{}` rules set {}, hash …:", ruleset.name, ruleset.set_id))
            );
            assert_eq!(printed_lines(block), lines.lines().map(str::trim).collect::<Vec<_>>(), "{document}");
        }
    }
    assert!(3 <= shown, "{shown}");
}

/// The queue of a shipped file.
fn queue_of(name: &str) -> QueueSpec {
    let bundled_rulesets = rules::bundled::load_bundled().unwrap();
    let (_, ruleset) = bundled_rulesets.iter().find(|(path, _)| path.ends_with(name)).expect(name);
    ruleset.queue.clone().expect(name)
}

fn designers_guide() -> String {
    std::fs::read_to_string(root().join("docs/RULESETS.md")).unwrap()
}

/// Cells of the guide's table rows that start with `start`: the first, and the others.
fn rows(start: &str) -> Vec<(String, Vec<String>)> {
    let guide = designers_guide();
    let rows = guide.lines().filter(|line| line.starts_with(start)).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap_or_default(), cells.collect::<Vec<String>>())
    });
    rows.collect()
}

/// S0-14, S0-15, B-4: the guide's table of ranges equals the computed ranges.
#[test]
fn guide_table_of_ranges_equals_the_code() {
    let rows: Vec<_> = rows("| `<RatingWindow").into_iter().filter(|(_, cells)| cells.len() == 5).collect();
    assert_eq!(rows.len(), 4);
    for (label, cells) in rows {
        let element = label.split('`').nth(1).unwrap();
        let text = format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue>{element}</Queue></Ruleset>");
        let window = rules::parse_ruleset("a.xml", &text).unwrap().queue.unwrap().window.unwrap();
        let range = |seconds: u64| range_at(&window, 25.0, UnixMs(0), UnixMs(seconds * 1_000)).to_string();
        assert_eq!(cells, [0, 20, 60, 200, 3_600].map(range), "{label}");
    }
}

/// S2-9, S2-11: the guide's table of the ladder equals the shipped ladder's quality and waits.
#[test]
fn guide_table_of_the_ladder_equals_the_code() {
    let ladder = queue_of("rulesets/comprl_ladder.xml");
    let QualitySpec::LeaderboardGauss { sigma, scale, threshold } = ladder.quality else {
        panic!("{:?}", ladder.quality)
    };
    let rule = ladder.wait_bonus.unwrap();
    let distances = [0.0, 10.0, 20.0, 21.0, 30.0, 50.0, 200.0];
    assert_eq!(
        rows("| quality | 0.5")[0].1,
        distances.map(|distance| format!("{:.3}", leaderboard_distance_quality(sigma, scale, distance)))
    );
    let together = |distance: f64| {
        let reaches_threshold = |seconds: &u64| {
            threshold
                <= leaderboard_distance_quality(sigma, scale, distance)
                    + bonus_for_waiting(&rule, seconds * 1_000)
                    + 1e-12
        };
        match (0..=600).find(reaches_threshold) {
            Some(0) => "at once".to_owned(),
            Some(seconds) => format!("{seconds} s"),
            None => "never".to_owned(),
        }
    };
    assert_eq!(rows("| together | at")[0].1, distances.map(together));
}
