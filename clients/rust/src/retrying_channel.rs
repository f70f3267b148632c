//! Channel to a server with the settings of each call: metadata, tokens, deadline and retries.

use std::fmt;
use std::time::Duration;

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::error::Error;
use crate::matchmaking_stream::{self, HostEvents, MatchmakingStream};
use crate::pb;
use crate::pb::latency_service_client::LatencyServiceClient;
use crate::pb::matchmaking_service_client::MatchmakingServiceClient;
use crate::pb::queue_service_client::QueueServiceClient;
use crate::pb::rating_service_client::RatingServiceClient;
use crate::random;
use crate::retry::RetryPolicy;
use crate::token_source::TokenSource;

/// Method that makes a call of one service by its stub, and repeats it as the [`RetryPolicy`] allows.
macro_rules! calls_of_service {
    ($name:ident, $stub:ident) => {
        pub(crate) async fn $name<Req, Resp, Call>(
            &self,
            request: Req,
            call: impl Fn($stub<Channel>, Request<Req>) -> Call,
        ) -> Result<Resp, Error>
        where
            Req: Clone,
            Call: Future<Output = Result<Response<Resp>, Status>>,
        {
            self.call_with_retries(request, |channel, request| call($stub::new(channel), request)).await
        }
    };
}

/// Channel with the settings of each call. Clones share one HTTP/2 connection.
#[derive(Clone)]
pub(crate) struct RetryingChannel {
    pub(crate) channel: Channel,
    /// Metadata of each call, without a token.
    pub(crate) metadata: MetadataMap,
    pub(crate) token_source: Option<TokenSource>,
    pub(crate) retry_policy: RetryPolicy,
    /// Deadline of one attempt.
    pub(crate) attempt_timeout: Duration,
}

impl fmt::Debug for RetryingChannel {
    /// Prints no metadata, which may contain a key of the game.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingChannel")
            .field("metadata_count", &self.metadata.len())
            .field("token_source", &self.token_source)
            .field("retry_policy", &self.retry_policy)
            .field("attempt_timeout", &self.attempt_timeout)
            .finish_non_exhaustive()
    }
}

impl RetryingChannel {
    /// The same channel for a state machine that repeats calls itself.
    pub(crate) fn without_retries(self) -> Self {
        Self { retry_policy: RetryPolicy::NEVER, ..self }
    }

    pub(crate) fn matchmaking_stub(&self) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel.clone())
    }

    pub(crate) fn queue_stub(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    /// Opens a stream of core requests, without retries except for a rejected token.
    pub(crate) async fn open_core_stream_once(&self) -> Result<(MatchmakingStream, HostEvents), Error> {
        let (metadata, sent_token) = self.request_metadata().await?;
        let result =
            matchmaking_stream::open_core_stream(self.matchmaking_stub(), metadata, self.attempt_timeout).await;
        match result {
            Err(error) if self.discard_token_if_rejected(&error, sent_token.as_ref()).await => {
                let (metadata, _) = self.request_metadata().await?;
                matchmaking_stream::open_core_stream(self.matchmaking_stub(), metadata, self.attempt_timeout).await
            }
            result => result,
        }
    }

    /// Opens a stream of ticket updates, without retries except for a rejected token.
    pub(crate) async fn open_watch_stream_once(
        &self,
        request: pb::QueueWatchRequest,
    ) -> Result<Streaming<pb::QueueWatchResponse>, Error> {
        let mut renewed = false;
        loop {
            let mut attempt = Request::new(request.clone());
            let (metadata, sent_token) = self.request_metadata().await?;
            *attempt.metadata_mut() = metadata;
            match self.queue_stub().watch(attempt).await.map_err(Error::from) {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) if !renewed && self.discard_token_if_rejected(&error, sent_token.as_ref()).await => {
                    renewed = true
                }
                Err(error) => return Err(error),
            }
        }
    }

    calls_of_service!(call_queue, QueueServiceClient);
    calls_of_service!(call_matchmaking, MatchmakingServiceClient);
    calls_of_service!(call_latency, LatencyServiceClient);
    calls_of_service!(call_ratings, RatingServiceClient);

    /// Metadata of a call, and the `authorization` value in it, if any.
    async fn request_metadata(&self) -> Result<(MetadataMap, Option<AsciiMetadataValue>), Error> {
        let mut metadata = self.metadata.clone();
        let Some(token_source) = &self.token_source else { return Ok((metadata, None)) };
        let header = token_source.authorization_header().await?;
        metadata.insert("authorization", header.clone());
        Ok((metadata, Some(header)))
    }

    /// Whether a call that failed with `error` can be repeated with another token than `sent_token`.
    async fn discard_token_if_rejected(&self, error: &Error, sent_token: Option<&AsciiMetadataValue>) -> bool {
        match (&self.token_source, sent_token) {
            (Some(token_source), Some(sent_token)) if error.code() == Some(Code::Unauthenticated) => {
                token_source.invalidate(sent_token).await
            }
            _ => false,
        }
    }

    /// Makes a call, and repeats it as the [`RetryPolicy`] allows.
    async fn call_with_retries<Req, Resp, Call>(
        &self,
        request: Req,
        call: impl Fn(Channel, Request<Req>) -> Call,
    ) -> Result<Resp, Error>
    where
        Req: Clone,
        Call: Future<Output = Result<Response<Resp>, Status>>,
    {
        let (mut attempts, mut renewed) = (0, false);
        loop {
            let mut attempt = Request::new(request.clone());
            let (metadata, sent_token) = self.request_metadata().await?;
            *attempt.metadata_mut() = metadata;
            attempt.set_timeout(self.attempt_timeout);
            let error = match call(self.channel.clone(), attempt).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => Error::from(status),
            };
            if !renewed && self.discard_token_if_rejected(&error, sent_token.as_ref()).await {
                renewed = true;
                continue;
            }
            attempts += 1;
            match self.retry_policy.pause_after_error(attempts, &error, random::jitter_fraction()) {
                Some(backoff) => tokio::time::sleep(backoff).await,
                None => return Err(error),
            }
        }
    }
}
