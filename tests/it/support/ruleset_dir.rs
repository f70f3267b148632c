//! A ruleset directory that a test writes, servers that read it, and an operator client.

use fireteam::config::{Config, RulesetSource};
use tonic::transport::{Channel, Endpoint};

use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::generated_client::{
    ListRulesetsRequest, ListRulesetsResponse, ReloadRulesetsRequest, ReloadRulesetsResponse, RulesetStatus,
};
use crate::support::test_server::TestServer;

/// A temporary ruleset directory, deleted on drop.
pub(crate) struct RulesetDirectory(tempfile::TempDir);

impl RulesetDirectory {
    /// Creates a directory with these files.
    pub(crate) fn with_files(files: &[(&str, &str)]) -> Self {
        let directory = Self(tempfile::tempdir().expect("create a temporary directory"));
        files.iter().for_each(|(name, xml)| directory.write_file(name, xml));
        directory
    }

    /// Writes or replaces a file by rename.
    pub(crate) fn write_file(&self, name: &str, xml: &str) {
        let new = self.0.path().join(format!(".{name}.new"));
        std::fs::write(&new, xml).expect("write");
        std::fs::rename(&new, self.0.path().join(name)).expect("rename");
    }

    /// Removes a file.
    pub(crate) fn remove_file(&self, name: &str) {
        std::fs::remove_file(self.0.path().join(name)).expect("remove");
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    /// Starts a server with these rulesets.
    pub(crate) async fn start_server(&self) -> TestServer {
        self.start_server_with_config(|_| {}).await
    }

    /// Starts a server with these rulesets and a configuration changed by `change`.
    pub(crate) async fn start_server_with_config(&self, change: impl FnOnce(&mut Config)) -> TestServer {
        let directory = self.0.path().to_owned();
        TestServer::start_with_config(|config| {
            config.rulesets = RulesetSource::Directory(directory);
            change(config);
        })
        .await
    }
}

/// Operator client of a server.
pub(crate) struct OperatorClient(pub(crate) OperatorServiceClient<Channel>);

impl OperatorClient {
    pub(crate) async fn connect(server: &TestServer) -> Self {
        let uri = format!("http://{}", server.app.server.operator_address);
        Self(OperatorServiceClient::new(
            Endpoint::from_shared(uri).expect("valid address").connect().await.expect("connect"),
        ))
    }

    /// Reloads the ruleset directory.
    pub(crate) async fn reload_rulesets(&mut self) -> ReloadRulesetsResponse {
        self.0.reload_rulesets(ReloadRulesetsRequest {}).await.expect("reload").into_inner()
    }

    /// Lists the current and the retained rulesets.
    pub(crate) async fn list_rulesets(&mut self) -> Vec<RulesetStatus> {
        let ListRulesetsResponse { rulesets, .. } =
            self.0.list_rulesets(ListRulesetsRequest {}).await.expect("list").into_inner();
        rulesets
    }
}
