// The browser sample in headless Chromium: two players in two tabs, and a game server in this process.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { chromium, type Page } from "playwright-core";
import { advertise, CONNECT_DATA, hostMatch } from "../sample/game_server.js";
import { servePage } from "../sample/page_server.js";
import { connect } from "../src/node.js";
import { ServerProcess, SKIPPED } from "./server_process.js";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const SKIPPED_HERE = SKIPPED || (!existsSync(CHROMIUM) && `SKIPPED: Chromium is not at ${CHROMIUM}; set CHROMIUM to its path`);

/** Flags for a machine without a display, and without background traffic. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Longest wait for a line of the page, milliseconds. */
const TIMEOUT = 60_000;

const lineIn = (page: Page, text: RegExp) => page.locator("#log", { hasText: text }).waitFor({ timeout: TIMEOUT });

test("two tabs play a duel over gRPC-Web, also through a restart of the server", { skip: SKIPPED_HERE, timeout: 180_000 }, async () => {
  const page = await servePage(0);
  const { port } = page.address() as AddressInfo;
  await using server = await ServerProcess.start("--cors-origins", `http://127.0.0.1:${port}`);
  const profile = await mkdtemp(join(tmpdir(), "fireteam-chromium-"));
  const browser = await chromium.launchPersistentContext(profile, { executablePath: CHROMIUM, headless: true, args: FLAGS });
  const client = connect(server.uri);
  try {
    const open = async (user: string): Promise<Page> => {
      const tab = await browser.newPage();
      await tab.goto(`http://127.0.0.1:${port}/?server=${server.uri}&set=11&user=${user}`);
      await tab.click("#enter");
      await lineIn(tab, new RegExp(`${user}: in the queue`));
      return tab;
    };
    const ann = await open("ann");
    await server.kill();
    await server.startAgain();

    const gameServer = await advertise(client, 11);
    const bob = await open("bob");
    let joined = 0;
    for (const [tab, user] of [[ann, "ann"], [bob, "bob"]] as const) {
      void lineIn(tab, new RegExp(`${user}: joins team [01] at ${CONNECT_DATA}`)).then(() => (joined += 1));
    }
    const { rated, changes } = await hostMatch(gameServer, () => joined === 2, AbortSignal.timeout(TIMEOUT));
    assert.deepEqual([rated, changes.length], [true, 2]);
    await lineIn(ann, /played in team [01], rating \d/);
    await lineIn(bob, /played in team [01], rating \d/);

    await ann.click("#enter");
    await lineIn(ann, /(in the queue[^]*){2}/);
    await ann.click("#leave");
    await lineIn(ann, /failed: left/);
    // A player who still had a ticket would be refused with ALREADY_QUEUED.
    await ann.click("#enter");
    await lineIn(ann, /(in the queue[^]*){3}/);
  } finally {
    client.close();
    await browser.close();
    page.close();
    await rm(profile, { recursive: true, force: true });
  }
});
