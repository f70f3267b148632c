// Tests of the client against a server that runs. Prints a line for each, and fails with the first that fails.
//
//   mono ClientTests.exe http://127.0.0.1:50051 SIZES…
//
// SIZES are those of the structures in C, in the order of STRUCTURES: an `sizeof` each.

using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;
using Fireteam;

/// <summary>The tests.</summary>
public static class ClientTests
{
    private const uint SetId = 3;

    private static readonly Type[] Structures =
    {
        typeof(NativeCall), typeof(NativeAnswer), typeof(TeamRank), typeof(NativeOutcome), typeof(NativeClientOptions),
    };

    /// <summary>Runs all tests.</summary>
    public static int Main(string[] arguments)
    {
        try
        {
            StructuresHaveTheirSizesInC(arguments);
            using (var client = new Client(arguments[0]))
            {
                FailedCallHasStatusAndReason(client);
                InvalidPathAndRequestAreRefused(client);
                CancelledLoopLeavesTheQueue(client);
                SecondTicketOfAPlayerEndsWithTheReason(client);
            }
            UnreachableServerIsUnavailable();
            ClosedClientIsRefused(arguments[0]);
            return 0;
        }
        catch (Exception error)
        {
            Console.Error.WriteLine("failed: " + error);
            return 1;
        }
    }

    private static void StructuresHaveTheirSizesInC(string[] arguments)
    {
        for (var at = 0; at < Structures.Length; at++)
        {
            AssertEqual(int.Parse(arguments[at + 1]), Marshal.SizeOf(Structures[at]), "size of " + Structures[at].Name);
        }
        Passed("structures have their sizes in C");
    }

    private static void FailedCallHasStatusAndReason(Client client)
    {
        var error = Failure(() => client.Call("/fireteam.v1.RatingService/GetRatings", Wire.RatingsRequest(999, "ann")));
        AssertEqual(StatusCode.NotFound, error.Status, "status");
        AssertEqual("UNKNOWN_MATCHMAKING_SET", error.Reason, "reason");
        Passed("a failed call has its status and reason");
    }

    private static void InvalidPathAndRequestAreRefused(Client client)
    {
        AssertEqual(StatusCode.Unimplemented, Failure(() => client.Call("/fireteam.v1.RatingService/Guess", new byte[0])).Status, "path");
        AssertEqual(StatusCode.InvalidArgument, Failure(() => client.Call("/fireteam.v1.RatingService/GetRatings", new byte[] { 255 })).Status, "request");
        Passed("an invalid path and an invalid request are refused");
    }

    private static void UnreachableServerIsUnavailable()
    {
        // Port 1 of this machine has no server.
        using (var client = new Client("http://127.0.0.1:1"))
        {
            var error = Failure(() => client.Call("/fireteam.v1.RatingService/GetRatings", new byte[0]));
            AssertEqual(StatusCode.Unavailable, error.Status, "status");
        }
        Passed("a server that cannot be reached is Unavailable");
    }

    private static void ClosedClientIsRefused(string uri)
    {
        var client = new Client(uri);
        client.Dispose();
        client.Dispose();
        try
        {
            client.Call("/fireteam.v1.RatingService/GetRatings", new byte[0]);
        }
        catch (ObjectDisposedException)
        {
            Passed("a closed client is refused, and is closed once");
            return;
        }
        throw new InvalidOperationException("a closed client has made a call");
    }

    private static void CancelledLoopLeavesTheQueue(Client client)
    {
        using (var loop = new QueueLoop(client, Wire.EnterRequest(SetId, "leaver-" + Guid.NewGuid().ToString("N"))))
        {
            var game = new WatchingGame(state =>
            {
                if (state == TicketState.Waiting)
                {
                    loop.Cancel();
                }
            });
            AssertEqual(QueueEndKind.Cancelled, loop.Run(game).Kind, "end");
            AssertEqual(TicketState.Waiting, game.States[0], "first state");
        }
        Passed("a cancelled loop leaves the queue");
    }

    private static void SecondTicketOfAPlayerEndsWithTheReason(Client client)
    {
        var user = "twice-" + Guid.NewGuid().ToString("N");
        using (var first = new QueueLoop(client, Wire.EnterRequest(SetId, user)))
        {
            var waits = new ManualResetEvent(false);
            var game = new WatchingGame(state => waits.Set());
            var thread = new Thread(() => first.Run(game)) { IsBackground = true };
            thread.Start();
            if (!waits.WaitOne(30000))
            {
                throw new TimeoutException("the first ticket does not wait");
            }
            using (var second = new QueueLoop(client, Wire.EnterRequest(SetId, user)))
            {
                var end = second.Run(new WatchingGame(state => { }));
                AssertEqual(QueueEndKind.Failed, end.Kind, "end");
                AssertEqual("ALREADY_QUEUED", end.Reason, "reason");
                AssertEqual(true, end.Message.Length > 0, "has a message");
            }
            first.Cancel();
            AssertEqual(true, thread.Join(30000), "the first loop ends");
        }
        Passed("a second ticket of a player ends with the reason");
    }

    private static FireteamException Failure(Func<byte[]> call)
    {
        try
        {
            call();
        }
        catch (FireteamException error)
        {
            return error;
        }
        throw new InvalidOperationException("the call has not failed");
    }

    private static void AssertEqual<T>(T expected, T found, string name)
    {
        if (!EqualityComparer<T>.Default.Equals(expected, found))
        {
            throw new InvalidOperationException(name + ": expected " + expected + ", found " + found);
        }
    }

    private static void Passed(string name) { Console.WriteLine("passed: " + name); }

    /// <summary>A game that only watches its ticket.</summary>
    private sealed class WatchingGame : IQueueGame
    {
        public readonly List<TicketState> States = new List<TicketState>();
        private readonly Action<TicketState> watch;

        public WatchingGame(Action<TicketState> watch) { this.watch = watch; }

        public void Status(string ticketId, TicketState state)
        {
            States.Add(state);
            watch(state);
        }

        public bool Accept(string matchId, uint playerCount) { return false; }

        public bool Connect(string matchId, uint team) { return false; }

        public TeamRank[] Play(string matchId, uint team) { return null; }
    }
}
