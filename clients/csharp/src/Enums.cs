// Numbers of the contract with their names, as proto/fireteam/v1 and gRPC have them.

namespace Fireteam
{
    /// <summary>gRPC status code.</summary>
    public enum StatusCode
    {
        /// <summary>No call has failed.</summary>
        Ok = 0,
        Cancelled = 1,
        Unknown = 2,
        InvalidArgument = 3,
        DeadlineExceeded = 4,
        NotFound = 5,
        AlreadyExists = 6,
        PermissionDenied = 7,
        ResourceExhausted = 8,
        FailedPrecondition = 9,
        Aborted = 10,
        OutOfRange = 11,
        Unimplemented = 12,
        Internal = 13,
        Unavailable = 14,
        DataLoss = 15,
        Unauthenticated = 16,
    }

    /// <summary>State of a ticket.</summary>
    public enum TicketState
    {
        /// <summary>Never sent.</summary>
        Unspecified = 0,
        Waiting = 1,
        /// <summary>Waiting, and skipped while one of its players is in a match of another ticket.</summary>
        Paused = 2,
        Proposed = 3,
        Placing = 4,
        Matched = 5,
        Ended = 6,
    }

    /// <summary>Reason that a ticket ended.</summary>
    public enum TicketEndReason
    {
        /// <summary>The ticket has not ended.</summary>
        Unspecified = 0,
        Left = 1,
        Expired = 2,
        Played = 3,
        MatchedElsewhere = 4,
        Declined = 5,
        NotAcceptedInTime = 6,
        Cancelled = 7,
        RulesetRetired = 8,
    }
}
