// Tasks of an operator who does not know the console, by script in headless Chromium.
//
// TICKETS is the number of waiting tickets of the first task, 2000 by default. SCREENSHOTS is a folder for pictures of the views.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Console, SKIPPED as NO_CHROMIUM } from "./page.js";
import { ServerProcess, SKIPPED as NO_SERVER } from "./server_process.js";
import { World } from "./world.js";

const TICKETS = Number(process.env.TICKETS ?? 2_000);
const SKIPPED = NO_SERVER || NO_CHROMIUM;
const DUEL = 11;
const SQUADS = 12;
const PARKED = 14;

/** Time over which processor time is measured, seconds. */
const SECONDS = 20;

/** Duels that no skill within reach can end: the waiting tickets stay. */
const far = (at) => ({ skill: (at * 450) % 5_000 });

let server;
let world;
let opened;

before(async () => {
  if (SKIPPED) return;
  server = await ServerProcess.start({}, ["--allow-client-locality"]);
  world = new World(server);
  for (let at = 0; at < 11; at += 1) await world.enter(DUEL, far(at));
  await world.advertise(SQUADS, 12, 1);
  await world.advertise(SQUADS, 6, 2);
  opened = await Console.open(server);
  await opened.live();
});

after(async () => {
  await opened?.close();
  await server?.stop();
});

const options = { skip: SKIPPED, timeout: 300_000 };

test("the first view shows sets, waits, outcomes and places, live", options, async () => {
  const { page } = opened;
  const row = page.locator("tr", { hasText: "Ranked duel" });
  await row.locator("td").nth(2).filter({ hasText: /^11$/ }).waitFor();
  await world.enter(DUEL, { skill: 225 });
  // Within a second or two, without a click.
  await row.locator("td").nth(2).filter({ hasText: /^12$/ }).waitFor({ timeout: 5_000 });
  assert.ok((await page.locator("svg.map circle.players").count()) > 3);
  // Squads fill as they come; a cancelled match is an outcome.
  await world.enterMany(SQUADS, 21);
  const { matches } = await World.until("a match of squads", async () => {
    const listed = await world.operator.listMatches({ matchmakingSetId: SQUADS });
    return listed.matches.length >= 2 && listed;
  });
  await world.operator.cancelMatch({ matchId: matches[0].matchId, reason: "test" });
  await page.locator(".legend", { hasText: "cancelled" }).waitFor({ timeout: 10_000 });
  await page.waitForTimeout(4_000);
  await opened.picture("now");
});

test("an operator finds why a ticket waits with two clicks", options, async () => {
  const { page } = opened;
  const started = performance.now();
  await page.click("nav >> text=Why?");
  const link = page.locator("main td a").first();
  await link.waitFor();
  const listed = performance.now();
  await opened.picture("why");
  const clicked = performance.now();
  await link.click();
  await page.locator("#relaxation").waitFor();
  const explained = performance.now();
  console.log(`tickets listed after ${Math.round(listed - started)} ms, one explained after ${Math.round(explained - clicked)} ms`);
  const verdict = await page.locator("main h2").first().textContent();
  assert.match(verdict, /^It waits because of the rule skill\.$/);
  assert.match(await page.locator("#relaxation").textContent(), /skill/);
  assert.match(await page.locator("#widening").textContent(), /skill to|as wide as they get/);
  assert.match(await page.locator("ol.life").textContent(), /entered the queue/);
  assert.ok((await page.locator("main table tbody tr").count()) > 0, "near misses");
  await opened.picture("ticket");
});

test("an operator tries an edited file without loading it", options, async () => {
  const { page } = opened;
  await page.click("nav >> text=Rules");
  const text = page.locator("#xml");
  await text.waitFor();
  const xml = await text.inputValue();
  assert.match(xml, /<Ruleset Name="Ranked duel"/);
  assert.match(await page.locator("main").textContent(), /10 ms of latency = 389 points of skill/);
  await text.fill(xml.replaceAll(/Value="\d+"/g, 'Value="500"'));
  await page.click("text=Try without loading");
  await page.locator("#trial").waitFor();
  const matched = page.locator("#trial tr", { hasText: "Tickets that a pass matches now" }).locator("td");
  assert.equal(await matched.nth(1).textContent(), "0");
  assert.ok(Number(await matched.nth(2).textContent()) >= 10);
  assert.ok((await page.locator("#trial h3:has-text('Waits that would end now') + ul a").count()) > 0);
  await opened.picture("trial");
  // Nothing was loaded.
  const { rulesets } = await world.operator.listRulesets({});
  assert.equal(rulesets.filter((it) => it.matchmakingSetId === DUEL).length, 1);
  await text.fill(xml.replace("<Teams", "<Tames"));
  await page.click("text=Try without loading");
  await page.locator("text=The edited file is refused").waitFor();
});

test("an operator follows the alert of a refused file to the line", options, async () => {
  const { page } = opened;
  const file = join(server.folder, "rules", "duel.xml");
  const xml = await readFile(file, "utf8");
  await writeFile(file, xml.replace('Weight="70%"', 'Weight="-1"'));
  const problems = await World.until("the file is refused", async () => {
    const { rulesets } = await world.operator.listRulesets({});
    return rulesets.flatMap((it) => it.problems).length > 0;
  });
  assert.ok(problems);
  await page.click("nav >> text=Now");
  await page.click("nav >> text=Rules");
  await page.locator("td", { hasText: /duel\.xml:\d+:\d+/ }).waitFor();
  await writeFile(file, xml);
});

test("an operator loads a changed rule and sees the difference", options, async () => {
  const { page } = opened;
  const file = join(server.folder, "rules", "duel.xml");
  const xml = await readFile(file, "utf8");
  await writeFile(file, xml.replace('ExpansionDurationMs="10000" Value="50"', 'ExpansionDurationMs="10000" Value="75"'));
  await page.click("text=Reload from the directory…");
  assert.match(opened.dialog, /Read the rulesets directory again/);
  await page.locator("td", { hasText: "replaced" }).waitFor();
  await page.locator("main table button", { hasText: "show" }).first().click();
  await page.locator("pre.diff ins").waitFor();
  assert.match(await page.locator("pre.diff ins").textContent(), /Value="75"/);
  assert.match(await page.locator("pre.diff del").textContent(), /Value="50"/);
  await opened.picture("rules");
});

test("an operator cancels a match with a reason", options, async () => {
  const { page } = opened;
  await page.click("nav >> text=Matches");
  await page.locator("main td a").first().waitFor();
  await opened.picture("matches");
  await page.locator("tr", { hasText: "playing" }).locator("a").first().click();
  await page.click("text=Cancel match…");
  await page.fill("#reason", "it's a test");
  assert.match(await page.locator("dialog code").textContent(), /grpcurl -plaintext -d '\{"matchId":"[0-9a-f]{32}","reason":"it'\\''s a test"\}' 127\.0\.0\.1:\d+ fireteam\.v1\.OperatorService\/CancelMatch$/);
  await page.click("dialog >> text=Cancel match");
  await page.locator("h2", { hasText: "ended: cancelled" }).waitFor();
});

test("a finished match shows ratings before and after", options, async () => {
  const { page } = opened;
  await world.enterMany(SQUADS, 16);
  const { matches } = await World.until("a match in play", async () => {
    const listed = await world.operator.listMatches({ matchmakingSetId: SQUADS, onlyLive: true });
    return listed.matches.length > 0 && listed;
  });
  const [{ matchId }] = matches;
  await world.operator.reportResult({ report: { matchId, teamRanks: [{ team: 0, rank: 1 }, { team: 1, rank: 2 }], durationMs: 900_000n } });
  await page.goto(`${server.operator}/console/#matches?match=${matchId}`);
  await page.locator("h2", { hasText: "ended: played" }).waitFor();
  await page.locator("h2", { hasText: "Result" }).waitFor();
  assert.match(await page.locator("main").textContent(), /1,500.*1,5\d\d/);
  await opened.picture("match");
});

test("a dismissed ticket is gone from the queue", options, async () => {
  const { page } = opened;
  const { ticketId } = await world.enter(DUEL, { skill: 4_720 });
  await page.goto(`${server.operator}/console/#why?ticket=${ticketId}`);
  await page.click("text=Dismiss ticket…");
  await page.fill("#reason", "test");
  await page.click("dialog >> text=Dismiss ticket");
  await page.locator("[role=alert]", { hasText: "not waiting" }).or(page.locator("[role=alert]", { hasText: "ticket" })).first().waitFor();
});

test("views work by keyboard, and on the screen of a phone", options, async () => {
  const { page } = opened;
  await page.goto(`${server.operator}/console/#now`);
  await page.locator("nav a").first().focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Why do tickets wait?" }).waitFor();
  await page.locator("main td a").first().focus();
  await page.keyboard.press("Enter");
  await page.locator("#relaxation").waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  for (const view of ["now", "why", "matches", "rules"]) {
    await page.goto(`${server.operator}/console/#${view}`);
    await page.waitForTimeout(700);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `${view} is ${width} wide`);
    if (view === "now") await opened.picture("phone");
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});

test("the page makes the operator's calls and no other request", options, () => {
  assert.deepEqual(opened.foreignRequests(), []);
  const methods = new Set(opened.requests.flatMap((request) => /OperatorService\/(\w+)$/.exec(request)?.[1] ?? []));
  for (const method of ["WatchOverview", "ListTickets", "Explain", "GetRuleset", "TryRuleset", "ListMatches", "GetMatch", "CancelMatch"]) {
    assert.ok(methods.has(method), method);
  }
  assert.deepEqual(opened.problems, []);
});

test(`with ${TICKETS} tickets an explanation takes two clicks, and a viewer little processor time`, { ...options, timeout: 560_000 }, async () => {
  const { page } = opened;
  await world.park(PARKED, TICKETS);
  await page.goto(`${server.operator}/console/#now`);
  await page.locator("tr", { hasText: "Parked" }).locator("td").nth(2).filter({ hasText: TICKETS.toLocaleString("en") }).waitFor();
  const started = performance.now();
  await page.click("nav >> text=Why?");
  await page.locator("main td a").first().click();
  await page.locator("#relaxation").waitFor();
  console.log(`with ${TICKETS} tickets: two clicks and the explanation took ${Math.round(performance.now() - started)} ms`);
  assert.match(await page.locator("main h2").first().textContent(), /^It waits because of the rule /);

  const shareOfACore = async () => {
    const [from, began] = [await server.processorMs(), performance.now()];
    await page.waitForTimeout(SECONDS * 1_000);
    return ((await server.processorMs()) - from) / (performance.now() - began);
  };
  await page.goto(`${server.operator}/console/#now`);
  await page.waitForTimeout(3_000);
  const watched = await shareOfACore();
  await page.goto("about:blank");
  await page.waitForTimeout(3_000);
  const alone = await shareOfACore();
  const percent = (share) => `${(share * 100).toFixed(2)} %`;
  console.log(`with ${TICKETS} tickets: ${percent(watched)} of a core with a viewer, ${percent(alone)} without, so a viewer costs ${percent(watched - alone)}`);
  assert.ok(watched - alone < 0.1, "a viewer costs less than a tenth of a core, also in an unoptimized build");
});
