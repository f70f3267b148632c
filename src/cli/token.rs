//! Signs a caller's token: for operators, and for trying things out. Players' tokens come from the game's own service.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::auth::identity::Role;
use crate::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use crate::auth::jwt::{JWT_LIFETIME_MS_MAX, SCOPES_MAX, SUBJECT_BYTES_MAX};
use crate::domain::time::UnixMs;

/// Bytes of a key file at most.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// What `token` takes. The key is named by its file: what stands on a command line, everybody on the machine can read.
#[derive(Clone, Debug, Args)]
pub struct TokenFlags {
    /// The private key that `keygen` made, PEM.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Who vouches: the server's `auth_issuer`.
    #[arg(long, value_name = "TEXT")]
    pub issuer: String,
    /// For whom: a player's user id, or the name of a game server or an operator.
    #[arg(long, value_name = "TEXT")]
    pub subject: String,
    /// What the holder runs: client, server or operator.
    #[arg(long, value_name = "ROLE", default_value = "client", value_parser = role)]
    pub role: Role,
    /// Where it is good: the server's `auth_audience`.
    #[arg(long, value_name = "TEXT", default_value = "fireteam")]
    pub audience: String,
    /// How long it is good: a number and s, m or h, at most 24h.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    pub ttl: u64,
    /// What the holder may do beyond its role, words with spaces between them.
    #[arg(long, value_name = "WORDS")]
    pub scope: Option<String>,
}

/// A token as `flags` want it, good from `now` on.
pub fn sign_token(flags: TokenFlags, now: UnixMs) -> anyhow::Result<String> {
    let key = read_key(&flags.key)?;
    for (flag, text) in [("--subject", &flags.subject), ("--issuer", &flags.issuer), ("--audience", &flags.audience)] {
        if text.is_empty() || SUBJECT_BYTES_MAX < text.len() || text.chars().any(char::is_control) {
            bail!("{flag} must be 1 to {SUBJECT_BYTES_MAX} bytes without control characters");
        }
    }
    if flags.scope.as_ref().is_some_and(|scope| SCOPES_MAX < scope.split_whitespace().count()) {
        bail!("--scope has too many words: at most {SCOPES_MAX}");
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
    key.sign_jwt(&issued).context("sign")
}

fn read_key(file: &Path) -> anyhow::Result<IssuingKey> {
    let mut pem = Vec::new();
    let opened = File::open(file).with_context(|| format!("open {}", file.display()))?;
    opened.take(KEY_FILE_BYTES_MAX).read_to_end(&mut pem).with_context(|| format!("read {}", file.display()))?;
    IssuingKey::from_pem(&pem).with_context(|| file.display().to_string())
}

fn role(word: &str) -> Result<Role, String> {
    Role::from_name(word).ok_or_else(|| format!("`{word}` is no role: use client, server or operator"))
}

/// `90s`, `15m`, `1h`.
fn seconds(text: &str) -> Result<u64, String> {
    let most = JWT_LIFETIME_MS_MAX / 1000;
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let read = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    read.filter(|seconds| (1..=most).contains(seconds)).ok_or_else(|| format!("`{text}`: use 1s to 24h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ttl_is_parsed_with_its_unit() {
        let check = |text: &str, wanted: Option<u64>| assert_eq!(seconds(text).ok(), wanted, "{text:?}");
        check("90s", Some(90));
        check("15m", Some(900));
        check("24h", Some(86_400));
        for wrong in ["", "h", "1", "0s", "25h", "-1m", "1 h", "1d", "99999999999999999999h"] {
            check(wrong, None);
        }
    }
}
