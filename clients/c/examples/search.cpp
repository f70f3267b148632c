// Plays the search loop of a C++ program by fireteam/matching.hpp and fireteam/beacons.hpp: measures beacons, searches, probes hosts over UDP,
// reserves, joins and leaves.
//
//   search URI SET_ID USER_ID [REGION MS]      token: FIRETEAM_TOKEN in the environment
//
// REGION and MS are the round trip to a region that the player states. Prints a line for each outcome, and ends with `ok` and exit
// code 0. It is C++17, for systems with POSIX sockets. A game has a protobuf library: here, messages are written by hand.

#include <fireteam/beacons.hpp>
#include <fireteam/matching.hpp>

#include "support.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using fireteam::Bytes;
using support::bytes_of, support::check, support::now_us, support::put_field, support::put_float;

// Time of the whole program, and longest time for the first latency token, microseconds.
constexpr std::uint64_t kTimeLimitUs = 60'000'000;
constexpr std::uint64_t kFirstTokenUs = 4'000'000;

// Numbers of protobuf fields: of SessionCompositionData, PlayerData and RegionLatency.
constexpr unsigned kPlayers = 8, kRegionLatencies = 10, kUserId = 1, kRegion = 1, kRoundTripMs = 2;

// SessionCompositionData { players: [PlayerData { user_id }], region_latencies: [RegionLatency { region, round_trip_ms }] }.
Bytes party(const std::string& user_id, const char* region, float round_trip_ms) {
  Bytes player, party, latency;
  put_field(player, kUserId, bytes_of(user_id));
  put_field(party, kPlayers, player);
  if (region != nullptr) {
    put_field(latency, kRegion, bytes_of(region));
    put_float(latency, kRoundTripMs, round_trip_ms);
    put_field(party, kRegionLatencies, latency);
  }
  return party;
}

// Search loop, and the measurement of beacons on the same socket.
struct Game {
  fireteam::Client client;
  fireteam::Matching matching;
  fireteam::Beacons beacons;
  int udp = -1;
  Bytes body;
  bool has_ended = false;
};

// Makes the calls of both loops, sends their packets, and passes on a new token. Returns the number of calls.
int drive(Game& game) {
  const int count = support::make_calls(game.beacons, game.client, game.body) + support::make_calls(game.matching, game.client, game.body);
  // Both together send at most 40 packets a second.
  support::send_datagrams(game.beacons, game.udp, [&] { check("other packet", game.matching.other_packet_sent(now_us())); });
  support::send_datagrams(game.matching, game.udp, [&] { check("other packet", game.beacons.other_packet_sent(now_us())); });
  support::pass_on_token(game.beacons, game.matching);
  return count;
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
int play(fireteam::Matching& matching, bool& has_ended) {
  ft_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = matching.poll_outcome(outcome, data)) != FT_NONE;) {
    check("poll_outcome", length);
    const std::string text(data.begin(), data.end());
    if (outcome.kind == FT_OUTCOME_CONNECT) {
      std::printf("connect %s, %u seats, %.1f ms\n", text.c_str(), static_cast<unsigned>(outcome.seats),
                  static_cast<double>(outcome.round_trip_ms));
      check("connected", matching.connected(outcome.reservation_id, now_us()));
    } else if (outcome.kind == FT_OUTCOME_JOINED) {
      std::printf("joined %s\n", outcome.advertisement_id);
      check("cancel", matching.cancel(now_us()));
    } else if (outcome.kind == FT_OUTCOME_ENDED) {
      std::printf("ended %u %s %s\n", static_cast<unsigned>(outcome.end_reason), outcome.reason, text.c_str());
      has_ended = true;
    } else {
      std::printf("outcome %u\n", static_cast<unsigned>(outcome.kind));
    }
    ++count;
  }
  return count;
}

// Waits for a datagram until a loop needs its timeout, at most `most_ms`, and gives both what came.
void wait_for_event(Game& game, int most_ms) {
  std::uint8_t packet[2048];
  ft_address from{};
  const int pause_ms = support::pause_ms(game.beacons, support::pause_ms(game.matching, most_ms));
  const std::int32_t length = receive_datagram(game.udp, pause_ms, &from, packet, sizeof packet);
  const std::uint64_t arrived_us = now_us();
  if (length >= 0) {
    support::give_datagram(game.beacons, from, packet, length, arrived_us);
    support::give_datagram(game.matching, from, packet, length, arrived_us);
  } else {
    check("handle_timeout", game.beacons.handle_timeout(arrived_us));
    check("handle_timeout", game.matching.handle_timeout(arrived_us));
  }
}

// Measures beacons for the first token, within the time that a player may wait for it.
void measure_beacons(Game& game) {
  const std::uint64_t latest_us = now_us() + kFirstTokenUs;
  check("start the measurement", game.beacons.start(now_us()));
  while (drive(game), game.beacons.state() != FT_BEACONS_RESTING && now_us() < latest_us) wait_for_event(game, 100);
}

void run(int count, char** arguments) {
  const Bytes own = party(arguments[3], count > 5 ? arguments[4] : nullptr, count > 5 ? std::strtof(arguments[5], nullptr) : 0);
  const Bytes game_data = bytes_of("build 7");
  ft_matching_options options{};
  options.party = own.data();
  options.party_length = own.size();
  options.game_data = game_data.data();
  options.game_data_length = game_data.size();
  options.set_id = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10));
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES], beacons_random[FT_BEACONS_RANDOM_BYTES];
  support::fill_random(random);
  support::fill_random(beacons_random);
  Game game;
  check("open the loop", game.matching.open(options, random));
  check("open the measurement", game.beacons.open(beacons_random));
  game.client = support::open_client(arguments[1]);
  game.udp = support::check_system("socket", socket(AF_INET, SOCK_DGRAM, 0));
  const std::uint64_t start_us = now_us();
  measure_beacons(game);
  check("start", game.matching.start(now_us()));
  while (!game.has_ended) {
    if (now_us() - start_us > kTimeLimitUs) throw std::runtime_error("the loop did not end in time");
    // A call or an outcome may lead to others. Wait when there are none.
    const int work = drive(game) + play(game.matching, game.has_ended);
    if (work == 0) wait_for_event(game, 1000);
  }
  close(game.udp);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "use: %s URI SET_ID USER_ID [REGION MS]\n", arguments[0]);
    return 2;
  }
  return support::run([&] { run(count, arguments); });
}
