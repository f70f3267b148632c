//! Postgres URL that hides its password when printed.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Parameters of a URL that are no secrets.
const SHOWN_PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "port",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "user",
];

/// Whether the database driver knows a parameter of a URL.
fn is_known_parameter(pair: &str) -> bool {
    let (key, _) = pair.split_once('=').unwrap_or((pair, ""));
    SHOWN_PARAMETERS.contains(&key) || key == "password" || key.starts_with("options[") || key.starts_with("options%5B")
}

/// Text of the store setting, valid or not. `Debug` hides it, because it may contain a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreSetting(String);

impl StoreSetting {
    /// The text with the password, if it has one.
    pub fn text_with_password(&self) -> &str {
        &self.0
    }
}

impl From<String> for StoreSetting {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl FromStr for StoreSetting {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for StoreSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSetting(***)")
    }
}

/// A `postgres://` URL. `Display` and `Debug` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Accepts text that starts with `postgres://` or `postgresql://`; otherwise `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        is_postgres.then(|| Self(text.to_owned()))
    }

    /// URL with the password, for the database driver only. Parameters that the driver does not know are left out, because it
    /// logs them, and a mistyped one may be the password.
    pub fn driver_url_with_password(&self) -> String {
        let Some((address, query)) = self.0.split_once('?') else { return self.0.clone() };
        let known: Vec<&str> = query.split('&').filter(|pair| is_known_parameter(pair)).collect();
        let separator = if known.is_empty() { "" } else { "?" };
        format!("{address}{separator}{}", known.join("&"))
    }

    /// Number of parameters that the driver does not know.
    pub fn unknown_parameter_count(&self) -> usize {
        let query = self.0.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter(|pair| !pair.is_empty() && !is_known_parameter(pair)).count()
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", &self.0));
        let (address, query) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
        if query.contains('@') {
            // A password that is not percent-encoded: it is not clear where it ends.
            return write!(f, "{scheme}://***");
        }
        match address
            .rsplit_once('@')
            .and_then(|(credentials, address)| Some((credentials.split_once(':')?.0, address)))
        {
            Some((user, address)) => write!(f, "{scheme}://{user}:***@{address}")?,
            // A password without a host looks like a port.
            None if has_invalid_port(address) => return write!(f, "{scheme}://***"),
            None => write!(f, "{scheme}://{address}")?,
        }
        for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            match pair.split_once('=') {
                Some((key, value)) if SHOWN_PARAMETERS.contains(&key) => write!(f, "{separator}{key}={value}")?,
                Some((key, _)) if key.eq_ignore_ascii_case("password") => write!(f, "{separator}password=***")?,
                _ => write!(f, "{separator}***")?,
            }
        }
        Ok(())
    }
}

/// Whether the part after a host's colon is no port number.
fn has_invalid_port(address: &str) -> bool {
    let host_and_port = address.split('/').next().unwrap_or_default();
    let after_host = host_and_port.rsplit(']').next().unwrap_or_default();
    after_host.split_once(':').is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Replaces each word that may be a URL with credentials. For texts that quote a setting with a mistake.
pub fn hide_words_that_may_be_urls(text: &str) -> String {
    let is_url = |word: &str| word.contains('@') || word.contains("://");
    let hidden = text.split(' ').map(|word| if is_url(word) { "***" } else { word });
    hidden.collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_url_hides_its_password_when_printed() {
        for (url, printed) in [
            ("postgres://db/fireteam", "postgres://db/fireteam"),
            ("postgres://me@db:5432/a", "postgres://me@db:5432/a"),
            ("postgres://me:s3:cr@t@db/a?sslmode=require", "postgres://me:***@db/a?sslmode=require"),
            ("postgresql:///a?host=/run&password=s3cret&user=me", "postgresql:///a?host=/run&password=***&user=me"),
            ("postgres://me:s3c?ret@db/a", "postgres://***"),
            ("postgres://me:s3c#ret@db/a", "postgres://***"),
            ("postgres://me:s3c/ret@db/a", "postgres://me:***@db/a"),
            ("postgres://db/a?Pass%77ord=s3cret&sslmode=require", "postgres://db/a?***&sslmode=require"),
            ("postgres://db/a?password=s3c@ret", "postgres://***"),
            ("postgres://me:s3cret", "postgres://***"),
            ("postgres://[::1]:5432/a", "postgres://[::1]:5432/a"),
        ] {
            let url = PostgresUrl::parse(url).unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (printed.to_owned(), printed.to_owned()));
        }
        assert_eq!(PostgresUrl::parse("mysql://db/a"), None);
        let url =
            PostgresUrl::parse("postgres://me:pw@db/a?sslmode=require&pasword=x&options[a]=b&password=y").unwrap();
        assert_eq!(url.driver_url_with_password(), "postgres://me:pw@db/a?sslmode=require&options[a]=b&password=y");
        assert_eq!(url.unknown_parameter_count(), 1);
        let url = PostgresUrl::parse("postgres://me:pw@db/a?x=y").unwrap();
        assert_eq!(url.driver_url_with_password(), "postgres://me:pw@db/a");
        assert!(!format!("{:?}", StoreSetting::from("postgre://me:s3cret@db".to_owned())).contains("s3cret"));
    }
}
