// The server's program as a child process: FIRETEAM_SERVER is its path.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Text for tests that need the server and do not have it. */
export const SKIPPED: string | false =
  process.env.FIRETEAM_SERVER === undefined && "SKIPPED: FIRETEAM_SERVER is not set to the path of the server's program";

/** Longest time until a server serves, also on a busy machine. */
const START_TIMEOUT_MS = 60_000;

/** Shipped rulesets, from build/test. */
const RULESETS = fileURLToPath(new URL("../../../../rulesets", import.meta.url));

/** A running server, with its store in a temporary folder. */
export class ServerProcess {
  private process: ChildProcess | undefined;
  private ports: readonly [string, string] = ["127.0.0.1:0", "127.0.0.1:0"];

  private constructor(
    private readonly folder: string,
    private readonly settings: readonly string[],
  ) {}

  /** Starts a server on free ports with these settings, and with the shipped rulesets if they name no others. */
  static async start(...settings: string[]): Promise<ServerProcess> {
    const server = new ServerProcess(await mkdtemp(join(tmpdir(), "fireteam-")), settings);
    await server.startAgain();
    return server;
  }

  /** Address of the client port. */
  get uri(): string {
    return `http://${this.ports[0]}`;
  }

  /** Starts a killed server on the same store and ports. */
  async startAgain(): Promise<void> {
    const [listen, operatorListen] = this.ports;
    const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("FIRETEAM_"));
    const arguments_ = ["serve", "--listen", listen, "--operator-listen", operatorListen];
    if (!this.settings.includes("--rulesets")) {
      arguments_.push("--rulesets", RULESETS);
    }
    arguments_.push("--token-key-file", "token-key", "--match-key-file", "match-key.pem", ...this.settings);
    const child = spawn(process.env.FIRETEAM_SERVER ?? "", arguments_, {
      cwd: this.folder,
      env: Object.fromEntries(settings),
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.process = child;
    this.ports = await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("the server did not start in time")), START_TIMEOUT_MS);
      child.on("exit", () => reject(new Error("the server ended before it served")));
      child.on("error", reject);
      createInterface({ input: child.stderr }).on("line", (line) => {
        const [, client, operator] = /server started.* listen=(\S+).* operator_listen=(\S+)/.exec(line) ?? [];
        if (client !== undefined && operator !== undefined) {
          clearTimeout(timer);
          resolve([client, operator]);
        }
      });
    });
  }

  /** Ends the process as a crash does. */
  async kill(): Promise<void> {
    const child = this.process;
    this.process = undefined;
    if (child !== undefined && child.exitCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
  }

  /** Kills the server and removes its store. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}
