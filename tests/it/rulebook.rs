//! A directory of rulesets that a test writes, the server that reads it, and the operator's way in.

use fireteam::config::{Config, RulesetSource};
use tonic::transport::{Channel, Endpoint};

use crate::harness::House;
use crate::plain::operator_service_client::OperatorServiceClient;
use crate::plain::{
    ListRulesetsRequest, ListRulesetsResponse, ReloadRulesetsRequest, ReloadRulesetsResponse, RulesetStatus,
};

/// The folder; gone when dropped.
pub(crate) struct Rulebook(tempfile::TempDir);

impl Rulebook {
    /// A folder with these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let book = Self(tempfile::tempdir().expect("a folder of its own"));
        files.iter().for_each(|(name, xml)| book.write(name, xml));
        book
    }

    /// Puts a file in place of whatever was there, by rename.
    pub(crate) fn write(&self, name: &str, xml: &str) {
        let new = self.0.path().join(format!(".{name}.new"));
        std::fs::write(&new, xml).expect("write");
        std::fs::rename(&new, self.0.path().join(name)).expect("rename");
    }

    /// Takes a file away.
    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.path().join(name)).expect("remove");
    }

    /// Where the files are.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    /// A server that goes by these rules.
    pub(crate) async fn open(&self) -> House {
        self.open_with(|_| {}).await
    }

    /// The same, with a configuration changed by `change`.
    pub(crate) async fn open_with(&self, change: impl FnOnce(&mut Config)) -> House {
        let directory = self.0.path().to_owned();
        House::open_with(|config| {
            config.rulesets = RulesetSource::Directory(directory);
            change(config);
        })
        .await
    }
}

/// The operator of a server.
pub(crate) struct Operator(pub(crate) OperatorServiceClient<Channel>);

impl Operator {
    pub(crate) async fn of(house: &House) -> Self {
        let at = format!("http://{}", house.parts.server.operator_address);
        Self(OperatorServiceClient::new(
            Endpoint::from_shared(at).expect("an address").connect().await.expect("connect"),
        ))
    }

    /// Reads the folder now.
    pub(crate) async fn reload(&mut self) -> ReloadRulesetsResponse {
        self.0.reload_rulesets(ReloadRulesetsRequest {}).await.expect("reload").into_inner()
    }

    /// Every ruleset that can still be searched by.
    pub(crate) async fn list(&mut self) -> Vec<RulesetStatus> {
        let ListRulesetsResponse { rulesets } =
            self.0.list_rulesets(ListRulesetsRequest {}).await.expect("list").into_inner();
        rulesets
    }
}
