//! Verifier of match credentials as an object of the interface.

use std::fmt;
use std::time::{Duration, SystemTime};

use fireteam_client::{AdmittedPlayer, CredentialError, CredentialVerifier, DEFAULT_REMEMBERED_CREDENTIALS_MAX};

use crate::identifier::{NO_ID, all_fit_id_text, id_text};
use crate::panic_guard::PanicGuard;
use crate::queue_types::FtAdmittedPlayer;
use crate::status::{
    FT_CREDENTIAL_BAD_SIGNATURE, FT_CREDENTIAL_EXPIRED, FT_CREDENTIAL_INVALID_TIMES, FT_CREDENTIAL_MALFORMED,
    FT_CREDENTIAL_TOO_MANY, FT_CREDENTIAL_UNKNOWN_KEY, FT_CREDENTIAL_USED_BEFORE, FT_CREDENTIAL_WRONG_AUDIENCE,
    FT_CREDENTIAL_WRONG_ISSUER, FT_CREDENTIAL_WRONG_TYPE, FT_ERROR_KEY_SET, FT_ERROR_VALUE,
};

/// Most credentials that a verifier remembers.
const REMEMBERED_MAX: usize = 1_048_576;

/// Verifier of the credentials that players present to one game server. One thread at a time may use it.
pub struct FtVerifier(PanicGuard<CredentialVerifier>);

impl FtVerifier {
    /// Verifier with the keys of a JWKS, for one audience. `remembered_max` 0 is the default.
    pub(crate) fn new(key_set: &str, audience: &str, remembered_max: usize) -> Result<Self, i32> {
        if audience.is_empty() || REMEMBERED_MAX < remembered_max {
            return Err(FT_ERROR_VALUE);
        }
        let remembered_max = if remembered_max == 0 { DEFAULT_REMEMBERED_CREDENTIALS_MAX } else { remembered_max };
        let verifier =
            CredentialVerifier::new(key_set, audience).map_err(result_code)?.with_remembered_max(remembered_max);
        Ok(Self(PanicGuard::new(verifier)))
    }

    /// Replaces the keys. After an error the old ones stay.
    pub(crate) fn replace_keys(&mut self, key_set: &str) -> Result<i32, i32> {
        self.0.run(|verifier| verifier.replace_keys(key_set).map_err(result_code))??;
        Ok(0)
    }

    /// Admits the player of a credential.
    pub(crate) fn verify(&mut self, credential: &str, unix_s: u64) -> Result<FtAdmittedPlayer, i32> {
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(unix_s)).ok_or(FT_ERROR_VALUE)?;
        let player = self.0.run(|verifier| verifier.verify(credential, now).map_err(result_code))??;
        let AdmittedPlayer { match_id, player_key, user_key, team, credential_expires_at_s: expires_at_s } = &player;
        if !all_fit_id_text([match_id, player_key].into_iter().chain(user_key)) {
            return Err(FT_CREDENTIAL_MALFORMED);
        }
        Ok(FtAdmittedPlayer {
            expires_at_s: *expires_at_s,
            team: (*team).into(),
            match_id: id_text(match_id),
            player_key: id_text(player_key),
            user_key: user_key.as_deref().map_or(NO_ID, id_text),
        })
    }
}

/// Result code of a refusal.
fn result_code(error: CredentialError) -> i32 {
    match error {
        CredentialError::Malformed => FT_CREDENTIAL_MALFORMED,
        CredentialError::WrongType => FT_CREDENTIAL_WRONG_TYPE,
        CredentialError::UnknownKey => FT_CREDENTIAL_UNKNOWN_KEY,
        CredentialError::BadSignature => FT_CREDENTIAL_BAD_SIGNATURE,
        CredentialError::WrongIssuer => FT_CREDENTIAL_WRONG_ISSUER,
        CredentialError::WrongAudience => FT_CREDENTIAL_WRONG_AUDIENCE,
        CredentialError::InvalidTimes => FT_CREDENTIAL_INVALID_TIMES,
        CredentialError::Expired => FT_CREDENTIAL_EXPIRED,
        CredentialError::UsedBefore => FT_CREDENTIAL_USED_BEFORE,
        CredentialError::TooManyCredentials => FT_CREDENTIAL_TOO_MANY,
        CredentialError::InvalidKeySet => FT_ERROR_KEY_SET,
    }
}

impl fmt::Debug for FtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtVerifier").field("verifier", self.0.object()).finish_non_exhaustive()
    }
}
