//! Ratios between rows of the instruction gate, benches/instructions.toml.

use crate::support::source_tree;

/// Instructions per operation of a row.
fn instructions(table: &str, row: &str) -> f64 {
    let section = table.split_once(&format!("[{row}]\n")).unwrap_or_else(|| panic!("no row {row}")).1;
    let line = section.lines().find_map(|line| line.strip_prefix("instructions = ")).expect("a count");
    line.parse().expect("a number")
}

/// Attributes of players cost little more than those of parties: their values are made once, when a party enters or searches.
#[test]
fn attributes_of_players_cost_at_most_1_3_times_those_of_parties() {
    let file = source_tree::repository_root().join("benches/instructions.toml");
    let table = std::fs::read_to_string(file).expect("the table");
    for what in ["search", "pass"] {
        let [of_parties, of_players] =
            ["party", "player"].map(|who| instructions(&table, &format!("{what}_{who}_attributes")));
        let ratio = of_players / of_parties;
        assert!((0.7..=1.3).contains(&ratio), "{what}: {ratio:.2}");
    }
}
