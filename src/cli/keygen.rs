//! Makes the key that signs callers' tokens, and what the server must know of it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::auth::issuing_key::IssuingKey;
use crate::clock::Clock;

/// Makes three files: the private key, for its owner's eyes alone, the public key, and the public key as a key set.
/// `out` is a directory, or what their names begin with. Where one of them is there already, none is written.
pub fn generate_issuing_key(out: &Path, clock: &dyn Clock, told: &mut dyn Write) -> anyhow::Result<()> {
    if out.to_string_lossy().ends_with('/') && !out.is_dir() {
        bail!("--out {}: there is no such directory: make it, or leave the slash out to begin names so", out.display());
    }
    let mut seed = [0; 32];
    for half in seed.chunks_mut(16) {
        half.copy_from_slice(&clock.random_bytes());
    }
    let key = IssuingKey::from_seed(&seed).context("make a key")?;
    let files = [
        (key_file_path(out, "key.pem"), key.private_key_pem(), 0o600),
        (key_file_path(out, "pub.pem"), key.public_key_pem(), 0o644),
        (key_file_path(out, "jwks.json"), key.public_key_set(), 0o644),
    ];
    if let Some((there, ..)) = files.iter().find(|(file, ..)| file.exists()) {
        bail!("{} is there already and stays as it is: name another place with --out", there.display());
    }
    for (file, text, mode) in &files {
        create_file(file, text, *mode).with_context(|| format!("write {}", file.display()))?;
    }
    let [private, public, set] = files.map(|(file, ..)| file.display().to_string());
    writeln!(told, "{private}\n  signs tokens: keep it where the server is not\n{public}\n{set}")?;
    writeln!(told, "  what the server needs, one of the two: --auth-keys {set}")?;
    Ok(())
}

fn key_file_path(out: &Path, ending: &str) -> PathBuf {
    match out.is_dir() {
        true => out.join(format!("issuer.{ending}")),
        false => {
            let mut name = out.as_os_str().to_owned();
            name.push(format!(".{ending}"));
            name.into()
        }
    }
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
    use crate::clock::SystemClock;

    #[test]
    fn keygen_writes_three_files_and_never_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let (clock, mut told) = (SystemClock::start(), Vec::new());
        generate_issuing_key(folder.path(), &clock, &mut told).unwrap();
        let private = folder.path().join("issuer.key.pem");
        let made = std::fs::read(&private).unwrap();
        assert!(IssuingKey::from_pem(&made).is_ok());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let told = String::from_utf8(told).unwrap();
        assert!(!told.contains("PRIVATE"), "{told}");

        assert!(generate_issuing_key(folder.path(), &clock, &mut Vec::new()).is_err(), "a key in use is not replaced");
        assert_eq!(std::fs::read(&private).unwrap(), made);

        std::fs::remove_file(&private).unwrap();
        let said = generate_issuing_key(folder.path(), &clock, &mut Vec::new()).unwrap_err().to_string();
        assert!(said.contains("issuer.pub.pem is there already"), "{said}");
        assert!(!private.exists(), "half a set is none");
        let said =
            generate_issuing_key(&folder.path().join("nowhere/"), &clock, &mut Vec::new()).unwrap_err().to_string();
        assert!(said.contains("nowhere/: there is no such directory"), "{said}");

        generate_issuing_key(&folder.path().join("second"), &clock, &mut Vec::new()).unwrap();
        assert!(folder.path().join("second.jwks.json").is_file());
    }
}
