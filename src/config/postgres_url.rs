//! Postgres URL that hides its password when printed.

use std::fmt;

/// A `postgres://` URL. `Display` and `Debug` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Accepts text that starts with `postgres://` or `postgresql://`; otherwise `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        is_postgres.then(|| Self(text.to_owned()))
    }

    /// Complete URL with the password; for the database driver only.
    pub fn expose_password(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let (scheme, rest) = address.split_once("://").unwrap_or(("postgres", address));
        match rest.rsplit_once('@').and_then(|(credentials, address)| Some((credentials.split_once(':')?.0, address))) {
            Some((user, address)) => write!(f, "{scheme}://{user}:***@{address}")?,
            None => write!(f, "{scheme}://{rest}")?,
        }
        for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            let is_password = pair.split_once('=').is_some_and(|(key, _)| key.eq_ignore_ascii_case("password"));
            write!(f, "{separator}{}", if is_password { "password=***" } else { pair })?;
        }
        Ok(())
    }
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
        ] {
            let url = PostgresUrl::parse(url).unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (printed.to_owned(), printed.to_owned()));
        }
        assert_eq!(PostgresUrl::parse("mysql://db/a"), None);
    }
}
