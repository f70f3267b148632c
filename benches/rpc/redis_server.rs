//! A Redis server for the references of QD6 and GEO: on loopback, with a folder of its own, ended when dropped.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};

use redis::IntoConnectionInfo as _;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use tempfile::TempDir;

use crate::rpc::server_process::{ServerProcess, cpu_us_of};

/// Data that Redis writes to its disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RedisPersistence {
    /// Nothing: `appendonly no`, no snapshots.
    Off,
    /// Each write before its answer: `appendonly yes`, `appendfsync always`.
    EveryWrite,
}

/// A Redis process; killed when dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Child,
    pub(crate) address: SocketAddr,
    /// Kept open, because Redis writes its log there.
    _log: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts `redis-server` and waits until it serves. `None` if it is not installed.
    pub(crate) fn start(persistence: RedisPersistence) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let append_only = if persistence == RedisPersistence::Off { "no" } else { "yes" };
        // Snapshots and rewrites of the log would cost processor time within the run.
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &free.port().to_string(), "--save", ""])
            .args(["--appendonly", append_only, "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"])
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => panic!("redis-server does not start: {error}"),
        };
        let mut log = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        while !line.contains("Ready to accept connections") {
            line.clear();
            let bytes = log.read_line(&mut line).expect("the log of redis-server");
            assert_ne!(bytes, 0, "redis-server ended at its start");
        }
        Some(Self { process, address: free, _log: log, _folder: folder })
    }

    /// Processor time of all its threads, microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        cpu_us_of(self.process.id())
    }

    /// Version of the server, for the output.
    pub(crate) async fn version(&self) -> String {
        let mut connection = connect(self.address).await;
        let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await.expect("INFO");
        info.get("redis_version").unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Opens a connection without Nagle's delay and without a limit for the time of an answer.
pub(crate) async fn connect(address: SocketAddr) -> MultiplexedConnection {
    let info = format!("redis://{address}").into_connection_info().expect("an address");
    let client =
        redis::Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true))).expect("a client");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("Redis is there")
}

/// A gRPC server, and the Redis server that it uses, if any. Their processor time counts together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredServers<'a> {
    pub(crate) server: &'a ServerProcess,
    pub(crate) redis: Option<&'a RedisServer>,
}

impl<'a> MeasuredServers<'a> {
    /// A server without Redis.
    pub(crate) fn alone(server: &'a ServerProcess) -> Self {
        Self { server, redis: None }
    }

    /// Processor time of the gRPC server and of Redis, microseconds.
    pub(crate) fn cpu_us(&self) -> (f64, f64) {
        (self.server.cpu_us(), self.redis.map_or(0.0, RedisServer::cpu_us))
    }
}
