// Plays a duel against a running server, from all three sides: a game server that offers seats, and two players who queue,
// watch, agree, and are told where to go. Ends with `ok`, or with one line that says what was not as expected.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "fireteam/v1/matchmaking.grpc.pb.h"
#include "fireteam/v1/queue.grpc.pb.h"
#include "step.h"

namespace {

namespace ft = fireteam::v1;

using demo::context, demo::expect, demo::expect_ok, demo::kMessagesMax, demo::random_key, demo::solo, demo::Unexpected;

// Where the game server says that it is.
const char kAddress[] = "203.0.113.7:9000";

// A game server: advertised, but found by matches alone. A real one keeps a Connect stream and hears there of the match.
class GameServer {
 public:
  GameServer(ft::Matchmaking::Stub& stub, uint32_t set_id) : stub_(stub) {
    ft::MatchmakingUpdateAdvertisementRequest update;
    update.set_matchmaking_set_id(set_id);
    update.set_kind(ft::ADVERTISEMENT_KIND_GAME_SERVER);
    update.mutable_session_composition()->add_party_size_composition(1);
    update.mutable_session_composition()->set_max_allowed_join_reservation_count(2);
    update.set_connect_data(kAddress);
    update.set_idempotency_key(random_key());
    const auto answer = send(std::move(update));
    expect(answer.created(), "a new game server is created");
  }

  // The match holds its seats like any party; they lapse unless the server says that it has seen it coming.
  void confirm(int seats) {
    const auto heard = send({});
    expect(heard.reservations_size() == 1, "one match has seats");
    expect(heard.reservations(0).seats() == static_cast<uint32_t>(seats), "as many as it has players");
    ft::MatchmakingUpdateAdvertisementRequest confirmation;
    confirmation.add_confirmed_reservation_ids(heard.reservations(0).reservation_id());
    send(std::move(confirmation));
  }

  void withdraw() {
    ft::MatchmakingDeleteAdvertisementRequest request;
    request.set_advertisement_id(id_);
    request.set_advertisement_token(token_);
    ft::MatchmakingDeleteAdvertisementResponse answer;
    expect_ok(stub_.DeleteAdvertisement(context().get(), request, &answer), "withdraw the game server");
  }

  const std::string& id() const { return id_; }
  const std::string& token() const { return token_; }

 private:
  ft::MatchmakingUpdateAdvertisementResponse send(ft::MatchmakingUpdateAdvertisementRequest update) {
    if (!id_.empty()) update.set_advertisement_id(id_);
    if (!token_.empty()) update.set_advertisement_token(token_);
    ft::MatchmakingUpdateAdvertisementResponse answer;
    expect_ok(stub_.UpdateAdvertisement(context().get(), update, &answer), "update the game server");
    id_ = answer.advertisement_id();
    token_ = answer.advertisement_token();
    return answer;
  }

  ft::Matchmaking::Stub& stub_;
  std::string id_;
  std::string token_;
};

// A party of one in a queue, with the stream on which it hears what becomes of it. The stream keeps its ticket alive.
class Queued {
 public:
  Queued(ft::Queue::Stub& stub, uint32_t set_id, const std::string& user_id) : stub_(stub), context_(context()) {
    ft::QueueEnterRequest request;
    *request.mutable_session_composition() = solo(user_id, 25);
    request.set_matchmaking_set_id(set_id);
    request.set_idempotency_key(random_key());
    ft::QueueEnterResponse entered, again;
    expect_ok(stub_.Enter(context().get(), request, &entered), "enter the queue");
    // As after a lost answer: the same key is the same ticket.
    expect_ok(stub_.Enter(context().get(), request, &again), "enter again with the same key");
    expect(again.status().ticket_id() == entered.status().ticket_id(), "the same key twice is the same ticket");
    ticket_.set_ticket_id(entered.status().ticket_id());
    ticket_.set_ticket_token(entered.ticket_token());
    ft::QueueWatchRequest watch;
    *watch.add_tickets() = ticket_;
    news_ = stub_.Watch(context_.get(), watch);
  }

  // Reads news until the ticket is in `state`.
  ft::TicketStatus until(ft::TicketState state) {
    ft::QueueWatchResponse news;
    for (int i = 0; i < kMessagesMax; ++i) {
      if (!news_->Read(&news)) {
        expect_ok(news_->Finish(), "watch the ticket");
        throw Unexpected("the ticket ends as " + ft::TicketState_Name(last_) + ", not " + ft::TicketState_Name(state));
      }
      last_ = news.status().state();
      if (last_ == state) return news.status();
    }
    throw Unexpected("the ticket is soon " + ft::TicketState_Name(state));
  }

  void accept(const std::string& match_id) {
    ft::QueueRespondRequest request;
    request.set_ticket_id(ticket_.ticket_id());
    request.set_ticket_token(ticket_.ticket_token());
    request.set_match_id(match_id);
    request.set_accept(true);
    ft::QueueRespondResponse answer;
    expect_ok(stub_.Respond(context().get(), request, &answer), "agree to the match");
  }

  // When the ticket is over, so is the stream.
  void leave() {
    ft::QueueWatchResponse news;
    expect(!news_->Read(&news), "nothing is heard of a ticket that is over");
    expect_ok(news_->Finish(), "the stream ends well");
  }

 private:
  ft::Queue::Stub& stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  ft::TicketReference ticket_;
  std::unique_ptr<grpc::ClientReader<ft::QueueWatchResponse>> news_;
  ft::TicketState last_ = ft::TICKET_STATE_UNSPECIFIED;
};

void play(const std::string& target, uint32_t set_id) {
  auto channel = demo::connect(target);
  auto sessions = ft::Matchmaking::NewStub(channel);
  auto queues = ft::Queue::NewStub(channel);
  const std::string run = random_key().substr(0, 8);

  GameServer server(*sessions, set_id);
  Queued ann(*queues, set_id, "ann-" + run), bob(*queues, set_id, "bob-" + run);
  const auto proposed = ann.until(ft::TICKET_STATE_PROPOSED).match();
  expect(bob.until(ft::TICKET_STATE_PROPOSED).match().match_id() == proposed.match_id(), "both are asked about one match");
  expect(proposed.players() == 2, "a duel has two players");
  std::cout << "proposed " << proposed.match_id() << "\n";

  ann.accept(proposed.match_id());
  bob.accept(proposed.match_id());
  const auto here = ann.until(ft::TICKET_STATE_MATCHED).match(), there = bob.until(ft::TICKET_STATE_MATCHED).match();
  expect(here.place().server().connect_data() == kAddress, "a match says where it is played");
  expect(here.place().server().advertisement_id() == server.id(), "and by which game server");
  expect(here.team() != there.team(), "opponents are in two teams");
  expect(here.seats_size() == 1 && !here.seats(0).credential().empty(), "a player has something to show the game server");
  expect(here.everybody_size() == 2, "and knows whom to expect");
  server.confirm(2);
  std::cout << "agreed, placed at " << here.place().server().connect_data() << "\n";

  ft::QueueEndMatchRequest end;
  end.set_match_id(proposed.match_id());
  end.set_advertisement_token(server.token());
  ft::QueueEndMatchResponse ended;
  expect_ok(queues->EndMatch(context().get(), end, &ended), "end the match");
  expect(ended.outcome() == ft::MATCH_END_REASON_PLAYED, "it was played");
  for (Queued* one : {&ann, &bob}) {
    expect(one->until(ft::TICKET_STATE_ENDED).ending() == ft::TICKET_END_REASON_PLAYED, "and so the ticket is over");
    one->leave();
  }
  server.withdraw();
}

}  // namespace

// By default the shipped duel that a game server hosts.
int main(int argc, char** argv) { return demo::run(argc, argv, 11, play); }
