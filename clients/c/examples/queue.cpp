// Plays the queue loop of a C++ program by fireteam/queueing.hpp and fireteam/beacons.hpp: measures beacons, enters, watches the ticket, accepts
// the ready check, and connects to the game server with the player's credential. examples/game_server.cpp is that game server.
//
//   queue URI SET_ID USER_ID [SAVED [LATITUDE LONGITUDE]]      token: FIRETEAM_TOKEN in the environment
//
// SAVED is a file that keeps the loop: if it exists, the program goes on with its ticket. LATITUDE and LONGITUDE are the player's place in degrees,
// if the game knows it: the nearest beacons are measured, and a server with --allow-client-locality takes it. The credential is presented twice; the second time
// must be refused. Prints a line for each outcome, and ends with `ok` and exit code 0. It is C++17, for systems with POSIX sockets.

#include <fireteam/beacons.hpp>
#include <fireteam/queueing.hpp>

#include "support.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using fireteam::Bytes;
using support::bytes_of, support::check, support::check_system, support::now_us, support::put_double, support::put_field,
    support::put_number;

// Time of the whole program, microseconds.
constexpr std::uint64_t kTimeLimitUs = 180'000'000;
// Longest wait for the watch, milliseconds.
constexpr int kWaitMs = 1000;
// Longest time for the first latency token, microseconds.
constexpr std::uint64_t kFirstTokenUs = 4'000'000;

// Numbers of protobuf fields: of QueueEnterRequest, SessionCompositionData, PlayerData and LocalityData.
constexpr unsigned kParty = 1, kSetId = 2, kLocality = 7, kPlayers = 8, kUserId = 1, kLatitude = 4, kLongitude = 5;

// Queue loop, the watch of its ticket, and the measurement of beacons.
struct Game {
  fireteam::Client client;
  fireteam::Queueing queueing;
  fireteam::Beacons beacons;
  int udp = -1;
  fireteam::Stream watch;
  std::uint64_t watch_id = 0;
  std::string saved_path;
  Bytes body;
  bool has_ended = false;
};

// QueueEnterRequest { session_composition: { players: [PlayerData { user_id }], locality_info }, matchmaking_set_id }. The place is null if
// the game does not know it.
Bytes enter_request(const std::string& user_id, std::uint32_t set_id, const ft_place* place) {
  Bytes player, party, request;
  put_field(player, kUserId, bytes_of(user_id));
  put_field(party, kPlayers, player);
  if (place != nullptr) {
    Bytes locality;
    put_double(locality, kLatitude, place->latitude);
    put_double(locality, kLongitude, place->longitude);
    put_field(party, kLocality, locality);
  }
  put_field(request, kParty, party);
  put_number(request, kSetId, set_id);
  return request;
}

// Bytes of a file; empty if there is none.
Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Keeps the loop in a file that only this user can read: it contains the ticket's token.
void save(Game& game) {
  if (game.saved_path.empty()) return;
  Bytes saved;
  check("save", game.queueing.save(saved));
  const std::string written = game.saved_path + ".new";
  const int file = check_system("open the file", open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC, S_IRUSR | S_IWUSR));
  const auto length = write(file, saved.data(), saved.size());
  close(file);
  if (length != static_cast<ssize_t>(saved.size())) throw std::runtime_error("the file cannot be written");
  check_system("rename the file", std::rename(written.c_str(), game.saved_path.c_str()));
}

// Answer of the game server at `address`, such as 127.0.0.1:4000, to a credential; empty if there is none.
std::string present(const std::string& address, const Bytes& credential) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in server{};
  server.sin_family = AF_INET;
  if (colon == std::string::npos || inet_pton(AF_INET, address.substr(0, colon).c_str(), &server.sin_addr) != 1) return {};
  server.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  const int connection = check_system("socket", socket(AF_INET, SOCK_STREAM, 0));
  const timeval limit{5, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0) {
    const std::string line = support::text_of(credential) + "\n";
    char part[256];
    ssize_t length = send(connection, line.data(), line.size(), MSG_NOSIGNAL);
    while (length > 0 && answer.find('\n') == std::string::npos) {
      length = recv(connection, part, sizeof part, 0);
      if (length > 0) answer.append(part, static_cast<std::size_t>(length));
    }
  }
  close(connection);
  return answer.substr(0, answer.find('\n'));
}

// Connects to the match's game server. Returns whether the player is in.
bool connect_to_match(Game& game) {
  Bytes address, credential;
  if (game.queueing.connect_data(address) < 0 || game.queueing.credential(0, credential) < 0) return false;
  const std::string answer = present(support::text_of(address), credential);
  std::printf("game server: %s\n", answer.c_str());
  if (answer.rfind("admitted", 0) != 0) return false;
  // As one who has copied the credential would do.
  const std::string again = present(support::text_of(address), credential);
  std::printf("the same credential again: %s\n", again.c_str());
  if (again.rfind("refused", 0) != 0) throw std::runtime_error("the credential is good twice");
  return true;
}

// Carries out what the loop asks of the game, and returns the number of outcomes.
int play(Game& game) {
  ft_queue_outcome outcome{};
  Bytes data;
  int count = 0;
  for (std::int32_t length = 0; (length = game.queueing.poll_outcome(outcome, data)) != FT_NONE; ++count) {
    check("poll_outcome", length);
    if (outcome.kind == FT_QUEUE_OUTCOME_STATUS) {
      save(game);
      std::printf("ticket %s state %u\n", outcome.ticket_id, static_cast<unsigned>(outcome.ticket_state));
    } else if (outcome.kind == FT_QUEUE_OUTCOME_READY_CHECK) {
      std::printf("ready check %s, %u players\n", outcome.match_id, static_cast<unsigned>(outcome.player_count));
      check("respond", game.queueing.respond(outcome.match_id, true, now_us()));
    } else if (outcome.kind == FT_QUEUE_OUTCOME_CONNECT) {
      std::printf("connect %s team %u\n", outcome.match_id, static_cast<unsigned>(outcome.team));
      const bool is_in = connect_to_match(game);
      check("connect", is_in ? game.queueing.connected(now_us()) : game.queueing.connect_failed(now_us()));
    } else if (outcome.kind == FT_QUEUE_OUTCOME_ENDED) {
      std::printf("ended %u ticket %u %s %s\n", static_cast<unsigned>(outcome.end_reason),
                  static_cast<unsigned>(outcome.ticket_end_reason), outcome.reason, support::text_of(data).c_str());
      game.has_ended = true;
      if (!game.saved_path.empty()) std::remove(game.saved_path.c_str());
      if (outcome.end_reason != FT_QUEUE_END_TICKET) throw std::runtime_error("the ticket was not played to its end");
    }
  }
  return count;
}

// Makes the calls of the measurement, sends its packets, and passes on a new token. Returns the number of calls.
int drive_beacons(Game& game) {
  const int count = support::make_calls(game.beacons, game.client, game.body);
  support::send_datagrams(game.beacons, game.udp, [] {});
  support::pass_on_token(game.beacons, game.queueing);
  return count;
}

// Waits for a datagram of a beacon, and gives it to the measurement.
void wait_for_beacons(Game& game, int wait_ms) {
  std::uint8_t packet[2048];
  ft_address from{};
  const std::int32_t length = receive_datagram(game.udp, wait_ms, &from, packet, sizeof packet);
  if (length >= 0) {
    support::give_datagram(game.beacons, from, packet, length, now_us());
  } else {
    check("handle_timeout", game.beacons.handle_timeout(now_us()));
  }
}

// Measures beacons for the first token, within the time that a player may wait for it. A restored loop is started at once.
void measure_beacons(Game& game) {
  const std::uint64_t latest_us = now_us() + kFirstTokenUs;
  while (drive_beacons(game), game.beacons.state() != FT_BEACONS_RESTING && now_us() < latest_us) {
    wait_for_beacons(game, support::pause_ms(game.beacons, 100));
  }
}

// Whether the queue loop needs a latency token: its ticket is to be entered, or waits. Later, the measurement leaves the network to the game.
bool needs_token(const Game& game) {
  const std::int32_t state = game.queueing.state();
  return state == FT_QUEUEING_IDLE || state == FT_QUEUEING_ENTERING || state == FT_QUEUEING_WATCHING;
}

// Opens the watch that the loop wants.
void open_watch(Game& game) {
  ft_call call{};
  Bytes request;
  const std::int32_t length = game.queueing.poll_watch(call, request);
  if (length == FT_NONE) return;
  check("poll_watch", length);
  game.watch_id = call.id;
  check("open the watch", game.watch.open(game.client, call, request));
}

// Waits for a message of the watch until the loop needs its timeout, and gives it what came.
void wait_for_event(Game& game) {
  int pause_ms = support::pause_ms(game.queueing, kWaitMs);
  if (needs_token(game)) {
    pause_ms = support::pause_ms(game.beacons, pause_ms);
    // A beacon measures until its packet is answered. So the socket is waited for, and the watch only looked at.
    const bool is_measuring = game.beacons.state() == FT_BEACONS_MEASURING;
    wait_for_beacons(game, is_measuring ? pause_ms : 0);
    if (is_measuring) pause_ms = 0;
  }
  if (!game.watch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    check("handle_timeout", game.queueing.handle_timeout(now_us()));
    return;
  }
  Bytes message;
  const std::int32_t length = game.watch.next(static_cast<std::uint32_t>(pause_ms), message);
  if (length == FT_NONE) {
    check("handle_timeout", game.queueing.handle_timeout(now_us()));
  } else if (length == FT_STREAM_ENDED) {
    ft_answer end{};
    check("end of the watch", game.watch.end(game.body, end));
    std::printf("watch ended: %d\n", static_cast<int>(end.status));
    check("handle_watch_end", game.queueing.handle_watch_end(end, now_us()));
    game.watch.close();
  } else {
    check("next message", length);
    const std::int32_t result = game.queueing.handle_watch_message(game.watch_id, message, now_us());
    if (result != FT_ERROR_MALFORMED) check("handle_watch_message", result);
  }
}

void run(int count, char** arguments) {
  Game game;
  game.saved_path = count > 4 ? arguments[4] : "";
  ft_place given{};
  const ft_place* place = nullptr;
  if (count > 6) {
    given = {std::strtod(arguments[5], nullptr), std::strtod(arguments[6], nullptr)};
    place = &given;
  }
  std::uint8_t random[FT_QUEUEING_RANDOM_BYTES];
  support::fill_random(random);
  const Bytes saved = game.saved_path.empty() ? Bytes() : read_file(game.saved_path);
  if (saved.empty()) {
    const auto set_id = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10));
    check("open the loop", game.queueing.open(enter_request(arguments[3], set_id, place), random));
  } else {
    check("restore the loop", game.queueing.restore(saved, random));
    std::puts("restored");
  }
  game.client = support::open_client(arguments[1]);
  std::uint8_t beacons_random[FT_BEACONS_RANDOM_BYTES];
  support::fill_random(beacons_random);
  game.udp = check_system("socket", socket(AF_INET, SOCK_DGRAM, 0));
  check("open the measurement", place == nullptr ? game.beacons.open(beacons_random) : game.beacons.open(*place, beacons_random));
  check("start the measurement", game.beacons.start(now_us()));
  if (saved.empty()) measure_beacons(game);

  const std::uint64_t start_us = now_us();
  check("start", game.queueing.start(start_us));
  while (!game.has_ended) {
    if (now_us() - start_us > kTimeLimitUs) throw std::runtime_error("the loop did not end in time");
    // A call or an outcome may lead to others. Wait when there are none.
    int work = support::make_calls(game.queueing, game.client, game.body) + play(game);
    if (needs_token(game)) work += drive_beacons(game);
    open_watch(game);
    if (work == 0) wait_for_event(game);
  }
  close(game.udp);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "use: %s URI SET_ID USER_ID [SAVED [LATITUDE LONGITUDE]]\n", arguments[0]);
    return 2;
  }
  return support::run([&] { run(count, arguments); });
}
