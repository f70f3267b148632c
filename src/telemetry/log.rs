//! Log output on standard error: text or JSON, one line per event, at most one kilobyte per line.
//!
//! Log statements contain no addresses, tokens or names of people. Text from a client cannot start a new line: control
//! characters become spaces, and long lines are truncated. Callers cannot fill a disk: the log has a budget of bytes per
//! minute, and a notice tells how many lines were dropped.

use std::io::{self, Write};
use std::sync::Arc;

use thiserror::Error;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::telemetry::audit::{AUDIT_LOG_TARGET, NowFn};
use crate::telemetry::log_budget::{Admission, LineImportance, LogByteBudget};

/// Maximum length of a log line, bytes.
pub const LOG_LINE_BYTES_MAX: usize = 1024;
/// Maximum length of one string in a JSON line that is too long, bytes.
const TRUNCATED_STRING_BYTES_MAX: usize = 160;

/// Target of log lines about the events of matches: `--log-level info,fireteam::matches=off` leaves them out.
pub const MATCH_LOG_TARGET: &str = "fireteam::matches";

/// Failure to set up logging.
#[derive(Debug, Error)]
pub enum LogError {
    /// Unknown log level or invalid directive.
    #[error(
        "unknown log level `{0}`; use error, warn, info, debug, trace, or directives such as `info,fireteam::store=debug`"
    )]
    UnknownLevel(String),
    /// Logging is already set up in this process.
    #[error("logging is already set up; set it up once per process")]
    AlreadyInitialized,
}

/// Validates a log level without setting up logging.
pub fn check_level(level: &str) -> Result<(), LogError> {
    parse_level_filter(level).map(drop)
}

/// Sets up logging to standard error: `level` as [`EnvFilter`] directives, lines as JSON or as text, at most
/// `bytes_per_minute_max` bytes a minute. Audit records and the levels debug and trace are not limited.
pub fn init_logging(json: bool, level: &str, bytes_per_minute_max: u64, now: NowFn) -> Result<(), LogError> {
    let filter = parse_level_filter(level)?;
    let budget = Arc::new((LogByteBudget::new(bytes_per_minute_max), now));
    let line_writers = LogLineWriterFactory { json, budget };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false)
        .with_writer(line_writers);
    let result = if json { builder.json().try_init() } else { builder.try_init() };
    result.map_err(|_| LogError::AlreadyInitialized)
}

fn parse_level_filter(level: &str) -> Result<EnvFilter, LogError> {
    // A single word that is no level would be taken as a module name and disable all logging.
    let is_level = |word: &str| ["off", "error", "warn", "info", "debug", "trace"].contains(&word);
    let is_plausible = level.split(',').all(|directive| directive.contains(['=', ':']) || is_level(directive));
    is_plausible
        .then(|| EnvFilter::builder().parse(level).ok())
        .flatten()
        .ok_or_else(|| LogError::UnknownLevel(level.chars().filter(|c| !c.is_control()).take(80).collect()))
}

/// Budget of the log and the clock that it uses.
type BudgetAndClock = Arc<(LogByteBudget, NowFn)>;

#[derive(Clone)]
struct LogLineWriterFactory {
    json: bool,
    budget: BudgetAndClock,
}

impl MakeWriter<'_> for LogLineWriterFactory {
    type Writer = LogLineWriter;

    fn make_writer(&self) -> LogLineWriter {
        self.writer(LineImportance::Information)
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> LogLineWriter {
        self.writer(match *event.level() {
            _ if event.target() == AUDIT_LOG_TARGET => LineImportance::Unlimited,
            Level::ERROR | Level::WARN => LineImportance::Problem,
            Level::INFO if event.target() == MATCH_LOG_TARGET => LineImportance::MatchEvent,
            Level::INFO => LineImportance::Information,
            Level::DEBUG | Level::TRACE => LineImportance::Unlimited,
        })
    }
}

impl LogLineWriterFactory {
    fn writer(&self, importance: LineImportance) -> LogLineWriter {
        LogLineWriter { json: self.json, importance, budget: self.budget.clone() }
    }
}

/// Writer of one log line; the formatter writes an event in one call.
struct LogLineWriter {
    json: bool,
    importance: LineImportance,
    budget: BudgetAndClock,
}

impl Write for LogLineWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = if self.json { format_json_line(text.trim_end()) } else { to_bounded_text_line(text.trim_end()) };
        let (budget, now) = &*self.budget;
        let output = match budget.admit(self.importance, line.len(), now().0) {
            Admission::Write { dropped_before: 0 } => line,
            Admission::Write { dropped_before } => {
                format_notice(self.json, &format!("log lines dropped, over the limit of a minute: {dropped_before}"))
                    + &line
            }
            Admission::DropWithNotice => format_notice(
                self.json,
                "log lines are being dropped, over --log-max-kib-per-minute; a line tells how many",
            ),
            Admission::Drop => return Ok(event.len()),
        };
        io::stderr().lock().write_all(output.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Formats a line of the log about itself.
fn format_notice(json: bool, text: &str) -> String {
    if json {
        format!(
            "{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{text}\"}},\"target\":\"fireteam::telemetry::log\"}}\n"
        )
    } else {
        format!(" WARN fireteam::telemetry::log: {text}\n")
    }
}

/// Formats an event as one line of at most `LOG_LINE_BYTES_MAX` bytes.
fn to_bounded_text_line(event: &str) -> String {
    let printable = event.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let mut line = truncate_text(&printable, LOG_LINE_BYTES_MAX - 1);
    line.push('\n');
    line
}

/// Formats a JSON event as one line. If it is too long, truncates its strings; if still too long, replaces it by a notice.
fn format_json_line(event: &str) -> String {
    if event.len() < LOG_LINE_BYTES_MAX {
        return format!("{event}\n");
    }
    let shorter = serde_json::from_str::<serde_json::Value>(event).ok().map(|mut value| {
        truncate_json_strings(&mut value);
        value.to_string()
    });
    match shorter {
        Some(line) if line.len() < LOG_LINE_BYTES_MAX => format!("{line}\n"),
        Some(_) | None => {
            "{\"level\":\"WARN\",\"fields\":{\"message\":\"log event dropped: too long for one line\"}}\n".into()
        }
    }
}

/// Truncates the strings of an event. The formatter nests objects two levels deep; deeper values become null.
fn truncate_json_strings(value: &mut serde_json::Value) {
    use serde_json::Value;
    let Value::Object(fields) = value else { return };
    for field in fields.values_mut() {
        match field {
            Value::String(text) => *text = truncate_text(text, TRUNCATED_STRING_BYTES_MAX),
            Value::Object(inner) => {
                for text in inner.values_mut() {
                    match text {
                        Value::String(text) => *text = truncate_text(text, TRUNCATED_STRING_BYTES_MAX),
                        Value::Null | Value::Bool(_) | Value::Number(_) => {}
                        Value::Array(_) | Value::Object(_) => *text = Value::Null,
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::Array(_) => *field = Value::Null,
        }
    }
}

/// Truncates `text` to at most `bytes_max` bytes, with an ellipsis at the end if anything was removed.
fn truncate_text(text: &str, bytes_max: usize) -> String {
    const ELLIPSIS: char = '…';
    if text.len() <= bytes_max {
        return text.into();
    }
    let mut end = bytes_max - ELLIPSIS.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-19: no text in an event can start a new line.
    #[test]
    fn log_event_is_one_line() {
        assert_eq!(to_bounded_text_line("INFO a\nERROR forged\r\u{1b}[31m"), "INFO a ERROR forged  [31m\n");
        let long = to_bounded_text_line(&"é".repeat(5_000));
        assert!(long.len() <= LOG_LINE_BYTES_MAX && long.ends_with("…\n"));
        assert_eq!(to_bounded_text_line("short"), "short\n");
    }

    #[test]
    fn log_event_in_json_stays_json_when_truncated() {
        let event = |text: &str| {
            let fields = serde_json::json!({ "message": text, "count": 3, "odd": [1] });
            serde_json::json!({ "level": "INFO", "fields": fields, "target": text }).to_string()
        };
        assert_eq!(format_json_line(&event("short")), event("short") + "\n");
        let line = format_json_line(&event(&"x\ny".repeat(5_000)));
        assert!(line.len() <= LOG_LINE_BYTES_MAX && line.trim_end().lines().count() == 1);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["level"], &read["fields"]["count"]), (&"INFO".into(), &3.into()));
        let many: serde_json::Map<_, _> = (0..500).map(|n| (format!("field{n}"), n.into())).collect();
        let line = format_json_line(&serde_json::Value::Object(many).to_string());
        assert!(line.contains("too long") && serde_json::from_str::<serde_json::Value>(&line).is_ok());
    }

    #[test]
    fn log_level_with_a_typo_is_rejected() {
        for good in ["off", "error", "warn", "info", "debug", "trace", "info,fireteam::store=debug", "fireteam=trace"] {
            assert!(check_level(good).is_ok(), "{good}");
        }
        for bad in ["loud", "inof", "", "fireteam=loud", "info,,debug"] {
            assert!(check_level(bad).unwrap_err().to_string().contains("use error, warn, info"), "{bad}");
        }
    }
}
