//! Least round trip of a TCP connection, as the kernel has measured it: a free measurement of each client that connects directly.
//!
//! It is no proof. A changed network stack can acknowledge packets before it has received them, and look nearer. So it ranks below a
//! receipt of a beacon.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::api::client_address::TcpRoundTripFloor;

/// Interval of samples. The kernel forgets a minimum after five minutes.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Stream whose kernel measures round trips.
pub trait ObservedStream {
    /// Least round trip so far, microseconds; `None` if the kernel does not know it.
    fn min_round_trip_us(&self) -> Option<u32>;
}

impl ObservedStream for TcpStream {
    fn min_round_trip_us(&self) -> Option<u32> {
        kernel_min_round_trip_us(self)
    }
}

#[cfg(test)]
impl ObservedStream for tokio::io::DuplexStream {
    fn min_round_trip_us(&self) -> Option<u32> {
        None
    }
}

/// Samples of one connection.
#[derive(Debug)]
pub struct FloorObserver {
    floor: TcpRoundTripFloor,
    next_sample_at: Instant,
}

impl FloorObserver {
    /// Observer whose samples go to `floor`, with a first one of the handshake.
    pub fn new(floor: TcpRoundTripFloor, stream: &impl ObservedStream) -> Self {
        let mut observer = Self { floor, next_sample_at: Instant::now() };
        observer.sample_if_due(stream);
        observer
    }

    /// Samples the stream, at most every ten seconds.
    pub fn sample_if_due(&mut self, stream: &impl ObservedStream) {
        let now = Instant::now();
        if now < self.next_sample_at {
            return;
        }
        self.next_sample_at = now + SAMPLE_INTERVAL;
        if let Some(us) = stream.min_round_trip_us().filter(|us| *us != 0 && *us != u32::MAX) {
            self.floor.0.fetch_min(us, Ordering::Relaxed);
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::{getsockopt_impl, sockopt_impl};

    /// Bytes of `struct tcp_info` that are read, in words of 32 bits: up to `tcpi_min_rtt`, which Linux has since 4.6.
    pub(super) const TCP_INFO_WORDS: usize = 38;
    /// Position of `tcpi_min_rtt`.
    pub(super) const MIN_ROUND_TRIP_WORD: usize = 37;

    sockopt_impl!(
        /// Start of `struct tcp_info`.
        TcpInfoStart, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, [u32; TCP_INFO_WORDS]
    );
}

/// Least round trip by the kernel's statistics of the connection.
#[cfg(target_os = "linux")]
fn kernel_min_round_trip_us(stream: &TcpStream) -> Option<u32> {
    let info = nix::sys::socket::getsockopt(stream, linux::TcpInfoStart).ok()?;
    Some(info[linux::MIN_ROUND_TRIP_WORD])
}

#[cfg(not(target_os = "linux"))]
fn kernel_min_round_trip_us(_: &TcpStream) -> Option<u32> {
    None
}

/// Whether the kernel tells round trips. Tried once, on a connection over loopback: an older kernel answers with a shorter structure,
/// for which the library panics.
pub(super) async fn is_supported() -> bool {
    let attempt = async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.ok()?;
        let address = listener.local_addr().ok()?;
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let _connected = connected.ok()?;
        let (stream, _) = accepted.ok()?;
        let read = std::panic::AssertUnwindSafe(|| stream.min_round_trip_us());
        std::panic::catch_unwind(read).ok().flatten()
    };
    attempt.await.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel has a sample from the handshake on, of less than a second over loopback.
    #[tokio::test]
    async fn min_round_trip_is_known_from_the_handshake_on() {
        if !is_supported().await {
            eprintln!("SKIPPED: this kernel does NOT tell the least round trip of a connection");
            return;
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_connected, (stream, _)) = (connected.unwrap(), accepted.unwrap());
        let floor = TcpRoundTripFloor::default();
        assert_eq!(floor.known_floor_us(), None);
        let _observer = FloorObserver::new(floor.clone(), &stream);
        let us = floor.known_floor_us().expect("a sample of the handshake");
        assert!((1..1_000_000).contains(&us), "{us} us");
    }

    /// A later, longer sample does not replace a shorter one.
    #[test]
    fn floor_keeps_the_least_sample() {
        struct Fixed(u32);
        impl ObservedStream for Fixed {
            fn min_round_trip_us(&self) -> Option<u32> {
                Some(self.0)
            }
        }
        let floor = TcpRoundTripFloor::default();
        let mut observer = FloorObserver { floor: floor.clone(), next_sample_at: Instant::now() };
        for (sample, expected) in [(30_000, 30_000), (20_000, 20_000), (40_000, 20_000), (0, 20_000)] {
            observer.next_sample_at = Instant::now();
            observer.sample_if_due(&Fixed(sample));
            assert_eq!(floor.known_floor_us(), Some(expected));
        }
        observer.sample_if_due(&Fixed(1));
        assert_eq!(floor.known_floor_us(), Some(20_000), "not due yet");
    }
}
