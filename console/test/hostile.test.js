// Names that players and designers set: markup, script and control characters show as text. A token is needed where the server
// authenticates, and the page shows no more than the calls return.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Console, SKIPPED as NO_CHROMIUM } from "./page.js";
import { ServerProcess, SKIPPED as NO_SERVER } from "./server_process.js";
import { World } from "./world.js";

const SKIPPED = NO_SERVER || NO_CHROMIUM;
const options = { skip: SKIPPED, timeout: 120_000 };
const MARKUP = "<img src=x onerror=hacked()><script>hacked()</script>";
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

test("hostile names show as text", options, async () => {
  const hostile = `<!-- Names with markup. -->
<Ruleset Name="${escaped(MARKUP)}" SetId="13">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="5000" Trust="client"/></Attributes>
  <HardFilters><Within Name="skill" Attribute="skill" Limit="5"/></HardFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="200"/>
</Ruleset>`;
  const server = await ServerProcess.start({ "hostile.xml": hostile });
  const opened = await Console.open(server);
  try {
    const { page } = opened;
    const world = new World(server);
    const regions = [{ region: `${MARKUP}\u202e\u0007`, roundTripMs: 5 }];
    const accepted = await world.enter(13, { user: MARKUP, skill: 1, regions }).catch(() => undefined);
    if (accepted === undefined) await world.enter(13, { user: MARKUP, skill: 1, regions: [{ region: MARKUP, roundTripMs: 5 }] });
    await world.enter(13, { user: "other", skill: 4_000 });
    await opened.live();
    await page.locator("main td button", { hasText: MARKUP }).waitFor();
    for (const view of ["why?set=13", "matches?set=13", "rules?set=13"]) {
      await page.goto(`${server.operator}/console/#${view}`);
      await page.locator("select option", { hasText: MARKUP }).first().waitFor({ state: "attached" });
      await page.waitForTimeout(500);
    }
    await page.goto(`${server.operator}/console/#why?set=13`);
    const cell = page.locator("main td", { hasText: "<img src=x" });
    await cell.first().waitFor();
    assert.doesNotMatch(await cell.first().textContent(), /[\u0000-\u001f\u202e]/);
    await page.goto(`${server.operator}/console/#why?ticket=${encodeURIComponent(MARKUP)}&set=${encodeURIComponent(MARKUP)}`);
    await page.locator("[role=alert]").waitFor();
    await page.goto(`${server.operator}/console/#matches?match=${encodeURIComponent(MARKUP)}`);
    await page.locator("[role=alert]").waitFor();
    assert.equal(await page.evaluate(() => document.querySelectorAll("img, body script").length), 0);
    assert.deepEqual(opened.foreignRequests(), []);
    assert.deepEqual(opened.problems.filter((it) => !it.startsWith("Failed to load resource")), []);
  } finally {
    await opened.close();
    await server.stop();
  }
});

test("without an operator's token the page has no data", options, async () => {
  const folder = await mkdtemp(join(tmpdir(), "fireteam-keys-"));
  const program = process.env.FIRETEAM_SERVER;
  execFileSync(program, ["keygen", "--out", "issuer"], { cwd: folder });
  const token = (role) =>
    execFileSync(program, ["token", "--key", "issuer.key.pem", "--issuer", "https://login.example", "--subject", "ana", "--role", role, "--ttl", "1h"], {
      cwd: folder,
      encoding: "utf8",
    }).trim();
  const server = await ServerProcess.start({}, ["--auth-keys", join(folder, "issuer.jwks.json"), "--auth-issuer", "https://login.example"]);
  const opened = await Console.open(server);
  try {
    const { page } = opened;
    await page.locator("#token").waitFor();
    assert.doesNotMatch(await page.locator("main").textContent(), /Ranked duel/);
    await page.fill("#token", token("client"));
    await page.click("text=Use token");
    await page.locator("form", { hasText: "role is neither operator nor viewer" }).waitFor();
    assert.doesNotMatch(await page.locator("main").textContent(), /Ranked duel/);
    await page.fill("#token", token("operator"));
    await page.click("text=Use token");
    await opened.live();
    await page.locator("main td", { hasText: "Ranked duel" }).waitFor();
    // The token is sent in a header, and is in no address and no text of the page.
    const secret = token("operator").split(".")[2];
    assert.ok(opened.requests.every((request) => !request.includes(secret)));
    assert.doesNotMatch(await page.content(), /eyJ/);
    await page.locator("summary").first().click();
    assert.match(await page.locator("details code").first().textContent(), /-H "authorization: Bearer \$FIRETEAM_TOKEN"/);
  } finally {
    await opened.close();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
