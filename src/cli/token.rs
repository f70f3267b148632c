//! `fireteam token`: signs a caller's token, for operators and for testing. Players' tokens come from the game's own
//! service.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::auth::identity::Role;
use crate::auth::jwt::{JWT_LIFETIME_MS_MAX, SCOPES_MAX, SUBJECT_BYTES_MAX};
use crate::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use crate::domain::time::UnixMs;

/// Maximum size of a key file in bytes.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// Flags of `token`. The key is passed as a file, because command lines are readable by all users of the machine.
#[derive(Clone, Debug, Args)]
pub struct TokenFlags {
    /// Private key from `fireteam keygen`, PEM file.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Issuer; the server's `auth_issuer`.
    #[arg(long, value_name = "TEXT")]
    pub issuer: String,
    /// Subject: a player's user id, or the name of a game server or an operator.
    #[arg(long, value_name = "TEXT")]
    pub subject: String,
    /// Role of the caller: client, game_server, operator or viewer.
    #[arg(long, value_name = "ROLE", default_value = "client", value_parser = parse_role)]
    pub role: Role,
    /// Audience; the server's `auth_audience`.
    #[arg(long, value_name = "TEXT", default_value = "fireteam")]
    pub audience: String,
    /// Lifetime as a number with s, m or h, 1s to 24h.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_ttl_s)]
    pub ttl: u64,
    /// Additional permissions, separated by spaces [default: none].
    #[arg(long, value_name = "WORDS")]
    pub scope: Option<String>,
}

/// Signs a token with the given flags, valid from `now` on. Fails on an unreadable key or an invalid flag.
pub fn sign_token(flags: TokenFlags, now: UnixMs) -> anyhow::Result<String> {
    let key = read_key(&flags.key)?;
    for (flag, value) in [("--subject", &flags.subject), ("--issuer", &flags.issuer), ("--audience", &flags.audience)] {
        if value.is_empty() || value.len() > SUBJECT_BYTES_MAX || value.chars().any(char::is_control) {
            bail!("{flag} is invalid; use 1 to {SUBJECT_BYTES_MAX} bytes without control characters");
        }
    }
    if flags.scope.as_ref().is_some_and(|scope| scope.split_whitespace().count() > SCOPES_MAX) {
        bail!("--scope has too many words; use at most {SCOPES_MAX}");
    }
    let iat = now.0 / 1000;
    let issued = CallerTokenClaims {
        iss: flags.issuer,
        sub: flags.subject,
        aud: flags.audience,
        iat,
        exp: iat + flags.ttl,
        role: Some(flags.role.as_str().to_owned()),
        scope: flags.scope,
    };
    key.sign_jwt(&issued).context("sign the token")
}

fn read_key(file: &Path) -> anyhow::Result<JwtSigningKey> {
    let mut pem = Vec::new();
    let opened = File::open(file).with_context(|| format!("open {}", file.display()))?;
    opened.take(KEY_FILE_BYTES_MAX).read_to_end(&mut pem).with_context(|| format!("read {}", file.display()))?;
    JwtSigningKey::first_from_pem(&pem).with_context(|| file.display().to_string())
}

fn parse_role(word: &str) -> Result<Role, String> {
    Role::from_name(word).ok_or_else(|| format!("unknown role `{word}`; use client, game_server, operator or viewer"))
}

/// Parses `90s`, `15m` or `1h` into seconds.
fn parse_ttl_s(text: &str) -> Result<u64, String> {
    let max_seconds = JWT_LIFETIME_MS_MAX / 1000;
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    parsed
        .filter(|seconds| (1..=max_seconds).contains(seconds))
        .ok_or_else(|| format!("invalid lifetime `{text}`; use 1s to 24h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ttl_is_parsed_with_its_unit() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(parse_ttl_s(text).ok(), expected, "{text:?}");
        check("90s", Some(90));
        check("15m", Some(900));
        check("24h", Some(86_400));
        for invalid in ["", "h", "1", "0s", "25h", "-1m", "1 h", "1d", "99999999999999999999h"] {
            check(invalid, None);
        }
    }
}
