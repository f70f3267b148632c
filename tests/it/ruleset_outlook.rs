//! What a queue comes to for those who wait, as `fireteam check` prints it, and the documents' own rulesets.

use std::path::Path;

use fireteam::cli::check::check;
use fireteam::domain::queue::quality::{bonus, gauss};
use fireteam::domain::queue::window::range_of;
use fireteam::domain::ruleset::queue::{Quality, QueueSpec};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is printed about a file, without its first line.
fn said(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.xml");
    std::fs::write(&file, text).unwrap();
    let mut out = Vec::new();
    assert!(check(&[file], &mut out), "{}", String::from_utf8_lossy(&out));
    let out = String::from_utf8(out).unwrap();
    out.lines().filter_map(|line| line.strip_prefix("      ")).map(str::to_owned).collect()
}

#[track_caller]
fn check_file(name: &str, lines: &[&str]) {
    let text = std::fs::read_to_string(root().join("rulesets").join(name)).unwrap();
    let said = said(&text);
    let of_queue: Vec<&String> = said.iter().filter(|line| !line.contains(" weigh as much as ")).collect();
    assert_eq!(of_queue, lines, "{name}");
}

/// S0-14, S0-15, S1-35, S2-11, S3-8, S4-16, B-30, B-33: how long a wait may be until nothing gets easier.
#[test]
fn a_designer_is_told_what_waiting_comes_to() {
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
        ],
    );
    check_file(
        "openmatchmaking_leagues.xml",
        &[
            "its queue makes matches of 5 against 5, every 1 s",
            "a party waits at most 60 s until its limits are at their widest: a region within 400 ms, 1 group further",
            "a match that is not good enough does not become so by waiting",
        ],
    );
    check_file(
        "challenge_5v5.xml",
        &[
            "its queue makes matches of 5 against 5, every 250 ms",
            "a match that is not good enough does not become so by waiting",
            "whoever waits 60 s is offered set 2",
        ],
    );
}

#[test]
fn limits_that_never_grow_or_never_end_are_told_apart() {
    let queue = |inside: &str| {
        said(&format!("<Ruleset Name='a' SetId='1'><Teams Count='8' Size='1'/><Queue>{inside}</Queue></Ruleset>"))
    };
    let first = "its queue makes matches of 8 teams of 1, every 250 ms";
    assert_eq!(queue(""), [first, "anyone may meet anyone at once"]);
    assert_eq!(queue("<Window Start='3' Step='0'/>"), [first, "its limits never grow: 3 of rating"]);
    assert_eq!(queue("<Window/>"), [first, "its limits grow without end"]);
    assert_eq!(
        queue("<Window Max='5' MaxPercent='10' Combine='larger'/>"),
        [first, "its limits grow without end, or by a party's own rating: 5 or 10 % of rating"]
    );
}

/// Every ruleset that the documents print is sound, and `fireteam check` says of it what they say it says.
#[test]
fn rulesets_in_documents_are_sound() {
    let mut shown = 0;
    for document in ["docs/SYSTEMS.md", "docs/RULESETS.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        for block in text.split("```xml\n").skip(1) {
            let (block, rest) = block.split_once("```").expect("a block ends");
            if !block.starts_with("<Ruleset") {
                continue;
            }
            let ruleset = rules::parse(document, block).unwrap_or_else(|problems| panic!("{problems:#?}\n{block}"));
            shown += 1;
            let Some((_, console)) = rest.split_once("```console\nok  ") else { continue };
            let (console, _) = console.split_once("```").expect("a block ends");
            let (first, lines) = console.split_once('\n').expect("more than one line");
            let file = ruleset.name.to_lowercase().replace(' ', "_");
            assert!(
                first.starts_with(&format!("{file}.xml: `{}` rules set {}, hash …:", ruleset.name, ruleset.set_id))
            );
            assert_eq!(said(block), lines.lines().map(str::trim).collect::<Vec<_>>(), "{document}");
        }
    }
    assert!(3 <= shown, "{shown}");
}

/// The queue of a shipped file.
fn queue_of(name: &str) -> QueueSpec {
    let carried = rules::bundled::load().unwrap();
    let (_, ruleset) = carried.iter().find(|(path, _)| path.ends_with(name)).expect(name);
    ruleset.queue.clone().expect(name)
}

fn designers_guide() -> String {
    std::fs::read_to_string(root().join("docs/RULESETS.md")).unwrap()
}

/// The cells of the rows of the guide that begin with `start`, without the first.
fn rows(start: &str) -> Vec<(String, Vec<String>)> {
    let guide = designers_guide();
    let rows = guide.lines().filter(|line| line.starts_with(start)).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap_or_default(), cells.collect::<Vec<String>>())
    });
    rows.collect()
}

/// S0-14, S0-15, B-4: the guide's table of ranges is what ranges are.
#[test]
fn the_guide_says_how_far_a_ticket_looks() {
    let rows: Vec<_> = rows("| `<Window").into_iter().filter(|(_, cells)| cells.len() == 5).collect();
    assert_eq!(rows.len(), 4);
    for (label, cells) in rows {
        let element = label.split('`').nth(1).unwrap();
        let text = format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue>{element}</Queue></Ruleset>");
        let window = rules::parse("a.xml", &text).unwrap().queue.unwrap().window.unwrap();
        let range = |seconds: u64| range_of(&window, 25.0, UnixMs(0), UnixMs(seconds * 1_000)).to_string();
        assert_eq!(cells, [0, 20, 60, 200, 3_600].map(range), "{label}");
    }
}

/// S2-9, S2-11: the guide's table of the ladder is what the shipped ladder does.
#[test]
fn the_guide_says_what_places_are_worth() {
    let ladder = queue_of("rulesets/comprl_ladder.xml");
    let Quality::LeaderboardGauss { sigma, scale, threshold } = ladder.quality else { panic!("{:?}", ladder.quality) };
    let rule = ladder.wait_bonus.unwrap();
    let distances = [0.0, 10.0, 20.0, 21.0, 30.0, 50.0, 200.0];
    assert_eq!(rows("| quality | 0.5")[0].1, distances.map(|distance| format!("{:.3}", gauss(sigma, scale, distance))));
    let together = |distance: f64| {
        let enough = |seconds: &u64| threshold <= gauss(sigma, scale, distance) + bonus(&rule, seconds * 1_000) + 1e-12;
        match (0..=600).find(enough) {
            Some(0) => "at once".to_owned(),
            Some(seconds) => format!("{seconds} s"),
            None => "never".to_owned(),
        }
    };
    assert_eq!(rows("| together | at")[0].1, distances.map(together));
}
