//! Code generated from `proto/`. Only this file names the generated package.

#![expect(clippy::all, clippy::allow_attributes, clippy::too_many_lines, reason = "generated")]

tonic::include_proto!("fireteam.v1");

pub use MatchmakingChooseActionRequest as ChooseActionRequest;
pub use MatchmakingChooseActionResponse as ChooseActionResponse;
pub use MatchmakingConnectRequest as ConnectRequest;
pub use MatchmakingConnectResponse as ConnectResponse;
pub use MatchmakingCoreRequest as CoreRequest;
pub use MatchmakingCoreRequestType as CoreRequestType;
pub use MatchmakingCoreResponse as CoreResponse;
pub use MatchmakingDeleteAdvertisementRequest as DeleteAdvertisementRequest;
pub use MatchmakingDeleteAdvertisementResponse as DeleteAdvertisementResponse;
pub use MatchmakingGetConfigurationRequest as GetConfigurationRequest;
pub use MatchmakingGetConfigurationResponse as GetConfigurationResponse;
pub use MatchmakingGrantConsentRequest as GrantConsentRequest;
pub use MatchmakingGrantConsentResponse as GrantConsentResponse;
pub use MatchmakingReleaseRequest as ReleaseRequest;
pub use MatchmakingReleaseResponse as ReleaseResponse;
pub use MatchmakingReportLatencyRequest as ReportLatencyRequest;
pub use MatchmakingReserveRequest as ReserveRequest;
pub use MatchmakingReserveResponse as ReserveResponse;
pub use MatchmakingRevokeConsentRequest as RevokeConsentRequest;
pub use MatchmakingRevokeConsentResponse as RevokeConsentResponse;
pub use MatchmakingSearchRequest as SearchRequest;
pub use MatchmakingStartMatchRequest as StartMatchRequest;
pub use MatchmakingStartMatchResponse as StartMatchResponse;
pub use MatchmakingUpdateAdvertisementRequest as UpdateAdvertisementRequest;
pub use MatchmakingUpdateAdvertisementResponse as UpdateAdvertisementResponse;
pub use MatchmakingUpdateBlockListRequest as UpdateBlockListRequest;
pub use MatchmakingUpdateBlockListResponse as UpdateBlockListResponse;

/// Encoded descriptors of the services on the client port.
pub const CLIENT_PORT_SERVICE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/matchmaking.bin"));

/// Encoded descriptors of the Operator service.
pub const OPERATOR_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/operator.bin"));
