//! Ruleset catalog: loads a directory, replaces all rulesets at once, keeps the last valid ones and retired hashes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fireteam::domain::id::SetId;
use fireteam::domain::ruleset::load::RulesetLoad;
use fireteam::domain::time::UnixMs;
use fireteam::rules::{self, FileDiagnostic, RulesetCatalog};

fn ruleset(set: u32, results: u32) -> String {
    format!("<Ruleset Name='set {set}' SetId='{set}'><Limits MaxResults='{results}'/></Ruleset>")
}

fn messages(problems: Vec<FileDiagnostic>) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(directory.path().join(name), text).unwrap());
    directory
}

#[test]
fn catalog_load_reads_files_in_order_without_hidden_ones() {
    let (one, two) = (ruleset(1, 10), ruleset(2, 10));
    let directory =
        directory(&[("b.xml", &one), ("a.XML", &two), (".b.xml.swp", "<"), (".c.xml", "<"), ("notes.txt", "<")]);
    fs::create_dir(directory.path().join("..data")).unwrap();
    fs::create_dir(directory.path().join("old.xml")).unwrap();
    let loaded = rules::load_directory(directory.path()).unwrap();
    let names = loaded.iter().map(|(path, it)| (path.file_name().unwrap().to_str().unwrap(), it.set_id.0));
    assert_eq!(names.collect::<Vec<_>>(), [("a.XML", 2), ("b.xml", 1)]);
}

/// Kubernetes mounts a ConfigMap as links to a directory that is swapped.
#[cfg(unix)]
#[test]
fn catalog_load_follows_symlinks() {
    let directory = directory(&[]);
    let data = directory.path().join("..2026_01_01");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("a.xml"), ruleset(1, 10)).unwrap();
    std::os::unix::fs::symlink("..2026_01_01", directory.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.xml", directory.path().join("a.xml")).unwrap();
    assert_eq!(rules::load_directory(directory.path()).unwrap().len(), 1);
    fs::remove_file(data.join("a.xml")).unwrap();
    assert!(messages(rules::load_directory(directory.path()).unwrap_err()).contains("cannot be read"));
}

#[test]
fn catalog_load_fails_if_any_file_is_invalid() {
    let (one, other) = (ruleset(1, 10), ruleset(1, 20));
    let wrong = ruleset(3, 0);
    let directory = directory(&[("a.xml", &one), ("b.xml", &other), ("c.xml", &wrong), ("d.xml", "<Ruleset")]);
    let all = messages(rules::load_directory(directory.path()).unwrap_err());
    let [duplicate, limit, syntax] = all.lines().collect::<Vec<_>>()[..] else { panic!("{all}") };
    assert!(duplicate.contains("b.xml: SetId 1 is already used by") && duplicate.contains("a.xml"), "{duplicate}");
    assert!(limit.contains("c.xml:1:"), "{limit}");
    assert!(syntax.contains("d.xml:1:1"), "{syntax}");
}

/// S4-16: an offered set must exist and have a queue.
#[test]
fn catalog_load_refuses_an_offer_without_a_queue() {
    let with = |inside: &str| format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/>{inside}</Ruleset>");
    let offering = with("<Queue><Offer AfterMs='60000' SetId='2'/></Queue>");
    let no_queue_file = ruleset(2, 10);
    let no_set = messages(rules::load_directory(directory(&[("a.xml", &offering)]).path()).unwrap_err());
    assert!(no_set.contains("a.xml: <Offer> names set 2, but no file has that SetId;"), "{no_set}");
    let no_queue = messages(
        rules::load_directory(directory(&[("a.xml", &offering), ("b.xml", &no_queue_file)]).path()).unwrap_err(),
    );
    assert!(no_queue.contains("b.xml has no <Queue>; name a set with a <Queue>"), "{no_queue}");
    let queue = with("<Queue/>").replace("SetId='1'", "SetId='2'");
    assert_eq!(rules::load_directory(directory(&[("a.xml", &offering), ("b.xml", &queue)]).path()).unwrap().len(), 2);
}

/// A file with `Retired="true"` only names its set; its other content is not read.
#[test]
fn catalog_load_separates_files_that_retire_their_set() {
    let load = |files: &[(&str, &str)]| rules::load::load_rulesets_and_retirement_markers(directory(files).path());
    let two = ruleset(2, 10);
    let loaded = load(&[("a.xml", "<Ruleset SetId='1' Retired='true'><Wrong/></Ruleset>"), ("b.xml", &two)]).unwrap();
    let retired: Vec<u32> = loaded.retired_files.keys().map(|set| set.0).collect();
    assert_eq!((loaded.rulesets.len(), retired), (1, vec![1]));
    let in_force = two.replace("SetId", "Retired='false' SetId");
    let loaded_again = load(&[("b.xml", &in_force)]).unwrap();
    assert_eq!(loaded_again.rulesets[0].1.hash, loaded.rulesets[0].1.hash, "the attribute is no rule");
    for (xml, expected) in [
        ("<Ruleset SetId='2' Retired='true'/>", "SetId 2 is already used by"),
        ("<Ruleset SetId='3' Retired='yes'/>", "`Retired` is neither true nor false; write `true` or `false`"),
        ("<Ruleset Retired='true'/>", "`SetId` is missing; name the set that is retired"),
        ("<Ruleset SetId='x' Retired='true'/>", "`SetId` is not a number; use an integer from 0 to 4294967295"),
    ] {
        let problems = messages(load(&[("b.xml", &two), ("c.xml", xml)]).unwrap_err());
        assert!(problems.contains("c.xml") && problems.contains(expected), "{problems}");
    }
    let alone = messages(rules::parse_ruleset("a.xml", "<Ruleset SetId='1' Retired='true'/>").unwrap_err());
    assert!(alone.contains("has no rules"), "{alone}");
}

#[test]
fn catalog_load_of_an_empty_or_missing_directory_fails() {
    assert!(messages(rules::load_directory(directory(&[]).path()).unwrap_err()).contains("no ruleset"));
    assert!(messages(rules::load_directory(Path::new("/no/such/directory")).unwrap_err()).contains("cannot be read"));
    let thesis = "<ExpansionConfigs/>";
    assert!(
        messages(rules::load_directory(directory(&[("a.xml", thesis)]).path()).unwrap_err())
            .contains("only expansions")
    );
}

fn rulesets(sets: &[(u32, u32)]) -> Vec<(std::path::PathBuf, Arc<fireteam::domain::ruleset::Ruleset>)> {
    let parsed = |&(set, results): &(u32, u32)| {
        let file = format!("{set}.xml");
        let ruleset = rules::parse_ruleset(&file, &ruleset(set, results)).unwrap();
        (file.into(), Arc::new(ruleset))
    };
    sets.iter().map(parsed).collect()
}

/// S1-37, S1-38: all rulesets are replaced at once, old hashes are found for a while, and a rejected reload changes
/// nothing.
#[test]
fn catalog_reload_replaces_all_and_retires_the_old() {
    let catalog = RulesetCatalog::default();
    let (one, two) = (SetId(1), SetId(2));
    let changes = catalog.replace_all(rulesets(&[(1, 10), (2, 10)]), UnixMs(1_000), 500);
    assert_eq!((changes.added, changes.changed, changes.removed), (vec![one, two], vec![], vec![]));
    let old = catalog.active_ruleset(one).unwrap().hash;

    catalog.record_rejected_reload(vec![FileDiagnostic::for_file("1.xml", "invalid", "correct it")]);
    assert_eq!(catalog.active_ruleset(one).unwrap().hash, old);
    assert_eq!(catalog.snapshot().rejected_diagnostics.len(), 1);
    let load = |set| catalog.snapshot().load_of(&catalog.active_ruleset(set).unwrap()).cloned();
    assert_eq!(load(one), Some(RulesetLoad::new(UnixMs(1_000), "start")));

    let changes = catalog.replace_all(rulesets(&[(1, 20)]), UnixMs(2_000), 500);
    assert_eq!((changes.added, changes.changed, changes.removed), (vec![], vec![one], vec![two]));
    assert!(catalog.snapshot().rejected_diagnostics.is_empty());
    assert_ne!(catalog.active_ruleset(one).unwrap().hash, old);
    assert_eq!(
        catalog.find_by_hash_with_index(one, old).unwrap().search_limits.max_results,
        10,
        "a search that started with it continues"
    );
    assert!(catalog.find_by_hash_with_index(two, old).is_none(), "a hash belongs to one set");
    assert!(catalog.active_ruleset(two).is_none());
    assert_eq!(catalog.snapshot().retired.iter().map(|old| old.retired_at).collect::<Vec<_>>(), [UnixMs(2_000); 2]);

    catalog.prune_superseded_rulesets(UnixMs(2_499));
    assert!(catalog.find_by_hash_with_index(one, old).is_some());
    catalog.prune_superseded_rulesets(UnixMs(2_500));
    assert!(catalog.find_by_hash_with_index(one, old).is_none());
}

/// A ruleset that is restored is active, not retired; the same rules with another spelling are no change.
#[test]
fn catalog_reload_of_a_retired_ruleset_activates_it() {
    let catalog = RulesetCatalog::default();
    catalog.replace_all(rulesets(&[(1, 10)]), UnixMs(0), 1_000);
    catalog.replace_all(rulesets(&[(1, 20)]), UnixMs(1), 1_000);
    catalog.replace_all(rulesets(&[(1, 10)]), UnixMs(2), 1_000);
    let retired: Vec<u32> =
        catalog.snapshot().retired.iter().map(|old| old.ruleset.search_limits.max_results).collect();
    assert_eq!(retired, [20]);

    let other_spelling = ruleset(1, 10).replace(" SetId", "  SetId");
    let again = vec![("1.xml".into(), Arc::new(rules::parse_ruleset("1.xml", &other_spelling).unwrap()))];
    assert!(catalog.replace_all(again, UnixMs(3), 1_000).is_empty());
    assert_eq!(
        &*catalog.active_ruleset(SetId(1)).unwrap().source_xml,
        other_spelling,
        "clients receive the current file"
    );
    let mut loads: Vec<UnixMs> = catalog.snapshot().loads.values().map(|load| load.at).collect();
    loads.sort_unstable();
    assert_eq!(loads, [UnixMs(1), UnixMs(2)], "each version has its load; the same rules are not loaded again");
}
