//! `fireteam backtest`: how well each system predicts real matches, and what it says of files that are wrong.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::shared_data::shared_data;

const SYSTEMS: [&str; 5] = ["elo", "glicko", "glicko2", "trueskill", "plackett_luce"];

struct Run {
    code: i32,
    out: String,
    err: String,
}

fn rate(file: &Path, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    let Output { status, stdout, stderr } =
        command.arg("backtest").arg(file).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { code: status.code().expect("it ends by itself"), out: text(stdout), err: text(stderr) }
}

fn report(file: &Path, system: &str) -> Value {
    let Run { code, out, err } = rate(file, &["--system", system, "--json", "--top", "3"]);
    assert!(code == 0 && err.is_empty(), "{system}: {err}");
    serde_json::from_str(&out).expect("JSON")
}

/// The log-loss of the second half: the first teaches, the second asks.
fn second_half(report: &Value) -> f64 {
    report["second_half"]["log_loss"].as_f64().expect("a number")
}

/// Duels of the Halo 2 beta (S1-65, S2-1): 0.582 is asked of Glicko-2 or TrueSkill, 0.593 of Plackett-Luce; a coin scores 0.693.
#[test]
fn duels_are_predicted_as_well_as_their_best_systems_can() {
    let Some(file) = shared_data("matches-halo2/h2h.matches.csv") else { return };
    let reports = SYSTEMS.map(|system| report(&file, system));
    for (system, report) in SYSTEMS.iter().zip(&reports) {
        println!("duels by {system}: {}", second_half(report));
        assert_eq!((&report["all"]["matches"], &report["players"]), (&6_028.into(), &1_653.into()));
        assert_eq!((&report["second_half"]["matches"], &report["skipped"]), (&3_014.into(), &0.into()));
        assert!(second_half(report) < 0.65, "{system}");
    }
    let [elo, _, glicko2, _, plackett_luce] = reports.each_ref().map(second_half);
    assert!(glicko2 <= 0.582, "{glicko2}");
    assert!(plackett_luce <= 0.593, "{plackett_luce}");
    assert!(glicko2 < elo);
    let judged: u64 =
        reports[2]["all"]["calibration"].as_array().expect("bins").iter().filter_map(|it| it["matches"].as_u64()).sum();
    assert_eq!(judged, 6_028, "every match is in one of the ten bins");
}

/// Six against six with changing teams, the Overwatch League of 2019: at most 0.652 by every system.
#[test]
fn matches_of_teams_are_predicted_by_every_system() {
    let Some(file) = shared_data("matches-overwatch-league/owl.matches.csv") else { return };
    for system in SYSTEMS {
        let report = report(&file, system);
        println!("teams by {system}: {}", second_half(&report));
        assert_eq!((&report["all"]["matches"], &report["players"]), (&1_262.into(), &206.into()));
        assert!(second_half(&report) <= 0.652, "{system}: {}", second_half(&report));
    }
}

/// Large teams of strangers, most of whom come once: nobody can do much better than a coin, and nobody does worse.
#[test]
fn strangers_are_not_thought_to_be_known() {
    let Some(file) = shared_data("matches-halo2/large_team.matches.csv") else { return };
    for system in SYSTEMS {
        let report = report(&file, system);
        println!("strangers by {system}: {}", second_half(&report));
        assert_eq!(report["all"]["matches"], 972);
        assert!(second_half(&report) <= std::f64::consts::LN_2, "{system}: {}", second_half(&report));
    }
}

/// S1-65, S2-1, S4-16: every figure in docs/RATINGS.md that names how it came to be is what comes of it here. A row says `elo`, or a
/// whole `<Rating …/>`; then log-loss, and the share of favourites who won, for duels, teams and strangers.
#[test]
fn figures_in_the_documents_are_what_the_command_says() {
    let names = [
        "matches-halo2/h2h.matches.csv",
        "matches-overwatch-league/owl.matches.csv",
        "matches-halo2/large_team.matches.csv",
    ];
    let files: Vec<_> = names.iter().filter_map(|name| shared_data(name)).collect();
    if files.len() < names.len() {
        return;
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/RATINGS.md")).expect("the document");
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let how = cells[0].trim_matches('`');
        let figures = &cells[cells.len() - 3..];
        let element = how.starts_with("<Rating ");
        if !(element || SYSTEMS.contains(&how)) || !figures.iter().all(|cell| cell.starts_with("0.")) {
            continue;
        }
        rows += 1;
        for (file, cell) in files.iter().zip(figures) {
            let flag = if element { "--rating" } else { "--system" };
            let Run { code, out, err } = rate(file, &[flag, how, "--json", "--top", "0"]);
            assert_eq!(code, 0, "{how}: {err}");
            let report: Value = serde_json::from_str(&out).expect("JSON");
            let accuracy = 100.0 * report["second_half"]["accuracy"].as_f64().expect("a share");
            let found = match cell.contains('%') {
                true => format!("{:.4}, {accuracy:.1} % right", second_half(&report)),
                false => format!("{:.4}", second_half(&report)),
            };
            if *cell != found {
                wrong.push(format!("{how}: {cell} is {found} of {}", file.display()));
            }
        }
    }
    assert!(10 <= rows && wrong.is_empty(), "{rows} rows\n{}", wrong.join("\n"));
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    file
}

const HEADER: &str = "match_id,time,mode,teams,ranks\n";

/// None is lost in silence: each bad row is named by its line, skipped and counted, and the others are rated.
#[test]
fn bad_rows_are_named_skipped_and_counted() {
    let rows = "1,2004-08-06T18:13:50,1v1,Ann;Bob,1;2\n\
                2,2004-08-06T18:14:50,1v1,Ann;Ann,1;2\n\
                1,2004-08-06T18:15:50,1v1,Ann;Bob,1;2\n\
                3,then,1v1,Ann;Bob,1;2\n\
                4,2004-08-06T18:16:50,1v1,Ann;Bob,1;-2\n\
                5,2004-08-06T18:17:50,1v1,Ann\n\
                6,2004-08-06T18:18:50,1v1,Bob;Cem,1;1\n";
    let file = written(&format!("{HEADER}{rows}"));
    let Run { code, out, err } = rate(file.path(), &["--system", "elo", "--json"]);
    assert_eq!(code, 0, "{err}");
    for wanted in [
        ":3: player `Ann` is listed twice; list each player once; skipped",
        ":4: match `1` is already on line 2; use each match_id once; skipped",
        ":5: time `then` is invalid",
        ":6: rank `-2` is invalid; use a whole number, 1 for the best; skipped",
        ":7: ranks is missing; skipped",
    ] {
        assert!(err.contains(wanted), "{wanted}: {err}");
    }
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&report["skipped"], &report["all"]["matches"], &report["players"]), (&5.into(), &2.into(), &3.into()));
    let lines: Vec<u64> =
        report["bad_rows"].as_array().expect("rows").iter().filter_map(|it| it["line"].as_u64()).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7]);
    assert_eq!(report["leaderboard"][0]["player"], "Ann");
    assert_eq!(report["leaderboard"][0]["rating"], 1508.0);

    let many = written(&format!("{HEADER}1,0,,Ann;Bob,1;2\n{}", "2,0,,Ann,1\n".repeat(30)));
    let Run { code, out, err } = rate(many.path(), &[]);
    assert_eq!((code, err.lines().count()), (0, 21), "{err}");
    assert!(
        err.ends_with("fireteam: 10 more rows skipped\n") && out.contains("30 invalid rows were skipped"),
        "{err}{out}"
    );
}

#[test]
fn what_people_read_has_figures_bins_and_a_leaderboard() {
    let file = written(&format!("{HEADER}1,0,,Ann+Bob;Cem+Dai,1;2\n2,60000,,Ann+Cem;Bob+Dai,1;1\n"));
    let Run { code, out, err } = rate(file.path(), &["--top", "2"]);
    assert!(code == 0 && err.is_empty(), "{err}");
    for wanted in
        ["by glicko2: 2 matches of 4 players", "log-loss", "second half", "50 - 60 %", "95 % from", "    1 ", "  Ann\n"]
    {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    assert!(!out.contains("Dai"), "two places were asked for: {out}");
}

/// The system may come from a ruleset, with what it says of it.
#[test]
fn a_ruleset_says_the_system() {
    let file = written(&format!("{HEADER}1,0,,Ann;Bob,1;2\n"));
    let ruleset = |rating: &str| written(&format!("<Ruleset Name=\"a\" SetId=\"1\">{rating}</Ruleset>"));
    let with = |ruleset: &tempfile::NamedTempFile, more: &[&str]| {
        rate(file.path(), &[&["--ruleset", ruleset.path().to_str().expect("a name")], more].concat())
    };
    let elo = ruleset("<Rating System=\"elo\" K=\"40\" PlacementMatches=\"5\"/>");
    let Run { code, out, err } = with(&elo, &["--json"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&report["system"], &report["leaderboard"][0]["rating"]), (&"elo".into(), &1520.0.into()));
    assert_eq!(report["leaderboard"][0]["provisional"], true);
    assert!(with(&elo, &[]).out.contains("Ann (provisional)"));
    for (ruleset, more, wanted) in [
        (&elo, &["--system", "glicko"][..], "uses elo, not glicko"),
        (&ruleset(""), &[], "has no <Rating>; add one"),
        (&ruleset("<Rating System=\"ello\"/>"), &[], "`System` is `ello`"),
    ] {
        let Run { code, err, .. } = with(ruleset, more);
        assert!(code == 1 && err.contains(wanted), "{wanted}: {err}");
    }
}

/// Or from the command line, as it would stand in a ruleset.
#[test]
fn an_element_says_the_system() {
    let file = written(&format!("{HEADER}1,0,,Ann;Bob,1;2\n"));
    let with = |more: &[&str]| rate(file.path(), &[more, &["--json"]].concat());
    let Run { code, out, err } =
        with(&["--rating", "<Rating System='elo' K='40'><Momentum After='1' Factor='2'/></Rating>"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&report["system"], &report["leaderboard"][0]["rating"]), (&"elo".into(), &1520.0.into()));
    for (arguments, wanted) in [
        (&["--rating", "<Rating System='elo' L='40'/>"][..], "--rating:2:22: <Rating> has no attribute `L`"),
        (&["--rating", "<Party/>"], "--rating has no <Rating>; add one"),
        (&["--rating", "elo"], "--rating:"),
        (&["--rating", "<Rating System='elo'/>", "--system", "elo"], "cannot be used with"),
    ] {
        let Run { code, err, .. } = with(arguments);
        assert!(code != 0 && err.contains(wanted), "{wanted}: {err}");
    }
}

#[test]
fn what_cannot_be_rated_at_all_fails_with_a_reason() {
    let nothing = written(&format!("{HEADER}1,0,,Ann,1\n"));
    let stranger = written("name,score\nAnn,1\n");
    for (file, arguments, wanted) in [
        (nothing.path(), &[][..], "none of 1 rows can be rated"),
        (stranger.path(), &[], "column `match_id` is missing"),
        (Path::new("/nowhere.csv"), &[], "open /nowhere.csv"),
        (nothing.path(), &["--system", "chess"], "use elo, glicko, glicko2, trueskill or plackett_luce"),
        (nothing.path(), &["--system", "\"/>"], "use elo"),
    ] {
        let Run { code, err, .. } = rate(file, arguments);
        assert!(code == 1 && err.contains(wanted), "{wanted}: {err}");
    }
}
