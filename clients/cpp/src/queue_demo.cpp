// Queue demo: plays a duel against a running server, as a game server with open seats and as two players in a queue.
// Prints `ok`, or one line with the failed check.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "demo_support.h"
#include "fireteam/v1/matchmaking.grpc.pb.h"
#include "fireteam/v1/queue.grpc.pb.h"

namespace {

namespace ft = fireteam::v1;

using demo::CheckFailed, demo::context, demo::expect, demo::expect_ok, demo::kMessagesMax, demo::random_key,
    demo::single_player;

// Connect data of the game server.
const char kConnectData[] = "203.0.113.7:9000";

// Advertised game server, which is assigned to matches. A real one opens a Connect stream and receives the match's
// reservation there.
class GameServer {
 public:
  GameServer(ft::MatchmakingService::Stub& stub, uint32_t set_id) : stub_(stub) {
    ft::MatchmakingUpdateAdvertisementRequest update;
    update.set_matchmaking_set_id(set_id);
    update.set_kind(ft::ADVERTISEMENT_KIND_GAME_SERVER);
    update.mutable_session_composition()->add_party_size_composition(1);
    update.mutable_session_composition()->set_max_allowed_join_reservation_count(2);
    update.set_connect_data(kConnectData);
    update.set_idempotency_key(random_key());
    const auto response = send(std::move(update));
    expect(response.created(), "the game server's advertisement is created");
  }

  // Waits until the match has taken seats, and confirms that this server hosts it. A real server sends such a heartbeat until
  // the match has ended.
  void confirm_match(ft::QueueService::Stub& queue, const std::string& match_id) {
    for (int i = 0; i < kMessagesMax; ++i) {
      ft::QueueHostHeartbeatRequest request;
      request.set_advertisement_token(token_);
      request.add_matches()->set_match_id(match_id);
      ft::QueueHostHeartbeatResponse response;
      expect_ok(queue.HostHeartbeat(context().get(), request, &response), "confirm the match");
      expect(response.matches_size() == 1, "the answer has the named match");
      if (response.matches(0).state() == ft::HOSTED_MATCH_STATE_PLAYING) {
        expect(response.matches(0).parties_size() == 2, "the game server hears of both players");
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    throw CheckFailed("the match takes seats of the game server");
  }

  // Confirms the match's reservation, which would expire otherwise.
  void confirm(int seats) {
    const auto response = send({});
    expect(response.reservations_size() == 1, "the match has one reservation");
    expect(response.reservations(0).seats() == static_cast<uint32_t>(seats), "the reservation has a seat per player");
    ft::MatchmakingUpdateAdvertisementRequest confirmation;
    confirmation.add_confirmed_reservation_ids(response.reservations(0).reservation_id());
    send(std::move(confirmation));
  }

  void delete_advertisement() {
    ft::MatchmakingDeleteAdvertisementRequest request;
    request.set_advertisement_id(id_);
    request.set_advertisement_token(token_);
    ft::MatchmakingDeleteAdvertisementResponse response;
    expect_ok(stub_.DeleteAdvertisement(context().get(), request, &response), "delete the game server's advertisement");
  }

  const std::string& id() const { return id_; }
  const std::string& token() const { return token_; }

 private:
  ft::MatchmakingUpdateAdvertisementResponse send(ft::MatchmakingUpdateAdvertisementRequest update) {
    if (!id_.empty()) update.set_advertisement_id(id_);
    if (!token_.empty()) update.set_advertisement_token(token_);
    ft::MatchmakingUpdateAdvertisementResponse response;
    expect_ok(stub_.UpdateAdvertisement(context().get(), update, &response), "update the game server's advertisement");
    id_ = response.advertisement_id();
    token_ = response.advertisement_token();
    return response;
  }

  ft::MatchmakingService::Stub& stub_;
  std::string id_;
  std::string token_;
};

// Ticket of a party of one, with the stream of its updates. The open stream keeps the ticket from expiring.
class Ticket {
 public:
  Ticket(ft::QueueService::Stub& stub, uint32_t set_id, const std::string& user_id) : stub_(stub), context_(context()) {
    ft::QueueEnterRequest request;
    *request.mutable_session_composition() = single_player(user_id, 25);
    request.set_matchmaking_set_id(set_id);
    request.set_idempotency_key(random_key());
    ft::QueueEnterResponse first, retried;
    expect_ok(stub_.Enter(context().get(), request, &first), "enter the queue");
    // Retry as after a lost response: the same idempotency key gives the same ticket.
    expect_ok(stub_.Enter(context().get(), request, &retried), "enter again with the same idempotency key");
    expect(retried.status().ticket_id() == first.status().ticket_id(), "the same idempotency key gives the same ticket");
    reference_.set_ticket_id(first.status().ticket_id());
    reference_.set_ticket_token(first.ticket_token());
    ft::QueueWatchRequest watch;
    *watch.add_tickets() = reference_;
    updates_ = stub_.Watch(context_.get(), watch);
  }

  // Reads updates until the ticket is in `state`.
  ft::TicketStatus wait_for(ft::TicketState state) {
    ft::QueueWatchResponse update;
    for (int i = 0; i < kMessagesMax; ++i) {
      if (!updates_->Read(&update)) {
        expect_ok(updates_->Finish(), "watch the ticket");
        throw CheckFailed("the ticket reaches " + ft::TicketState_Name(state) + "; its last state is " +
                          ft::TicketState_Name(last_state_));
      }
      last_state_ = update.status().state();
      if (last_state_ == state) return update.status();
    }
    throw CheckFailed("the ticket reaches " + ft::TicketState_Name(state) + " within " + std::to_string(kMessagesMax) +
                      " updates");
  }

  void accept(const std::string& match_id) {
    ft::QueueRespondRequest request;
    request.set_ticket_id(reference_.ticket_id());
    request.set_ticket_token(reference_.ticket_token());
    request.set_match_id(match_id);
    request.set_accept(true);
    ft::QueueRespondResponse response;
    expect_ok(stub_.Respond(context().get(), request, &response), "accept the match");
  }

  // Checks that the server closes the stream after the ticket has ended.
  void expect_stream_end() {
    ft::QueueWatchResponse update;
    expect(!updates_->Read(&update), "an ended ticket has no further update");
    expect_ok(updates_->Finish(), "close the stream");
  }

 private:
  ft::QueueService::Stub& stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  ft::TicketReference reference_;
  std::unique_ptr<grpc::ClientReader<ft::QueueWatchResponse>> updates_;
  ft::TicketState last_state_ = ft::TICKET_STATE_UNSPECIFIED;
};

void queue_demo(const std::string& target, uint32_t set_id) {
  auto channel = demo::connect(target);
  auto matchmaking = ft::MatchmakingService::NewStub(channel);
  auto queue = ft::QueueService::NewStub(channel);
  const std::string run_id = random_key().substr(0, 8);

  GameServer game_server(*matchmaking, set_id);
  Ticket ann(*queue, set_id, "ann-" + run_id), bob(*queue, set_id, "bob-" + run_id);
  const auto proposed = ann.wait_for(ft::TICKET_STATE_PROPOSED).found_match();
  expect(bob.wait_for(ft::TICKET_STATE_PROPOSED).found_match().match_id() == proposed.match_id(),
         "both tickets have the same match");
  expect(proposed.player_count() == 2, "a duel has two players");
  std::cout << "proposed match " << proposed.match_id() << "\n";

  ann.accept(proposed.match_id());
  bob.accept(proposed.match_id());
  game_server.confirm_match(*queue, proposed.match_id());
  const auto ann_match = ann.wait_for(ft::TICKET_STATE_MATCHED).found_match();
  const auto bob_match = bob.wait_for(ft::TICKET_STATE_MATCHED).found_match();
  const auto& assigned = ann_match.assignment().game_server();
  expect(assigned.connect_data() == kConnectData, "the assignment has the connect data of the game server");
  expect(assigned.advertisement_id() == game_server.id(), "the assignment has the id of the game server");
  expect(ann_match.team() != bob_match.team(), "opponents are in different teams");
  expect(ann_match.own_players_size() == 1 && !ann_match.own_players(0).credential().empty(),
         "a player has a credential for the game server");
  expect(ann_match.players_size() == 2, "the match lists both players");
  game_server.confirm(2);
  std::cout << "accepted, assigned to " << assigned.connect_data() << "\n";

  ft::QueueEndMatchRequest request;
  request.set_match_id(proposed.match_id());
  request.set_advertisement_token(game_server.token());
  ft::QueueEndMatchResponse response;
  expect_ok(queue->EndMatch(context().get(), request, &response), "end the match");
  expect(response.end_reason() == ft::MATCH_END_REASON_PLAYED, "the match ends as played");
  for (Ticket* ticket : {&ann, &bob}) {
    expect(ticket->wait_for(ft::TICKET_STATE_ENDED).end_reason() == ft::TICKET_END_REASON_PLAYED,
           "the ticket ends as played");
    ticket->expect_stream_end();
  }
  game_server.delete_advertisement();
}

}  // namespace

// Default set: the shipped duel that a game server hosts.
int main(int argc, char** argv) { return demo::run(argc, argv, 11, queue_demo); }
