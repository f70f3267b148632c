//! Authentication, ownership, limits, privacy, TLS.

pub(crate) mod attribute_trust;
pub(crate) mod canaries;
pub(crate) mod client_certificates;
pub(crate) mod disk_floods;
pub(crate) mod erasure;
pub(crate) mod forwarded_address;
pub(crate) mod frame_floods;
pub(crate) mod hoarding;
pub(crate) mod match_credential;
pub(crate) mod metric_cardinality;
pub(crate) mod operator_access;
pub(crate) mod ownership;
pub(crate) mod proxy_protocol;
pub(crate) mod rate_limits;
pub(crate) mod role_matrix;
pub(crate) mod scraping;
pub(crate) mod search_cost;
pub(crate) mod session_privacy;
pub(crate) mod silo_limits;
pub(crate) mod tls;
pub(crate) mod token_key_file;
pub(crate) mod token_kinds;
pub(crate) mod token_lifecycle;
pub(crate) mod trilateration;
pub(crate) mod user_keys;
