// Game that uses an installed fireteam: starts each of its loops, looks at the first call, and ends it. Prints `ok`.

#include <fireteam/beacons.hpp>
#include <fireteam/client.hpp>
#include <fireteam/match_host.hpp>
#include <fireteam/matching.hpp>
#include <fireteam/queueing.hpp>

#include <cstdio>
#include <cstring>
#include <utility>

// Prints a failed check, and ends with exit code 1.
#define CHECK(condition)                              \
  if (!(condition)) {                                 \
    std::fprintf(stderr, "failed: %s\n", #condition); \
    return 1;                                         \
  }

namespace {

int search() {
  fireteam::Matching unopened;
  CHECK(!unopened && unopened.start(1) == FT_ERROR_NULL);

  // SessionCompositionData { players: [PlayerData { user_id: "ada" }] }.
  const fireteam::Bytes party = {0x42, 5, 0x0a, 3, 'a', 'd', 'a'};
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES] = {1, 2, 3};
  ft_matching_options options{};
  options.party = party.data();
  options.party_length = party.size();
  options.set_id = 7;
  fireteam::Matching made;
  CHECK(made.open(options, random) == 0);
  fireteam::Matching matching = std::move(made);
  CHECK(matching && !made);
  CHECK(matching.set_latency_token({1}, 0) == 0 && matching.other_packet_sent(0) == 0);
  CHECK(matching.start(1000) == 0 && matching.state() == FT_STATE_SEARCHING);

  ft_call call{};
  fireteam::Bytes request;
  CHECK(matching.poll_call(call, request) > 0);
  CHECK(std::strcmp(call.path, "/fireteam.v1.MatchmakingService/Search") == 0 && !request.empty());
  CHECK(matching.poll_call(call, request) == FT_NONE && request.empty());
  std::uint64_t at_us = 0;
  CHECK(matching.poll_timeout(at_us) == 0 && at_us > 1000);
  CHECK(matching.cancel(2000) == 0);
  ft_outcome outcome{};
  fireteam::Bytes data;
  CHECK(matching.poll_outcome(outcome, data) == 0 && outcome.kind == FT_OUTCOME_ENDED);
  return 0;
}

int beacons() {
  fireteam::Beacons unopened;
  CHECK(!unopened && unopened.start(1) == FT_ERROR_NULL && unopened.state() == FT_ERROR_NULL);

  std::uint8_t random[FT_BEACONS_RANDOM_BYTES] = {1, 2, 3};
  fireteam::Beacons beacons, placed;
  CHECK(placed.open(ft_place{91.0, 0.0}, random) == FT_ERROR_VALUE && !placed);
  CHECK(placed.open(ft_place{47.6, -122.3}, random) == 0 && beacons.open(random) == 0);
  CHECK(beacons.state() == FT_BEACONS_IDLE && beacons.start(1000) == 0 && beacons.state() == FT_BEACONS_LISTING);

  ft_call call{};
  fireteam::Bytes request;
  CHECK(beacons.poll_call(call, request) == 0 && std::strcmp(call.path, "/fireteam.v1.LatencyService/GetBeacons") == 0);
  // GetBeaconsResponse { beacons: [Beacon { id: 7, address: 192.0.2.7, port: 9 }], binding: 16 bytes }.
  fireteam::Bytes list = {0x0a, 10, 0x08, 7, 0x1a, 4, 192, 0, 2, 7, 0x20, 9, 0x12, 16};
  list.insert(list.end(), 16, 5);
  ft_answer answer{};
  answer.call_id = call.id;
  answer.body = list.data();
  answer.body_length = list.size();
  CHECK(beacons.handle_answer(answer, 1000) == 0 && beacons.state() == FT_BEACONS_MEASURING);
  ft_address to{};
  fireteam::Bytes packet;
  CHECK(beacons.poll_transmit(to, packet) == 64 && to.port == 9 && to.family == FT_IPV4 && ft_is_probe(packet.data(), packet.size()) == 1);
  CHECK(beacons.poll_transmit(to, packet) == FT_NONE);
  CHECK(beacons.other_packet_sent(1000) == 0 && beacons.handle_datagram(to, list.data(), list.size(), 1000) == FT_NONE);
  std::uint64_t at_us = 0;
  CHECK(beacons.poll_timeout(at_us) == 0 && at_us > 1000 && beacons.handle_timeout(at_us) == 0);
  CHECK(beacons.poll_token(packet) == FT_NONE && beacons.report(packet) == FT_NONE);
  return 0;
}

int queue() {
  fireteam::Queueing unopened;
  CHECK(!unopened && unopened.start(1) == FT_ERROR_NULL);

  // QueueEnterRequest { session_composition: { players: [PlayerData { user_id: "ada" }] }, matchmaking_set_id: 7 }.
  const fireteam::Bytes request = {0x0a, 7, 0x42, 5, 0x0a, 3, 'a', 'd', 'a', 0x10, 7};
  std::uint8_t random[FT_QUEUEING_RANDOM_BYTES] = {1, 2, 3};
  fireteam::Queueing entering;
  CHECK(entering.open(request, random) == 0 && entering.set_latency_token({1}, 0) == 0);
  CHECK(entering.start(1000) == 0 && entering.state() == FT_QUEUEING_ENTERING);
  fireteam::Bytes saved, data;
  CHECK(entering.save(saved) > 0);
  fireteam::Queueing queueing;
  CHECK(queueing.restore(saved, random) == 0 && queueing.start(1000) == 0);

  ft_call call{}, watch{};
  fireteam::Bytes first, again;
  CHECK(entering.poll_call(call, first) > 0 && queueing.poll_call(call, again) > 0 && first == again);
  CHECK(std::strcmp(call.path, "/fireteam.v1.QueueService/Enter") == 0);
  CHECK(queueing.poll_watch(watch, data) == FT_NONE && queueing.connect_data(data) == FT_NONE);
  CHECK(queueing.credential(0, data) == FT_NONE && queueing.respond("match", true, 1000) == 0);
  // QueueEnterResponse { status: { ticket_id: "one", state: WAITING }, ticket_token: "t" }.
  const fireteam::Bytes entered = {0x0a, 7, 0x0a, 3, 'o', 'n', 'e', 0x10, 1, 0x12, 1, 't'};
  ft_answer answer{};
  answer.call_id = call.id;
  answer.body = entered.data();
  answer.body_length = entered.size();
  CHECK(queueing.handle_answer(answer, 2000) == 0 && queueing.state() == FT_QUEUEING_WATCHING);
  CHECK(queueing.poll_watch(watch, data) > 0 && std::strcmp(watch.path, "/fireteam.v1.QueueService/Watch") == 0);
  ft_queue_outcome outcome{};
  CHECK(queueing.poll_outcome(outcome, data) > 0 && outcome.kind == FT_QUEUE_OUTCOME_STATUS);
  CHECK(std::strcmp(outcome.ticket_id, "one") == 0 && outcome.ticket_state == 1);
  CHECK(queueing.handle_watch_message(watch.id, {0xff}, 3000) == FT_ERROR_MALFORMED);
  ft_answer end{};
  end.call_id = watch.id;
  CHECK(queueing.handle_watch_end(end, 3000) == 0 && queueing.connected(3000) == 0);
  CHECK(queueing.connect_failed(3000) == 0 && queueing.report({{0, 1}, {1, 2}}, 3000) == 0);
  std::uint64_t at_us = 0;
  CHECK(queueing.poll_timeout(at_us) == 0 && queueing.handle_timeout(at_us) == 0 && queueing.cancel(at_us) == 0);
  CHECK(queueing.poll_call(call, data) > 0 && std::strcmp(call.path, "/fireteam.v1.QueueService/Leave") == 0);
  return 0;
}

int host() {
  std::uint8_t random[FT_MATCH_HOST_RANDOM_BYTES] = {1};
  fireteam::MatchHost host;
  CHECK(host.start(1) == FT_ERROR_NULL && host.open({}, random) == FT_ERROR_LENGTH && !host);
  CHECK(host.open({'t'}, random) == 0 && host.start(1) == 0 && host.state() == FT_MATCH_HOST_HOSTING);
  ft_call call{};
  fireteam::Bytes request, data;
  CHECK(host.poll_call(call, request) > 0);
  CHECK(std::strcmp(call.path, "/fireteam.v1.QueueService/HostHeartbeat") == 0);
  // QueueHostHeartbeatResponse { matches: [{ match_id: "one", state: PLAYING }], next_beat_in_ms: 100 }.
  const fireteam::Bytes response = {0x0a, 7, 0x0a, 3, 'o', 'n', 'e', 0x10, 2, 0x18, 100};
  ft_answer answer{};
  answer.call_id = call.id;
  answer.body = response.data();
  answer.body_length = response.size();
  CHECK(host.handle_answer(answer, 2) == 0);
  ft_match_outcome outcome{};
  CHECK(host.poll_outcome(outcome, data) > 0 && outcome.kind == FT_MATCH_OUTCOME_MATCH);
  CHECK(std::strcmp(outcome.match_id, "one") == 0 && outcome.match_state == FT_MATCH_PLAYING);
  CHECK(host.matches_changed(3) == 0 && host.give_up("one", 3) == 0 && host.end_match("one", false, 3) == 0);
  CHECK(host.report("one", {{0, 1}, {1, 2}}, 3) == 0 && host.report("", {{0, 1}}, 3) == FT_ERROR_VALUE);
  CHECK(host.report_result({}, 3) == FT_ERROR_VALUE);
  std::uint64_t at_us = 0;
  CHECK(host.poll_timeout(at_us) == 0 && host.handle_timeout(at_us) == 0 && host.stop(at_us) == 0);
  CHECK(host.state() == FT_MATCH_HOST_ENDING);

  fireteam::Verifier verifier;
  const fireteam::Bytes text = {'n', 'o'};
  CHECK(verifier.open(text, "advertisement") == FT_ERROR_KEY_SET && !verifier);
  ft_admitted_player player{};
  CHECK(verifier.verify(text, 0, player) == FT_ERROR_NULL && verifier.replace_keys(text) == FT_ERROR_NULL);
  CHECK(std::strstr(ft_result_text(FT_CREDENTIAL_USED_BEFORE), "used before") != nullptr);
  return 0;
}

int others() {
  fireteam::Bytes data;
  std::uint8_t responder_random[FT_RESPONDER_RANDOM_BYTES] = {1};
  fireteam::Responder responder;
  CHECK(responder.open(responder_random) == 0 && responder.endpoint(4000, data) > 0);
  const std::uint8_t random_packet[] = {1, 2, 3};
  const ft_address from{{127, 0, 0, 1}, 9, FT_IPV4};
  CHECK(responder.handle_datagram(from, random_packet, sizeof random_packet, 1, 1, data) == FT_NONE);

  ft_client_options client_options{};
  client_options.uri = "https://localhost";
  fireteam::Client client;
  CHECK(client.open(client_options) == FT_ERROR_VALUE && !client);
  // A port on which no server listens: the stream ends with UNAVAILABLE.
  client_options.uri = "http://127.0.0.1:1";
  CHECK(client.open(client_options) == 0);
  ft_call call{};
  call.path = "/fireteam.v1.QueueService/Watch";
  call.timeout_ms = 5000;
  fireteam::Stream stream;
  CHECK(stream.open(client, call, {}) == 0 && stream.next(5000, data) == FT_STREAM_ENDED);
  ft_answer end{};
  CHECK(stream.end(data, end) >= 0 && end.status == 14);
  stream.close();
  CHECK(!stream);
  return 0;
}

}  // namespace

int main() {
  if (search() != 0 || beacons() != 0 || queue() != 0 || host() != 0 || others() != 0) return 1;
  std::puts("ok");
  return 0;
}
