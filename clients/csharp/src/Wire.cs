// Protobuf messages by hand, as far as the sample needs them. A game generates its messages with protoc.

using System;
using System.Collections.Generic;
using System.IO;
using System.Text;

namespace Fireteam
{
    /// <summary>Writer and reader of protobuf fields.</summary>
    public static class Wire
    {
        private const int Varint = 0;
        private const int Fixed64 = 1;
        private const int Bytes = 2;

        /// <summary>QueueEnterRequest of a party of one.</summary>
        public static byte[] EnterRequest(uint setId, string userId)
        {
            var player = Field(1, Encoding.UTF8.GetBytes(userId));
            var party = Field(8, player);
            return Join(Field(1, party), Field(2, setId));
        }

        /// <summary>GetRatingsRequest.</summary>
        public static byte[] RatingsRequest(uint setId, string userId)
        {
            return Join(Field(1, setId), Field(2, Encoding.UTF8.GetBytes(userId)));
        }

        /// <summary>Rating of the first user of a GetRatingsResponse.</summary>
        public static double Rating(byte[] response)
        {
            var user = Find(response, 1) as byte[];
            var value = user == null ? null : Find(user, 3) as byte[];
            var rating = value == null ? null : Find(value, 1);
            return rating == null ? 0 : BitConverter.Int64BitsToDouble((long)(ulong)rating);
        }

        /// <summary>ErrorInfo.reason in a google.rpc.Status; empty if it has none.</summary>
        public static string Reason(byte[] status)
        {
            foreach (var field in Read(status))
            {
                var detail = field.Key == 3 ? field.Value as byte[] : null;
                var type = detail == null ? null : Find(detail, 1) as byte[];
                if (type != null && Encoding.UTF8.GetString(type).EndsWith("google.rpc.ErrorInfo"))
                {
                    var info = Find(detail, 2) as byte[];
                    var reason = info == null ? null : Find(info, 1) as byte[];
                    return reason == null ? "" : Encoding.UTF8.GetString(reason);
                }
            }
            return "";
        }

        private static byte[] Field(int number, byte[] content)
        {
            return Join(Number((ulong)(number << 3 | Bytes)), Number((ulong)content.Length), content);
        }

        private static byte[] Field(int number, uint value) { return Join(Number((ulong)(number << 3 | Varint)), Number(value)); }

        private static byte[] Number(ulong value)
        {
            var bytes = new List<byte>();
            for (; value > 127; value >>= 7)
            {
                bytes.Add((byte)(value & 127 | 128));
            }
            bytes.Add((byte)value);
            return bytes.ToArray();
        }

        private static byte[] Join(params byte[][] parts)
        {
            var joined = new MemoryStream();
            foreach (var part in parts)
            {
                joined.Write(part, 0, part.Length);
            }
            return joined.ToArray();
        }

        /// <summary>First field with a number: bytes, or a number; null if there is none.</summary>
        private static object Find(byte[] message, int number)
        {
            foreach (var field in Read(message))
            {
                if (field.Key == number)
                {
                    return field.Value;
                }
            }
            return null;
        }

        /// <summary>Fields of a message: numbers of any width as ulong, texts, bytes and messages as byte[].</summary>
        private static IEnumerable<KeyValuePair<int, object>> Read(byte[] message)
        {
            var reader = new BinaryReader(new MemoryStream(message));
            while (reader.BaseStream.Position < message.Length)
            {
                var tag = ReadNumber(reader);
                object value;
                switch ((int)(tag & 7))
                {
                    case Varint:
                        value = ReadNumber(reader);
                        break;
                    case Fixed64:
                        value = reader.ReadUInt64();
                        break;
                    case Bytes:
                        value = reader.ReadBytes((int)ReadNumber(reader));
                        break;
                    default:
                        value = (ulong)reader.ReadUInt32();
                        break;
                }
                yield return new KeyValuePair<int, object>((int)(tag >> 3), value);
            }
        }

        private static ulong ReadNumber(BinaryReader reader)
        {
            ulong value = 0;
            for (var shift = 0; shift < 64; shift += 7)
            {
                var part = reader.ReadByte();
                value |= (ulong)(part & 127) << shift;
                if (part < 128)
                {
                    return value;
                }
            }
            throw new FireteamException("a number of a message is too long");
        }
    }
}
