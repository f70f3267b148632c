//! Flood of idle connections from many addresses, in a process of its own with low priority.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};

use crate::attacker_process;
use crate::raw_http2::preface;
use crate::report::scale;

/// Variable set in the attacking process: server address, place of the sources in `FloodSources::ALL`, milliseconds.
const FLOOD_ARGS: &str = "EDGE_FLOOD";
/// Prefix of the totals on standard output.
const OUTPUT_PREFIX: &str = "flood=";

/// Connections that the attackers try to hold: more than there are places, and fewer than a process may have descriptors.
pub(super) const CONNECTIONS: usize = 12_000;

/// IPv6 networks of a size that one host has (/64).
const IPV6_HOSTS: usize = 65_536;

/// Tasks of the attacking process.
const ATTACKERS: usize = 50;

/// A flood ends after this multiple of its duration in any case. On a busy machine its low priority makes it slow.
const DURATION_FACTOR_MAX: u32 = 12;

/// Addresses that the connections of a flood come from. Each connection comes from the next one, in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FloodSources {
    /// This number of IPv4 addresses, ten of each /24.
    Ipv4(usize),
    /// All 65,536 IPv6 /64 of one /48.
    OneIpv6Network,
    /// 65,536 IPv6 /64, each of a /48 of its own.
    ManyIpv6Networks,
}

impl FloodSources {
    pub(super) const ALL: [Self; 4] =
        [Self::Ipv4(200), Self::Ipv4(2_000), Self::OneIpv6Network, Self::ManyIpv6Networks];

    fn count(self) -> usize {
        match self {
            Self::Ipv4(count) => count,
            Self::OneIpv6Network | Self::ManyIpv6Networks => IPV6_HOSTS,
        }
    }

    fn address(self, number: usize) -> IpAddr {
        let low = |number: usize| u16::try_from(number).expect("at most 65,536 sources");
        match self {
            Self::Ipv4(_) => {
                let [high, low] = low(number / 10).to_be_bytes();
                Ipv4Addr::new(127, 64 + high, low, 10 + u8::try_from(number % 10).expect("a digit")).into()
            }
            Self::OneIpv6Network => Ipv6Addr::new(0x2001, 0xdb8, 0, low(number), 0, 0, 0, 1).into(),
            Self::ManyIpv6Networks => Ipv6Addr::new(0x2001, 0xdb8, low(number), 0, 0, 0, 0, 1).into(),
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Ipv4(count) => format!("{count} IPv4 addresses"),
            Self::OneIpv6Network => format!("{IPV6_HOSTS} IPv6 /64 of one /48"),
            Self::ManyIpv6Networks => format!("{IPV6_HOSTS} IPv6 /64 of as many /48"),
        }
    }
}

/// Connections of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FloodTotals {
    /// Connections that TCP has opened.
    pub(super) opened: usize,
    /// Those of them that the server has closed.
    pub(super) closed: usize,
    /// Sources that were not used.
    pub(super) unused_sources: usize,
}

impl FloodTotals {
    fn and(self, other: Self) -> Self {
        Self {
            opened: self.opened + other.opened,
            closed: self.closed + other.closed,
            unused_sources: self.unused_sources + other.unused_sources,
        }
    }

    fn to_line(self) -> String {
        format!("{} {} {}", self.opened, self.closed, self.unused_sources)
    }

    fn from_line(line: &str) -> Self {
        let words: Vec<usize> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [opened, closed, unused_sources] = *words else { panic!("three numbers: {line}") };
        Self { opened, closed, unused_sources }
    }
}

/// Whether the server has not closed a connection. Reads a part of what it sends.
fn is_open(connection: &TcpStream) -> bool {
    match connection.try_read(&mut [0; 256]) {
        Ok(read) => 0 < read,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

async fn connect(target: SocketAddr, from: IpAddr) -> std::io::Result<TcpStream> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(target).await
}

/// Holds as many connections as one attacker may, each with a valid start, and opens closed ones again from the next of its
/// `sources`. Ends after `duration`, and not before the server has closed one. If all sources have to be used, it ends when they were.
async fn attack(target: SocketAddr, sources: Vec<IpAddr>, duration: Duration, uses_all: bool) -> FloodTotals {
    let (started, mut totals) = (Instant::now(), FloodTotals::default());
    let mut open = VecDeque::new();
    for used in 0.. {
        let has_flooded = CONNECTIONS / ATTACKERS <= totals.opened && 0 < totals.closed;
        let is_complete = started.elapsed() >= duration && has_flooded && (!uses_all || used >= sources.len());
        if is_complete || started.elapsed() >= duration * DURATION_FACTOR_MAX {
            totals.unused_sources = sources.len().saturating_sub(used);
            break;
        }
        while open.len() >= CONNECTIONS / ATTACKERS && started.elapsed() < duration * DURATION_FACTOR_MAX {
            let before = open.len();
            open.retain(is_open);
            totals.closed += before - open.len();
            if before == open.len() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        let Ok(mut connection) = connect(target, sources[used % sources.len()]).await else { continue };
        totals.opened += 1;
        match connection.write_all(&preface()).await {
            Ok(()) => open.push_back(connection),
            Err(_) => totals.closed += 1,
        }
    }
    totals
}

async fn flood(target: SocketAddr, sources: FloodSources, duration: Duration) -> FloodTotals {
    let uses_all = 1 < scale();
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|first| (first..sources.count()).step_by(ATTACKERS).map(|number| sources.address(number)).collect())
        .map(|sources| tokio::spawn(attack(target, sources, duration, uses_all)))
        .collect();
    let mut totals = FloodTotals::default();
    for attacker in attackers {
        totals = totals.and(attacker.await.expect("an attacker does not panic"));
    }
    totals
}

/// Floods from a process of its own with low priority. In the long form the flood goes on until each source was used.
pub(super) async fn run(target: SocketAddr, sources: FloodSources, duration: Duration) -> FloodTotals {
    let place = FloodSources::ALL.iter().position(|it| *it == sources).expect("all sources are in the list");
    let what = format!("{target} {place} {}", duration.as_millis());
    let test = "many_addresses::flood::attacking_process_floods_from_all_sources";
    FloodTotals::from_line(&attacker_process::run_in_process(test, FLOOD_ARGS, what, OUTPUT_PREFIX).await)
}

/// The other tests run this one in the attacking process. Alone, it checks the addresses of the floods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacking_process_floods_from_all_sources() {
    let Some(what) = std::env::var_os(FLOOD_ARGS) else {
        for sources in FloodSources::ALL {
            let addresses: std::collections::BTreeSet<IpAddr> =
                (0..sources.count()).map(|number| sources.address(number)).collect();
            assert_eq!(addresses.len(), sources.count(), "{}: each is another one", sources.name());
        }
        return;
    };
    let what = what.to_str().expect("text");
    let words: Vec<&str> = what.split(' ').collect();
    let [target, place, ms] = *words else { panic!("three words: {what}") };
    let sources = FloodSources::ALL[place.parse::<usize>().expect("a number")];
    let duration = Duration::from_millis(ms.parse().expect("milliseconds"));
    println!("\n{OUTPUT_PREFIX}{}", flood(target.parse().expect("an address"), sources, duration).await.to_line());
}
