//! The key file as a file: made, read, rotated, and refused when others could read it.

use std::fs;
use std::path::Path;

use fireteam::auth::key_file::load_or_create_signer;
use fireteam::auth::token::{ReservationClaim, SIGNING_KEY_BYTES, TokenSigner};
use fireteam::domain::id::{AdvertisementId, ReservationId, SetId};

fn reservation_claim() -> ReservationClaim {
    ReservationClaim {
        reservation_id: ReservationId::from_bytes([1; 16]),
        advertisement_id: AdvertisementId::from_bytes([2; 16]),
        set_id: SetId(3),
        subject: None,
    }
}

fn verifies_token_of(signer: &TokenSigner, signed_by: [u8; SIGNING_KEY_BYTES]) -> bool {
    signer.verify::<ReservationClaim>(&TokenSigner::new(signed_by, None).sign(&reservation_claim())).is_some()
}

fn write_private_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn token_key_file_is_created_once_and_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fireteam.token-key");
    assert!(verifies_token_of(&load_or_create_signer(&path, [7; SIGNING_KEY_BYTES]).unwrap(), [7; SIGNING_KEY_BYTES]));
    let again = load_or_create_signer(&path, [8; SIGNING_KEY_BYTES]).unwrap();
    assert!(verifies_token_of(&again, [7; SIGNING_KEY_BYTES]) && !verifies_token_of(&again, [8; SIGNING_KEY_BYTES]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "07".repeat(32) + "\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn token_key_rotation_signs_with_the_first_line_and_verifies_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    write_private_file(&path, &format!("  {}\r\n\n{}\n", "0A".repeat(32), "0b".repeat(32)));
    let signer = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap();
    assert!(verifies_token_of(&signer, [10; SIGNING_KEY_BYTES]) && verifies_token_of(&signer, [11; SIGNING_KEY_BYTES]));
    assert_eq!(signer.sign(&reservation_claim()), TokenSigner::new([10; SIGNING_KEY_BYTES], None).sign(&reservation_claim()));
}

/// A7: whoever can read the keys can forge any token.
#[cfg(unix)]
#[test]
fn token_key_file_readable_by_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    write_private_file(&path, &"0a".repeat(32));
    for mode in [0o644, 0o604, 0o660, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let said = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(said.contains(&format!("chmod 600 {}", path.display())) && !said.contains('\n'), "{said}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).is_ok());
}

#[test]
fn token_key_file_with_invalid_content_is_refused_and_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let key = "0a".repeat(32);
    let bad = [
        String::new(),
        "0a".repeat(31),
        format!("{key}0"),
        "zz".repeat(32),
        format!("{key}\n{key}\n{key}"),
        format!("{key}\nsecret"),
    ];
    for text in bad {
        write_private_file(&path, &text);
        let said = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(said.contains("is not one or two lines of 64 hexadecimal digits"), "{said}");
        assert!(!said.contains("0a0a") && !said.contains("secret"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "left as it was");
    }
    let said =
        load_or_create_signer(&folder.path().join("no/such/folder"), [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
    assert!(said.contains("no/such/folder"), "{said}");
}

/// Two servers that start at once on the same file end up with the same key.
#[test]
fn token_key_file_created_concurrently_holds_one_key() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let signers: Vec<Option<TokenSigner>> = std::thread::scope(|scope| {
            let start = |key: u8| load_or_create_signer(&path, [key; SIGNING_KEY_BYTES]).ok();
            let starting: Vec<_> = (1..=4).map(|key| scope.spawn(move || start(key))).collect();
            starting.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let token = load_or_create_signer(&path, [9; SIGNING_KEY_BYTES]).unwrap().sign(&reservation_claim());
        assert!(signers.iter().flatten().all(|it| it.verify::<ReservationClaim>(&token).is_some()));
        assert!(signers.iter().all(Option::is_some), "a reader saw half a key");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "drafts are left behind");
    }
}
