//! Why somebody's word for who they are is not taken: in full for operators, in four words for whoever called.

/// What is wrong with what a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Nothing was shown.
    Missing,
    /// It is no token at all, or there are several.
    Malformed,
    /// It is larger than a token may be.
    TooLarge,
    /// It is signed in a way that none of the keys allows; `none` and secrets that both sides share among them.
    Algorithm,
    /// It names a key that nobody has.
    UnknownKey,
    /// Nobody who is believed signed it.
    Signature,
    /// It was issued by somebody else.
    Issuer,
    /// It is for somebody else.
    Audience,
    /// It does not say for whom it was issued, or cannot be read out.
    Subject,
    /// It names a role that there is not, or too many scopes.
    Role,
    /// It is not good yet.
    NotYet,
    /// It is good for longer than a token may be.
    LivesTooLong,
    /// It was good once.
    Expired,
    /// The certificate names nobody.
    Certificate,
}

/// What of it the caller is told: enough to do something about it, and nothing to learn from by trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Show something.
    Missing,
    /// Show a token.
    Malformed,
    /// Fetch a fresh one.
    Expired,
    /// No.
    NotAccepted,
}

impl Refused {
    /// Every reason.
    pub const ALL: [Refused; 14] = [
        Refused::Missing,
        Refused::Malformed,
        Refused::TooLarge,
        Refused::Algorithm,
        Refused::UnknownKey,
        Refused::Signature,
        Refused::Issuer,
        Refused::Audience,
        Refused::Subject,
        Refused::Role,
        Refused::NotYet,
        Refused::LivesTooLong,
        Refused::Expired,
        Refused::Certificate,
    ];

    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Refused::Missing => "missing",
            Refused::Malformed => "malformed",
            Refused::TooLarge => "too_large",
            Refused::Algorithm => "algorithm",
            Refused::UnknownKey => "unknown_key",
            Refused::Signature => "signature",
            Refused::Issuer => "issuer",
            Refused::Audience => "audience",
            Refused::Subject => "subject",
            Refused::Role => "role",
            Refused::NotYet => "not_yet",
            Refused::LivesTooLong => "lives_too_long",
            Refused::Expired => "expired",
            Refused::Certificate => "certificate",
        }
    }

    /// What the caller hears.
    pub fn told(self) -> Told {
        match self {
            Refused::Missing => Told::Missing,
            Refused::Malformed | Refused::TooLarge => Told::Malformed,
            Refused::Expired => Told::Expired,
            Refused::Algorithm
            | Refused::UnknownKey
            | Refused::Signature
            | Refused::Issuer
            | Refused::Audience
            | Refused::Subject
            | Refused::Role
            | Refused::NotYet
            | Refused::LivesTooLong
            | Refused::Certificate => Told::NotAccepted,
        }
    }
}
