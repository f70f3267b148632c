// The server's program as a child process: FIRETEAM_SERVER is its path.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Text for tests that need the server and do not have it. */
export const SKIPPED =
  process.env.FIRETEAM_SERVER === undefined && "SKIPPED: FIRETEAM_SERVER is not set to the path of the server's program";

/** Longest time until a server serves, also on a busy machine. */
const START_TIMEOUT_MS = 60_000;

/** A running server with these ruleset files, and its store in a temporary folder. */
export class ServerProcess {
  constructor(folder, child, ports) {
    this.folder = folder;
    this.child = child;
    [this.client, this.operator] = ports.map((port) => `http://${port}`);
  }

  /** Starts a server on free ports. `files` are texts by file name; `more` are further settings. */
  static async start(files, more = []) {
    const folder = await mkdtemp(join(tmpdir(), "fireteam-console-"));
    const rules = join(folder, "rules");
    await cp(new URL("rules/", import.meta.url), rules, { recursive: true });
    for (const [name, text] of Object.entries(files)) await writeFile(join(rules, name), text);
    const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("FIRETEAM_"));
    const child = spawn(
      process.env.FIRETEAM_SERVER ?? "",
      ["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--rulesets", rules, "--store", "memory:", "--rate-limits", "off", ...more],
      { cwd: folder, env: Object.fromEntries(settings), stdio: ["ignore", "ignore", "pipe"] },
    );
    const lines = [];
    const ports = await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("the server did not start in time")), START_TIMEOUT_MS);
      child.on("exit", () => reject(new Error(`the server ended before it served:\n${lines.join("\n")}`)));
      createInterface({ input: child.stderr }).on("line", (line) => {
        if (lines.length < 100) lines.push(line);
        const [, client, operator] = /server started.* listen=(\S+).* operator_listen=(\S+)/.exec(line) ?? [];
        if (operator === undefined) return;
        clearTimeout(timer);
        resolve([client, operator]);
      });
    });
    return new ServerProcess(folder, child, ports);
  }

  /** Processor time that the process has used, milliseconds. */
  async processorMs() {
    const { readFile } = await import("node:fs/promises");
    const fields = (await readFile(`/proc/${this.child.pid}/stat`, "utf8")).split(") ")[1].split(" ");
    // Clock ticks of Linux are 10 ms.
    return (Number(fields[11]) + Number(fields[12])) * 10;
  }

  async stop() {
    if (this.child.exitCode === null) {
      const exited = once(this.child, "exit");
      this.child.kill("SIGKILL");
      await exited;
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}
