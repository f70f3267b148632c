//! `fireteam keygen`: generates the key pair for signing callers' tokens, and the secret of public user keys.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::auth::jwt_signing_key::JwtSigningKey;
use crate::auth::key_file::encode_secret_file;
use crate::clock::Clock;

/// Writes four files: the private key (mode 0600), the public key, the public key as JWKS, and the secret of public user keys
/// (mode 0600). `out` is a directory or a prefix of their names. Fails without writing if one of them exists.
pub fn generate_issuing_key(out: &Path, clock: &dyn Clock, printed: &mut dyn Write) -> anyhow::Result<()> {
    if out.to_string_lossy().ends_with('/') && !out.is_dir() {
        bail!(
            "--out {}: directory not found; create it, or remove the final slash to use a name prefix",
            out.display()
        );
    }
    let [seed, user_key_secret] = [(); 2].map(|()| clock.random_key());
    let key = JwtSigningKey::from_seed(&seed).context("generate a key")?;
    let files = [
        (key_file_path(out, "key.pem"), key.private_key_pem(), 0o600),
        (key_file_path(out, "pub.pem"), key.public_key_pem(), 0o644),
        (key_file_path(out, "jwks.json"), key.public_key_set(), 0o644),
        (key_file_path(out, "user-key"), encode_secret_file(user_key_secret), 0o600),
    ];
    if let Some((existing, ..)) = files.iter().find(|(file, ..)| file.exists()) {
        bail!("{} already exists; use another --out", existing.display());
    }
    for (file, text, mode) in &files {
        create_file(file, text, *mode).with_context(|| format!("write {}", file.display()))?;
    }
    let [private, public, set, user_key] = files.map(|(file, ..)| file.display().to_string());
    writeln!(printed, "{private}\n  signs tokens; keep it away from the server\n{public}\n{set}")?;
    writeln!(printed, "  one of the last two is for the server: --auth-keys {set}\n{user_key}")?;
    writeln!(printed, "  names users in answers; for all servers, never another one: --user-key-file {user_key}")?;
    Ok(())
}

fn key_file_path(out: &Path, extension: &str) -> PathBuf {
    if out.is_dir() {
        return out.join(format!("issuer.{extension}"));
    }
    let mut name = out.as_os_str().to_owned();
    name.push(format!(".{extension}"));
    name.into()
}

fn create_file(file: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = options.open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::key_file::load_or_create_public_user_key_secret;
    use crate::clock::SystemClock;

    #[test]
    fn keygen_writes_four_files_and_never_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let (clock, mut printed) = (SystemClock::start(), Vec::new());
        generate_issuing_key(folder.path(), &clock, &mut printed).unwrap();
        let private = folder.path().join("issuer.key.pem");
        let original = std::fs::read(&private).unwrap();
        assert!(JwtSigningKey::first_from_pem(&original).is_ok());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            for secret in [&private, &folder.path().join("issuer.user-key")] {
                assert_eq!(std::fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
        let secret = std::fs::read_to_string(folder.path().join("issuer.user-key")).unwrap();
        assert!(load_or_create_public_user_key_secret(&folder.path().join("issuer.user-key"), [0; 32]).is_ok());
        let printed = String::from_utf8(printed).unwrap();
        assert!(!printed.contains("PRIVATE") && !printed.contains(secret.trim()), "{printed}");

        assert!(
            generate_issuing_key(folder.path(), &clock, &mut Vec::new()).is_err(),
            "an existing key is not replaced"
        );
        assert_eq!(std::fs::read(&private).unwrap(), original);

        std::fs::remove_file(&private).unwrap();
        let error = generate_issuing_key(folder.path(), &clock, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("issuer.pub.pem already exists"), "{error}");
        assert!(!private.exists(), "no file is written if one exists");
        let error =
            generate_issuing_key(&folder.path().join("nowhere/"), &clock, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("nowhere/: directory not found"), "{error}");

        generate_issuing_key(&folder.path().join("second"), &clock, &mut Vec::new()).unwrap();
        assert!(folder.path().join("second.jwks.json").is_file());
    }
}
