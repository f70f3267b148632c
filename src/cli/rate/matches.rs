//! Rows of a file of matches, each checked by itself.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use csv::{ReaderBuilder, StringRecord};
use serde::Serialize;

use crate::domain::rating::{PLAYERS_MAX, SIDES_MAX};
use crate::domain::time::UnixMs;

/// Bytes in a player's name or a match's, at most.
const NAME_BYTES_MAX: usize = 256;

/// A match as its row says it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    pub(super) id: String,
    pub(super) at: UnixMs,
    /// Sides of players, each with its rank; two or more, nobody in it twice.
    pub(super) sides: Vec<(Vec<String>, u32)>,
}

/// A row that cannot be rated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BadRow {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// What is wrong, and what would be right.
    pub(super) why: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.why)
    }
}

/// The rows of a file.
pub(super) struct Matches<R> {
    reader: csv::Reader<R>,
    /// Where match_id, time, teams and ranks are.
    columns: [usize; COLUMNS.len()],
}

const COLUMNS: [&str; 4] = ["match_id", "time", "teams", "ranks"];

impl<R: Read> Matches<R> {
    /// Reads the header. Columns may stand in any order, and there may be others.
    pub(super) fn open(input: R) -> anyhow::Result<Self> {
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
        let header = reader.headers().context("the header")?;
        let place = |name: &str| {
            header
                .iter()
                .position(|column| column.trim_start_matches('\u{feff}').trim() == name)
                .with_context(|| format!("the first line has no column `{name}`: it needs {}", COLUMNS.join(", ")))
        };
        let [id, time, teams, ranks] = COLUMNS;
        let columns = [place(id)?, place(time)?, place(teams)?, place(ranks)?];
        Ok(Self { reader, columns })
    }

    /// How much of the file has been read.
    pub(super) fn bytes(&self) -> u64 {
        self.reader.position().byte()
    }

    /// The next row, sound or bad; none at the end. An error is the file's, and the last that can be had of it.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Result<Row, BadRow>>> {
        let mut record = StringRecord::new();
        let began = self.reader.position().line();
        let row = match self.reader.read_record(&mut record) {
            Ok(false) => return Ok(None),
            Ok(true) => {
                let line = record.position().map_or(began, csv::Position::line);
                self.row(&record, line).map_err(|why| BadRow { line, why })
            }
            Err(error) if error.is_io_error() => return Err(error.into()),
            Err(error) => {
                let line = error.position().map_or(began, csv::Position::line);
                Err(BadRow { line, why: "it is not UTF-8".into() })
            }
        };
        Ok(Some(row))
    }

    fn row(&self, record: &StringRecord, line: u64) -> Result<Row, String> {
        let mut fields = [""; COLUMNS.len()];
        for ((field, column), name) in fields.iter_mut().zip(self.columns).zip(COLUMNS) {
            let found = record.get(column).map(str::trim).filter(|it| !it.is_empty());
            *field = found.ok_or_else(|| format!("{name} is missing"))?;
        }
        let [id, time, teams, ranks] = fields;
        named(id, "match_id")?;
        Ok(Row { line, id: id.to_owned(), at: moment(time)?, sides: sides(teams, ranks)? })
    }
}

/// `Ann+Bob;Cem` and `1;2`.
fn sides(teams: &str, ranks: &str) -> Result<Vec<(Vec<String>, u32)>, String> {
    let teams: Vec<&str> = teams.split(';').take(SIDES_MAX + 1).collect();
    let ranks: Vec<&str> = ranks.split(';').take(SIDES_MAX + 1).collect();
    if !(2..=SIDES_MAX).contains(&teams.len()) {
        return Err(format!("teams has {} sides: a match has 2 to {SIDES_MAX}, `;` between them", counted(&teams)));
    }
    if teams.len() != ranks.len() {
        return Err(format!("teams has {} sides and ranks has {}: one rank for each", teams.len(), counted(&ranks)));
    }
    let mut seen = HashSet::new();
    let mut sides = Vec::with_capacity(teams.len());
    for (team, rank) in teams.iter().zip(&ranks) {
        let rank = rank.trim().parse().ok().filter(|rank| 0 < *rank).ok_or_else(|| {
            format!("the rank `{}` is wrong: give a whole number, 1 for the best", rank.trim().escape_debug())
        })?;
        let mut players = Vec::new();
        for player in team.split('+').map(str::trim) {
            named(player, "a player")?;
            if !seen.insert(player) {
                return Err(format!("`{player}` is in it twice"));
            }
            if PLAYERS_MAX < seen.len() {
                return Err(format!("it has more than {PLAYERS_MAX} players"));
            }
            players.push(player.to_owned());
        }
        sides.push((players, rank));
    }
    Ok(sides)
}

fn counted(parts: &[&str]) -> String {
    if SIDES_MAX < parts.len() { format!("more than {SIDES_MAX}") } else { parts.len().to_string() }
}

fn named(name: &str, what: &str) -> Result<(), String> {
    if name.chars().any(char::is_control) {
        return Err(format!("{what} has a name with control characters: `{}`", name.escape_debug()));
    }
    match name.len() {
        0 => Err(format!("{what} has no name")),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(format!("{what} has a name of {} bytes: give at most {NAME_BYTES_MAX}", name.len())),
    }
}

/// `2004-08-06T18:13:50`, with a space for the T, with fractions and with a Z: always UTC. Or milliseconds since 1970.
fn moment(text: &str) -> Result<UnixMs, String> {
    if let Ok(ms) = text.parse() {
        return Ok(UnixMs(ms));
    }
    let read = humantime::parse_rfc3339_weak(text).ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    let since = read.ok_or_else(|| {
        format!(
            "the time `{}` is wrong: write 2004-08-06T18:13:50, UTC, or milliseconds since 1970",
            text.escape_debug()
        )
    })?;
    Ok(UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<Row, BadRow>> {
        let mut matches = Matches::open(text.as_bytes()).unwrap();
        std::iter::from_fn(|| matches.next().unwrap()).collect()
    }

    #[test]
    fn columns_are_found_by_name_and_times_in_every_spelling() {
        let text = "ranks,mode,time,match_id,teams\n1;2,x,1970-01-01T00:00:01,a,Ann+Bob;Cem\n1;1,x,1970-01-01 00:00:01.5Z,b,Ann;Cem\n\
                    1;2;2,x,2500,\"c,d\",A;B;C\n";
        let rows: Vec<Row> = read(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(rows[0].sides, [(vec!["Ann".into(), "Bob".into()], 1), (vec!["Cem".into()], 2)]);
        assert_eq!(rows.iter().map(|row| row.at.0).collect::<Vec<_>>(), [1_000, 1_500, 2_500]);
        assert_eq!((rows[2].line, &*rows[2].id, rows[2].sides.len()), (4, "c,d", 3));
    }

    /// Each mistake is one line, with its number.
    #[test]
    fn a_bad_row_says_what_would_be_right() {
        let many = vec!["A"; 100].join(";");
        for (row, wanted) in [
            ("1,1970-01-01T00:00:00,x,A;B", "ranks is missing"),
            ("1,1970-01-01T00:00:00,x,,1;2", "teams is missing"),
            ("1,yesterday,x,A;B,1;2", "the time `yesterday` is wrong"),
            ("1,1969-12-31T00:00:00,x,A;B,1;2", "the time `1969-12-31T00:00:00` is wrong"),
            ("1,0,x,A,1", "teams has 1 sides"),
            (&*format!("1,0,x,{many},1"), "teams has more than 64 sides"),
            ("1,0,x,A;B,1", "teams has 2 sides and ranks has 1"),
            ("1,0,x,A;B,0;1", "the rank `0` is wrong"),
            ("1,0,x,A;B,-1;1", "the rank `-1` is wrong"),
            ("1,0,x,A;B,NaN;1", "the rank `NaN` is wrong"),
            ("1,0,x,A;A,1;2", "`A` is in it twice"),
            ("1,0,x,A+;B,1;2", "a player has no name"),
            ("1,0,x,A\u{7}lert;B,1;2", "a name with control characters: `A\\u{7}lert`"),
            (&*format!("{},0,x,A;B,1;2", "9".repeat(300)), "match_id has a name of 300 bytes"),
        ] {
            let bad = read(&format!("match_id,time,mode,teams,ranks\n{row}\n")).remove(0).unwrap_err();
            assert!(bad.line == 2 && bad.why.contains(wanted), "{row}: {bad}");
        }
    }

    #[test]
    fn what_is_not_text_is_one_bad_row() {
        let text = b"match_id,time,mode,teams,ranks\n1,0,x,A;B,1;2\n2,0,x,\xff;B,1;2\n3,0,x,A;B,1;2\n";
        let mut matches = Matches::open(&text[..]).unwrap();
        let rows: Vec<_> = std::iter::from_fn(|| matches.next().unwrap()).collect();
        let bad: Vec<u64> = rows.iter().filter_map(|row| row.as_ref().err()).map(|bad| bad.line).collect();
        assert_eq!((rows.len(), bad), (3, vec![3]));
    }

    #[test]
    fn a_file_without_the_columns_is_no_file_of_matches() {
        let error = Matches::open(&b"id,when\n1,2\n"[..]).err().unwrap();
        assert!(error.to_string().contains("no column `match_id`"), "{error}");
    }
}
