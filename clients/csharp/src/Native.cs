// Functions and structures of clients/c/include/fireteam.h that the queue loop needs, for P/Invoke. The header has units, ranges and rules.

using System;
using System.Runtime.InteropServices;

namespace Fireteam
{
    /// <summary>Call or watch to make now.</summary>
    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeCall
    {
        public ulong Id;
        public IntPtr Path;
        public uint TimeoutMs;
    }

    /// <summary>Answer to a call, or end of a stream.</summary>
    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeAnswer
    {
        public ulong CallId;
        public long RetryAfterMs;
        public IntPtr Reason;
        public IntPtr Body;
        public UIntPtr BodyLength;
        public int Status;
    }

    /// <summary>Rank of a team.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct TeamRank
    {
        /// <summary>Team, from 0.</summary>
        public uint Team;
        /// <summary>1 is the best; equal ranks are a draw.</summary>
        public int Rank;
    }

    /// <summary>Request of the loop to the game, or news for it.</summary>
    [StructLayout(LayoutKind.Sequential, CharSet = CharSet.Ansi)]
    internal struct NativeOutcome
    {
        public long DeadlineMs;
        public uint Kind;
        public uint TicketState;
        public uint EndReason;
        public uint TicketEndReason;
        public int Status;
        public uint Team;
        public uint PlayerCount;
        public uint AcceptedCount;
        public uint OwnPlayerCount;
        public uint Host;
        public byte IsOwnHost;
        [MarshalAs(UnmanagedType.ByValTStr, SizeConst = 64)]
        public string TicketId;
        [MarshalAs(UnmanagedType.ByValTStr, SizeConst = 64)]
        public string MatchId;
        [MarshalAs(UnmanagedType.ByValTStr, SizeConst = 64)]
        public string HostId;
        [MarshalAs(UnmanagedType.ByValTStr, SizeConst = 64)]
        public string Reason;
    }

    /// <summary>Settings of a client.</summary>
    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeClientOptions
    {
        public IntPtr Uri;
        public IntPtr CaCertificates;
        public UIntPtr CaCertificatesLength;
        public IntPtr ServerName;
        public IntPtr Token;
    }

    /// <summary>Object of the library, freed once.</summary>
    internal abstract class NativeHandle : SafeHandle
    {
        protected NativeHandle() : base(IntPtr.Zero, true) { }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
    }

    internal sealed class ClientHandle : NativeHandle
    {
        protected override bool ReleaseHandle() { return Native.ft_client_free(handle) >= 0; }
    }

    internal sealed class QueueingHandle : NativeHandle
    {
        protected override bool ReleaseHandle() { return Native.ft_queueing_free(handle) >= 0; }
    }

    internal sealed class StreamHandle : NativeHandle
    {
        protected override bool ReleaseHandle() { return Native.ft_stream_free(handle) >= 0; }
    }

    /// <summary>The functions. A negative result is a constant below, or a failure.</summary>
    internal static class Native
    {
        /// <summary>libfireteam_c.so, fireteam_c.dll or libfireteam_c.dylib, where the loader finds it.</summary>
        private const string Library = "fireteam_c";

        public const int InterfaceVersion = 1;
        public const int None = -1;
        public const int ErrorMalformed = -6;
        public const int StreamEnded = -10;
        public const int RandomBytes = 32;
        public const int AnswerBytes = 2097152;

        [DllImport(Library)]
        public static extern int ft_interface_version();

        [DllImport(Library)]
        public static extern IntPtr ft_result_text(int result);

        [DllImport(Library)]
        public static extern int ft_client_new(ref NativeClientOptions options, out ClientHandle client);

        [DllImport(Library)]
        public static extern int ft_client_free(IntPtr client);

        [DllImport(Library)]
        public static extern int ft_client_call(
            ClientHandle client, ref NativeCall call, IntPtr request, UIntPtr requestLength, IntPtr buffer, UIntPtr capacity, out NativeAnswer answer);

        [DllImport(Library)]
        public static extern int ft_stream_new(
            ClientHandle client, ref NativeCall call, IntPtr request, UIntPtr requestLength, out StreamHandle stream);

        [DllImport(Library)]
        public static extern int ft_stream_free(IntPtr stream);

        [DllImport(Library)]
        public static extern int ft_stream_next(StreamHandle stream, uint waitMs, IntPtr buffer, UIntPtr capacity);

        [DllImport(Library)]
        public static extern int ft_stream_end(StreamHandle stream, IntPtr buffer, UIntPtr capacity, out NativeAnswer end);

        [DllImport(Library)]
        public static extern int ft_queueing_new(
            byte[] request, UIntPtr requestLength, byte[] random, UIntPtr randomLength, out QueueingHandle queueing);

        [DllImport(Library)]
        public static extern int ft_queueing_free(IntPtr queueing);

        [DllImport(Library)]
        public static extern int ft_queueing_start(QueueingHandle queueing, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_cancel(QueueingHandle queueing, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_handle_answer(QueueingHandle queueing, ref NativeAnswer answer, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_handle_watch_message(
            QueueingHandle queueing, ulong watchId, IntPtr message, UIntPtr messageLength, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_handle_watch_end(QueueingHandle queueing, ref NativeAnswer end, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_handle_timeout(QueueingHandle queueing, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_respond(QueueingHandle queueing, byte[] matchId, byte accept, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_connected(QueueingHandle queueing, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_connect_failed(QueueingHandle queueing, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_report(QueueingHandle queueing, TeamRank[] ranks, UIntPtr rankCount, ulong nowUs);

        [DllImport(Library)]
        public static extern int ft_queueing_poll_call(QueueingHandle queueing, out NativeCall call, IntPtr buffer, UIntPtr capacity);

        [DllImport(Library)]
        public static extern int ft_queueing_poll_watch(QueueingHandle queueing, out NativeCall watch, IntPtr buffer, UIntPtr capacity);

        [DllImport(Library)]
        public static extern int ft_queueing_poll_timeout(QueueingHandle queueing, out ulong atUs);

        [DllImport(Library)]
        public static extern int ft_queueing_poll_outcome(
            QueueingHandle queueing, out NativeOutcome outcome, IntPtr buffer, UIntPtr capacity);
    }
}
