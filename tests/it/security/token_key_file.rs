//! The token key file: creation, reading, rotation, and refusal if others can read it.

use std::fs;
use std::path::Path;

use fireteam::auth::key_file::load_or_create_signer;
use fireteam::auth::token::{HmacTokenSigner, ReservationClaim, SIGNING_KEY_BYTES};
use fireteam::domain::id::{AdvertisementId, ReservationId, SetId};

fn reservation_claim() -> ReservationClaim {
    ReservationClaim {
        reservation_id: ReservationId::from_bytes([1; 16]),
        advertisement_id: AdvertisementId::from_bytes([2; 16]),
        set_id: SetId(3),
        subject: None,
    }
}

fn verifies_token_of(signer: &HmacTokenSigner, signed_by: [u8; SIGNING_KEY_BYTES]) -> bool {
    signer.verify::<ReservationClaim>(&HmacTokenSigner::new(signed_by, None).sign(&reservation_claim())).is_some()
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
    assert_eq!(
        signer.sign(&reservation_claim()),
        HmacTokenSigner::new([10; SIGNING_KEY_BYTES], None).sign(&reservation_claim())
    );
}

/// A7: a caller who can read the keys can forge any token.
#[cfg(unix)]
#[test]
fn token_key_file_readable_by_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    write_private_file(&path, &"0a".repeat(32));
    for mode in [0o644, 0o604, 0o660, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 600 {}", path.display())) && !error.contains('\n'), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).is_ok());
}

#[test]
fn token_key_file_with_invalid_content_is_refused_and_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let key = "0a".repeat(32);
    let invalid = [
        String::new(),
        "0a".repeat(31),
        format!("{key}0"),
        "zz".repeat(32),
        format!("{key}\n{key}\n{key}"),
        format!("{key}\nsecret"),
    ];
    for text in invalid {
        write_private_file(&path, &text);
        let error = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(error.contains("is not one or two lines of 64 hexadecimal digits"), "{error}");
        assert!(!error.contains("0a0a") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "the file is unchanged");
    }
    let error =
        load_or_create_signer(&folder.path().join("no/such/folder"), [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
    assert!(error.contains("no/such/folder"), "{error}");
}

/// Servers that start concurrently with the same file end up with the same key.
#[test]
fn token_key_file_created_concurrently_holds_one_key() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let signers: Vec<Option<HmacTokenSigner>> = std::thread::scope(|scope| {
            let start = |key: u8| load_or_create_signer(&path, [key; SIGNING_KEY_BYTES]).ok();
            let starting: Vec<_> = (1..=4).map(|key| scope.spawn(move || start(key))).collect();
            starting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let token = load_or_create_signer(&path, [9; SIGNING_KEY_BYTES]).unwrap().sign(&reservation_claim());
        assert!(signers.iter().flatten().all(|signer| signer.verify::<ReservationClaim>(&token).is_some()));
        assert!(signers.iter().all(Option::is_some), "a server read an incomplete key");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "temporary files are left");
    }
}
