//! Goals PR1 to PR6, QD1 to QD6, GEO, and PH1: cost of the server beyond that of tonic, with server and clients in processes of their own.

mod echo;
mod feed_delay;
mod load;
mod match_notification;
mod messages;
mod nearest;
mod one_machine;
mod queue_drive;
mod queue_drive_redis;
mod redis_matchmaker;
mod redis_search;
mod redis_server;
pub(crate) mod server_process;
mod update_visibility;
mod waiting_tickets;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message;

use crate::harness::{ROUNDS, machine, median, report};

use load::{Cost, Target, call, channel, one_by_one, open, raw_one_by_one, streamed, unary};
use messages::{CONNECT, Hosts, SEARCH, UPDATE, alone, blobs, enveloped, is_updated, searches};
use server_process::{AUTHENTICATED, ServerProcess, header};

const ECHO: &str = "/bench.Echo/Unary";
const ECHO_STREAM: &str = "/bench.Echo/Stream";
/// Calls per round.
const CALLS: usize = 16_000;
/// Messages per round of a stream.
const STREAMED: usize = 100_000;
/// Sequential calls per round.
const ONE_BY_ONE: usize = 2_000;
/// Advertisements of the clients.
const HOSTS: u64 = 1_024;
/// Streams, unanswered messages per stream (the server's limit), and messages per round.
const WINDOWS: (usize, usize, usize) = (2, 256, STREAMED);
/// Idle connections.
const IDLE: usize = 2_000;

/// Column of the cost that a row compares.
#[derive(Clone, Copy)]
enum Shown {
    Wall,
    Cpu,
}

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if ![
        "PR1", "PR2", "PR3", "PR4", "PR5", "PR6", "AUTH", "DELAY", "MEM", "PH1", "TOLD", "ASSIGN", "QD1", "QD2", "QD3",
        "QD4", "QD5", "QD6", "GEO", "PF1",
    ]
    .iter()
    .any(|goal| wanted(goal))
    {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let echo = ServerProcess::start("echo", 0);
        if ["PR1", "PR2", "PR3", "PR5"].iter().any(|goal| wanted(goal)) {
            updates(wanted, &echo).await;
        }
        if wanted("PR4") || wanted("MEM") {
            searching(wanted, &echo).await;
        }
        if wanted("AUTH") {
            authenticated().await;
        }
        if wanted("PR6") {
            idle().await;
        }
        if wanted("DELAY") {
            update_visibility::run().await;
        }
        if wanted("TOLD") || wanted("ASSIGN") {
            match_notification::run(wanted).await;
        }
        queue_drive::run(wanted).await;
        if wanted("QD6") {
            queue_drive_redis::run().await;
        }
        waiting_tickets::run(wanted).await;
        if wanted("GEO") {
            nearest::run().await;
        }
        if wanted("PF1") {
            match crate::store_postgres::database() {
                Some(url) => feed_delay::run(&url).await,
                None => println!("SKIPPED: PF1 under load: set FIRETEAM_BENCH_POSTGRES to a database to fill"),
            }
        }
        if wanted("PH1") {
            match crate::store_postgres::database() {
                Some(url) => one_machine::run(&url).await,
                None => println!("SKIPPED: PH1: set FIRETEAM_BENCH_POSTGRES to a database to fill"),
            }
        }
    });
}

/// Runs reference and subject alternately and prints the subject's cost / the reference's.
async fn by_turns<S: Future<Output = Cost>, R: Future<Output = Cost>>(
    (goal, subject, reference): (&str, &str, &str),
    shown: Shown,
    run_subject: impl Fn() -> S,
    run_reference: impl Fn() -> R,
) {
    let (mut rounds, mut cpu) = (Vec::new(), Vec::new());
    let pick = |cost: Cost| match shown {
        Shown::Wall => cost.wall_us,
        Shown::Cpu => cost.cpu_us,
    };
    run_subject().await;
    for _ in 0..ROUNDS {
        let reference = run_reference().await;
        let subject = run_subject().await;
        rounds.push((pick(subject), pick(reference)));
        cpu.push(subject.cpu_us);
    }
    report(goal, subject, reference, &rounds, median(cpu));
}

/// PR1, PR2, PR3 and PR5.
async fn updates(wanted: &dyn Fn(&str) -> bool, echo: &ServerProcess) {
    let server = ServerProcess::start("fireteam", 0);
    let first = channel(server.address).await;
    let hosts = Hosts::publish(&first, HOSTS).await;
    let (replacing, beats) = (hosts.replacing(alone), hosts.heartbeats(alone));
    let (replacing_streamed, beats_streamed) = (hosts.replacing(enveloped), hosts.heartbeats(enveloped));
    let answer = call(&first, UPDATE, replacing[0].clone()).await.expect("an answer");
    let unary_blobs = blobs(&replacing, answer.len());
    // The envelope adds its key and length, the type, the nonce, and the key and length of the response.
    let stream_blobs = blobs(&replacing_streamed, answer.len() + 10);
    let (update, connect) =
        (Target { child: &server, path: UPDATE, header: None }, Target { child: &server, path: CONNECT, header: None });
    let (plain, stream) =
        (Target { child: echo, path: ECHO, header: None }, Target { child: echo, path: ECHO_STREAM, header: None });
    let say = format!("{} B in, {} B out", replacing[0].len(), answer.len());
    if wanted("PR1") {
        let subject = format!("CPU of an upsert, {say}");
        let name = ("PR1 <= 1.3", subject.as_str(), "CPU of a tonic echo of the size");
        by_turns(name, Shown::Cpu, || unary(update, &replacing, CALLS), || unary(plain, &unary_blobs, CALLS)).await;
        let name = ("PR1", "CPU of a unary heartbeat", "CPU of a tonic echo of an upsert's size");
        by_turns(name, Shown::Cpu, || unary(update, &beats, CALLS), || unary(plain, &unary_blobs, CALLS)).await;
    }
    if wanted("PR2") {
        for (what, messages) in [("heartbeat", &beats_streamed), ("upsert", &replacing_streamed)] {
            let subject = format!("CPU of a streamed {what}");
            let name = ("PR2 <= 0.15", subject.as_str(), "CPU of a unary upsert");
            let run_subject = || streamed(connect, messages, WINDOWS, is_updated);
            by_turns(name, Shown::Cpu, run_subject, || unary(update, &replacing, CALLS)).await;
        }
    }
    if wanted("PR3") {
        let echoed = || streamed(stream, &stream_blobs, WINDOWS, |_| {});
        for (what, messages) in [("upsert", &replacing_streamed), ("heartbeat", &beats_streamed)] {
            let subject = format!("time of a streamed {what}");
            let name = ("PR3 <= 1.43", subject.as_str(), "time of a tonic stream echo of an upsert's size");
            by_turns(name, Shown::Wall, || streamed(connect, messages, WINDOWS, is_updated), echoed).await;
        }
    }
    if wanted("PR5") {
        let raw = || raw_one_by_one(echo, replacing[0].len(), ONE_BY_ONE);
        let name = ("PR5", "p50 of a tonic echo, one by one", "p50 of a TCP echo");
        by_turns(name, Shown::Wall, || one_by_one(plain, &unary_blobs, ONE_BY_ONE), raw).await;
        for (what, messages) in [("heartbeat", &beats), ("upsert", &replacing)] {
            let subject = format!("p50 of a unary {what}, one by one");
            let name = ("PR5 <= 1.4", subject.as_str(), "p50 of a TCP echo");
            by_turns(name, Shown::Wall, || one_by_one(update, messages, ONE_BY_ONE), raw).await;
        }
    }
}

/// AUTH: CPU cost of authentication with a cached token.
async fn authenticated() {
    let (open, authenticated_server, header) =
        (ServerProcess::start("fireteam", 0), ServerProcess::start(AUTHENTICATED, 0), header());
    let hosts = Hosts::publish(&channel(open.address).await, HOSTS).await;
    let known = Hosts::publish_as(&channel(authenticated_server.address).await, HOSTS, Some(&header)).await;
    let (beats, known_beats) = (hosts.heartbeats(alone), known.heartbeats(alone));
    let anonymous = Target { child: &open, path: UPDATE, header: None };
    let shown = Target { child: &authenticated_server, path: UPDATE, header: Some(&header) };
    let name = ("AUTH", "CPU of a unary heartbeat with a token", "CPU of an anonymous one");
    by_turns(name, Shown::Cpu, || unary(shown, &known_beats, CALLS), || unary(anonymous, &beats, CALLS)).await;
}

/// PR4, and the memory of a whole server with a million advertisements.
async fn searching(wanted: &dyn Fn(&str) -> bool, echo: &ServerProcess) {
    let advertisements = 1_000_000;
    let server = filled("fireteam", "memory store", advertisements);
    if wanted("MEM") {
        drop(filled("fireteam-sqlite", "SQLite, database in a file", advertisements));
    }
    if !wanted("PR4") {
        return;
    }
    let searches_sent = searches(512);
    let first = channel(server.address).await;
    let answer = call(&first, SEARCH, searches_sent[0].clone()).await.expect("an answer");
    let found = pb::MatchmakingSearchResponse::decode(answer.clone()).expect("an answer");
    assert_eq!(found.candidates.len(), 50, "fifty candidates");
    let say = format!("{} B in, {} B out", searches_sent[0].len(), answer.len());
    let constant: Arc<[Bytes]> = blobs(&searches_sent, answer.len());
    let (search, plain) =
        (Target { child: &server, path: SEARCH, header: None }, Target { child: echo, path: ECHO, header: None });
    let subject = format!("time of a search of 1M, 50 hits, {say}");
    let name = ("PR4 <= 1.82", subject.as_str(), "time of a constant answer of the size");
    by_turns(name, Shown::Wall, || unary(search, &searches_sent, CALLS), || unary(plain, &constant, CALLS)).await;
    let name = ("PR4", "CPU of the same", "CPU of the same");
    by_turns(name, Shown::Cpu, || unary(search, &searches_sent, CALLS), || unary(plain, &constant, CALLS)).await;
    let name = ("PR4 <= 1.3", "p50 of the same, one by one", "p50 of the same");
    let run_subject = || one_by_one(search, &searches_sent, ONE_BY_ONE);
    by_turns(name, Shown::Wall, run_subject, || one_by_one(plain, &constant, ONE_BY_ONE)).await;
}

/// Starts a server with `advertisements` advertisements and prints its memory for each.
fn filled(what: &str, store: &str, advertisements: u64) -> ServerProcess {
    let empty = ServerProcess::start(what, 0).resident_bytes();
    let server = ServerProcess::start(what, advertisements);
    let bytes = (server.resident_bytes() - empty) / advertisements;
    let of = format!("bytes for each of {advertisements} in a whole server, {store}");
    println!("| MEM <= 1024 | memory_per_advertisement: {of} | 1024 | {bytes} | | 1 | | | | {} |", machine());
    server
}

/// PR6: connections that have sent one message and are idle.
async fn idle() {
    let server = ServerProcess::start("fireteam", 0);
    let first = channel(server.address).await;
    let beats = Hosts::publish(&first, IDLE as u64).await.heartbeats(enveloped);
    let before = server.resident_bytes();
    let mut kept = Vec::with_capacity(IDLE);
    for beat in beats.iter() {
        let channel = channel(server.address).await;
        let (sender, mut answers) = open(&channel, CONNECT).await;
        sender.send(beat.clone()).await.expect("the stream is open");
        is_updated(&answers.message().await.expect("the stream is open").expect("an answer"));
        kept.push((channel, sender, answers));
    }
    let kib = (server.resident_bytes() - before) as f64 / 1024.0 / IDLE as f64;
    let what = format!("KiB of each of {IDLE} idle connections");
    println!("| PR6 <= 60 | idle_connection_memory: {what} | 60 | {kib:.1} | | 1 | | | | {} |", machine());
}
