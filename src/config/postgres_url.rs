//! Where a database is, perhaps with a password that nobody must see again.

use std::fmt;

/// A `postgres://` URL. Printed, in whatever way, without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Takes what begins as such a URL does.
    pub fn parse(text: &str) -> Option<Self> {
        let begins = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        begins.then(|| Self(text.to_owned()))
    }

    /// The whole of it, password and all; for the driver alone.
    pub fn expose_password(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let (scheme, rest) = place.split_once("://").unwrap_or(("postgres", place));
        match rest.rsplit_once('@').and_then(|(who, place)| Some((who.split_once(':')?.0, place))) {
            Some((user, place)) => write!(f, "{scheme}://{user}:***@{place}")?,
            None => write!(f, "{scheme}://{rest}")?,
        }
        for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            let secret = pair.split_once('=').is_some_and(|(key, _)| key.eq_ignore_ascii_case("password"));
            write!(f, "{mark}{}", if secret { "password=***" } else { pair })?;
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
