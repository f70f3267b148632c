//! Reasons for a failed authentication: sixteen for operators' metrics, four for the caller.

/// Reason why a caller's token or certificate was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialError {
    /// No token and no certificate.
    Missing,
    /// Not a well-formed token, or several tokens.
    Malformed,
    /// The token is longer than `JWT_BYTES_MAX`.
    TooLarge,
    /// The token's `typ` is not that of a caller's token; a match credential's is not.
    WrongType,
    /// No key allows the token's algorithm, such as `none` or an HMAC.
    AlgorithmNotAllowed,
    /// No key has the token's `kid`.
    UnknownKey,
    /// The signature does not verify.
    BadSignature,
    /// The issuer is not the configured one.
    WrongIssuer,
    /// The token is not for the configured audience.
    WrongAudience,
    /// The subject is missing, empty, too long, or contains control or bidirectional characters.
    InvalidSubject,
    /// The role is unknown, or there are too many scopes.
    InvalidRole,
    /// The key that signed the token may not sign for its role.
    RoleNotOfKey,
    /// The token is not valid yet.
    NotYetValid,
    /// The token's lifetime is longer than `JWT_LIFETIME_MS_MAX`.
    LifetimeTooLong,
    /// The token has expired and is otherwise valid.
    Expired,
    /// The certificate contains no identity.
    InvalidCertificate,
}

/// Reason that the caller receives: enough to act on, too little to help guessing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicReason {
    /// No credentials; send a token.
    Missing,
    /// Not a token; send a well-formed one.
    Malformed,
    /// Token expired; send a new one.
    Expired,
    /// Credentials rejected.
    Rejected,
}

impl CredentialError {
    /// All reasons.
    pub const ALL: [CredentialError; 16] = [
        CredentialError::Missing,
        CredentialError::Malformed,
        CredentialError::TooLarge,
        CredentialError::WrongType,
        CredentialError::AlgorithmNotAllowed,
        CredentialError::UnknownKey,
        CredentialError::BadSignature,
        CredentialError::WrongIssuer,
        CredentialError::WrongAudience,
        CredentialError::InvalidSubject,
        CredentialError::InvalidRole,
        CredentialError::RoleNotOfKey,
        CredentialError::NotYetValid,
        CredentialError::LifetimeTooLong,
        CredentialError::Expired,
        CredentialError::InvalidCertificate,
    ];

    /// Label value in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            CredentialError::Missing => "missing",
            CredentialError::Malformed => "malformed",
            CredentialError::TooLarge => "too_large",
            CredentialError::WrongType => "type",
            CredentialError::AlgorithmNotAllowed => "algorithm",
            CredentialError::UnknownKey => "unknown_key",
            CredentialError::BadSignature => "signature",
            CredentialError::WrongIssuer => "issuer",
            CredentialError::WrongAudience => "audience",
            CredentialError::InvalidSubject => "subject",
            CredentialError::InvalidRole => "role",
            CredentialError::RoleNotOfKey => "key_role",
            CredentialError::NotYetValid => "not_yet_valid",
            CredentialError::LifetimeTooLong => "lifetime_too_long",
            CredentialError::Expired => "expired",
            CredentialError::InvalidCertificate => "certificate",
        }
    }

    /// The reason that the caller receives.
    pub fn public_reason(self) -> PublicReason {
        match self {
            CredentialError::Missing => PublicReason::Missing,
            CredentialError::Malformed | CredentialError::TooLarge => PublicReason::Malformed,
            CredentialError::Expired => PublicReason::Expired,
            CredentialError::WrongType
            | CredentialError::AlgorithmNotAllowed
            | CredentialError::UnknownKey
            | CredentialError::BadSignature
            | CredentialError::WrongIssuer
            | CredentialError::WrongAudience
            | CredentialError::InvalidSubject
            | CredentialError::InvalidRole
            | CredentialError::RoleNotOfKey
            | CredentialError::NotYetValid
            | CredentialError::LifetimeTooLong
            | CredentialError::InvalidCertificate => PublicReason::Rejected,
        }
    }
}
