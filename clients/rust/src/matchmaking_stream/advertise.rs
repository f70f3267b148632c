//! Publishing on a connection. A file of its own, because [`Advertisement`] contains the connection of its updates.

use crate::advertisement::{Advertisement, UpdateChannel};
use crate::error::Error;
use crate::matchmaking_stream::MatchmakingStream;
use crate::pb;

impl MatchmakingStream {
    /// Publishes a session. The handle sends its updates on this connection, and [`HostEvents`] receives its
    /// reservation events.
    pub async fn advertise(&self, request: pb::MatchmakingUpdateAdvertisementRequest) -> Result<Advertisement, Error> {
        Advertisement::publish(UpdateChannel::Stream(self.clone()), request).await
    }
}
