// Bundles the console into src/console/page of the repository: index.html, console.js and console.css. The server embeds these
// three files. Fails if they are larger than 200 KiB together. Also bundles the script and the style of the page that
// `fireteam simulate --plot` writes, into src/cli/simulate/page.
//
//   node bundle.js             writes the files
//   node bundle.js --check     writes nothing; fails if the files do not match the sources

import { readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { feature } from "topojson-client";

const REPOSITORY = new URL("../", import.meta.url);
const BYTES_MAX = 200 * 1024;

/** Outline of the land as an SVG path: one unit is a degree, x from 0 at 180 W, y from 0 at 90 N. Small islands are left out. */
async function landPath() {
  const atlas = JSON.parse(await readFile(new URL("node_modules/world-atlas/land-110m.json", import.meta.url), "utf8"));
  const land = feature(atlas, atlas.objects.land);
  const geometries = land.type === "FeatureCollection" ? land.features.map((it) => it.geometry) : [land.geometry];
  const polygons = geometries.flatMap((it) => (it.type === "Polygon" ? [it.coordinates] : it.coordinates));
  const lines = [];
  for (const [ring] of polygons) {
    // Antarctica goes around the pole.
    if (ring.some(([, latitude]) => latitude < -70)) continue;
    const points = [];
    let before = ring[0][0];
    let turn = 0;
    for (const [longitude, latitude] of ring) {
      // A ring that crosses the date line goes on beyond it.
      if (longitude - before > 180) turn -= 360;
      if (longitude - before < -180) turn += 360;
      before = longitude;
      const point = [Math.round(longitude + turn) + 180, 90 - Math.round(latitude)];
      const last = points.at(-1);
      if (last === undefined || last[0] !== point[0] || last[1] !== point[1]) points.push(point);
    }
    if (points.length < 6) continue;
    const crosses = points.some(([x]) => x < 0 || x > 360);
    // The part beyond the date line is seen on the other side.
    for (const shift of crosses ? (points.some(([x]) => x > 360) ? [0, -360] : [0, 360]) : [0]) {
      let [x, y] = points[0];
      let text = `M${x + shift} ${y}l`;
      for (const [nextX, nextY] of points.slice(1)) {
        const [right, down] = [nextX - x, nextY - y];
        text += `${right < 0 || text.endsWith("l") ? "" : " "}${right}${down < 0 ? "" : " "}${down}`;
        [x, y] = [nextX, nextY];
      }
      lines.push(`${text}z`);
    }
  }
  return lines.join("");
}

/** Packages whose code is in the scripts; world-atlas has the outline of the land. */
const packages = new Set(["world-atlas"]);

/** Licences of these packages. */
async function licences() {
  let text = "Licences of the packages whose code is in the console and in the pages of simulations.\n";
  for (const name of [...packages].sort()) {
    const { version, license } = JSON.parse(await source(`node_modules/${name}/package.json`));
    const own = await source(`node_modules/${name}/LICENSE`).catch(() => "This package has no licence file; its manifest names the licence above.");
    text += `\n${"=".repeat(100)}\n${name} ${version} (${license})\n${"-".repeat(100)}\n${own.trim()}\n`;
  }
  return text;
}

/** One script with all that it imports. */
async function script(entry, define = {}) {
  const { outputFiles, metafile } = await build({
    absWorkingDir: new URL(".", import.meta.url).pathname,
    metafile: true,
    entryPoints: [new URL(entry, import.meta.url).pathname],
    bundle: true,
    format: "esm",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    target: ["es2022"],
    define,
    write: false,
  });
  for (const file of Object.keys(metafile.inputs)) {
    const [, name] = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
    if (name !== undefined) packages.add(name);
  }
  return outputFiles[0].text;
}

async function source(name) {
  return await readFile(new URL(name, import.meta.url), "utf8");
}

async function style(...names) {
  const text = (await Promise.all(names.map(source))).join("\n");
  return (await transform(text, { loader: "css", minify: true })).code;
}

/** Writes a file of the repository, or compares it. Returns its length. */
async function output(path, text) {
  const bytes = Buffer.byteLength(text);
  console.log(`${path}: ${bytes} bytes, ${gzipSync(text).length} with gzip`);
  const file = new URL(path, REPOSITORY);
  if (!process.argv.includes("--check")) {
    await writeFile(file, text);
  } else if ((await readFile(file, "utf8").catch(() => "")) !== text) {
    console.error(`${path} does not match console/; run npm run build in console/`);
    process.exitCode = 1;
  }
  return bytes;
}

let total = await output("src/console/page/index.html", await source("index.html"));
total += await output("src/console/page/console.js", await script("src/main.ts", { LAND_PATH: JSON.stringify(await landPath()) }));
total += await output("src/console/page/console.css", await style("console.css"));
console.log(`total of the console: ${total} bytes`);
if (total > BYTES_MAX) {
  console.error(`the console has ${total} bytes; at most ${BYTES_MAX} are allowed`);
  process.exitCode = 1;
}
await output("src/cli/simulate/page/report.js", await script("src/report/main.ts"));
await output("console/THIRD-PARTY-LICENCES.txt", await licences());
await output("src/cli/simulate/page/report.css", await style("node_modules/uplot/dist/uPlot.min.css", "report.css"));
