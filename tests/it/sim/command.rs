//! `fireteam simulate` as a process: text, JSON, plots, comparisons, and errors for invalid arguments.

use std::path::Path;
use std::process::{Command, Output};

const SMALL: &str = "title = \"A small world\"\nplayers = 300\nhours = 0.3\nwarm_up_minutes = 15.0\n\
                     [skill]\nprior_matches = 5\n[activity]\nplay_sessions_per_day = 8.0\n";

struct CommandResult {
    code: i32,
    out: String,
    err: String,
}

/// Runs the command in `folder`, which has a small scenario.
fn simulate(folder: &Path, arguments: &[&str]) -> CommandResult {
    std::fs::write(folder.join("small.toml"), SMALL).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    let Output { status, stdout, stderr } =
        command.current_dir(folder).arg("simulate").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandResult { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

fn ruleset(name: &str) -> String {
    format!("{}/rulesets/{name}.xml", env!("CARGO_MANIFEST_DIR"))
}

/// The same ruleset, scenario and seed give the same text and JSON, byte for byte.
#[test]
fn simulate_with_the_same_seed_prints_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let duel = ruleset("ranked_duel");
    let run = |json: &str| {
        simulate(folder.path(), &[&duel, "--scenario", "small.toml", "--seed", "5", "--seeds", "2", "--json", json])
    };
    let (one, other) = (run("one.json"), run("other.json"));
    assert_eq!((one.code, &*one.err), (0, ""), "no progress bar without a terminal");
    assert_eq!(one.out, other.out);
    let read = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("one.json"), read("other.json"));
    let json: serde_json::Value = serde_json::from_slice(&read("one.json")).unwrap();
    assert_eq!(json["seeds"], serde_json::json!([5, 6]));
    assert_eq!(json["figures"]["worlds"], 2);
    assert_eq!(json["by_seed"].as_array().unwrap().len(), 2);
    for label in
        ["Ranked duel", "A small world", "wait, s", "rating gap", "round trip, ms", "its regret, ms", "refusals"]
    {
        assert!(one.out.contains(label), "{label}: {}", one.out);
    }
    let piped = run("-");
    let piped_json: serde_json::Value = serde_json::from_str(&piped.out).unwrap();
    assert_eq!(piped_json, json, "`-` writes only the JSON to standard output");
}

/// Passes on change are compared with passes at the interval in the same worlds: waits get shorter. Without them there is no
/// comparison.
#[test]
fn simulate_prints_what_passes_on_change_cost() {
    let folder = tempfile::tempdir().unwrap();
    let at_interval = std::fs::read_to_string(ruleset("ranked_duel")).unwrap();
    let (before, after) = at_interval.split_once("<Queue PassIntervalMs=\"").expect("a queue");
    let (_, after) = after.split_once('"').expect("an interval");
    let with = |passes: &str| format!("{before}<Queue {passes}{after}");
    std::fs::write(folder.path().join("interval.xml"), with("PassIntervalMs=\"20000\"")).unwrap();
    let on_change = with("PassIntervalMs=\"20000\" Pass=\"on_change\" GatherMs=\"50\"");
    std::fs::write(folder.path().join("change.xml"), on_change).unwrap();
    let run = |file: &str| {
        let json = format!("{file}.json");
        let run = simulate(folder.path(), &[file, "--scenario", "small.toml", "--seeds", "2", "--json", &json]);
        assert_eq!((run.code, &*run.err), (0, ""));
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join(json)).unwrap()).unwrap();
        (run.out, json)
    };
    let (text, json) = run("interval.xml");
    assert!(!text.contains("on change") && json["on_change_less_interval"].is_null(), "{text}");
    let interval_wait_s = json["figures"]["waits_s"]["p50"].as_f64().unwrap();
    let (text, json) = run("change.xml");
    assert!(text.contains("passes on change, beside passes every 20000 ms in the same worlds"), "{text}");
    let names: Vec<&str> =
        json["on_change_less_interval"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["wait, median", "wait, p90", "rating gap, median", "rating gap, p90", "round trip, median", "round trip, p90"]
    );
    let wait = &json["on_change_less_interval"][0];
    let (at_interval, difference) = (wait["first"].as_f64().unwrap(), wait["difference"].as_f64().unwrap());
    assert!(difference < -1.0 && (at_interval - interval_wait_s).abs() < 2.0, "{wait}, {interval_wait_s}");
    names.iter().for_each(|name| assert!(text.contains(name), "{name}: {text}"));
}

/// A page of charts is one file without external references. Its policy allows its own script and no request, and a ruleset's name
/// cannot end the script with the data.
#[test]
fn simulate_plot_page_has_no_external_references() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(ruleset("teiserver_duel")).unwrap();
    let (before, after) = text.split_once(" Name=\"").expect("a name");
    let (_, after) = after.split_once('"').expect("the end of the name");
    let hostile = format!("{before} Name=\"&lt;/script>&lt;b>Duel\"{after}");
    std::fs::write(folder.path().join("hostile.xml"), hostile).unwrap();
    let run = simulate(folder.path(), &["hostile.xml", "--scenario", "small.toml", "--plot", "page.html"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src 'none'; script-src 'sha256-"), "{page}");
    assert!(page.contains("<h1>&lt;/script&gt;&lt;b&gt;Duel: median wait "), "{page}");
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    for reference in [" src=", " href=", "unsafe-inline", "<b>Duel", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
    let (_, data) = page.split_once("id=\"charts\">").expect("the data");
    let (data, _) = data.split_once("</script>").expect("the end of the data");
    let charts: Vec<serde_json::Value> = serde_json::from_str(data).expect("JSON");
    let titles: Vec<&str> = charts.iter().map(|chart| chart["title"].as_str().expect("a title")).collect();
    for title in ["Waits", "Rating gap in a match", "Round trips", "Waits by region"] {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
    let marks = &charts[0]["lines"][0]["marks"];
    assert_eq!(marks.as_array().expect("marks").len(), 3, "{marks}");
}

/// S0-1: a ruleset compared with itself has no differences, and no verdict. With ranges that grow four times as fast, waits are
/// shorter and rating gaps larger, by more than chance; the headline says so in words. Four seeds give no verdict.
#[test]
fn simulate_compare_marks_differences_beyond_chance() {
    let folder = tempfile::tempdir().unwrap();
    let duel = ruleset("teiserver_duel");
    let text = std::fs::read_to_string(&duel).unwrap();
    let quick = text.replace("StepEveryMs=\"20000\"", "StepEveryMs=\"5000\"").replace("SetId=\"11\"", "SetId=\"21\"");
    assert_ne!(text, quick);
    std::fs::write(folder.path().join("quick.xml"), quick).unwrap();
    let compare_seeds = |a: &str, b: &str, seeds: &str| {
        let run = simulate(
            folder.path(),
            &[
                "--compare",
                a,
                b,
                "--scenario",
                "small.toml",
                "--seeds",
                seeds,
                "--json",
                "both.json",
                "--plot",
                "both.html",
            ],
        );
        assert_eq!(run.code, 0, "{}", run.err);
        let json = std::fs::read(folder.path().join("both.json")).unwrap();
        (run.out, serde_json::from_slice::<serde_json::Value>(&json).unwrap())
    };
    let compare = |a: &str, b: &str| compare_seeds(a, b, "5");
    let (text, json) = compare(&duel, &duel);
    assert!(text.contains("same in each seed") && !text.contains("more than chance\n"), "{text}");
    assert!(!text.contains(" may be chance"), "an interval of no width has no verdict: {text}");
    assert!(json["differences"].as_array().unwrap().iter().all(|it| it["difference"] == 0.0));
    let (text, json) = compare(&duel, "quick.xml");
    let difference =
        |name: &str| json["differences"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    let (waits, gaps) = (difference("wait, median"), difference("rating gap, p90"));
    assert!(waits["difference"].as_f64().unwrap() < 0.0 && waits["verdict"] == "more_than_chance", "{text}");
    assert!(0.0 < gaps["difference"].as_f64().unwrap() && gaps["verdict"] == "more_than_chance", "{text}");
    let headline = json["headline"].as_str().expect("a headline");
    assert!(headline.starts_with("quick.xml against teiserver_duel.xml: median wait "), "{headline}");
    assert!(headline.contains(" % shorter") && text.starts_with(headline), "{headline}");
    let page = std::fs::read_to_string(folder.path().join("both.html")).unwrap();
    assert!(page.contains("\"kind\":\"intervals\"") && page.contains("more than chance"), "the intervals are drawn");
    let (text, json) = compare_seeds(&duel, "quick.xml", "4");
    assert!(text.contains("no verdict from 4 seeds") && !text.contains("more than chance"), "{text}");
    assert!(json["differences"].as_array().unwrap().iter().all(|it| it["verdict"] == "too_few_seeds"));
}

/// Searches are simulated by all sources, or by the named one, also under a ruleset without a queue.
#[test]
fn simulate_searches_by_the_named_sources() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{SMALL}[latency]\nsearches = 40\nsessions = 12\n");
    std::fs::write(folder.path().join("searches.toml"), text).unwrap();
    let bare = "<Ruleset Name=\"Bare\" SetId=\"5\" Silos=\"any\"/>";
    std::fs::write(folder.path().join("bare.xml"), bare).unwrap();
    let run = |arguments: &[&str]| simulate(folder.path(), &[arguments, &["--scenario", "searches.toml"]].concat());
    let header = |out: &str| {
        let line = out.lines().find(|line| line.starts_with("searches by")).unwrap_or_default();
        line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let duel = ruleset("ranked_duel");
    let all = run(&[&duel, "--plot", "page.html"]);
    assert_eq!((all.code, header(&all.out)), (0, vec!["distance".into(), "predicted".into(), "measured".into()]));
    assert!(all.out.contains("wait, s") && all.out.contains("40 searches of 12 sessions; 24 beacons"), "{}", all.out);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("Round trip regret of searches"));
    let one = run(&["bare.xml", "--latency-source", "predicted"]);
    assert_eq!((one.code, header(&one.out)), (0, vec!["predicted".into()]), "{}", one.err);
    assert!(!one.out.contains("wait, s"), "{}", one.out);
    let compared = run(&["--compare", "bare.xml", &duel, "--seeds", "2", "--latency-source", "distance,measured"]);
    let probes = compared.out.lines().find(|line| line.starts_with("searches: probes, mean")).unwrap_or_default();
    assert!(probes.contains(" 0.00 ") && !compared.out.contains("wait, median"), "{}{}", compared.out, compared.err);
}

/// Invalid arguments end with code 2 and a message that names the valid ones.
#[test]
fn simulate_with_invalid_arguments_fails_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let duel = ruleset("ranked_duel");
    std::fs::write(folder.path().join("bad.toml"), "players = 1").unwrap();
    std::fs::write(folder.path().join("bad.xml"), "<Ruleset/>").unwrap();
    std::fs::write(folder.path().join("pings.csv"), "source,destination,avg\n").unwrap();
    std::fs::write(folder.path().join("bare.xml"), "<Ruleset Name=\"Bare\" SetId=\"5\" Silos=\"any\"/>").unwrap();
    std::fs::write(folder.path().join("loss.toml"), "[latency]\nloss = 1.5").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&[], "RULESET"),
        (&["none.xml"], "none.xml"),
        (&["bad.xml"], "bad.xml:1:"),
        (&[&duel, "--scenario", "lots"], "launch_day"),
        (&[&duel, "--scenario", "none.toml"], "read none.toml"),
        (&[&duel, "--scenario", "bad.toml"], "players is 1"),
        (&[&duel, "--hours", "0"], "hours is 0"),
        (&[&duel, "--seeds", "0"], "1..=1000"),
        (&[&duel, "--latencies", "pings.csv"], "--latency-sites"),
        (&["bare.xml"], "[latency]"),
        (&[&duel, "--scenario", "loss.toml"], "latency.loss is 1.5; use 0 to 0.9"),
        (&[&duel, "--latency-source", "measured"], "add [latency]"),
        (&[&duel, "--scenario", "searches", "--latency-source", "guessed"], "distance, predicted or measured"),
    ];
    for (arguments, expected) in cases {
        let run = simulate(folder.path(), arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
}
