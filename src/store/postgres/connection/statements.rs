//! SQL statements of the Postgres store that advertisements and queues share.

/// Time of the database's clock, milliseconds since the Unix epoch.
pub(in crate::store::postgres) const READ_DATABASE_TIME: &str =
    "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// SQLSTATE not_null_violation: the change record had no ids.
pub(in crate::store::postgres) const NOT_NULL_VIOLATION: &str = "23502";

/// Oldest running transaction, below which a reader has seen everything, and the time of the database's clock.
pub(in crate::store::postgres) const READ_OLDEST_XID_AND_TIME: &str = "
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint
";
