// Plays a match against a running server as two players in its queue, and reports the result. Prints each step, and `ok` at the end, or one
// line with the failure.
//
//   mono Duel.exe http://127.0.0.1:50051 3
//
// Set 3 is the shipped ranked duel: a ready check, no game server, and a report from both players, which a server without authentication takes.

using System;
using System.Threading;
using Fireteam;

/// <summary>The sample.</summary>
public static class Duel
{
    /// <summary>Longest wait for a player, milliseconds.</summary>
    private const int TimeoutMs = 60000;

    /// <summary>Plays the duel.</summary>
    public static int Main(string[] arguments)
    {
        var uri = arguments.Length > 0 ? arguments[0] : "http://127.0.0.1:50051";
        var setId = arguments.Length > 1 ? uint.Parse(arguments[1]) : 3;
        try
        {
            using (var client = new Client(uri, Environment.GetEnvironmentVariable("FIRETEAM_TOKEN")))
            {
                Play(client, setId);
            }
            Console.WriteLine("ok");
            return 0;
        }
        catch (Exception error)
        {
            Console.Error.WriteLine("failed: " + error.Message);
            return 1;
        }
    }

    private static void Play(Client client, uint setId)
    {
        var run = Guid.NewGuid().ToString("N").Substring(0, 8);
        var joined = new CountdownEvent(2);
        var players = new[] { new Player(client, setId, "ann-" + run, joined), new Player(client, setId, "bob-" + run, joined) };
        var before = new[] { players[0].Rating(), players[1].Rating() };
        foreach (var player in players)
        {
            player.Start();
        }
        for (var at = 0; at < players.Length; at++)
        {
            var player = players[at];
            player.WaitUntilPlayed(TimeoutMs);
            var after = player.Rating();
            Console.WriteLine("{0}: rating {1:F2}, then {2:F2}", player.UserId, before[at], after);
            if (after == before[at] || player.HasWon != (after > before[at]))
            {
                throw new InvalidOperationException("the winner's rating must rise, and the other's must fall");
            }
        }
    }

    /// <summary>One player's game, in a thread of its own.</summary>
    private sealed class Player : IQueueGame
    {
        public readonly string UserId;
        private readonly Client client;
        private readonly uint setId;
        private readonly CountdownEvent joined;
        private readonly Thread thread;
        private QueueEnd end;
        private Exception failure;

        public bool HasWon { get; private set; }

        public Player(Client client, uint setId, string userId, CountdownEvent joined)
        {
            this.client = client;
            this.setId = setId;
            UserId = userId;
            this.joined = joined;
            thread = new Thread(RunLoop) { IsBackground = true };
        }

        public void Start() { thread.Start(); }

        public double Rating()
        {
            return Wire.Rating(client.Call("/fireteam.v1.RatingService/GetRatings", Wire.RatingsRequest(setId, UserId)));
        }

        /// <summary>Waits for the end of the player's ticket.</summary>
        public void WaitUntilPlayed(int timeoutMs)
        {
            if (!thread.Join(timeoutMs))
            {
                throw new TimeoutException(UserId + ": the duel was not played in time");
            }
            if (failure != null)
            {
                throw failure;
            }
            if (end.Kind != QueueEndKind.Ticket || end.TicketEndReason != TicketEndReason.Played)
            {
                throw new InvalidOperationException(UserId + ": ended as " + end.Kind + " " + end.Reason + " " + end.Message);
            }
        }

        private void RunLoop()
        {
            try
            {
                using (var loop = new QueueLoop(client, Wire.EnterRequest(setId, UserId)))
                {
                    end = loop.Run(this);
                }
            }
            catch (Exception error)
            {
                failure = error;
            }
        }

        public void Status(string ticketId, TicketState state) { Console.WriteLine("{0}: {1}", UserId, state); }

        public bool Accept(string matchId, uint playerCount)
        {
            Console.WriteLine("{0}: accepted", UserId);
            return true;
        }

        public bool Connect(string matchId, uint team)
        {
            Console.WriteLine("{0}: joins team {1}", UserId, team);
            // Here players meet by a counter; in a game, over the network.
            joined.Signal();
            return joined.Wait(TimeoutMs);
        }

        public TeamRank[] Play(string matchId, uint team)
        {
            HasWon = team == 0;
            return new[] { new TeamRank { Team = 0, Rank = 1 }, new TeamRank { Team = 1, Rank = 2 } };
        }
    }
}
