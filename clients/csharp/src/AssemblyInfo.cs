using System.Reflection;

[assembly: AssemblyTitle("Fireteam")]
[assembly: AssemblyDescription("Client of the fireteam matchmaking server over its C library.")]
[assembly: AssemblyMetadata("License", "MIT OR Apache-2.0")]
[assembly: AssemblyVersion("0.2.0.0")]
