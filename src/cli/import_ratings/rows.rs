//! The rows of a file of ratings: each is one that can be imported, or a line and what is wrong with it.

use std::collections::HashMap;
use std::io::Read;

use anyhow::bail;
use csv::{Reader, ReaderBuilder, StringRecord, Trim};

use crate::domain::limit::STRING_BYTES_MAX;
use crate::domain::rating::RATING_MAX;
use crate::domain::rating::percentile::rating_from_record;

/// A row that can be imported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImportRow {
    pub(super) line: u64,
    pub(super) user_id: String,
    pub(super) rating: f64,
    pub(super) deviation: Option<f64>,
    pub(super) match_count: u32,
    /// What of it cannot be, and was replaced.
    pub(super) replacement_reason: Option<String>,
}

/// A row that cannot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RejectedImportRow {
    pub(super) line: u64,
    pub(super) reason: String,
}

/// Where the columns are.
#[derive(Clone, Copy, Debug)]
enum ImportColumns {
    RatingAndDeviation { user: usize, rating: usize, deviation: Option<usize> },
    WinsAndLosses { user: usize, wins: usize, losses: usize },
}

/// The rows of a file, one after the other.
pub(super) struct ImportRows<R> {
    reader: Reader<R>,
    columns: ImportColumns,
    /// The users so far, and where.
    first_line_by_user: HashMap<String, u64>,
}

impl<R: Read> ImportRows<R> {
    /// Reads the head. `percentile`: rows count wins and losses.
    pub(super) fn open(file: R, percentile: bool) -> anyhow::Result<Self> {
        let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(file);
        let head = reader.headers()?.clone();
        let at = |name: &str| head.iter().position(|it| it.trim_start_matches('\u{feff}').eq_ignore_ascii_case(name));
        let columns = match (percentile, at("user_id"), at("rating"), at("wins"), at("losses")) {
            (false, Some(user), Some(rating), ..) => {
                ImportColumns::RatingAndDeviation { user, rating, deviation: at("deviation") }
            }
            (true, Some(user), _, Some(wins), Some(losses)) => ImportColumns::WinsAndLosses { user, wins, losses },
            (false, _, None, Some(_), Some(_)) => {
                bail!("its rows have wins and losses, and no rating: give --percentile to make ratings of them")
            }
            (false, ..) => bail!("its first line must name the columns: user_id,rating or user_id,rating,deviation"),
            (true, ..) => bail!("with --percentile its first line must name the columns: user_id,wins,losses"),
        };
        Ok(Self { reader, columns, first_line_by_user: HashMap::new() })
    }

    /// What one record says.
    fn parse_row(&mut self, line: u64, record: &StringRecord) -> Result<ImportRow, String> {
        let text = |at: usize| record.get(at).unwrap_or_default();
        let user_id = match self.columns {
            ImportColumns::RatingAndDeviation { user, .. } | ImportColumns::WinsAndLosses { user, .. } => text(user),
        };
        if user_id.is_empty() {
            return Err("user_id is missing".into());
        }
        if STRING_BYTES_MAX < user_id.len() {
            return Err(format!("user_id has {} bytes, at most {STRING_BYTES_MAX} are allowed", user_id.len()));
        }
        let (rating, deviation, matches, doubt) = match self.columns {
            ImportColumns::RatingAndDeviation { rating, deviation, .. } => {
                let rating = parse_number(text(rating), "rating", -RATING_MAX)?;
                let said = deviation.map(text).filter(|it| !it.is_empty());
                (rating, said.map(|it| parse_number(it, "deviation", 0.0)).transpose()?, 0, None)
            }
            ImportColumns::WinsAndLosses { wins, losses, .. } => rating_from_wins_and_losses(text(wins), text(losses)),
        };
        if let Some(first) = self.first_line_by_user.get(user_id) {
            return Err(format!("user_id is here a second time, first in line {first}: each user once"));
        }
        self.first_line_by_user.insert(user_id.to_owned(), line);
        Ok(ImportRow {
            line,
            user_id: user_id.to_owned(),
            rating,
            deviation,
            match_count: matches,
            replacement_reason: doubt,
        })
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
                Some(self.parse_row(line, &record).map_err(|why| RejectedImportRow { line, reason: why }))
            }
            // Reading is over when the file itself cannot be read; a record that is no text is one row.
            Err(error) if error.is_io_error() => None,
            Err(error) => Some(Err(RejectedImportRow { line: before, reason: error.to_string() })),
        }
    }
}

/// A rating of a record of wins and losses (S4-4), and what of it cannot be.
fn rating_from_wins_and_losses(wins: &str, losses: &str) -> (f64, Option<f64>, u32, Option<String>) {
    let count = |text: &str, name: &str| match text.parse::<f64>() {
        Ok(count) if count.is_finite() && 0.0 <= count => Ok(count),
        _ => Err(format!("{name} is `{text}`, must be a number of 0 or more")),
    };
    let read = count(wins, "wins").and_then(|wins| Ok((wins, count(losses, "losses")?)));
    let read = read.and_then(|(wins, losses)| match 0.0 < wins + losses {
        true => Ok((wins, losses)),
        false => Err("wins and losses are both 0".into()),
    });
    let (wins, losses, doubt) = match read {
        Ok((wins, losses)) => (wins, losses, None),
        Err(why) => (1.0, 1.0, Some(why)),
    };
    let (rating, _category) = rating_from_record(wins, losses);
    let matches = if doubt.is_none() { (wins + losses).min(f64::from(u32::MAX)) as u32 } else { 0 };
    (f64::from(rating), None, matches, doubt)
}

fn parse_number(text: &str, name: &str, least: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (least..=RATING_MAX).contains(&number) => Ok(number),
        _ => Err(format!("{name} is `{text}`, must be a number from {least} to {RATING_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line, user, rating and deviation; or line and a part of what is wrong.
    type ExpectedRow = Result<(u64, &'static str, f64, Option<f64>), (u64, &'static str)>;

    fn assert_rows(file: &str, percentile: bool, expected: &[ExpectedRow]) {
        let rows: Vec<_> = ImportRows::open(file.as_bytes(), percentile).unwrap().collect();
        assert_eq!(rows.len(), expected.len(), "{rows:?}");
        for (row, expected) in rows.iter().zip(expected) {
            match (row, expected) {
                (Ok(row), Ok(wanted)) => {
                    assert_eq!((row.line, row.user_id.as_str(), row.rating, row.deviation), *wanted);
                }
                (Err(bad), Err((line, why))) => assert!(bad.line == *line && bad.reason.contains(why), "{bad:?}"),
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
                Err((7, "deviation is `-1`, must be a number from 0")),
                Err((8, "first in line 2")),
            ],
        );
        assert_rows("deviation,USER_ID,rating\n9,ann,1\n", false, &[Ok((2, "ann", 1.0, Some(9.0)))]);
        assert_rows("user_id,rating\n\u{e9}\u{e9},1\n", false, &[Ok((2, "\u{e9}\u{e9}", 1.0, None))]);
    }

    /// S4-4: a record that cannot be is one win and one loss, and is told of; a user without a name is nobody.
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
        let doubts: Vec<bool> = ImportRows::open(file.as_bytes(), true)
            .unwrap()
            .flatten()
            .map(|row| row.replacement_reason.is_some())
            .collect();
        assert_eq!(doubts, [false, true, true, true]);
    }

    #[test]
    fn import_without_the_required_columns_is_rejected() {
        let refused = |head: &str, percentile| ImportRows::open(head.as_bytes(), percentile).err().unwrap().to_string();
        assert!(refused("user,rating\n", false).contains("user_id,rating"));
        assert!(refused("user_id,wins,losses\n", false).contains("--percentile"));
        assert!(refused("user_id,rating\n", true).contains("user_id,wins,losses"));
        assert!(refused("", false).contains("user_id,rating"));
    }
}
