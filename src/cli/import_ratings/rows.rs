//! Parser for CSV files of ratings: each row is an importable rating, or a line number with an error.

use std::collections::HashMap;
use std::io::Read;

use anyhow::bail;
use csv::{Reader, ReaderBuilder, StringRecord, Trim};

use crate::domain::limit::STRING_BYTES_MAX;
use crate::domain::rating::RATING_MAX;
use crate::domain::rating::percentile::rating_and_category_from_record;

/// Row that can be imported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImportRow {
    pub(super) line: u64,
    pub(super) user_id: String,
    pub(super) rating: f64,
    pub(super) deviation: Option<f64>,
    pub(super) match_count: u32,
    /// Reason for which wins and losses were replaced by one win and one loss.
    pub(super) replacement_reason: Option<String>,
}

/// Row that cannot be imported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RejectedImportRow {
    pub(super) line: u64,
    pub(super) reason: String,
}

/// Indexes of the columns.
#[derive(Clone, Copy, Debug)]
enum ImportColumns {
    RatingAndDeviation { user: usize, rating: usize, deviation: Option<usize> },
    WinsAndLosses { user: usize, wins: usize, losses: usize },
}

/// Iterator over the rows of a file.
pub(super) struct ImportRows<R> {
    reader: Reader<R>,
    columns: ImportColumns,
    /// Users read so far, with the line of each.
    first_line_by_user: HashMap<String, u64>,
}

impl<R: Read> ImportRows<R> {
    /// Reads the header. With `percentile`, rows have wins and losses. Fails if a required column is missing.
    pub(super) fn open(file: R, percentile: bool) -> anyhow::Result<Self> {
        let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(file);
        let header = reader.headers()?.clone();
        let column =
            |name: &str| header.iter().position(|cell| cell.trim_start_matches('\u{feff}').eq_ignore_ascii_case(name));
        let columns = match (percentile, column("user_id"), column("rating"), column("wins"), column("losses")) {
            (false, Some(user), Some(rating), ..) => {
                ImportColumns::RatingAndDeviation { user, rating, deviation: column("deviation") }
            }
            (true, Some(user), _, Some(wins), Some(losses)) => ImportColumns::WinsAndLosses { user, wins, losses },
            (false, _, None, Some(_), Some(_)) => {
                bail!("the file has wins and losses, and no rating; use --percentile to compute ratings")
            }
            (false, ..) => {
                bail!("a column is missing; the first line must be user_id,rating or user_id,rating,deviation")
            }
            (true, ..) => bail!("a column is missing; with --percentile, the first line must be user_id,wins,losses"),
        };
        Ok(Self { reader, columns, first_line_by_user: HashMap::new() })
    }

    /// Parses one record.
    fn parse_row(&mut self, line: u64, record: &StringRecord) -> Result<ImportRow, String> {
        let text = |at: usize| record.get(at).unwrap_or_default();
        let user_id = match self.columns {
            ImportColumns::RatingAndDeviation { user, .. } | ImportColumns::WinsAndLosses { user, .. } => text(user),
        };
        if user_id.is_empty() {
            return Err("user_id is missing".into());
        }
        if user_id.len() > STRING_BYTES_MAX {
            return Err(format!("user_id has {} bytes; use at most {STRING_BYTES_MAX}", user_id.len()));
        }
        let (rating, deviation, match_count, replacement_reason) = match self.columns {
            ImportColumns::RatingAndDeviation { rating, deviation, .. } => {
                let rating = parse_number(text(rating), "rating", -RATING_MAX)?;
                let deviation_text = deviation.map(text).filter(|cell| !cell.is_empty());
                (rating, deviation_text.map(|cell| parse_number(cell, "deviation", 0.0)).transpose()?, 0, None)
            }
            ImportColumns::WinsAndLosses { wins, losses, .. } => rating_from_wins_and_losses(text(wins), text(losses)),
        };
        if let Some(first) = self.first_line_by_user.get(user_id) {
            return Err(format!("user_id is listed twice, first in line {first}; list each user once"));
        }
        self.first_line_by_user.insert(user_id.to_owned(), line);
        Ok(ImportRow { line, user_id: user_id.to_owned(), rating, deviation, match_count, replacement_reason })
    }
}

impl<R: Read> Iterator for ImportRows<R> {
    type Item = Result<ImportRow, RejectedImportRow>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = StringRecord::new();
        let before = self.reader.position().line();
        match self.reader.read_record(&mut record) {
            Ok(false) => None,
            Ok(true) => {
                let line = record.position().map_or(before, csv::Position::line);
                Some(self.parse_row(line, &record).map_err(|reason| RejectedImportRow { line, reason }))
            }
            // A read error ends the iteration. A record that is not UTF-8 is one rejected row.
            Err(error) if error.is_io_error() => None,
            Err(error) => Some(Err(RejectedImportRow { line: before, reason: error.to_string() })),
        }
    }
}

/// Rating, deviation and match count from wins and losses, and the reason if an impossible record was replaced.
fn rating_from_wins_and_losses(wins: &str, losses: &str) -> (f64, Option<f64>, u32, Option<String>) {
    let count = |text: &str, name: &str| match text.parse::<f64>() {
        Ok(count) if count.is_finite() && count >= 0.0 => Ok(count),
        _ => Err(format!("{name} is `{text}`; use a number of 0 or more")),
    };
    let record = count(wins, "wins").and_then(|wins| Ok((wins, count(losses, "losses")?)));
    let record = record.and_then(|(wins, losses)| {
        if wins + losses > 0.0 { Ok((wins, losses)) } else { Err("wins and losses are both 0".into()) }
    });
    let (wins, losses, replacement_reason) = match record {
        Ok((wins, losses)) => (wins, losses, None),
        Err(reason) => (1.0, 1.0, Some(reason)),
    };
    let (rating, _category) = rating_and_category_from_record(wins, losses);
    let match_count = if replacement_reason.is_none() { (wins + losses).min(f64::from(u32::MAX)) as u32 } else { 0 };
    (f64::from(rating), None, match_count, replacement_reason)
}

fn parse_number(text: &str, name: &str, lowest: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (lowest..=RATING_MAX).contains(&number) => Ok(number),
        _ => Err(format!("{name} is `{text}`; use a number from {lowest} to {RATING_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line, user, rating and deviation; or line and a part of the error.
    type ExpectedRow = Result<(u64, &'static str, f64, Option<f64>), (u64, &'static str)>;

    fn assert_rows(file: &str, percentile: bool, expected: &[ExpectedRow]) {
        let rows: Vec<_> = ImportRows::open(file.as_bytes(), percentile).unwrap().collect();
        assert_eq!(rows.len(), expected.len(), "{rows:?}");
        for (row, expected) in rows.iter().zip(expected) {
            match (row, expected) {
                (Ok(row), Ok(expected_row)) => {
                    assert_eq!((row.line, row.user_id.as_str(), row.rating, row.deviation), *expected_row);
                }
                (Err(rejected), Err((line, reason))) => {
                    assert!(rejected.line == *line && rejected.reason.contains(reason), "{rejected:?}")
                }
                _ => panic!("{row:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn import_rows_are_parsed_or_rejected_with_their_line() {
        let file = "user_id,rating,deviation\nann,1500,80\nbob,1400.5\n,1\n\"eve, the second\",1e10,\ncid,NaN,\n\
                    dan,12,-1\nann,1600,\n";
        assert_rows(
            file,
            false,
            &[
                Ok((2, "ann", 1500.0, Some(80.0))),
                Ok((3, "bob", 1400.5, None)),
                Err((4, "user_id is missing")),
                Err((5, "rating is `1e10`")),
                Err((6, "rating is `NaN`")),
                Err((7, "deviation is `-1`; use a number from 0")),
                Err((8, "first in line 2")),
            ],
        );
        assert_rows("deviation,USER_ID,rating\n9,ann,1\n", false, &[Ok((2, "ann", 1.0, Some(9.0)))]);
        assert_rows("user_id,rating\n\u{e9}\u{e9},1\n", false, &[Ok((2, "\u{e9}\u{e9}", 1.0, None))]);
    }

    /// S4-4: an impossible record is imported as one win and one loss, and reported. A row without a user id is
    /// rejected.
    #[test]
    fn import_of_wins_and_losses_becomes_percentile_ratings() {
        let file = "user_id,wins,losses\nann,3,1\nbob,-3,1\ncid,x,\n,1,1\ndan,0,0\n";
        assert_rows(
            file,
            true,
            &[
                Ok((2, "ann", 1550.0, None)),
                Ok((3, "bob", 1036.0, None)),
                Ok((4, "cid", 1036.0, None)),
                Err((5, "user_id is missing")),
                Ok((6, "dan", 1036.0, None)),
            ],
        );
        let replaced: Vec<bool> = ImportRows::open(file.as_bytes(), true)
            .unwrap()
            .flatten()
            .map(|row| row.replacement_reason.is_some())
            .collect();
        assert_eq!(replaced, [false, true, true, true]);
    }

    #[test]
    fn import_without_the_required_columns_is_rejected() {
        let error_of =
            |header: &str, percentile| ImportRows::open(header.as_bytes(), percentile).err().unwrap().to_string();
        assert!(error_of("user,rating\n", false).contains("user_id,rating"));
        assert!(error_of("user_id,wins,losses\n", false).contains("--percentile"));
        assert!(error_of("user_id,rating\n", true).contains("user_id,wins,losses"));
        assert!(error_of("", false).contains("user_id,rating"));
    }
}
