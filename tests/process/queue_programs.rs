//! Queue and game server as programs in C and C++: two players and a game server, the examples of the C client, play a match on a server
//! process that is killed while they wait and while they play.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use fireteam_client::Client;

use crate::programs::{Language, RunningProgram};
use crate::report::lock_machine;
use crate::support::server_process::ServerProcess;

const SET: &str = "31";
const SET_ID: u32 = 31;

const RULESET: &str = r#"<Ruleset Name="Programs" SetId="31">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="50"/>
  <ReadyCheck TimeoutMs="60000"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" HostLossMs="60000"/>
  <Rating System="elo"/>
</Ruleset>"#;

/// Players' own sessions are probed in the quick phase, too.
const RULESET_OF_SESSIONS: &str = r#"<Ruleset Name="Programs" SetId="31">
  <Latency ProbePlayers="quick"/>
</Ruleset>"#;

/// Arguments of the server at all its starts.
const ARGUMENTS: [&str; 6] =
    ["--rulesets", "rules", "--token-key-file", "token-key", "--match-key-file", "match-key.pem"];

/// Kills a server, and starts it again on the same store and ports.
fn restart(server: ServerProcess, folder: &Path) -> ServerProcess {
    let ports = [server.address, server.operator_address].map(|address: SocketAddr| address.to_string());
    server.kill();
    let ports = ["--listen", &ports[0], "--operator-listen", &ports[1]];
    ServerProcess::start_without_ports(folder, &[&ports[..], &ARGUMENTS].concat())
}

/// Answer of a game server to what a stranger sends. Empty if it closes the connection.
fn answer_to(address: &str, sent: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).expect("the game server listens");
    connection.write_all(sent).expect("written");
    let mut answer = Vec::new();
    // A connection that is closed before all was read may be reset.
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8(answer).expect("UTF-8")
}

/// Ratings of both players.
async fn ratings(server: &ServerProcess) -> [f64; 2] {
    let client: Client = server.client().await;
    let ratings = client.get_ratings(SET_ID, &["ann", "bob"]).await.expect("ratings");
    [0, 1].map(|at| ratings[at].rating.as_ref().expect("a rating").rating)
}

/// One program hosts a session, answers the probes of another, which joins it and leaves. Then it withdraws the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_in_cpp_host_and_search_with_probes() {
    let _machine = lock_machine().await;
    let Some(host) = Language::Cpp.compile("host") else { return };
    let Some(search) = Language::Cpp.compile("search") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/rules.xml"), RULESET_OF_SESSIONS).expect("a ruleset");
    let server = ServerProcess::start(folder.path(), &["--rulesets", "rules"]);
    let uri = format!("http://{}", server.address);

    let mut host = RunningProgram::start(&host, &[&uri, SET, "ann"]);
    let advertisement = host.wait_for("advertised ");
    let mut searching = RunningProgram::start(&search, &[&uri, SET, "bob"]);
    searching.wait_for("/fireteam.v1.MatchmakingService/ReportLatency: 0");
    let connect = searching.wait_for("connect 127.0.0.1:");
    let round_trip_ms = connect.split_once(" seats, ").expect("a round trip").1.strip_suffix(" ms").expect("a unit");
    assert!(0.0 <= round_trip_ms.parse::<f64>().expect("a number"), "not measured: {connect}");
    assert_eq!(searching.wait_for("joined "), advertisement);
    searching.wait_until_ok();
    host.send_line();
    host.wait_for("/fireteam.v1.MatchmakingService/DeleteAdvertisement: 0");
    host.wait_until_ok();
}

/// A ticket outlives the server and its own program; the players present credentials that the game server verifies offline, each once; the
/// game server's report counts after another restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_in_c_and_cpp_play_a_match_through_restarts() {
    let _machine = lock_machine().await;
    let Some(queue) = Language::Cpp.compile("queue") else { return };
    let Some(queue_in_c) = Language::C.compile("queue") else { return };
    let Some(game_server) = Language::Cpp.compile("game_server") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/rules.xml"), RULESET).expect("a ruleset");
    let server = ServerProcess::start(folder.path(), &ARGUMENTS);
    let uri = format!("http://{}", server.address);
    let keys = folder.path().join("keys.json").display().to_string();
    let page = server.operator_page("/.well-known/jwks.json").await;
    std::fs::write(&keys, page.split_once("\r\n\r\n").expect("a page").1).expect("written");

    let mut host = RunningProgram::start(&game_server, &[&uri, SET, &keys]);
    let address = host.wait_for("players at ");
    let advertisement = host.wait_for("advertised ");
    let malformed = "refused: the credential is malformed; send it as the server has given it\n";
    assert_eq!(answer_to(&address, b"not a credential\n"), malformed);
    assert_eq!(answer_to(&address, &[b'a'; 20_000]), "", "an endless line");
    let saved = folder.path().join("ann.saved");
    let ann_arguments = [&uri, SET, "ann", saved.to_str().expect("UTF-8")];
    let mut ann = RunningProgram::start(&queue, &ann_arguments);
    let ticket = ann.wait_for("ticket ");
    assert!(ticket.ends_with(" state 1"), "{ticket}");

    let server = restart(server, folder.path());
    ann.wait_for("watch ended: 14");
    assert_eq!(ann.wait_for("ticket "), ticket, "the same ticket, after an outage");
    drop(ann);
    let mut ann = RunningProgram::start(&queue, &ann_arguments);
    ann.wait_for("restored");
    assert_eq!(ann.wait_for("ticket "), ticket, "the same ticket, in another process");

    let mut bob = RunningProgram::start(&queue_in_c, &[&uri, SET, "bob"]);
    let teams = [&mut ann, &mut bob].map(|player| {
        let connect = player.wait_for("connect ");
        let (match_id, team) = connect.split_once(" team ").expect("a team");
        assert_eq!(player.wait_for("game server: "), format!("admitted to team {team}"));
        (match_id.to_owned(), team.to_owned())
    });
    let [(match_id, ann_team), (bob_match, bob_team)] = teams;
    assert_eq!((&bob_match, ann_team == bob_team), (&match_id, false));
    let again = ann.wait_for("the same credential again: ");
    assert_eq!(again, "refused: the credential was used before; get a new one");
    host.wait_for("both players are in");

    let server = restart(server, folder.path());
    let [ann_before, bob_before] = ratings(&server).await;
    assert_eq!(ann_before, bob_before);
    host.send_line();
    assert_eq!(host.wait_for("reported "), format!("{match_id}, rated 1"));
    host.wait_until_ok();
    for player in [ann, bob] {
        let text = player.wait_until_ok();
        assert!(text.contains("\nended 1 ticket 3 "), "played to its end: {text}");
    }
    assert!(!saved.exists(), "the ticket has ended");
    let [ann_after, bob_after] = ratings(&server).await;
    let [first, second] = if ann_team == "0" { [ann_after, bob_after] } else { [bob_after, ann_after] };
    assert!(second < bob_before && ann_before < first, "the first team has won: {first} and {second}");
    assert!(
        advertisement.len() == 32 && advertisement.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{advertisement}"
    );
}
