//! Who somebody is: what a verified token or certificate says of its holder.

use std::fmt;
use std::sync::Arc;

use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// What clocks may differ by: so long after its end a proof is still good, and so long before its beginning already.
pub const CLOCK_LEEWAY_MS: u64 = 30_000;

/// What kind of program somebody runs, and so what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A player's game: code that its owner may have changed.
    Client,
    /// A game server of the studio's own.
    GameServer,
    /// Somebody who runs fireteam.
    Operator,
}

/// Some of the roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerRoles(u8);

/// Somebody whose word for who they are was verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who vouches: a token's `iss`, or the trust domain of a certificate.
    pub issuer: Arc<str>,
    /// Who it is, as the issuer calls them.
    pub subject: Arc<str>,
    /// What they run.
    pub role: Role,
    /// What the issuer has allowed them beyond their role.
    pub scopes: Arc<[Box<str>]>,
    /// Names issuer, role and subject: what they advertise is theirs under this name.
    pub caller_key: UserKey,
    /// When the proof runs out; none for a certificate, which ends with its connection.
    pub expires_at: Option<UnixMs>,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Client, Role::GameServer, Role::Operator];

    /// The word in tokens, certificates, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::GameServer => "server",
            Role::Operator => "operator",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl CallerRoles {
    /// These.
    pub const fn from_roles(roles: &[Role]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < roles.len() {
            bits |= 1 << roles[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether `role` is among them.
    pub fn contains(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

impl Identity {
    /// Whoever `issuer` calls `subject`.
    pub fn new(issuer: &str, subject: &str, role: Role, scopes: &[&str], until: Option<UnixMs>) -> Self {
        Self {
            issuer: issuer.into(),
            subject: subject.into(),
            role,
            scopes: scopes.iter().map(|scope| Box::from(*scope)).collect(),
            caller_key: UserKey::from_parts(&[issuer, role.as_str(), subject]),
            expires_at: until,
        }
    }

    /// When the proof is no longer taken: its end, and what clocks may differ by; none for a certificate.
    pub fn accepted_until(&self) -> Option<UnixMs> {
        self.expires_at.map(|until| until.plus_ms(CLOCK_LEEWAY_MS))
    }

    /// The user that a client plays for, as session compositions name it; none for programs that play for nobody.
    pub fn user_key(&self) -> Option<UserKey> {
        (self.role == Role::Client).then(|| UserKey::from_name(&self.subject))
    }
}

impl fmt::Debug for Identity {
    /// Shows nobody's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("role", &self.role).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-5: nobody else, and nobody in another role, has the same name.
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
        let user = |role| Identity::new("a", "ana", role, &[], None).user_key();
        assert_eq!(Role::ALL.map(user), [Some(UserKey::from_name("ana")), None, None]);
    }

    #[test]
    fn caller_roles_contain_exactly_the_given_roles() {
        let some = CallerRoles::from_roles(&[Role::Client, Role::Operator]);
        assert_eq!(Role::ALL.map(|role| some.contains(role)), [true, false, true]);
        assert_eq!(Role::ALL.map(|role| CallerRoles::from_roles(&[]).contains(role)), [false; 3]);
        assert_eq!(Role::ALL.map(|role| Role::from_name(role.as_str())), Role::ALL.map(Some));
        assert_eq!(Role::from_name("root"), None);
    }
}
