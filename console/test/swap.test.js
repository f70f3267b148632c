// Swaps of rulesets: an operator sees what a change would do, loads it and rolls back, by keyboard. A viewer sees the same and can
// do neither. What the server refuses is shown in the dialog, and changes nothing.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Console, SKIPPED as NO_CHROMIUM } from "./page.js";
import { ServerProcess, SKIPPED as NO_SERVER } from "./server_process.js";
import { World } from "./world.js";

const SKIPPED = NO_SERVER || NO_CHROMIUM;
const options = { skip: SKIPPED, timeout: 180_000 };
const DUEL = 11;
const MARKUP = "<img src=x onerror=hacked()>";
const FIRST = 'ExpansionDurationMs="10000" Value="50"';

/** Opens a button by keyboard. */
async function press(locator) {
  await locator.focus();
  await locator.press("Enter");
}

/** Tries a text on the Rules view, and opens the dialog that loads it. */
async function tryAndAskToLoad(page, xml) {
  await page.locator("#xml").fill(xml);
  await press(page.locator("button", { hasText: "Try without loading" }));
  await press(page.locator("button", { hasText: "Load this text…" }));
  await page.locator("dialog pre.diff").waitFor();
}

test("an operator sees a change's effect, tries it, loads it, and rolls it back", options, async () => {
  const server = await ServerProcess.start({});
  const opened = await Console.open(server);
  try {
    const { page } = opened;
    const world = new World(server);
    const file = join(server.folder, "rules", "duel.xml");
    const before = (await readFile(file, "utf8")).replace("-->", `${MARKUP} -->`);
    await writeFile(file, before);
    await world.operator.reloadRulesets({});
    for (let at = 0; at < 6; at += 1) await world.enter(DUEL, { skill: at * 450 });
    await opened.live();
    await page.goto(`${server.operator}/console/#rules?set=${DUEL}`);
    await page.locator("#xml").waitFor();
    assert.equal(await page.locator("#xml").inputValue(), before, "the file with its comments");
    const edited = before.replaceAll(/Value="\d+"/g, 'Value="500"');
    await tryAndAskToLoad(page, edited);
    assert.equal(await page.locator("#trial tr", { hasText: "Tickets that a pass matches now" }).locator("td").nth(2).textContent(), "6");
    const dialog = page.locator("dialog");
    assert.match(await dialog.locator("pre.diff ins").first().textContent(), /Value="500"/);
    await page.keyboard.type("it's too strict");
    const line = await dialog.locator("code").textContent();
    assert.match(line, /^jq -n --rawfile xml FILE\.xml '\{matchmakingSetId: 11, expectedHash: \d+, rulesetXml: \$xml, reason: "it'\\''s too strict"\}' \| grpcurl -d @ .*\/SwapRuleset$/);
    await page.keyboard.press("Enter");
    await page.locator("[role=status]", { hasText: "duel.xml is written and loaded; changed sets: 1" }).waitFor();
    assert.equal(await readFile(file, "utf8"), edited);
    const versions = page.locator("[aria-label=Versions] tbody tr");
    assert.match(await versions.first().textContent(), /current.*duel\.xml.*operator/);
    assert.match(await versions.nth(1).textContent(), /replaced.*start.*roll back to this version/);
    await World.until("the tickets are matched by the new rules", async () => (await world.operator.listMatches({ matchmakingSetId: DUEL })).matches.length >= 3);

    await press(versions.nth(1).locator("button", { hasText: "roll back" }));
    await dialog.locator("pre.diff del").first().waitFor();
    assert.match(await dialog.locator("pre.diff del").first().textContent(), /Value="500"/);
    await page.keyboard.type("as before");
    assert.match(await dialog.locator("code").textContent(), /^grpcurl -plaintext -d '\{"matchmakingSetId":11,"expectedHash":\d+,"formerHash":\d+,"reason":"as before"\}' /);
    await opened.picture("rollback");
    await page.locator("#reason").press("Enter");
    await versions.nth(1).locator("td", { hasText: "operator" }).waitFor();
    await page.locator("dialog").waitFor({ state: "detached" });
    assert.equal(await readFile(file, "utf8"), before);
    assert.match(await versions.first().textContent(), /current.*operator/);
    assert.equal(await page.evaluate(() => document.querySelectorAll("img").length), 0, "markup is text");
    assert.deepEqual(opened.foreignRequests(), []);
    assert.deepEqual(opened.problems, []);
  } finally {
    await opened.close();
    await server.stop();
  }
});

test("a swap that the server refuses says why and changes nothing", options, async () => {
  const server = await ServerProcess.start({});
  const opened = await Console.open(server);
  try {
    const { page } = opened;
    const world = new World(server);
    const file = join(server.folder, "rules", "duel.xml");
    const before = await readFile(file, "utf8");
    await opened.live();
    await page.goto(`${server.operator}/console/#rules?set=${DUEL}`);
    await page.locator("#xml").waitFor();
    await tryAndAskToLoad(page, before.replace(FIRST, FIRST.replace("50", "60")));
    // Meanwhile a designer loads another text.
    const other = before.replace(FIRST, FIRST.replace("50", "70"));
    await writeFile(file, other);
    await world.operator.reloadRulesets({});
    await page.locator("#reason").fill("wider");
    await page.locator("#reason").press("Enter");
    await page.locator("dialog [role=alert]", { hasText: "expected_hash: the ruleset in force is" }).waitFor();
    assert.equal(await readFile(file, "utf8"), other);
    await page.keyboard.press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
  } finally {
    await opened.close();
    await server.stop();
  }
});

test("a viewer sees versions and trials, and can neither load, roll back nor reload", options, async () => {
  const folder = await mkdtemp(join(tmpdir(), "fireteam-keys-"));
  const program = process.env.FIRETEAM_SERVER;
  execFileSync(program, ["keygen", "--out", "issuer"], { cwd: folder });
  const token = (subject, role) =>
    execFileSync(program, ["token", "--key", "issuer.key.pem", "--issuer", "https://login.example", "--subject", subject, "--role", role, "--ttl", "1h"], {
      cwd: folder,
      encoding: "utf8",
    }).trim();
  const server = await ServerProcess.start({}, ["--auth-keys", join(folder, "issuer.jwks.json"), "--auth-issuer", "https://login.example"]);
  const opened = await Console.open(server);
  try {
    const { page } = opened;
    const world = new World(server);
    const file = join(server.folder, "rules", "duel.xml");
    const before = await readFile(file, "utf8");
    const { rulesets } = await world.operator.listRulesets({}, { headers: { authorization: `Bearer ${token("ana", "operator")}` } });
    const expectedHash = rulesets.find((it) => it.matchmakingSetId === DUEL).serviceConfigurationHash;
    const replacement = { case: "rulesetXml", value: before.replace(FIRST, FIRST.replace("50", "60")) };
    const swap = { matchmakingSetId: DUEL, expectedHash, replacement, reason: "test" };
    await world.operator.swapRuleset(swap, { headers: { authorization: `Bearer ${token(MARKUP, "operator")}` } });
    const loaded = await readFile(file, "utf8");

    await page.locator("#token").waitFor();
    await page.fill("#token", token("wall", "viewer"));
    await page.click("text=Use token");
    await opened.live();
    await page.goto(`${server.operator}/console/#rules?set=${DUEL}`);
    const rollBack = page.locator("button", { hasText: "roll back to this version…" });
    await rollBack.waitFor();
    assert.match(await page.locator("[aria-label=Versions] tbody tr").first().textContent(), /operator <img src=x onerror=hacked\(\)> \(https:\/\/login\.example\)/);
    assert.ok(await rollBack.isDisabled());
    assert.match(await rollBack.getAttribute("title"), /the role viewer changes nothing/);
    assert.ok(await page.locator("button", { hasText: "Reload from the directory…" }).isDisabled());
    await page.locator("p", { hasText: "No version can be loaded here: the role viewer changes nothing" }).waitFor();
    await press(page.locator("button", { hasText: "Try without loading" }));
    const load = page.locator("button", { hasText: "Load this text…" });
    await load.waitFor();
    assert.ok(await load.isDisabled());
    // The server refuses it too.
    const viewer = { headers: { authorization: `Bearer ${token("wall", "viewer")}` } };
    await assert.rejects(world.operator.swapRuleset({ ...swap, replacement: { case: "formerHash", value: expectedHash } }, viewer), /role `viewer` may not make this call/);
    await assert.rejects(world.operator.reloadRulesets({}, viewer), /role `viewer` may not make this call/);
    assert.equal(await readFile(file, "utf8"), loaded);
    assert.equal(await page.evaluate(() => document.querySelectorAll("img").length), 0);

    // Tickets and matches: the same.
    const players = new World(server, { authorization: `Bearer ${token("backend", "game_server")}` });
    const { ticketId } = await players.enter(DUEL, { skill: 4_000 });
    await page.goto(`${server.operator}/console/#why?ticket=${ticketId}`);
    await page.locator("button[disabled]", { hasText: "Dismiss ticket…" }).waitFor();
    await players.enter(DUEL, { skill: 4_000 });
    const listed = () => world.operator.listMatches({ matchmakingSetId: DUEL }, viewer);
    await World.until("the two are matched", async () => (await listed()).matches.length === 1);
    await page.goto(`${server.operator}/console/#matches?match=${(await listed()).matches[0].matchId}`);
    await page.locator("button[disabled]", { hasText: "Cancel match…" }).waitFor();
    assert.deepEqual(opened.foreignRequests(), []);
  } finally {
    await opened.close();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
