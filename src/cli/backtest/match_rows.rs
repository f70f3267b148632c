//! Parser for CSV files of matches; each row is validated on its own.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;

use anyhow::Context as _;
use csv::{ReaderBuilder, StringRecord};
use serde::Serialize;

use crate::cli::backtest::match_time::{MatchTime, parse_match_time};
use crate::domain::rating::{PLAYERS_MAX, SIDES_MAX};

/// Maximum length of a player name or match id in bytes.
const PLAYER_OR_MATCH_NAME_BYTES_MAX: usize = 256;

/// Match of one row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReplayMatch {
    /// First line of the row, from 1.
    pub(super) line: u64,
    pub(super) match_id: String,
    pub(super) played_at: MatchTime,
    /// Players and rank of each side: two or more sides, each player once.
    pub(super) sides: Vec<(Vec<String>, u32)>,
}

/// Row that cannot be rated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RejectedMatchRow {
    /// First line of the row, from 1.
    pub(super) line: u64,
    /// Error with the valid values.
    pub(super) why: String,
}

impl fmt::Display for RejectedMatchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.why)
    }
}

/// Reader of the rows of a file.
pub(super) struct MatchRows<R> {
    reader: csv::Reader<R>,
    /// Indexes of the columns match_id, time, teams and ranks.
    columns: [usize; REQUIRED_COLUMNS.len()],
}

const REQUIRED_COLUMNS: [&str; 4] = ["match_id", "time", "teams", "ranks"];

impl<R: Read> MatchRows<R> {
    /// Reads the header. Columns may be in any order, and additional columns are ignored. Fails if one is missing.
    pub(super) fn open(input: R) -> anyhow::Result<Self> {
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
        let header = reader.headers().context("the header")?;
        let column_index = |name: &str| {
            header.iter().position(|column| column.trim_start_matches('\u{feff}').trim() == name).with_context(|| {
                format!("column `{name}` is missing; the first line must name {}", REQUIRED_COLUMNS.join(", "))
            })
        };
        let [id, time, teams, ranks] = REQUIRED_COLUMNS;
        let columns = [column_index(id)?, column_index(time)?, column_index(teams)?, column_index(ranks)?];
        Ok(Self { reader, columns })
    }

    /// Number of bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Next row, valid or rejected; `None` at the end. An error means that the file cannot be read further.
    pub(super) fn next_match(&mut self) -> anyhow::Result<Option<Result<ReplayMatch, RejectedMatchRow>>> {
        let mut record = StringRecord::new();
        let first_line = self.reader.position().line();
        let row = match self.reader.read_record(&mut record) {
            Ok(false) => return Ok(None),
            Ok(true) => {
                let line = record.position().map_or(first_line, csv::Position::line);
                self.parse_row(&record, line).map_err(|why| RejectedMatchRow { line, why })
            }
            Err(error) if error.is_io_error() => return Err(error.into()),
            Err(error) => {
                let line = error.position().map_or(first_line, csv::Position::line);
                Err(RejectedMatchRow { line, why: "row is not UTF-8; convert the file".into() })
            }
        };
        Ok(Some(row))
    }

    fn parse_row(&self, record: &StringRecord, line: u64) -> Result<ReplayMatch, String> {
        let mut fields = [""; REQUIRED_COLUMNS.len()];
        for ((field, column), name) in fields.iter_mut().zip(self.columns).zip(REQUIRED_COLUMNS) {
            let value = record.get(column).map(str::trim).filter(|cell| !cell.is_empty());
            *field = value.ok_or_else(|| format!("{name} is missing"))?;
        }
        let [id, time, teams, ranks] = fields;
        validate_name(id, "match_id")?;
        Ok(ReplayMatch {
            line,
            match_id: id.to_owned(),
            played_at: parse_match_time(time)?,
            sides: parse_sides(teams, ranks)?,
        })
    }
}

/// Parses `Ann+Bob;Cem` and `1;2`.
fn parse_sides(teams: &str, ranks: &str) -> Result<Vec<(Vec<String>, u32)>, String> {
    let teams: Vec<&str> = teams.split(';').take(SIDES_MAX + 1).collect();
    let ranks: Vec<&str> = ranks.split(';').take(SIDES_MAX + 1).collect();
    if !(2..=SIDES_MAX).contains(&teams.len()) {
        return Err(format!("teams has {} sides; use 2 to {SIDES_MAX}, separated by `;`", side_count_text(&teams)));
    }
    if teams.len() != ranks.len() {
        return Err(format!(
            "teams has {} sides and ranks has {}; use one rank per side",
            teams.len(),
            side_count_text(&ranks)
        ));
    }
    let mut players_so_far = HashSet::new();
    let mut sides = Vec::with_capacity(teams.len());
    for (team, rank) in teams.iter().zip(&ranks) {
        let rank = rank.trim().parse().ok().filter(|rank| *rank > 0).ok_or_else(|| {
            format!("rank `{}` is invalid; use a whole number, 1 for the best", rank.trim().escape_debug())
        })?;
        let mut players = Vec::new();
        for player in team.split('+').map(str::trim) {
            validate_name(player, "player")?;
            if !players_so_far.insert(player) {
                return Err(format!("player `{player}` is listed twice; list each player once"));
            }
            if players_so_far.len() > PLAYERS_MAX {
                return Err(format!("match has too many players; use at most {PLAYERS_MAX}"));
            }
            players.push(player.to_owned());
        }
        sides.push((players, rank));
    }
    Ok(sides)
}

fn side_count_text(parts: &[&str]) -> String {
    if parts.len() > SIDES_MAX { format!("more than {SIDES_MAX}") } else { parts.len().to_string() }
}

fn validate_name(name: &str, subject: &str) -> Result<(), String> {
    if name.chars().any(char::is_control) {
        return Err(format!("{subject} has control characters: `{}`; remove them", name.escape_debug()));
    }
    match name.len() {
        0 => Err(format!("{subject} is empty; give a name")),
        1..=PLAYER_OR_MATCH_NAME_BYTES_MAX => Ok(()),
        _ => Err(format!("{subject} has {} bytes; use at most {PLAYER_OR_MATCH_NAME_BYTES_MAX}", name.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all_rows(text: &str) -> Vec<Result<ReplayMatch, RejectedMatchRow>> {
        let mut matches = MatchRows::open(text.as_bytes()).unwrap();
        std::iter::from_fn(|| matches.next_match().unwrap()).collect()
    }

    #[test]
    fn match_rows_find_columns_by_name() {
        let text = "ranks,mode,time,match_id,teams\n1;2,x,1970-01-01T00:00:01,a,Ann+Bob;Cem\n1;1,x,1872-11-30,b,Ann;Cem\n\
                    1;2;2,x,2500,\"c,d\",A;B;C\n";
        let rows: Vec<ReplayMatch> = read_all_rows(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(rows[0].sides, [(vec!["Ann".into(), "Bob".into()], 1), (vec!["Cem".into()], 2)]);
        let times = ["1000", "1872-11-30", "2500"].map(|text| parse_match_time(text).unwrap());
        assert_eq!(rows.iter().map(|row| row.played_at).collect::<Vec<_>>(), times);
        assert_eq!((rows[2].line, &*rows[2].match_id, rows[2].sides.len()), (4, "c,d", 3));
    }

    /// Each error is one line with its line number.
    #[test]
    fn match_row_error_says_what_is_wrong_and_what_is_right() {
        let many = vec!["A"; 150].join(";");
        for (row, expected) in [
            ("1,1970-01-01T00:00:00,x,A;B", "ranks is missing"),
            ("1,1970-01-01T00:00:00,x,,1;2", "teams is missing"),
            ("1,yesterday,x,A;B,1;2", "time `yesterday` is invalid"),
            ("1,1900-02-29,x,A;B,1;2", "time `1900-02-29` is invalid"),
            ("1,0,x,A,1", "teams has 1 sides"),
            (&*format!("1,0,x,{many},1"), "teams has more than 128 sides"),
            ("1,0,x,A;B,1", "teams has 2 sides and ranks has 1"),
            ("1,0,x,A;B,0;1", "rank `0` is invalid"),
            ("1,0,x,A;B,-1;1", "rank `-1` is invalid"),
            ("1,0,x,A;B,NaN;1", "rank `NaN` is invalid"),
            ("1,0,x,A;A,1;2", "player `A` is listed twice"),
            ("1,0,x,A+;B,1;2", "player is empty"),
            ("1,0,x,A\u{7}lert;B,1;2", "player has control characters: `A\\u{7}lert`"),
            (&*format!("{},0,x,A;B,1;2", "9".repeat(300)), "match_id has 300 bytes"),
        ] {
            let rejected = read_all_rows(&format!("match_id,time,mode,teams,ranks\n{row}\n")).remove(0).unwrap_err();
            assert!(rejected.line == 2 && rejected.why.contains(expected), "{row}: {rejected}");
        }
    }

    #[test]
    fn match_row_that_is_not_utf8_is_rejected_alone() {
        let text = b"match_id,time,mode,teams,ranks\n1,0,x,A;B,1;2\n2,0,x,\xff;B,1;2\n3,0,x,A;B,1;2\n";
        let mut matches = MatchRows::open(&text[..]).unwrap();
        let rows: Vec<_> = std::iter::from_fn(|| matches.next_match().unwrap()).collect();
        let rejected_lines: Vec<u64> =
            rows.iter().filter_map(|row| row.as_ref().err()).map(|rejected| rejected.line).collect();
        assert_eq!((rows.len(), rejected_lines), (3, vec![3]));
    }

    #[test]
    fn match_file_without_the_columns_is_rejected() {
        let error = MatchRows::open(&b"id,when\n1,2\n"[..]).err().unwrap();
        assert!(error.to_string().contains("column `match_id` is missing"), "{error}");
    }
}
