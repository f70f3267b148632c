//! Why somebody's word for who they are is not taken: in full for operators, in four words for whoever called.

/// What is wrong with what a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialError {
    /// Nothing was shown.
    Missing,
    /// It is no token at all, or there are several.
    Malformed,
    /// It is larger than a token may be.
    TooLarge,
    /// It is signed in a way that none of the keys allows; `none` and secrets that both sides share among them.
    AlgorithmNotAllowed,
    /// It names a key that nobody has.
    UnknownKey,
    /// Nobody who is believed signed it.
    BadSignature,
    /// It was issued by somebody else.
    WrongIssuer,
    /// It is for somebody else.
    WrongAudience,
    /// It does not say for whom it was issued, or cannot be read out.
    InvalidSubject,
    /// It names a role that there is not, or too many scopes.
    InvalidRole,
    /// It is not good yet.
    NotYetValid,
    /// It is good for longer than a token may be.
    LifetimeTooLong,
    /// It was good once.
    Expired,
    /// The certificate names nobody.
    InvalidCertificate,
}

/// What of it the caller is told: enough to do something about it, and nothing to learn from by trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicReason {
    /// Show something.
    Missing,
    /// Show a token.
    Malformed,
    /// Fetch a fresh one.
    Expired,
    /// No.
    Rejected,
}

impl CredentialError {
    /// Every reason.
    pub const ALL: [CredentialError; 14] = [
        CredentialError::Missing,
        CredentialError::Malformed,
        CredentialError::TooLarge,
        CredentialError::AlgorithmNotAllowed,
        CredentialError::UnknownKey,
        CredentialError::BadSignature,
        CredentialError::WrongIssuer,
        CredentialError::WrongAudience,
        CredentialError::InvalidSubject,
        CredentialError::InvalidRole,
        CredentialError::NotYetValid,
        CredentialError::LifetimeTooLong,
        CredentialError::Expired,
        CredentialError::InvalidCertificate,
    ];

    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            CredentialError::Missing => "missing",
            CredentialError::Malformed => "malformed",
            CredentialError::TooLarge => "too_large",
            CredentialError::AlgorithmNotAllowed => "algorithm",
            CredentialError::UnknownKey => "unknown_key",
            CredentialError::BadSignature => "signature",
            CredentialError::WrongIssuer => "issuer",
            CredentialError::WrongAudience => "audience",
            CredentialError::InvalidSubject => "subject",
            CredentialError::InvalidRole => "role",
            CredentialError::NotYetValid => "not_yet",
            CredentialError::LifetimeTooLong => "lives_too_long",
            CredentialError::Expired => "expired",
            CredentialError::InvalidCertificate => "certificate",
        }
    }

    /// What the caller hears.
    pub fn public_reason(self) -> PublicReason {
        match self {
            CredentialError::Missing => PublicReason::Missing,
            CredentialError::Malformed | CredentialError::TooLarge => PublicReason::Malformed,
            CredentialError::Expired => PublicReason::Expired,
            CredentialError::AlgorithmNotAllowed
            | CredentialError::UnknownKey
            | CredentialError::BadSignature
            | CredentialError::WrongIssuer
            | CredentialError::WrongAudience
            | CredentialError::InvalidSubject
            | CredentialError::InvalidRole
            | CredentialError::NotYetValid
            | CredentialError::LifetimeTooLong
            | CredentialError::InvalidCertificate => PublicReason::Rejected,
        }
    }
}
