//! Authenticated identity of a caller, as a verified token or certificate gives it.

use std::fmt;
use std::sync::Arc;

use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// Clock skew tolerated when a token's times are checked, milliseconds: before its start and after its end.
pub const CLOCK_LEEWAY_MS: u64 = 30_000;

/// Role of a caller: the kind of program that calls, which decides the calls it may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A player's game client; untrusted, since its owner may have modified it.
    Client,
    /// A dedicated game server of the studio.
    GameServer,
    /// An operator of this server.
    Operator,
    /// An operator who may look at everything and change nothing.
    Viewer,
}

/// Set of caller roles, as a bit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerRoleSet(u8);

/// Identity of an authenticated caller.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token's `iss` claim; `tls` for a certificate.
    pub issuer: Arc<str>,
    /// The token's `sub` claim, or the id in the certificate's URI.
    pub subject: Arc<str>,
    /// Role of the caller.
    pub role: Role,
    /// Scopes granted by the issuer, beyond the role.
    pub scopes: Arc<[Box<str>]>,
    /// Key derived from issuer, role and subject. Objects that the caller creates belong to this key.
    pub caller_key: UserKey,
    /// Expiry of the token; `None` for a certificate, which is valid as long as its connection.
    pub expires_at: Option<UnixMs>,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [Role::Client, Role::GameServer, Role::Operator, Role::Viewer];

    /// Name in tokens, certificates, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::GameServer => "game_server",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
        }
    }

    /// Whether callers in this role may read everything: operators and viewers.
    pub fn may_read_all(self) -> bool {
        matches!(self, Role::Operator | Role::Viewer)
    }

    /// Parses a role name; `None` if it is unknown.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl CallerRoleSet {
    /// The set of these roles.
    pub const fn from_roles(roles: &[Role]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < roles.len() {
            bits |= 1 << roles[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Whether `role` is in the set.
    pub fn contains(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

impl Identity {
    /// Identity of `subject` as `issuer` names it.
    pub fn new(issuer: &str, subject: &str, role: Role, scopes: &[&str], expires_at: Option<UnixMs>) -> Self {
        Self {
            issuer: issuer.into(),
            subject: subject.into(),
            role,
            scopes: scopes.iter().map(|scope| Box::from(*scope)).collect(),
            caller_key: caller_key_of(issuer, role, subject),
            expires_at,
        }
    }

    /// Expiry plus the clock leeway: from then on the token is rejected; `None` for a certificate.
    pub fn accepted_until(&self) -> Option<UnixMs> {
        self.expires_at.map(|expires_at| expires_at.plus_ms(CLOCK_LEEWAY_MS))
    }

    /// Key of the player's account, as in session compositions; `None` for game servers, operators and viewers.
    pub fn player_account_key(&self) -> Option<UserKey> {
        (self.role == Role::Client).then(|| UserKey::from_name(&self.subject))
    }
}

/// Key of the caller `subject` in a role at an issuer. It owns what the caller creates.
pub fn caller_key_of(issuer: &str, role: Role, subject: &str) -> UserKey {
    UserKey::from_name_parts(&[issuer, role.as_str(), subject])
}

impl fmt::Debug for Identity {
    /// Prints the role only; no names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("role", &self.role).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-5: two identities with another issuer, role or subject have different caller keys.
    #[test]
    fn identity_caller_key_depends_on_issuer_role_and_subject() {
        let key = |issuer, subject, role| Identity::new(issuer, subject, role, &[], None).caller_key;
        let mut keys = vec![UserKey::from_name("ana"), UserKey::from_name("aclientana")];
        for (issuer, subject) in [("a", "ana"), ("aa", "na"), ("ana", ""), ("", "ana"), ("b", "ana")] {
            keys.extend(Role::ALL.map(|role| key(issuer, subject, role)));
        }
        let mut unique: Vec<_> = keys.iter().map(|key| *key.as_bytes()).collect();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), keys.len());
        assert_eq!(key("a", "ana", Role::Client), key("a", "ana", Role::Client));
    }

    #[test]
    fn identity_user_key_exists_for_clients_only() {
        let user = |role| Identity::new("a", "ana", role, &[], None).player_account_key();
        assert_eq!(Role::ALL.map(user), [Some(UserKey::from_name("ana")), None, None, None]);
    }

    #[test]
    fn caller_roles_contain_exactly_the_given_roles() {
        let some = CallerRoleSet::from_roles(&[Role::Client, Role::Operator]);
        assert_eq!(Role::ALL.map(|role| some.contains(role)), [true, false, true, false]);
        assert_eq!(Role::ALL.map(|role| CallerRoleSet::from_roles(&[]).contains(role)), [false; 4]);
        assert_eq!(Role::ALL.map(|role| Role::from_name(role.as_str())), Role::ALL.map(Some));
        assert_eq!(Role::from_name("root"), None);
    }
}
