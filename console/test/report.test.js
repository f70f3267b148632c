// Pages of `fireteam simulate --plot` in headless Chromium: charts with values under the pointer, both color schemes, print.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { SKIPPED as NO_CHROMIUM, launch, takePictures } from "./page.js";
import { SKIPPED as NO_SERVER } from "./server_process.js";

const options = { skip: NO_SERVER || NO_CHROMIUM, timeout: 300_000 };

const SCENARIO = `title = "A small world"
players = 600
hours = 3.0
warm_up_minutes = 15.0
[activity]
play_sessions_per_day = 8.0
`;

const RULESETS = new URL("../../rulesets", import.meta.url).pathname;

/** Writes a page by `fireteam simulate` in a folder with the rulesets, opens it, and expects neither problems nor requests. */
async function withPage(argumentsOf, look) {
  const folder = await mkdtemp(join(tmpdir(), "fireteam-report-"));
  const browser = await launch();
  try {
    await symlink(RULESETS, join(folder, "rulesets"));
    await writeFile(join(folder, "small.toml"), SCENARIO);
    const file = join(folder, "page.html");
    const rulesets = await argumentsOf(folder);
    const program = resolve(process.env.FIRETEAM_SERVER);
    execFileSync(program, ["simulate", ...rulesets, "--scenario", "small.toml", "--plot", "page.html"], { cwd: folder });
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const [problems, requests] = [[], []];
    page.on("request", (request) => requests.push(request.url()));
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    await page.goto(pathToFileURL(file).href);
    await look(page, browser);
    assert.deepEqual(problems, []);
    assert.deepEqual(requests, [pathToFileURL(file).href]);
  } finally {
    await browser.close();
    await rm(folder, { recursive: true });
  }
}

/** Number of pixels of a chart that are not of its most frequent color. */
const drawnPixels = (canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Uint32Array(data.buffer);
  const counts = new Map();
  for (const color of colors) counts.set(color, (counts.get(color) ?? 0) + 1);
  return colors.length - Math.max(...counts.values());
};

async function assertCharts(page) {
  const charts = JSON.parse(await page.locator("#charts").textContent());
  const canvases = page.locator("#plots canvas");
  assert.equal(await canvases.count(), charts.length);
  for (const canvas of await canvases.all()) assert.ok((await canvas.evaluate(drawnPixels)) > 500);
  const isInside = (plot) => plot.getBoundingClientRect().right <= plot.parentElement.getBoundingClientRect().right;
  for (const plot of await page.locator("#plots .uplot").all()) assert.ok(await plot.evaluate(isInside), "a chart is inside its figure");
  return charts;
}

test("a page of one ruleset has its waits by region, party and time of day", options, async () => {
  await withPage(
    async () => ["rulesets/casual_quickplay.xml"],
    async (page, browser) => {
      assert.match(await page.locator("h1").textContent(), /: median wait \d+ s, 90 % within \d+ s; [\d.]+ % gave up$/);
      const charts = await assertCharts(page);
      const kinds = charts.map((chart) => chart.kind);
      assert.equal(kinds.filter((kind) => kind === "groups").length, 3);
      await takePictures(browser, page, "simulation");
    },
  );
});

test("a comparison has a headline, intervals, and values under the pointer", options, async () => {
  const quick = async (folder) => {
    const text = (await readFile(join(RULESETS, "teiserver_duel.xml"), "utf8")).replace('StepEveryMs="20000"', 'StepEveryMs="5000"').replace(/ Name="[^"]*"/, ' Name="Quicker duel"');
    await writeFile(join(folder, "quick.xml"), text);
    return ["--compare", "rulesets/teiserver_duel.xml", "quick.xml", "--seeds", "5"];
  };
  await withPage(quick, async (page, browser) => {
    assert.match(await page.locator("h1").textContent(), /^Quicker duel against .*: median wait \d+ % shorter/);
    const charts = await assertCharts(page);
    assert.equal(charts[0].kind, "intervals");

    const intervals = page.locator("figure").first();
    await intervals.locator(".u-over").hover();
    await intervals.locator(".u-legend", { hasText: /more than chance|may be chance/ }).waitFor();
    const waits = page.locator("figure").nth(1);
    await waits.locator(".u-over").hover();
    assert.match(await waits.locator(".u-legend").textContent(), /Quicker duel, p50 [\d.]+, p90 [\d.]+, p99 [\d,.]+\s*[\d.]+/);

    const colorOf = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await colorOf();
    await page.emulateMedia({ colorScheme: "dark" });
    assert.notEqual(await colorOf(), light);
    await assertCharts(page);
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    assert.equal(await colorOf(), "rgb(255, 255, 255)", "paper is white");
    await page.emulateMedia({ media: "screen", colorScheme: "light" });
    await takePictures(browser, page, "comparison");
  });
});
