// Queue loop of one party: enters, watches the ticket through outages, asks the game for its answers, and ends with the ticket.

using System;
using System.Diagnostics;
using System.Security.Cryptography;
using System.Text;
using System.Threading;

namespace Fireteam
{
    /// <summary>The game, as the loop asks it. All functions are called in the thread of QueueLoop.Run.</summary>
    public interface IQueueGame
    {
        /// <summary>The ticket has a new status.</summary>
        void Status(string ticketId, TicketState state);

        /// <summary>Whether the players accept the match.</summary>
        bool Accept(string matchId, uint playerCount);

        /// <summary>Connects to the match. Whether the players are in; false is asked again a second later, five times.</summary>
        bool Connect(string matchId, uint team);

        /// <summary>Plays the match. Returns the ranks of its teams where players report, null on a game server.</summary>
        TeamRank[] Play(string matchId, uint team);
    }

    /// <summary>Kind of an end: FT_QUEUE_END_*.</summary>
    public enum QueueEndKind
    {
        /// <summary>The ticket has ended, with TicketEndReason.</summary>
        Ticket = 1,
        /// <summary>QueueLoop.Cancel.</summary>
        Cancelled = 2,
        /// <summary>The ticket was not heard of for its TTL.</summary>
        Lost = 3,
        /// <summary>The game could not connect.</summary>
        CouldNotConnect = 4,
        /// <summary>A call has failed, with Status and Reason.</summary>
        Failed = 5,
    }

    /// <summary>End of a loop.</summary>
    public sealed class QueueEnd
    {
        /// <summary>The kind.</summary>
        public QueueEndKind Kind;
        /// <summary>Reason that the ticket ended.</summary>
        public TicketEndReason TicketEndReason;
        /// <summary>Code of the failed call.</summary>
        public StatusCode Status;
        /// <summary>Reason of the failed call, such as ALREADY_QUEUED.</summary>
        public string Reason;
        /// <summary>Message of the failed call, for people.</summary>
        public string Message;
    }

    /// <summary>Queue loop of one party.</summary>
    public sealed class QueueLoop : IDisposable
    {
        // Kinds of FT_QUEUE_OUTCOME_*.
        private const uint OutcomeStatus = 1;
        private const uint OutcomeReadyCheck = 2;
        private const uint OutcomeConnect = 3;

        /// <summary>Longest wait for the watch, milliseconds. A cancellation waits so long.</summary>
        private const uint WaitMs = 100;

        private readonly Client client;
        private readonly QueueingHandle queueing;
        private readonly NativeBuffer request = new NativeBuffer(Native.AnswerBytes);
        private readonly NativeBuffer body = new NativeBuffer(Native.AnswerBytes);
        private readonly Stopwatch clock = Stopwatch.StartNew();
        private StreamHandle watch;
        private ulong watchId;
        private volatile bool isCancelled;
        private QueueEnd end;

        /// <summary>Loop that waits for Run. `enterRequest` is a protobuf QueueEnterRequest without an idempotency key.</summary>
        public QueueLoop(Client client, byte[] enterRequest)
        {
            this.client = client;
            var random = new byte[Native.RandomBytes];
            using (var generator = RandomNumberGenerator.Create())
            {
                generator.GetBytes(random);
            }
            Client.Check(
                "ft_queueing_new",
                Native.ft_queueing_new(enterRequest, Length(enterRequest.Length), random, Length(random.Length), out queueing));
        }

        /// <summary>Leaves the queue or the match. Run ends within seconds. May be called by another thread.</summary>
        public void Cancel() { isCancelled = true; }

        /// <summary>Runs the loop until the ticket has ended. Call it once.</summary>
        public QueueEnd Run(IQueueGame game)
        {
            Client.Check("ft_queueing_start", Native.ft_queueing_start(queueing, NowUs()));
            var hasCancelled = false;
            while (end == null)
            {
                if (isCancelled && !hasCancelled)
                {
                    hasCancelled = true;
                    Client.Check("ft_queueing_cancel", Native.ft_queueing_cancel(queueing, NowUs()));
                }
                // A call or an outcome may lead to others. Wait when there are none.
                var work = MakeCalls() + TakeOutcomes(game);
                OpenWatch();
                if (work == 0 && end == null)
                {
                    WaitForEvent();
                }
            }
            return end;
        }

        /// <summary>Frees the loop. A ticket that has not ended expires.</summary>
        public void Dispose()
        {
            CloseWatch();
            queueing.Dispose();
            request.Dispose();
            body.Dispose();
        }

        private static UIntPtr Length(int length) { return (UIntPtr)(uint)length; }

        private ulong NowUs() { return (ulong)(clock.Elapsed.Ticks / 10); }

        private int MakeCalls()
        {
            NativeCall call;
            int length, count = 0;
            while ((length = Native.ft_queueing_poll_call(queueing, out call, request.Pointer, request.Capacity)) != Native.None)
            {
                Client.CheckFits("ft_queueing_poll_call", length, request);
                NativeAnswer answer;
                var made = Native.ft_client_call(
                    client.Handle, ref call, request.Pointer, Length(length), body.Pointer, body.Capacity, out answer);
                Client.Check("ft_client_call", made);
                CheckUnlessMalformed("ft_queueing_handle_answer", Native.ft_queueing_handle_answer(queueing, ref answer, NowUs()));
                count++;
            }
            return count;
        }

        private void OpenWatch()
        {
            NativeCall call;
            var length = Native.ft_queueing_poll_watch(queueing, out call, request.Pointer, request.Capacity);
            if (length == Native.None)
            {
                return;
            }
            Client.CheckFits("ft_queueing_poll_watch", length, request);
            CloseWatch();
            watchId = call.Id;
            Client.Check("ft_stream_new", Native.ft_stream_new(client.Handle, ref call, request.Pointer, Length(length), out watch));
        }

        private void CloseWatch()
        {
            if (watch != null)
            {
                watch.Dispose();
                watch = null;
            }
        }

        private int TakeOutcomes(IQueueGame game)
        {
            NativeOutcome outcome;
            int length, count = 0;
            while ((length = Native.ft_queueing_poll_outcome(queueing, out outcome, body.Pointer, body.Capacity)) != Native.None)
            {
                Client.CheckFits("ft_queueing_poll_outcome", length, body);
                Take(game, ref outcome, length);
                count++;
            }
            return count;
        }

        private void Take(IQueueGame game, ref NativeOutcome outcome, int length)
        {
            switch (outcome.Kind)
            {
                case OutcomeStatus:
                    game.Status(outcome.TicketId, (TicketState)outcome.TicketState);
                    break;
                case OutcomeReadyCheck:
                    var accept = (byte)(game.Accept(outcome.MatchId, outcome.PlayerCount) ? 1 : 0);
                    var matchId = Encoding.UTF8.GetBytes(outcome.MatchId + "\0");
                    Client.Check("ft_queueing_respond", Native.ft_queueing_respond(queueing, matchId, accept, NowUs()));
                    break;
                case OutcomeConnect:
                    Connect(game, ref outcome);
                    break;
                default:
                    end = new QueueEnd
                    {
                        Kind = (QueueEndKind)outcome.EndReason,
                        TicketEndReason = (TicketEndReason)outcome.TicketEndReason,
                        Status = (StatusCode)outcome.Status,
                        Reason = outcome.Reason,
                        Message = Encoding.UTF8.GetString(body.Copy(length)),
                    };
                    break;
            }
        }

        private void Connect(IQueueGame game, ref NativeOutcome outcome)
        {
            if (!game.Connect(outcome.MatchId, outcome.Team))
            {
                Client.Check("ft_queueing_connect_failed", Native.ft_queueing_connect_failed(queueing, NowUs()));
                return;
            }
            Client.Check("ft_queueing_connected", Native.ft_queueing_connected(queueing, NowUs()));
            var ranks = game.Play(outcome.MatchId, outcome.Team);
            if (ranks != null)
            {
                Client.Check("ft_queueing_report", Native.ft_queueing_report(queueing, ranks, Length(ranks.Length), NowUs()));
            }
        }

        /// <summary>Waits for a message of the watch until the loop needs its timeout, and gives it what came.</summary>
        private void WaitForEvent()
        {
            ulong atUs;
            var pauseMs = WaitMs;
            if (Native.ft_queueing_poll_timeout(queueing, out atUs) >= 0)
            {
                var now = NowUs();
                pauseMs = (uint)Math.Min(WaitMs, atUs <= now ? 0 : (atUs - now + 999) / 1000);
            }
            var length = Native.None;
            if (watch == null)
            {
                Thread.Sleep((int)pauseMs);
            }
            else
            {
                length = Native.ft_stream_next(watch, pauseMs, body.Pointer, body.Capacity);
            }
            if (length == Native.None)
            {
                Client.Check("ft_queueing_handle_timeout", Native.ft_queueing_handle_timeout(queueing, NowUs()));
            }
            else if (length == Native.StreamEnded)
            {
                NativeAnswer answer;
                Client.Check("ft_stream_end", Native.ft_stream_end(watch, body.Pointer, body.Capacity, out answer));
                Client.Check("ft_queueing_handle_watch_end", Native.ft_queueing_handle_watch_end(queueing, ref answer, NowUs()));
                CloseWatch();
            }
            else
            {
                Client.CheckFits("ft_stream_next", length, body);
                CheckUnlessMalformed(
                    "ft_queueing_handle_watch_message",
                    Native.ft_queueing_handle_watch_message(queueing, watchId, body.Pointer, Length(length), NowUs()));
            }
        }

        /// <summary>A message that cannot be read counts as failed in the loop, which goes on.</summary>
        private static void CheckUnlessMalformed(string function, int result)
        {
            if (result != Native.ErrorMalformed)
            {
                Client.Check(function, result);
            }
        }
    }
}
