//! The key file as a file: made, read, rotated, and refused when others could read it.

use std::fs;
use std::path::Path;

use fireteam::auth::key_file::load_or_create_signer;
use fireteam::auth::token::{ReservationClaim, SIGNING_KEY_BYTES, TokenSigner};
use fireteam::domain::id::{AdvertisementId, ReservationId, SetId};

fn claim() -> ReservationClaim {
    ReservationClaim {
        reservation_id: ReservationId::from_bytes([1; 16]),
        advertisement_id: AdvertisementId::from_bytes([2; 16]),
        set_id: SetId(3),
        subject: None,
    }
}

fn opens(signer: &TokenSigner, signed_by: [u8; SIGNING_KEY_BYTES]) -> bool {
    signer.verify::<ReservationClaim>(&TokenSigner::new(signed_by, None).sign(&claim())).is_some()
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn a_key_is_made_once_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fireteam.token-key");
    assert!(opens(&load_or_create_signer(&path, [7; SIGNING_KEY_BYTES]).unwrap(), [7; SIGNING_KEY_BYTES]));
    let again = load_or_create_signer(&path, [8; SIGNING_KEY_BYTES]).unwrap();
    assert!(opens(&again, [7; SIGNING_KEY_BYTES]) && !opens(&again, [8; SIGNING_KEY_BYTES]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "07".repeat(32) + "\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_first_line_signs_and_the_second_still_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    write(&path, &format!("  {}\r\n\n{}\n", "0A".repeat(32), "0b".repeat(32)));
    let signer = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap();
    assert!(opens(&signer, [10; SIGNING_KEY_BYTES]) && opens(&signer, [11; SIGNING_KEY_BYTES]));
    assert_eq!(signer.sign(&claim()), TokenSigner::new([10; SIGNING_KEY_BYTES], None).sign(&claim()));
}

/// A7: whoever can read the keys can forge any token.
#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_refused_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    write(&path, &"0a".repeat(32));
    for mode in [0o644, 0o604, 0o660, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let said = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(said.contains(&format!("chmod 600 {}", path.display())) && !said.contains('\n'), "{said}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).is_ok());
}

#[test]
fn what_is_no_key_is_refused_and_never_shown() {
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
        write(&path, &text);
        let said = load_or_create_signer(&path, [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
        assert!(said.contains("expected one or two lines of 64 hexadecimal digits"), "{said}");
        assert!(!said.contains("0a0a") && !said.contains("secret"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "left as it was");
    }
    let said =
        load_or_create_signer(&folder.path().join("no/such/folder"), [0; SIGNING_KEY_BYTES]).unwrap_err().to_string();
    assert!(said.contains("no/such/folder"), "{said}");
}

/// Two servers that start at once on the same file end up with the same key.
#[test]
fn of_two_that_start_at_once_one_makes_the_key() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let signers: Vec<Option<TokenSigner>> = std::thread::scope(|scope| {
            let start = |key: u8| load_or_create_signer(&path, [key; SIGNING_KEY_BYTES]).ok();
            let starting: Vec<_> = (1..=4).map(|key| scope.spawn(move || start(key))).collect();
            starting.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let token = load_or_create_signer(&path, [9; SIGNING_KEY_BYTES]).unwrap().sign(&claim());
        assert!(signers.iter().flatten().all(|it| it.verify::<ReservationClaim>(&token).is_some()));
        assert!(signers.iter().all(Option::is_some), "a reader saw half a key");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "drafts are left behind");
    }
}
