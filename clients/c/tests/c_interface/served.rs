//! Client functions against a scripted server, and the C program against it: the whole loop over TLS and UDP.

use std::ffi::CString;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::Duration;

use fireteam_c::FtClient;
use fireteam_c::client_exports::*;
use fireteam_c::status::*;
use fireteam_c::types::*;

use crate::compilers::{self, Compiler};
use crate::functions::{answer, c};
use crate::script::{Script, id};
use crate::server::{Served, serve, serve_probes};

/// Client that is freed at the end of the test.
pub(crate) struct Client(pub(crate) *mut FtClient);

impl Drop for Client {
    fn drop(&mut self) {
        assert_eq!(c!(ft_client_free(self.0)), 0);
    }
}

pub(crate) fn new_client(uri: &str, certificate: &[u8], token: Option<&str>) -> Result<Client, i32> {
    let (uri, token) = (CString::new(uri).unwrap(), token.map(|token| CString::new(token).unwrap()));
    let options = FtClientOptions {
        uri: uri.as_ptr(),
        ca_certificates: certificate.as_ptr(),
        ca_certificates_length: certificate.len(),
        server_name: null(),
        token: token.as_ref().map_or(null(), |token| token.as_ptr()),
    };
    let mut client = null_mut();
    match c!(ft_client_new(&options, &mut client)) {
        0 => Ok(Client(client)),
        error => Err(error),
    }
}

/// Result of a call: the function's, the status, and the body.
pub(crate) fn call(client: &Client, path: &str, timeout_ms: u32, capacity: usize) -> (i32, i32, Vec<u8>) {
    let path = CString::new(path).unwrap();
    let call = FtCall { id: 9, path: path.as_ptr(), timeout_ms };
    let (mut buffer, mut answer) = (vec![0; capacity], answer(0, -1, b""));
    let result = c!(ft_client_call(client.0, &call, b"".as_ptr(), 0, buffer.as_mut_ptr(), buffer.len(), &mut answer));
    if 0 <= result {
        assert_eq!((answer.call_id, answer.retry_after_ms, answer.body), (9, -1, buffer.as_ptr()));
        assert_eq!(answer.body_length, usize::try_from(result).unwrap());
        buffer.truncate(answer.body_length);
    }
    (result, answer.status, buffer)
}

pub(crate) fn scripted(has_tls: bool) -> Served {
    let hosts = [(1, 30), (2, 2)].map(|(number, ms)| (number, serve_probes(number, Duration::from_millis(ms))));
    serve(Script { advertises: false, hosts: hosts.into() }, has_tls)
}

#[test]
fn client_call_returns_bodies_and_failures() {
    let served = scripted(false);
    let client = new_client(&format!("http://{}", served.address), b"", Some("secret")).unwrap();
    let service = "/fireteam.v1.MatchmakingService";
    let (length, status, _) = call(&client, &format!("{service}/Search"), 5_000, FT_ANSWER_BYTES);
    assert!(length > 0 && status == 0);
    assert_eq!(served.calls.lock().unwrap()[0].1.as_deref(), Some("Bearer secret"));
    assert_eq!(call(&client, &format!("{service}/Fail"), 5_000, 100), (7, 5, b"details".to_vec()));
    assert_eq!(call(&client, &format!("{service}/Hang"), 50, 100).1, 4);
    assert_eq!(call(&client, &format!("{service}/Search"), 5_000, 3).0, FT_ERROR_BUFFER);
    assert_eq!(call(&client, "Search", 5_000, 100).0, FT_ERROR_VALUE);
    assert_eq!(call(&client, "/x", 0, 100).0, FT_ERROR_VALUE);
    let (address, ()) = (served.address, drop(served));
    let client = new_client(&format!("http://{address}"), b"", None).unwrap();
    assert_eq!(call(&client, "/a/b", 2_000, 100).1, 14, "no server");
}

#[test]
fn client_new_refuses_invalid_options() {
    let code = |uri: &str, certificate: &[u8], token| new_client(uri, certificate, token).err();
    assert_eq!(code("not a uri", b"", None), Some(FT_ERROR_CLIENT));
    assert_eq!(code("ftp://localhost", b"", None), Some(FT_ERROR_VALUE));
    assert_eq!(code("https://localhost", b"", None), Some(FT_ERROR_VALUE), "no certificates");
    assert_eq!(code("http://localhost", b"", Some("line\nbreak")), Some(FT_ERROR_VALUE));
    assert_eq!(c!(ft_client_new(null(), &mut null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_client_free(null_mut())), 0);
}

/// Another server's certificate is no certificate of this one.
#[test]
fn client_refuses_a_server_with_another_certificate() {
    let (served, other) = (scripted(true), scripted(true));
    let uri = format!("https://localhost:{}", served.address.port());
    let own = new_client(&uri, served.certificate.as_ref().unwrap().as_bytes(), None).unwrap();
    assert_eq!(call(&own, "/fireteam.v1.MatchmakingService/Release", 5_000, 100).1, 0);
    let wrong = new_client(&uri, other.certificate.as_ref().unwrap().as_bytes(), None).unwrap();
    assert_eq!(call(&wrong, "/fireteam.v1.MatchmakingService/Release", 5_000, 100).1, 14);
}

/// Runs the compiled program against a server; it joins the near host.
fn play_program(compiler: &Compiler, has_tls: bool) {
    let Some(program) = compilers::build_program(compiler) else { return };
    let served = scripted(has_tls);
    let scheme = if has_tls { "https" } else { "http" };
    let mut command = Command::new(&program);
    command.arg(format!("{scheme}://localhost:{}", served.address.port())).args(["7", "ada"]);
    if let Some(certificate) = &served.certificate {
        let path = program.with_extension("pem");
        std::fs::write(&path, certificate).unwrap();
        command.arg(path);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.ends_with("ok\n"), "{text}");
    assert!(text.contains(&format!("connect to {}, 1 seats", id(2))), "{text}");
    let paths: Vec<String> = served.calls.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
    let rpcs: Vec<&str> = paths.iter().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(rpcs, ["Search", "ReportLatency", "ReportLatency", "Reserve", "Release"]);
}

#[test]
fn program_in_c_plays_the_loop_over_tls() {
    play_program(&compilers::GCC, true);
}

#[test]
fn program_in_cpp_plays_the_loop() {
    play_program(&compilers::GXX, false);
}

#[test]
fn program_by_clang_plays_the_loop() {
    play_program(&compilers::CLANG, true);
}
