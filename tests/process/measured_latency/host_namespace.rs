//! Network namespace of one host. It has a loopback interface and no other: packets come in only through sockets that are made in it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Running namespace. It ends with its process, which is killed when it is dropped.
pub(crate) struct HostNamespace {
    process: Child,
    file: File,
}

impl HostNamespace {
    /// Makes a namespace. Returns the reason if this machine cannot do so.
    pub(crate) fn start() -> Result<Self, String> {
        let script = "ip link set lo up && echo ready && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        // A failure to read is no "ready".
        let _ = BufReader::new(stdout).read_line(&mut line);
        if line != "ready\n" {
            let mut reason = String::new();
            let _ = process.stderr.take().expect("piped").read_to_string(&mut reason);
            let _ = process.wait();
            return Err(reason.trim().to_owned());
        }
        let file = File::open(format!("/proc/{}/ns/net", process.id())).map_err(|error| error.to_string())?;
        Ok(Self { process, file })
    }

    /// UDP socket in the namespace, at a free port. A socket stays where it was made; the thread that makes it ends.
    pub(crate) fn bind(&self, address: IpAddr) -> io::Result<UdpSocket> {
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                let socket = UdpSocket::bind((address, 0))?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            made.join().expect("no panic")
        })
    }

    /// Identity of the namespace.
    fn identity(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/ns/net", self.process.id())).expect("a namespace")
    }
}

impl Drop for HostNamespace {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Whether the namespaces are different ones, and none is that of this process.
pub(crate) fn are_separate<'a>(namespaces: impl Iterator<Item = &'a HostNamespace>) -> bool {
    let mut identities = BTreeSet::from([std::fs::read_link("/proc/self/ns/net").expect("a namespace")]);
    namespaces.map(HostNamespace::identity).all(|identity| identities.insert(identity))
}
