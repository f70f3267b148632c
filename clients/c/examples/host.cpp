// Hosts a session by the search loop of a C++ program, fireteam/matching.hpp: advertises it with one open seat, answers latency probes over UDP,
// and confirms the party that comes. Press Enter to withdraw the session. examples/search.cpp is such a party.
//
//   host URI SET_ID USER_ID      token: FIRETEAM_TOKEN in the environment
//
// Prints a line for each outcome, and ends with `ok` and exit code 0. It is C++17, for systems with POSIX sockets.

#include <fireteam/matching.hpp>

#include "support.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using fireteam::Bytes;
using support::bytes_of, support::check, support::check_system, support::now_us, support::put_field, support::put_number;

// Time of the whole program, microseconds.
constexpr std::uint64_t kTimeLimitUs = 60'000'000;

// Numbers of protobuf fields: of MatchmakingUpdateAdvertisementRequest, SessionCompositionData and PlayerData.
constexpr unsigned kSession = 3, kConnectData = 7, kPartySizes = 3, kOpenSeats = 6, kPlayers = 8, kUserId = 1;

// MatchmakingUpdateAdvertisementRequest { session_composition: { party_size_composition: [1], max_allowed_join_reservation_count: 1,
// players: [PlayerData { user_id }] }, connect_data }.
Bytes advertisement(const std::string& user_id, const std::string& connect_data) {
  Bytes player, session, update;
  put_field(player, kUserId, bytes_of(user_id));
  put_number(session, kPartySizes, 1);
  put_number(session, kOpenSeats, 1);
  put_field(session, kPlayers, player);
  put_field(update, kSession, session);
  put_field(update, kConnectData, bytes_of(connect_data));
  return update;
}

// Opens the UDP port of the session, and returns it.
std::uint16_t open_port(int& udp) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  udp = check_system("socket", socket(AF_INET, SOCK_DGRAM, 0));
  check_system("bind", bind(udp, reinterpret_cast<const sockaddr*>(&address), length));
  check_system("getsockname", getsockname(udp, reinterpret_cast<sockaddr*>(&address), &length));
  return ntohs(address.sin_port);
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
int play(fireteam::Matching& matching, bool& has_ended) {
  ft_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = matching.poll_outcome(outcome, data)) != FT_NONE; ++count) {
    check("poll_outcome", length);
    if (outcome.kind == FT_OUTCOME_ADVERTISED) {
      std::printf("advertised %s\n", outcome.advertisement_id);
    } else if (outcome.kind == FT_OUTCOME_PARTY_COMING) {
      // A game lets the party in, and then gives its players to `session_changed`.
      std::printf("party of %u coming\n", static_cast<unsigned>(outcome.seats));
    } else if (outcome.kind == FT_OUTCOME_PARTY_GONE) {
      std::puts("party gone");
    } else if (outcome.kind == FT_OUTCOME_ENDED) {
      std::printf("ended %u %s\n", static_cast<unsigned>(outcome.end_reason), outcome.reason);
      if (outcome.end_reason != FT_END_CANCELLED) throw std::runtime_error("the session was not hosted: " + support::text_of(data));
      has_ended = true;
    } else {
      std::printf("outcome %u\n", static_cast<unsigned>(outcome.kind));
    }
  }
  return count;
}

// Waits for a probe, whose answer is sent at once, for Enter, and for the next timeout.
void wait_for_event(fireteam::Matching& matching, int udp, bool& is_withdrawn) {
  pollfd waited[] = {{udp, POLLIN, 0}, {is_withdrawn ? -1 : STDIN_FILENO, POLLIN, 0}};
  poll(waited, 2, support::pause_ms(matching, 1000));
  std::uint8_t packet[2048];
  ft_address from{};
  for (std::int32_t length = 0; (length = receive_datagram(udp, 0, &from, packet, sizeof packet)) >= 0;) {
    support::give_datagram(matching, from, packet, length, now_us());
    support::send_datagrams(matching, udp, [] {});
  }
  if (waited[1].revents != 0) {
    is_withdrawn = true;
    check("cancel", matching.cancel(now_us()));
  }
  check("handle_timeout", matching.handle_timeout(now_us()));
}

void run(char** arguments) {
  int udp = -1;
  const std::uint16_t port = open_port(udp);
  const Bytes update = advertisement(arguments[3], "127.0.0.1:" + std::to_string(port));
  const Bytes game_data = bytes_of("build 7");
  ft_matching_options options{};
  options.game_data = game_data.data();
  options.game_data_length = game_data.size();
  options.compares_game_data = 1;
  options.set_id = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10));
  std::uint8_t random[FT_MATCHING_RANDOM_BYTES];
  support::fill_random(random);
  fireteam::Matching matching;
  check("open the loop", matching.open(options, random));
  const fireteam::Client client = support::open_client(arguments[1]);
  ft_hosting hosting{};
  hosting.advertisement = update.data();
  hosting.advertisement_length = update.size();
  hosting.probe_port = port;
  // The session is full while the party is in it.
  hosting.keep_when_full = 1;

  const std::uint64_t start_us = now_us();
  check("advertise", matching.become_host(hosting, start_us));
  Bytes body;
  bool is_withdrawn = false, has_ended = false;
  while (!has_ended) {
    if (now_us() - start_us > kTimeLimitUs) throw std::runtime_error("the session was not withdrawn in time");
    const int work = support::make_calls(matching, client, body) + play(matching, has_ended);
    if (work == 0) wait_for_event(matching, udp, is_withdrawn);
  }
  close(udp);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "use: %s URI SET_ID USER_ID\n", arguments[0]);
    return 2;
  }
  return support::run([&] { run(arguments); });
}
