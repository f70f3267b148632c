// Connection to a server: single calls, and the buffers that the library fills.

using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Fireteam
{
    /// <summary>A function of the library, or a call, has failed.</summary>
    public sealed class FireteamException : Exception
    {
        /// <summary>Code of the failed call; Ok if a function of the library failed.</summary>
        public StatusCode Status { get; private set; }

        /// <summary>Reason of the server, such as ALREADY_QUEUED. Empty if it gave none.</summary>
        public string Reason { get; private set; }

        internal FireteamException(string message, StatusCode status = StatusCode.Ok, string reason = "") : base(message)
        {
            Status = status;
            Reason = reason;
        }
    }

    /// <summary>Memory that the library writes into, at one place until it is freed.</summary>
    internal sealed class NativeBuffer : IDisposable
    {
        public readonly IntPtr Pointer;
        public readonly UIntPtr Capacity;

        public NativeBuffer(int capacity)
        {
            Pointer = Marshal.AllocHGlobal(capacity);
            Capacity = (UIntPtr)(uint)capacity;
        }

        public byte[] Copy(int length)
        {
            var bytes = new byte[length];
            Marshal.Copy(Pointer, bytes, 0, length);
            return bytes;
        }

        public void Dispose() { Marshal.FreeHGlobal(Pointer); }
    }

    /// <summary>Client of a server. Several threads may use it.</summary>
    public sealed class Client : IDisposable
    {
        /// <summary>Deadline of a single call, milliseconds.</summary>
        private const uint TimeoutMs = 5000;

        internal readonly ClientHandle Handle;

        /// <summary>Client of the server at `uri`, such as http://127.0.0.1:50051. It connects with the first call.</summary>
        /// <param name="uri">http://… or https://…</param>
        /// <param name="token">Token of the caller; null for none.</param>
        /// <param name="caCertificates">CA certificates of the server, PEM; required for https.</param>
        public Client(string uri, string token = null, byte[] caCertificates = null)
        {
            if (Native.ft_interface_version() != Native.InterfaceVersion)
            {
                throw new FireteamException("the library has another interface version; use one of the same release");
            }
            var certificates = caCertificates ?? new byte[0];
            using (NativeBuffer uriText = Text(uri), tokenText = Text(token ?? ""), pem = new NativeBuffer(certificates.Length + 1))
            {
                Marshal.Copy(certificates, 0, pem.Pointer, certificates.Length);
                var options = new NativeClientOptions
                {
                    Uri = uriText.Pointer,
                    Token = string.IsNullOrEmpty(token) ? IntPtr.Zero : tokenText.Pointer,
                    CaCertificates = pem.Pointer,
                    CaCertificatesLength = (UIntPtr)(uint)certificates.Length,
                };
                Check("ft_client_new", Native.ft_client_new(ref options, out Handle));
            }
        }

        /// <summary>Makes one call, such as /fireteam.v1.RatingService/GetRatings, with protobuf messages.</summary>
        public byte[] Call(string path, byte[] request)
        {
            using (NativeBuffer pathText = Text(path), message = Bytes(request), body = new NativeBuffer(Native.AnswerBytes))
            {
                var call = new NativeCall { Path = pathText.Pointer, TimeoutMs = TimeoutMs };
                NativeAnswer answer;
                var length = Native.ft_client_call(
                    Handle, ref call, message.Pointer, (UIntPtr)(uint)request.Length, body.Pointer, body.Capacity, out answer);
                Check("ft_client_call", length);
                if (answer.Status != 0)
                {
                    var reason = Wire.Reason(body.Copy(length));
                    var status = (StatusCode)answer.Status;
                    throw new FireteamException(path + " failed: " + status + " " + reason, status, reason);
                }
                return body.Copy(length);
            }
        }

        /// <summary>Closes the connection. No loop may use it.</summary>
        public void Dispose() { Handle.Dispose(); }

        /// <summary>Result of a function that has to succeed.</summary>
        internal static int Check(string function, int result)
        {
            if (result < 0)
            {
                throw new FireteamException(function + " failed: " + Marshal.PtrToStringAnsi(Native.ft_result_text(result)));
            }
            return result;
        }

        /// <summary>Bytes that a function has written into a buffer.</summary>
        internal static int CheckFits(string function, int result, NativeBuffer buffer)
        {
            if ((uint)buffer.Capacity < (uint)Check(function, result))
            {
                throw new FireteamException(function + " failed: " + result + " bytes are more than a message may have");
            }
            return result;
        }

        /// <summary>Text as the library reads it, with a zero byte at its end.</summary>
        internal static NativeBuffer Text(string text) { return Bytes(Encoding.UTF8.GetBytes(text + "\0")); }

        private static NativeBuffer Bytes(byte[] bytes)
        {
            var buffer = new NativeBuffer(Math.Max(bytes.Length, 1));
            Marshal.Copy(bytes, 0, buffer.Pointer, bytes.Length);
            return buffer;
        }
    }
}
